"""fuse_cascade on an open schedule: the blocks that it leaves take TVM's own primitives, and the numbers stay right."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import Schedule

from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.errors import CascadeError, InputError, OptionError, ScheduleError
from tvm_cascade.transform.fuse_cascaded_reductions import fuse_cascade

from ..analysis.programs import LENGTH, Attention, array, each, fold, number, program, softmax_stages, softmax_stats
from .running import Arrays, Results, assert_close, build, run

NAMES = ["row_max", "row_sum", "out"]


@cache
def attention() -> tirx.PrimFunc:
    stages = Attention()
    return stages.program(stages.out())


@cache
def given() -> Arrays:
    rng = np.random.default_rng(0)
    shapes = ((2, 6, 8), (2, LENGTH, 8), (2, LENGTH, 8))
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


@cache
def baseline() -> Results:
    return run(build(attention()), attention(), given())


def check(sch: Schedule) -> None:
    assert_close(run(build(sch.mod["main"]), attention(), given()), attention(), given(), baseline(), LENGTH)


class Fused:
    """An open schedule after fuse_cascade, with its blocks by role."""

    def __init__(self, tile: int = 4, segments: int = 1) -> None:
        self.sch = Schedule(attention())
        self.blocks = fuse_cascade(self.sch, NAMES, tile=tile, segments=segments)

    def role(self, block: s_tir.schedule.SBlockRV) -> str:
        return str(self.sch.get(block).annotations[ROLE])

    def of_role(self, *roles: str) -> list[s_tir.schedule.SBlockRV]:
        return [block for block in self.blocks if self.role(block) in roles]

    def own_loops(self, block: s_tir.schedule.SBlockRV) -> list[s_tir.schedule.LoopRV]:
        """The block's loops below the tile loop, spatial ones first."""
        loops = self.sch.get_loops(block)
        return loops if self.role(block) == "finish" else loops[1:]


def _split_and_reorder(fused: Fused) -> None:
    for block in fused.blocks:
        first, second, *_ = fused.own_loops(block)
        outer, inner = fused.sch.split(second, [None, 4])
        fused.sch.reorder(inner, outer)
        fused.sch.reorder(outer, first)


def _parallel(fused: Fused) -> None:
    for block in fused.blocks:
        fused.sch.parallel(fused.own_loops(block)[0])


def _vectorize(fused: Fused) -> None:
    for block in fused.of_role("partial", "update", "reference", "finish"):
        spatial = [iv for iv in fused.sch.get(block).iter_vars if iv.iter_type == tirx.IterVar.DataPar]
        count = len(spatial) - (fused.role(block) == "partial")
        fused.sch.vectorize(fused.own_loops(block)[count - 1])


def _unroll(fused: Fused) -> None:
    for block in fused.blocks:
        fused.sch.unroll(fused.own_loops(block)[-1])


def _decompose(fused: Fused) -> None:
    for block in fused.of_role("producer", "partial"):
        fused.sch.decompose_reduction(block, fused.own_loops(block)[0])


def _decompose_the_state(fused: Fused) -> None:
    for block in fused.of_role("update", "reference"):
        fused.sch.decompose_reduction(block, fused.sch.get_loops(block)[0])


def _merge(fused: Fused) -> s_tir.schedule.LoopRV:
    inside = [block for block in fused.blocks if fused.role(block) not in ("producer", "finish")]
    return fused.sch.merge(*(fused.own_loops(block)[0] for block in inside))


def _compute_at(fused: Fused) -> None:
    merged = _merge(fused)
    (scores,) = fused.of_role("producer")
    fused.sch.compute_at(scores, merged, preserve_unit_loops=True)
    fused.sch.parallel(merged)


def _inline(fused: Fused) -> None:
    for block in fused.of_role("element"):
        fused.sch.compute_inline(block)


def _cache_and_scope(fused: Fused) -> None:
    product = fused.of_role("partial")[-1]
    fused.sch.cache_read(product, 0, "local")
    fused.sch.set_scope(fused.of_role("partial")[0], 0, "local")


