"""Fused programs compute what the unfused ones do, whatever the tile, the segments, the length and the dtype."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tvm import te

from corpus import workloads
from corpus.workload import Workload

from ..analysis.programs import LENGTH as COLUMNS
from ..analysis.programs import (
    ROWS,
    array,
    at_huge_offset,
    fold,
    maximum,
    program,
    softmax_stages,
    squares_about_a_result,
)
from ..tiers import slow_but
from .running import UNOPTIMISED, Arrays, Unfused, build, read, run

LENGTH, TILE = 23, 4
AROUND_TILES = (1, 3, 4, 5, 9, 11)
"""Lengths at which loops over tiles fail: 1, around a tile, and beyond two: by one, and the first prime above that."""
SMALL = {
    "batch": 1, "heads": 2, "kv_heads": 1, "queries": 5, "keys": LENGTH, "head_dim": 8, "window": 9, "rows": 3,
    "length": LENGTH, "hidden": LENGTH, "columns": 6, "tokens": 3, "latent_dim": 16, "rope_dim": 4,
}  # fmt: skip
NAMES = workloads.names(source="tvm-cascade")
UNKIND = [
    "attention", "softmax", "logsumexp", "entropy", "kl_divergence", "variance", "covariance", "inertia",
    "third_moment", "layernorm_gemm", "rmsnorm_gemm",
]  # fmt: skip
TILINGS = [(1, 3), (4, 1), (LENGTH - 1, 99), (LENGTH + 1, 1)]


def small(name: str) -> Workload:
    workload = workloads.get(name)
    return workload.with_shape(**{extent: SMALL[extent] for extent in workload.shape})


@cache
def unfused(name: str, length: int = LENGTH, dtype: str = "float32") -> Unfused:
    return read(small(name).with_length(length).with_dtype(dtype).build())


def inputs(name: str, length: int = LENGTH, dtype: str = "float32", kind: str = "normal") -> Arrays:
    return small(name).with_length(length).with_dtype(dtype).inputs(np.random.default_rng(0), kind)


QUICK = [
    (name, *tiling) for name in NAMES for tiling in (TILINGS if name in ("attention", "variance") else TILINGS[:1])
]
"""Two programs at every tiling; the others in segments."""


@pytest.mark.parametrize(
    ("name", "tile", "segments"), slow_but(QUICK, [(name, *tiling) for name in NAMES for tiling in TILINGS])
)
def test_every_workload_is_right_at_every_tile_and_number_of_segments(name: str, tile: int, segments: int) -> None:
    unfused(name).check(inputs(name), tile=tile, segments=segments)


@pytest.mark.parametrize("length", AROUND_TILES)
@pytest.mark.parametrize("name", slow_but(["attention"], ["softmax_stats", "attention", "variance", "layernorm_gemm"]))
def test_lengths_around_the_tile_are_right(name: str, length: int) -> None:
    unfused(name, length).check(inputs(name, length), tile=TILE, segments=2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["attention_causal", "mla", "softmax", "cross_entropy", "variance", "rmsnorm_gemm"])
def test_every_dtype_is_right(name: str, dtype: str) -> None:
    unfused(name, dtype=dtype).check(inputs(name, dtype=dtype), tile=5, segments=2)


def test_segments_merge_an_exact_maximum_beside_a_reference_that_moves() -> None:
    """A maximum that is a result stays in float16; references move in float32, whatever is merged beside them."""
    x, y = (array(name, dtype="float16") for name in "xy")
    row_max, row_sum = softmax_stages(x)
    peak = fold("peak", lambda i, j: y[i, j], maximum)
    out = fold("out", lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i] * y[i, j] / peak[i])
    given = [np.random.default_rng(seed).random((ROWS, COLUMNS)).astype("float16") for seed in (0, 1)]
    read(program(x, y, row_sum, peak, out)).check(given, tile=4, segments=3)


@pytest.mark.parametrize("segments", [1, 3])
def test_a_reference_may_be_a_result_that_is_rounded_to_bfloat16(segments: int) -> None:
    """TVM lowers such a value where it is stored, and not where it is bound."""
    x, y = (array(name, dtype="float32") for name in "xy")
    top = fold("top", lambda i, j: te.abs(x[i, j]), maximum)
    scale = te.compute((ROWS,), lambda i: (top[i] / 127.0).astype("bfloat16").astype("float32"), name="scale")
    out = fold("out", lambda i, j: (x[i, j] / scale[i]).astype("float16").astype("float32") * y[i, j])
    given = [np.random.default_rng(seed).random((ROWS, COLUMNS)).astype("float32") for seed in (0, 1)]
    read(program(x, y, out)).check(given, tile=4, segments=segments)


@pytest.mark.parametrize(("tile", "segments"), [(1, 3), (4, 2), (5, 4)])
def test_a_reference_that_has_no_value_any_more_stands_where_a_segment_stood(tile: int, segments: int) -> None:
    read(squares_about_a_result()).check(at_huge_offset(), tile=tile, segments=segments)


@pytest.mark.parametrize("kind", ["large_offset", "rising", "falling", "late_spike", "ties", "zeros"])
@pytest.mark.parametrize("name", UNKIND)
def test_unkind_data_costs_no_digits_that_the_unfused_program_keeps(name: str, kind: str) -> None:
    for segments in (1, 3):
        unfused(name).check(inputs(name, kind=kind), tile=5, segments=segments)


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
@pytest.mark.parametrize("name", ["softmax_stats", "variance", "attention"])
def test_partial_results_in_lanes_are_right(name: str, lanes: int) -> None:
    unfused(name).check(inputs(name), tile=8, lanes=lanes)


@pytest.mark.parametrize("name", ["attention", "kl_divergence", "inertia", "layernorm_gemm"])
def test_a_rerun_gives_the_same_bits(name: str) -> None:
    given, pair = inputs(name), unfused(name)
    first = pair.fused_results(given, tile=4, segments=2)
    for _ in range(3):
        again = pair.fused_results(given, tile=4, segments=2)
        for output, values in first.items():
            np.testing.assert_array_equal(values.view(np.uint8), again[output].view(np.uint8))


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("attention", "float32"), ("variance", "float16"), ("kl_divergence", "float64"), ("layernorm_gemm", "float16")],
)
def test_llvm_s_optimiser_changes_no_bit(name: str, dtype: str) -> None:
    """The tests here run what LLVM did not optimise; what users run, it did."""
    given, pair = inputs(name, dtype=dtype), unfused(name, dtype=dtype)
    for func in (pair.func, pair.fuse(tile=5, segments=2)):
        plain, optimised = (run(build(func, target), func, given) for target in (UNOPTIMISED, "llvm"))
        for output, values in plain.items():
            np.testing.assert_array_equal(values.view(np.uint8), optimised[output].view(np.uint8))


def test_the_default_options_are_right_too() -> None:
    for name in ("attention", "variance", "softmax"):
        unfused(name).check(inputs(name))
