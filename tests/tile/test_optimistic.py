"""Tiles folded in at a reference that stays: which programs allow it, and which tiles are done again."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx

from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from . import folds
from .checked import assert_attention_right, attention_case, kernel_of
from .emulator.run import compiler, emulate
from .test_tile_program import attention_of, tile_program

SMALL = StreamConfig(columns=64, consumers=2, stages=2, blocks=132)
_KEPT = re.compile(r"tvm_builtin_cuda_any_sync\([^;{]*\) == 0")


def maximum(s: folds.Scores) -> list[te.Tensor]:
    """Attention that also returns its rows' maximum, which depends on the reference of the state."""
    top, _, weight = folds._softmax(s)
    return [s.narrow(s.weigh("out", weight, s.tensor("v"))), te.compute(top.shape, lambda i: top[i] * 2, name="twice")]


def _unnormalised(s: folds.Scores, extra: Callable[[te.Tensor, te.Tensor], folds.Term]) -> list[te.Tensor]:
    """Σ exp(s − max)·v and Σ exp(s − max), of which the output is a map."""
    top = s.max("top")
    total = s.sum("total", lambda i, j: te.exp(s.at[i, j] - top[i]))
    sums = s.weigh("sums", lambda i, j: te.exp(s.at[i, j] - top[i]), s.tensor("v"))
    term = extra(sums, total)
    return [te.compute(sums.shape, lambda i, f: term(i, f).astype(s.dtype), name="out")]


def divided_at_the_end(s: folds.Scores) -> list[te.Tensor]:
    """Attention that divides by its sum once all is summed."""
    return _unnormalised(s, lambda sums, total: lambda i, f: sums[i, f] / total[i])


def partly_divided(s: folds.Scores) -> list[te.Tensor]:
    """An output of which one part alone is the same at any reference."""
    return _unnormalised(s, lambda sums, total: lambda i, f: sums[i, f] + sums[i, f] / total[i])


OPTIMISTIC: dict[str, Callable[[], tirx.PrimFunc]] = {
    "causal": lambda: attention_of("causal"),
    "alibi": lambda: attention_of("causal_alibi"),
    "log_sum_exp": lambda: folds.program(folds.log_sum_exp, "float16"),
    "divided_at_the_end": lambda: folds.program(divided_at_the_end, "float16"),
    "rounded": lambda: folds.program(folds.log_sum_exp, "float16", rounded=True),  # as the operand is anyway
}
MOVED: dict[str, Callable[[], tirx.PrimFunc]] = {
    "maximum": lambda: folds.program(maximum, "float16"),  # an output that knows the reference
    "partly_divided": lambda: folds.program(partly_divided, "float16"),  # one that does in part
    "entropy": lambda: folds.program(folds.entropy, "float16"),  # two references
    "two_values": lambda: folds.program(folds.two_values, "float16"),  # no sum that bounds the weights
    "sigmoid": lambda: folds.program(folds.sigmoid, "float16"),  # no reference
    "centred": lambda: folds.program(folds.centred, "bfloat16"),  # a reference that is no extreme
}


@pytest.mark.parametrize("name", OPTIMISTIC)
def test_the_reference_may_stay(name: str) -> None:
    assert tile_program(OPTIMISTIC[name]()).optimistic is not None


def test_weights_are_rounded_once() -> None:
    """The program rounds its weights to the operand's dtype: registers hold them as they are, and are rounded then."""
    text = str(tile_program(folds.program(folds.log_sum_exp, "bfloat16", rounded=True)))
    assert "Round" not in text and "+ weights @ v" in text


@pytest.mark.parametrize("name", MOVED)
def test_the_reference_has_to_follow(name: str) -> None:
    assert tile_program(MOVED[name]()).optimistic is None


def _outputs(kind: str, change: Callable[[str], str], dtype: str = "float16") -> np.ndarray:
    case = attention_case("full", dtype)
    inputs = case.inputs(np.random.default_rng(0), kind)
    return np.asarray(emulate(kernel_of(case.build(), SMALL).func, inputs, change)[0], "float64")


def _never_again(text: str) -> str:
    changed, count = _KEPT.subn("true", text)
    assert count == 1
    return changed


def _always_again(text: str) -> str:
    return _KEPT.sub("false", text)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_small_weights_are_kept_and_large_ones_done_again() -> None:
    """Tiles are visited from the last on, so that scores that fall along the axis grow from tile to tile."""
    usual, falling = _outputs("normal", str), _outputs("falling", str)
    assert np.array_equal(usual, _outputs("normal", _never_again))
    assert np.array_equal(falling, _outputs("falling", _always_again))
    assert not np.array_equal(falling, _outputs("falling", _never_again), equal_nan=True)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("kind", ["falling", pytest.param("large_offset", marks=pytest.mark.slow)])
def test_tiles_that_are_done_again_are_right(kind: str) -> None:
    assert_attention_right(attention_case("causal", "bfloat16"), SMALL, kind)
