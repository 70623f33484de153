"""The row skeleton on the CPU: every program, level, tail and dtype against the float64 oracle."""

from __future__ import annotations

import contextlib
import dataclasses
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.evaluate.oracle import evaluate, signature
from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.options import FuseOptions
from tvm_cascade.te import topk
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.skeleton import RowSkeleton
from tvm_cascade.tile.skeleton import Kernel, Setting, build_kernel

from ..analysis.programs import fold, program
from ..tiers import slow_but
from .column_programs import softmax as column_softmax
from .emulator.run import compiler, emulate
from .row_programs import PROGRAMS, residual_rms_norm, rms_norm

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

SKELETON = RowSkeleton()
WITHOUT_CLUSTERS = dataclasses.replace(H200, largest_cluster=1)
WARP = RowConfig(128, 32, 4, 2)
BLOCK = RowConfig(128, 128, 2, 1)
CLUSTER = RowConfig(128, 128, 2, 1, segments=4, clustered=True)
GRID = RowConfig(128, 128, 2, 1, segments=3)
MANY = RowConfig(128, 128, 1, 1, segments=40)
KEPT = RowConfig(128, 128, 8, 1, kept=True)
SHARES = RowConfig(128, 128, 4, 1, segments=2, clustered=True, kept=True)


def row_kernel(
    func: tirx.PrimFunc,
    config: RowConfig | RowConfig | None = None,
    gpu: Gpu = H200,
    reference: str = "exact",
    guards: str = "auto",
) -> Kernel:
    """The memory-bound kernel of a function whose last group it is, or whose groups together.

    Parameters
    ----------
    reference, guards : see `FuseOptions`.
    """
    program = read_program(func)
    assert isinstance(program, Program)
    found = Reductions(program, reference=reference).cascades()
    groups = [c.group for c in found if c.group is not None] or Reductions(program).lone
    setting = Setting(gpu, FuseOptions(guards=guards))
    joint = Reductions(program).joint()
    for group in [groups[-1], *([joint] if joint else [])]:
        with contextlib.suppress(Unfit):
            return build_kernel(SKELETON, program, group, "main", setting, config)
    return build_kernel(SKELETON, program, groups[-1], "main", setting, config)


def drawn(func: tirx.PrimFunc, kind: str = "normal", seed: int = 0) -> list[Any]:
    """Inputs of a kind; integers are positions of the rows, and two of three truth values hold."""
    rng, found = np.random.default_rng(seed), []
    for param in signature(func).inputs:
        shape, dtype = [int(n) for n in param.ty.shape], str(param.ty.dtype)
        if dtype.startswith("int"):
            found.append(rng.integers(0, 40, shape).astype(dtype))
        elif dtype == "bool":
            found.append(rng.random(shape) < 2 / 3)
        else:
            stored = np.dtype(getattr(ml_dtypes, dtype, dtype))
            found.append(INPUTS[kind](rng, tuple(shape), dtype).astype(stored))
    return found


def assert_right(
    func: tirx.PrimFunc,
    config: RowConfig | None = None,
    kind: str = "normal",
    compiled: tirx.PrimFunc | None = None,
    inputs: list[Any] | None = None,
) -> Kernel:
    """The kernel's outputs are as near to the oracle's as tolerance.py asks, in either order of blocks and threads."""
    inputs, kernel = inputs or drawn(func, kind), row_kernel(compiled or func, config)
    outputs = emulate(kernel.func, inputs)
    exact, usual = evaluate(func, inputs), evaluate(func, inputs, rounding=True)
    length = max(int(n) for param in signature(func).inputs for n in param.ty.shape)
    for got, (name, expected) in zip(outputs, exact.items(), strict=True):
        found = check(got, expected, usual[name], length=length, dtype=str(got.dtype))
        assert found.ok, f"{name}: {found.message}"
    return kernel


@pytest.mark.parametrize("name", slow_but(["masked_sum_exp"], PROGRAMS))
def test_programs_in_the_cut_of_their_own_choice(name: str) -> None:
    assert_right(PROGRAMS[name]())


MERGING = {"warp": WARP, "cluster": CLUSTER, "grid": GRID}


@pytest.mark.parametrize(
    ("level", "name"),
    slow_but(
        [*((level, "modes") for level in MERGING), ("cluster", "variance")],
        product(MERGING, ["entropy", "variance", "argmax_of_softmax", "weighted_slope", "modes"]),
    ),
)
def test_every_level_merges_every_fold(level: str, name: str) -> None:
    assert_right(PROGRAMS[name](rows=3, length=1000), MERGING[level])


SHORT = ["softmax", "modes", "entropy", "variance", "layer_norm", "argmax_of_softmax"]


@pytest.mark.parametrize("name", slow_but(SHORT[:2], SHORT))
@pytest.mark.parametrize(("sharing", "length"), [(8, 100), (4, 33)])
def test_rows_of_a_part_of_the_lanes_of_a_warp(name: str, sharing: int, length: int) -> None:
    """Of 24 rows the last block has fewer than it could; the lanes of a row have unequal shares."""
    assert_right(PROGRAMS[name](rows=24, length=length), RowConfig(128, sharing, 4 if length % 4 == 0 else 1, 2))