PRIMITIVES: dict[str, Callable[[Fused], object]] = {
    "split, reorder": _split_and_reorder,
    "parallel": _parallel,
    "vectorize": _vectorize,
    "unroll": _unroll,
    "decompose_reduction of tiles": _decompose,
    "decompose_reduction of the state": _decompose_the_state,
    "merge": _merge,
    "merge, compute_at, parallel": _compute_at,
    "compute_inline": _inline,
    "cache_read, set_scope": _cache_and_scope,
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives_work_on_the_blocks_that_it_leaves(name: str) -> None:
    fused = Fused()
    PRIMITIVES[name](fused)
    check(fused.sch)


def test_the_tile_loop_is_neither_parallel_nor_vectorised() -> None:
    fused = Fused()
    (tile, *_) = fused.sch.get_loops(fused.of_role("update")[0])
    for primitive in (fused.sch.parallel, fused.sch.vectorize):
        with pytest.raises(tvm.s_tir.ScheduleError):
            primitive(tile)


def test_the_segment_loop_may_run_in_parallel() -> None:
    fused = Fused(segments=3)
    (segment, *_) = fused.sch.get_loops(fused.of_role("update")[0])
    fused.sch.parallel(segment)
    check(fused.sch)


@pytest.mark.parametrize("by", ["name", "handle"])
def test_blocks_are_named_or_handed_over(by: str) -> None:
    sch = Schedule(attention())
    blocks = NAMES if by == "name" else [sch.get_sblock(name) for name in NAMES]
    left = fuse_cascade(sch, blocks, tile=4)
    assert "update" in {str(sch.get(block).annotations[ROLE]) for block in left}
    check(sch)


def test_a_part_of_a_cascade_may_be_fused_alone() -> None:
    sch = Schedule(attention())
    fuse_cascade(sch, ["row_max", "row_sum"], tile=4)
    assert sch.get_sblock("out") is not None
    check(sch)


def test_another_function_of_the_module_may_be_worked_on_by_name() -> None:
    module = tvm.IRModule({"first": softmax_stats().with_attr("global_symbol", "first"), "main": attention()})
    sch = Schedule(module)
    fuse_cascade(sch, ["row_max", "row_sum"], tile=4, func_name="first")
    assert tvm_ffi.structural_equal(sch.mod["main"], attention())
    assert not tvm_ffi.structural_equal(sch.mod["first"], module["first"])


def test_the_function_that_the_schedule_was_opened_on_is_unchanged() -> None:
    before = attention().script()
    Fused()
    assert attention().script() == before


def refused(blocks: object, error: type[CascadeError], func: tirx.PrimFunc | None = None, **options: object) -> str:
    """The message of the error, after which the schedule must be as it was."""
    sch = Schedule(func if func is not None else attention())
    before = sch.mod.script()
    with pytest.raises(error) as caught:
        fuse_cascade(sch, blocks, **options)  # type: ignore[arg-type]
    assert sch.mod.script() == before
    return str(caught.value)


def test_an_unknown_block_is_an_input_error_that_lists_the_known_ones() -> None:
    message = refused(["row_max", "nowhere"], InputError)
    assert "nowhere" in message and "row_sum" in message


def test_blocks_that_form_no_cascade_are_refused_with_the_reason() -> None:
    assert "single_reduction" in refused(["row_max"], ScheduleError)
    x = array("x", 7, 7)
    rows = fold("rows", lambda i, j: x[i, j], length=7, rows=(7,))
    columns = fold("columns", lambda j, i: x[i, j] * rows[j], length=7, rows=(7,))
    assert "axis_mismatch" in refused(["rows", "columns"], ScheduleError, program(x, columns))


def test_an_elementwise_block_is_no_part_of_a_cascade() -> None:
    x = array("x")
    doubled = each("doubled", lambda i, j: x[i, j] * number(2))
    assert "doubled" in refused(["doubled"], ScheduleError, program(x, *softmax_stages(doubled)))


@pytest.mark.parametrize("blocks", [[], None, 3, [3]], ids=["none", "None", "a number", "numbers"])
def test_no_blocks_are_an_input_error(blocks: object) -> None:
    refused(blocks, InputError)


def test_an_unknown_function_is_an_input_error() -> None:
    assert "nowhere" in refused(NAMES, InputError, func_name="nowhere")


@pytest.mark.parametrize("options", [{"tile": 0}, {"segments": -1}, {"lanes": 1.5}])
def test_a_wrong_option_is_an_option_error(options: dict[str, object]) -> None:
    refused(NAMES, OptionError, **options)


def test_something_else_than_a_schedule_is_an_input_error() -> None:
    with pytest.raises(InputError, match="Schedule"):
        fuse_cascade(attention(), NAMES)  # type: ignore[arg-type]


def test_fusing_twice_says_so() -> None:
    fused = Fused()
    with pytest.raises(CascadeError):
        fuse_cascade(fused.sch, NAMES, tile=4)
    check(fused.sch)


def test_a_schedule_that_was_worked_on_before_is_refused() -> None:
    sch = Schedule(attention())
    sch.split(sch.get_loops(sch.get_sblock("row_sum"))[-1], [None, 4])
    before = sch.mod.script()
    with pytest.raises(ScheduleError, match="scheduled"):
        fuse_cascade(sch, NAMES)
    assert sch.mod.script() == before


def test_references_move_as_asked_for_and_other_words_are_refused() -> None:
    sch = Schedule(softmax_stats())
    fuse_cascade(sch, ["row_max", "row_sum"], tile=4, reference="lazy")
    assert "fabs" in sch.mod["main"].script()  # compares with the distance beyond which a lazy reference moves
    func = softmax_stats()
    given = [np.random.default_rng(1).standard_normal((4, LENGTH)).astype("float32")]
    assert_close(run(build(sch.mod["main"]), func, given), func, given, run(build(func), func, given), LENGTH)
    untouched = Schedule(softmax_stats())
    with pytest.raises(OptionError, match="one of exact, lazy, power_of_two"):
        fuse_cascade(untouched, ["row_max", "row_sum"], reference="sometimes")
    assert tvm_ffi.structural_equal(untouched.mod["main"], softmax_stats())
