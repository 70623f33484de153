"""The row skeleton over columns of memory, by the emulator: every level, tail and dtype against the float64 oracle."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from campaigns.grammar import draw
from campaigns.program import data
from campaigns.program import program as program_of
from tvm_cascade.evaluate.oracle import signature
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.skeleton import Kernel

from ..analysis.programs import array, fold, number, program, total
from ..tiers import slow_but
from .column_programs import COLUMNS, argmax, softmax, variance
from .emulator.run import compiler
from .fold_programs import FOLDS
from .row_programs import PROGRAMS
from .test_compiled_kernels import text_of
from .test_row_kernels import WITHOUT_CLUSTERS, assert_right, row_kernel

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

TARGET = {"kind": "cuda", "arch": "sm_90a"}
ONE = RowConfig(128, 4, 1, 1, strided=True)
FEW_LANES = RowConfig(128, 32, 2, 2, strided=True)
GRID = RowConfig(128, 16, 4, 2, segments=5, strided=True)
MANY = RowConfig(128, 4, 1, 1, segments=32, strided=True)
HALVES = RowConfig(128, 32, 8, 2, strided=True)
KEPT = RowConfig(128, 16, 4, 5, kept=True, strided=True)


def transposed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function of inputs whose dimensions are in the opposite order."""
    schedule = tvm.s_tir.Schedule(func)
    names = {param.name for param in signature(func).inputs}
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        for k, region in enumerate(schedule.get(block).reads):
            if region.source.name in names:
                names.remove(region.source.name)
                schedule.transform_layout(block, ("read", k), lambda *indices: indices[::-1])
    return schedule.mod["main"]


def config_of(kernel: Kernel) -> RowConfig:
    """The cut of a kernel over columns."""
    assert isinstance(kernel.config, RowConfig)
    return kernel.config


@pytest.mark.parametrize("name", slow_but(["softmax"], COLUMNS))
def test_columns_in_the_cut_of_their_own_choice(name: str) -> None:
    config_of(assert_right(COLUMNS[name]()))


@pytest.mark.parametrize("name", ["variance", "softmax", "batch_norm", "gain_gradient"])
def test_half_precision(name: str) -> None:
    config_of(assert_right(COLUMNS[name](dtype="float16", length=6 if name == "batch_norm" else 37), HALVES))


@pytest.mark.parametrize("config", [ONE, FEW_LANES, GRID, MANY], ids=["one", "few lanes", "grid", "many blocks"])
@pytest.mark.parametrize("name", slow_but(["argmax"], ["variance", "argmax", "masked_sum_exp", "slope"]))
def test_every_level_merges_every_fold(name: str, config: RowConfig) -> None:
    """Of 32 segments of 71 positions some are empty, and no split divides them."""
    assert_right(COLUMNS[name](rows=36, length=71), config)


@pytest.mark.parametrize(("rows", "vector"), [(30, 2), (33, 1), (52, 4)])
def test_rows_that_no_lanes_divide(rows: int, vector: int) -> None:
    assert config_of(row_kernel(variance(rows=rows * 4097, length=37))).vector == vector
    assert_right(softmax(rows=rows, length=37, batch=3), RowConfig(128, 16, vector, 2, strided=True))


def test_one_row() -> None:
    """Neighbours on the axis are neighbours in memory then."""
    assert isinstance(assert_right(softmax(rows=1, length=37, batch=3)).config, RowConfig)


@pytest.mark.parametrize("config", [None, GRID], ids=["own choice", "grid"])
def test_a_random_fold(config: RowConfig | None) -> None:
    """Sums at a reference that an input of the row moves, over inputs whose first dimension is the axis."""
    case = draw(180)
    config = config and dataclasses.replace(config, vector=1)
    inputs = [np.ascontiguousarray(a.T) for a in data(case, 0)]
    config_of(assert_right(transposed(program_of(case)), config, inputs=inputs))


@pytest.mark.parametrize("length", [1, 3, 129])
def test_lengths(length: int) -> None:
    assert_right(variance(rows=12, length=length))
    assert_right(softmax(rows=12, length=length, dtype="float16"), None)


def test_position_outputs_stay_in_registers() -> None:
    assert config_of(assert_right(softmax())).kept
    assert_right(softmax(), KEPT)
    assert not config_of(assert_right(softmax(length=9000, rows=8, batch=1))).kept


@pytest.mark.parametrize("kind", ["large_offset", "late_spike", "neg_inf_first_segment", "all_neg_inf_row"])
def test_hard_data(kind: str) -> None:
    assert_right(softmax(rows=8, length=300, batch=1), FEW_LANES, kind)