@pytest.mark.parametrize("largest", [True, False])
def test_what_is_missing_among_the_best_halves_is_their_own_extreme_number(largest: bool) -> None:
    x = te.placeholder((4, 40), "float16", name="x")
    best, where = topk(x, 2, largest=largest)
    func = program(x, best, where, fold("spread", lambda i, j: te.exp(x[i, j] - best[i, 0]), te.sum, 40, (4,)))
    given = np.full((4, 40), -np.inf if largest else np.inf, "float16")
    given[:, 3] = 1
    keys, places, *_ = emulate(row_kernel(func).func, [given])
    lowest = np.finfo("float16").min if largest else np.finfo("float16").max
    assert (keys == np.float16([1, lowest])).all() and (places == [3, -1]).all()


def shares_of_a_sum(dtype: str) -> tirx.PrimFunc:
    """x -> x/Σ x, position by position."""
    x = te.placeholder((6, 64), dtype, name="x")
    total = fold("total", lambda i, j: x[i, j].astype("float32"), te.sum, 64, (6,))
    shares = te.compute((6, 64), lambda i, j: x[i, j] / total[i].astype(dtype), name="shares")
    return program(x, shares)


@pytest.mark.parametrize(
    ("dtype", "sizes"), [("float16", (1e-7, 1e-6, 1e-3, 1, 30, 300)), ("float32", (3e-42, 2e-40, 1e-20, 1, 1e20, 5e36))]
)
def test_divisors_whose_reciprocals_are_out_of_range(dtype: str, sizes: tuple[float, ...]) -> None:
    """x/s is about 1/64 in every row; 1/s is infinite where s is tiny, and subnormal where it is huge."""
    x = np.random.default_rng(3).uniform(1, 2, (6, 64)) * np.array(sizes)[:, None]
    assert_right(shares_of_a_sum(dtype), inputs=[x.astype(dtype)])


def test_more_segments_than_lanes() -> None:
    """Of 40 segments of 26 positions the last is empty: the identity takes part."""
    assert_right(PROGRAMS["entropy"](rows=2, length=1001), MANY)
    assert_right(PROGRAMS["variance"](rows=1, length=41), MANY)


@pytest.mark.parametrize("length", slow_but([1, 31, 257], [1, 2, 31, 257, 1009]))
def test_lengths(length: int) -> None:
    for name in ("softmax", "variance"):
        assert_right(PROGRAMS[name](dtype="float32", rows=2, length=length))


@pytest.mark.parametrize("config", [WARP, BLOCK, KEPT, SHARES], ids=["warp", "block", "kept", "kept by a cluster"])
def test_position_outputs_are_written_from_registers_or_read_again(config: RowConfig) -> None:
    assert_right(PROGRAMS["softmax"](rows=3, length=1000), config)


@pytest.mark.parametrize(
    ("name", "dtype"),
    slow_but(
        [("layer_norm", "bfloat16"), ("inertia", "float32")],
        product(["layer_norm", "inertia"], ["bfloat16", "float32"]),
    ),
)
def test_dtypes(name: str, dtype: str) -> None:
    assert_right(PROGRAMS[name](dtype=dtype, rows=3, length=264))


def test_outputs_of_inputs_alone_are_stored_with_the_rows_that_fold_them() -> None:
    kernel = assert_right(residual_rms_norm())
    assert [output.buffer.name for output in kernel.program.row.position_outputs] == ["h", "out"]


def test_outputs_that_one_row_of_many_would_store() -> None:
    with pytest.raises(Unfit, match="twice reads no result, and one row of many would store all of it"):
        row_kernel(residual_rms_norm(apart=True), KEPT)


