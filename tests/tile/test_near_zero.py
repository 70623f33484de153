"""Odd functions of small scores by polynomials: how right they are, which maps have one, and which way tiles take."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import sympy as sp

from tvm_cascade.tile.attention.near_zero import NEAR, find_near_zero
from tvm_cascade.tile.element import SCORE
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from .checked import assert_attention_right, attention_case, kernel_of
from .emulator.run import compiler, emulate

SMALL = StreamConfig(columns=64, consumers=1, stages=2, ping_pong=False, blocks=132)
_VOTE = re.compile(r"tvm_builtin_cuda_any_sync\([^;{]*\) == 0")


@pytest.mark.parametrize(
    ("of_score", "reach"),
    [(sp.tanh(SCORE / 40), 19.9), (sp.tanh(-3 * SCORE), 0.16), (sp.sin(SCORE / 8), 9.5), (sp.atan(SCORE), 0.4)],
)
def test_the_polynomial_is_right_as_far_as_it_serves(of_score: sp.Expr, reach: float) -> None:
    found = find_near_zero(2 * of_score + 1)
    assert found is not None and found.largest >= reach
    scores = np.linspace(-found.largest, found.largest, 4000, dtype=np.float32)
    square, value = scores * scores, np.float32(0)
    for coefficient in found.coefficients[::-1]:
        value = value * square + np.float32(coefficient)
    exact = sp.lambdify(SCORE, found.function)(scores.astype("float64"))
    assert np.abs(value * scores / exact - 1).max() < 2.0**-14.9


def test_only_odd_functions_of_scaled_scores_have_one() -> None:
    slope = sp.Symbol("slope", real=True)
    for other in (SCORE, sp.exp(SCORE), sp.cos(SCORE), sp.tanh(SCORE + 1), sp.tanh(SCORE * slope)):
        assert find_near_zero(other) is None
    found = find_near_zero(sp.tanh(SCORE) + slope)
    assert found is not None and found.map == NEAR + slope


@cache
def _kernel() -> tuple[Kernel, list[np.ndarray]]:
    case = attention_case("causal_softcap", queries=64)
    return kernel_of(case.build(), SMALL), list(case.inputs(np.random.default_rng(0)))


def _outputs(factor: float, taken: str | None = None) -> np.ndarray:
    """Of scores by a factor; the first vote, which is that on small ones, as usual or decided."""
    kernel, (q, *others) = _kernel()

    def change(text: str) -> str:
        return text if taken is None else _VOTE.sub(taken, text, count=1)

    found = emulate(kernel.func, [q * np.asarray(factor, q.dtype), *others], change)
    return np.asarray(found[0], "float64")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(("factor", "taken", "other"), [(1, "true", "false"), (32, "false", "true")])
def test_small_scores_go_by_the_polynomial_and_others_do_not(factor: float, taken: str, other: str) -> None:
    usual = _outputs(factor)
    assert np.array_equal(usual, _outputs(factor, taken))
    assert not np.array_equal(usual, _outputs(factor, other))


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_tiles_of_both_kinds_are_right() -> None:
    assert_attention_right(attention_case("causal_softcap"), SMALL, "falling")