def test_rows_of_several_variables_are_neighbours_together() -> None:
    """x[l, h, d] over l: six heads of three are 18 rows, in vectors of two."""
    x = array("x", 50, 6, 3)
    func = program(x, fold("out", lambda h, d, j: x[j, h, d] * x[j, h, d], total, 50, (6, 3)))
    assert_right(func, RowConfig(128, 32, 2, 2, strided=True))


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_what_a_condition_guards_is_not_read_ahead(columns: bool) -> None:
    """x[l − 1] where l ≥ 1: the element before the first is not the tensor's."""
    rows, length = 8, 64
    x = array("x", *((length, rows) if columns else (rows, length)))

    def at(i: Expr, j: Expr) -> Expr:
        return x[j, i] if columns else x[i, j]

    def lagged(i: Expr, j: Expr) -> Expr:
        return at(i, j) * tirx.if_then_else(j >= 1, at(i, j - 1), number(0))

    kernel = assert_right(program(x, fold("out", lagged, total, length, (rows,))))
    assert isinstance(kernel.program, RowProgram) and len(kernel.program.row.folded) == 1


def test_lengths_known_at_launch_alone() -> None:
    assert_right(argmax(length=90), compiled=argmax(length=te.var("n", "int64")))


def summed_pairs(tokens: int | Expr) -> tirx.PrimFunc:
    """Two rows of each token added up, in halves."""
    x, k = te.placeholder((tokens, 2, 64), "bfloat16", "x"), te.reduce_axis((0, 2), "k")
    y = te.compute((tokens, 64), lambda i, j: te.sum(x(i, k, j).astype("float32"), axis=k), "y")
    return te.create_prim_func([x, te.compute(y.shape, lambda *at: y(*at).astype("bfloat16"), "out")])


def test_rows_known_at_launch_alone_are_read_in_whole_vectors() -> None:
    """Which must be seen of their first one: code generation takes no vector at any other place."""
    symbolic = summed_pairs(te.var("n", "int64"))
    assert "uint4" in text_of(row_kernel(symbolic))
    assert_right(summed_pairs(19), compiled=symbolic)


def test_rows_that_lie_apart_both_ways_are_left_to_schedules() -> None:
    x, y = array("x", 40, 48), array("y", 48, 40)
    func = program(x, y, fold("out", lambda i, j: x[j, i] * y[i, j], total, 40, (48,)))
    with pytest.raises(Unfit, match="is not contiguous in memory, as it is for other loads"):
        row_kernel(func)


@pytest.mark.parametrize("config", [None, GRID], ids=["own choice", "grid"])
def test_outputs_with_an_axis_of_their_own(config: RowConfig | None) -> None:
    """The ranks of a top-k."""
    config_of(assert_right(transposed(FOLDS["routed"]()), config and dataclasses.replace(config, vector=1)))


@pytest.mark.parametrize("name", ["softmax", "batch_norm"])
def test_blocks_of_a_cluster_share_rows_whose_outputs_run_along_the_axis(name: str) -> None:
    """Of eight segments of 72 positions each has nine, and rows end within the last block."""
    assert_right(COLUMNS[name](), dataclasses.replace(FEW_LANES, segments=8, clustered=True))


def test_blocks_of_the_grid_write_no_element_a_position() -> None:
    with pytest.raises(Unfit, match="no block has the results"):
        row_kernel(softmax(), GRID)
    with pytest.raises(Unfit, match="8 segments of a row, where clusters merge 1 at most"):
        row_kernel(softmax(), dataclasses.replace(FEW_LANES, segments=8, clustered=True), gpu=WITHOUT_CLUSTERS)


def test_a_cut_of_the_other_layout_is_refused() -> None:
    with pytest.raises(Unfit, match="is contiguous in memory"):
        row_kernel(PROGRAMS["softmax"](), ONE)


def test_registers_keep_no_columns_of_any_length() -> None:
    func = softmax(length=tirx.Var("n", "int64"))
    assert not config_of(row_kernel(func)).kept
    with pytest.raises(Unfit, match="keep no columns whose length is not known before the launch"):
        row_kernel(func, KEPT)


def test_the_cut_gives_every_multiprocessor_work() -> None:
    few, many = config_of(row_kernel(variance(rows=512, length=2**17))), config_of(row_kernel(variance(rows=2**17)))
    assert few.segments > 1 and few.segments * 512 // few.rows >= 132
    assert many.segments == 1 and many.lanes == 32
    assert config_of(row_kernel(softmax(rows=64, length=2**14, batch=1))).segments == 8
    assert config_of(row_kernel(softmax(rows=64, length=2**14, batch=1), gpu=WITHOUT_CLUSTERS)).segments == 1


def test_explain_says_which_rows_a_block_has() -> None:
    told = str(tvm_cascade.explain(variance(rows=512, length=2**17), target=TARGET))
    assert (
        "memory-bound kernel `row`" in told and "neighbouring rows" in told and "merged over groups and blocks" in told
    )
    assert " is not contiguous in memory, " in told


def test_a_column_kernel_on_older_gpus() -> None:
    assert "neighbouring rows" in str(tvm_cascade.explain(variance(), target={"kind": "cuda", "arch": "sm_80"}))
