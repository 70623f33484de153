"""Attention over packed tokens of several sequences: rows visit the tiles from their least start to their last end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tvm import te

from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.tile.launch.dependent import BY_ITSELF
from tvm_cascade.tile.skeletons.stream.config import StreamConfig
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel

from .checked import assert_right, kernel_of
from .emulator.run import compiler, emulate
from .packed_programs import Packed, bounds_of
from .test_tile_program import attention_of, tile_program

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
SMALL = StreamConfig(columns=64, consumers=2, stages=2, blocks=3)
QUERIES, KEYS = [100, 3, 0, 150, 64], [100, 70, 0, 150, 130]
CASE = Packed(sum(QUERIES), sum(KEYS))


@emulated
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_sequences_of_any_length_follow_one_another(causal: bool) -> None:
    """Some end inside of a tile of rows, one has no token, and some have a context of keys before their queries'."""
    assert_right(CASE.func(), CASE.inputs(bounds_of(QUERIES, KEYS, causal)), SMALL, length=sum(KEYS))


@emulated
def test_tiles_of_other_sequences_are_not_visited() -> None:
    """What lies there may be NaN, which a weight of zero would not hide."""
    case = Packed(128, 512, heads=1)
    starts, ends = np.full(128, 130, "int32"), np.full(128, 250, "int32")
    inputs = case.inputs((starts, ends))
    (expected,) = evaluate(case.func(), inputs).values()
    for cache in inputs[1:3]:
        cache[:128], cache[256:] = np.nan, np.nan
    (found,) = emulate(kernel_of(case.func(), SMALL).func, inputs)
    assert check(found, expected, expected.astype("float16"), length=512, dtype="float16").ok


@emulated
def test_ranges_need_not_grow_with_rows() -> None:
    rng, case = np.random.default_rng(1), Packed(130, 300, heads=1)
    starts = rng.integers(0, 200, 130).astype("int32")
    ends = (starts + rng.integers(1, 100, 130)).astype("int32")
    assert_right(case.func(), case.inputs((starts, ends)), SMALL, length=300)


@emulated
def test_tokens_may_be_as_many_as_the_caller_has() -> None:
    tokens, keys = (te.var(name) for name in ("tokens", "keys"))
    bounds = bounds_of(QUERIES, KEYS, True)
    symbolic = dataclasses.replace(CASE, queries=tokens, keys=keys).func()
    assert_right(CASE.func(), CASE.inputs(bounds), SMALL, length=sum(KEYS), compiled=symbolic)


def test_a_warp_finds_the_tiles_ahead() -> None:
    """Only where bounds are loaded by the row: other kernels know them from the tile's number."""
    kernel = StreamKernel(tile_program(CASE.func()), SMALL, BY_ITSELF)
    assert "redux_sync" in str(kernel.build("main"))
    assert kernel.finder is not None
    plain = StreamKernel(tile_program(attention_of("causal")), SMALL, BY_ITSELF)
    assert "redux_sync" not in str(plain.build("main"))
    assert plain.finder is None