def test_outputs_of_a_part_of_the_results() -> None:
    """A kernel stores an element for each result: what is a part of them is left to a schedule."""
    x, k = te.placeholder((4, 256), "float16", name="x"), te.reduce_axis((0, 256), "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k].astype("float32"), axis=k), name="total")
    left = te.compute((2,), lambda i: total[i], name="left")
    right = te.compute((2,), lambda i: total[i + 2], name="right")
    with pytest.raises(Unfit, match="left has elements for a part of the results alone"):
        row_kernel(te.create_prim_func([x, left, right]))


def test_outputs_with_elements_beyond_the_results() -> None:
    """What pads results has elements that no row of a kernel would store."""
    x, k = te.placeholder((40, 256), name="x"), te.reduce_axis((0, 256), "k")
    total = te.compute((40,), lambda i: te.sum(x[i, k], axis=k), name="total")
    padded = te.compute((64,), lambda i: te.if_then_else(i < 40, total[i], 1.0), name="padded")
    with pytest.raises(Unfit, match="padded has elements along v_i where no result of the cascade is"):
        row_kernel(te.create_prim_func([x, padded]))


@pytest.mark.parametrize(("step", "overlap"), [(1, True), (4, False)])
def test_windows_that_overlap_are_rows_of_no_kernel(step: int, overlap: bool) -> None:
    """Threads that share a window read every element once for each window that it is in."""
    count, (a, b) = 64 // step, (te.reduce_axis((0, 4), name) for name in "ab")
    x = te.placeholder((8, 68, 68), "float32", name="x")
    y = te.compute(
        (8, count, count), lambda c, i, j: te.max(x[c, step * i + a, step * j + b], axis=[a, b]), name="highest"
    )
    with pytest.raises(Unfit, match="rows overlap: elements of x") if overlap else contextlib.nullcontext():
        row_kernel(te.create_prim_func([x, y]))


@pytest.mark.parametrize("kind", ["large_offset", "late_spike", "neg_inf_first_segment", "all_neg_inf_row"])
def test_hard_data(kind: str) -> None:
    assert_right(PROGRAMS["softmax_stats"](dtype="float32", rows=2, length=1000), BLOCK, kind)


def test_moments_far_from_zero() -> None:
    assert_right(PROGRAMS["variance"](dtype="float32", rows=2, length=1000), GRID, "large_offset")


def test_rows_known_at_launch_alone() -> None:
    assert_right(rms_norm(rows=7), compiled=rms_norm(rows=te.var("n", "int64")))


def test_the_cut_follows_the_shape() -> None:
    def shared_by(name: str, rows: int, length: int) -> str:
        config = row_kernel(PROGRAMS[name](rows=rows, length=length)).config
        assert isinstance(config, RowConfig)
        return "cluster" if config.clustered else "grid" if config.segments > 1 else f"{config.sharing} threads"

    assert shared_by("variance", 4096, 1024) == "32 threads"
    assert shared_by("variance", 4096, 32768) == "256 threads"
    assert shared_by("variance", 1, 2**22) == "grid"
    assert shared_by("variance", 1, 2**17) == "cluster"
    assert shared_by("softmax", 1, 2**17) == "cluster"
    assert shared_by("softmax", 4096, 2**20) == "1024 threads"


def test_without_clusters_blocks_are_those_of_the_grid() -> None:
    func = PROGRAMS["variance"](rows=1, length=2**17)
    old, new = (str(tvm_cascade.explain(func, target={"kind": "cuda", "arch": arch})) for arch in ("sm_80", "sm_90a"))
    assert "a cluster of 8 blocks a row" in new and "1 rows would leave most of 132 multiprocessors idle" in new
    assert "cluster" not in old and "blocks a row" in old


def test_compile_and_explain_say_what_was_chosen() -> None:
    for arch in ("sm_90a", "sm_80"):
        compiled = tvm_cascade.compile(
            PROGRAMS["layer_norm"](rows=9, length=8192), target={"kind": "cuda", "arch": arch}
        )
        (report,) = compiled.report.functions
        assert "memory-bound kernel `row`, a block a row" in report.lowering and "lanes and warps" in report.lowering
        assert "stays in the registers of a block" in report.lowering
        assert "merge" not in report.tile_program and "move" in report.tile_program
    off = tvm_cascade.explain(PROGRAMS["softmax"](), target={"kind": "cuda", "arch": "sm_90a"}, row_kernels=False)
    assert "the option row_kernels is off" in str(off)


def test_powers_are_scaled_into_range() -> None:
    x = np.random.default_rng(2).standard_normal((2, 300)) * np.logspace(-15, 15, 300)
    assert_right(PROGRAMS["kurtosis"](dtype="float32", rows=2, length=300), BLOCK, inputs=[x.astype("float32")])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (dataclasses.replace(KEPT, vectors=1), "registers keep 1024 positions of a row, of which a block has 4096"),
        (dataclasses.replace(SHARES, vectors=2), "registers keep 1024 positions of a row, of which a block has 2048"),
        (dataclasses.replace(BLOCK, segments=4), "no block has the results that outputs along the axis read"),
        (
            dataclasses.replace(BLOCK, sharing=64),
            "64 threads a row: expected a power of two up to 32, or all 128 of a block",
        ),
        (dataclasses.replace(WARP, segments=2), "2 segments of a row, where warps merge 1 at most"),
        (dataclasses.replace(CLUSTER, segments=16), "16 segments of a row, where clusters merge 8 at most"),
    ],
)
def test_what_nobody_keeps_or_merges_is_no_kernel(config: RowConfig, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        row_kernel(PROGRAMS["softmax"](rows=4, length=4096), config)
    whole = dataclasses.replace(KEPT, vectors=4), dataclasses.replace(SHARES, vectors=4)
    assert all(row_kernel(PROGRAMS["softmax"](rows=4, length=4096), one).config == one for one in whole)


def test_columns_keep_all_that_a_block_has() -> None:
    with pytest.raises(Unfit, match="24 threads a row: expected a power of two, up to 32 of the 96 of a block"):
        row_kernel(column_softmax(length=256), RowConfig(96, 24, 1, 2, strided=True))
    with pytest.raises(Unfit, match="registers keep 64 positions of a row, of which a block has 256"):
        row_kernel(column_softmax(length=256), RowConfig(256, 32, 1, 2, kept=True, strided=True))
