"""What blocks say of their roles and axes: it survives text and JSON, schedules read it, and what is not so is told."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

import tvm_cascade
from corpus import workloads
from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal, Lowered
from tvm_cascade.driver.gpu import gpu_options, lower_gpu
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.roles import read_fused_loops
from tvm_cascade.transform.fuse_function import AsItIs, fuse_function
from tvm_cascade.transform.handoff import FUSED, carried_folds
from tvm_cascade.transform.nest import AXES

from ..tiers import slow_but
from .fused_programs import attention
from .gpu_programs import TARGET as GPU_TARGET
from .gpu_programs import scheduled as scheduled_gpu
from .test_cpu import scheduled as scheduled_cpu
from .test_gpu import ONE_OF_EACH

Edit = Callable[[s_tir.SBlock], dict[str, object]]


def through_text(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return tvm.script.from_source(func.script(), s_tir=True)


def through_json(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": func})))["main"]


def edited(func: tirx.PrimFunc, edit: Edit) -> tirx.PrimFunc:
    """The function with the annotations that `edit` gives for a block in the place of its own."""

    def rewrite(block: s_tir.SBlock, mutator: object) -> s_tir.SBlock:
        block = mutator.default_mutate(block)  # type: ignore[attr-defined]
        fields = (block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init)
        notes = {name: note for name, note in edit(block).items() if note is not None}
        return s_tir.SBlock(*fields, block.alloc_buffers, block.match_buffers, notes)

    return func.with_body(tvm_ffi.structural_mutate(func.body, (s_tir.SBlock, rewrite)))


def noted(name: str, **notes: object) -> Edit:
    """Other annotations of one block; None takes one away."""
    short = {"axes": AXES, "role": ROLE}
    changed = {short[key]: note for key, note in notes.items()}
    return lambda block: {**dict(block.annotations), **(changed if block.name_hint == name else {})}


ROUND_TRIPS = [*(name for name in ONE_OF_EACH if name != "Q1"), "V1"]  # V1 has one row


@pytest.mark.parametrize("name", slow_but(["softmax_stats", "variance", "V1"], ROUND_TRIPS))
def test_a_function_that_was_printed_or_saved_is_scheduled_as_before(name: str) -> None:
    func = fuse_function(workloads.get(name).cpu.build(), FuseOptions(force=True)).func
    others = (through_text(func), through_json(func))
    for other in others:
        tvm.ir.assert_structural_equal(other, func)
        assert carried_folds(other) == carried_folds(func) != ()
    for schedule in (scheduled_cpu, scheduled_gpu):
        wanted = schedule(func)
        for other in others:
            tvm.ir.assert_structural_equal(schedule(other), wanted)


def test_independent_states_of_segments_share_their_rows() -> None:
    """Nothing within the loop reads two of them: only the rewrite knows that their rows are one axis."""
    func = fuse_function(workloads.get("rmsnorm_gemm").cpu.build(), FuseOptions(force=True, tile=16, segments=2)).func
    (loop,) = read_fused_loops(func)
    assert loop.outer == 2 and len(loop.rows) == 1
    assert {plan.extents[loop.rows[0]] for plan in loop.blocks} == {loop.blocks[0].extents[loop.rows[0]]}


def test_names_that_text_cannot_hold_are_left_out_of_the_axes() -> None:
    x = tvm.te.placeholder((3, 8), name="x")
    rows = [tvm.te.reduce_axis((0, 8), name="λ") for _ in range(2)]
    most = tvm.te.compute((3,), lambda tile: tvm.te.max(x[tile, rows[0]], axis=rows[0]), name="most")
    sums = tvm.te.compute(
        (3,), lambda tile: tvm.te.sum(tvm.te.exp(x[tile, rows[1]] - most[tile]), axis=rows[1]), name="sums"
    )
    func = fuse_function(tvm.te.create_prim_func([x, most, sums]), FuseOptions(force=True)).func
    tvm.ir.assert_structural_equal(through_text(func), func)
    (loop,) = read_fused_loops(func)
    assert len(loop.rows) == 1 and loop.outer == 1


WRONG: dict[str, Edit] = {
    "none": noted("b2", axes=None),
    "no list": noted("b2", axes="h, i, tile"),
    "too few": noted("b2", axes=["h", "tile"]),
    "one axis twice": noted("b2", axes=["h", "h", "tile"]),
    "no tile": noted("b2", axes=["h", "i", "t"]),
    "another loop as the tile": noted("b2", axes=["h", "tile", "i"]),
    "rows of another extent": noted("b2", axes=["i", "h", "tile"]),
    "state that is no state": noted("b2", role="element"),
    "a tile's result that is state": noted("b1", role="update"),
}


@pytest.mark.parametrize("edit", WRONG.values(), ids=WRONG)
def test_a_block_that_is_not_what_it_says_is_told(edit: Edit) -> None:
    func = edited(attention(2, 4, 24, 8, 8), edit)
    for schedule in (scheduled_cpu, scheduled_gpu):
        with pytest.raises(InputError, match=r"block b\d"):
            schedule(func)


def test_axes_of_one_extent_that_are_exchanged_are_told() -> None:
    func = edited(attention(4, 4, 24, 8, 8), noted("b2", axes=["i", "h", "tile"]))
    with pytest.raises(InputError, match="along dimension 1 of b"):
        read_fused_loops(func)


@pytest.fixture(scope="module")
def stats() -> tirx.PrimFunc:
    return fuse_function(workloads.get("softmax_stats").cpu.build(), FuseOptions(force=True)).func


def without_a_side(func: tirx.PrimFunc) -> tirx.PrimFunc:
    (fold,) = func.attrs[FUSED]
    return func.with_attr(FUSED, [{**dict(fold), "formulas": [list(row)[:2] for row in fold["formulas"]]}])


def with_a_tile_too_few(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return edited(func, noted(read_fused_loops(func)[0].blocks[0].name, axes=["tile"]))


def of_another_version(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return func.with_attr(FUSED, '[{"results": ["row_max"], "fold": "lift  row_max_0 = x"}]')


def without_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    (fold,) = func.attrs[FUSED]
    return func.with_attr(FUSED, [{**dict(fold), "results": 2}])


def lowered_for_gpu(func: tirx.PrimFunc) -> Lowered:
    options = gpu_options(FuseOptions())
    return lower_gpu(fuse_function(func, options), "main", Goal(GPU_TARGET, device_of(GPU_TARGET), options))


def test_a_fused_function_that_was_parsed_is_scheduled_for_a_gpu(stats: tirx.PrimFunc) -> None:
    found = lowered_for_gpu(through_text(stats))
    assert not isinstance(found.chosen, AsItIs)
    tvm.ir.assert_structural_equal(found.func.body, scheduled_gpu(stats).body)
    changed = lowered_for_gpu(through_text(without_a_side(stats)))
    assert isinstance(changed.chosen, AsItIs) and "results and formulas of a fold" in str(changed.chosen)


def test_a_block_called_as_the_one_around_all_others_is_scheduled() -> None:
    x, k = te.placeholder((4, 64), "float32", name="x"), te.reduce_axis((0, 64), "k")
    func = te.create_prim_func([x, te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="root")])
    assert "root_1: rows in" in str(tvm_cascade.compile(func).report)


CHANGED = {
    with_a_tile_too_few: "an axis for each of",
    without_a_side: "results and formulas of a fold",
    without_names: "results and formulas of a fold",
    of_another_version: "results and formulas of a fold",
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_function_that_is_not_what_it_says_runs_without_a_schedule(
    stats: tirx.PrimFunc, change: Callable[[tirx.PrimFunc], tirx.PrimFunc]
) -> None:
    compiled = tvm_cascade.compile(change(stats))
    assert "our schedule does not apply" in str(compiled.report) and CHANGED[change] in str(compiled.report)
    x = np.random.default_rng(0).standard_normal([int(n) for n in stats.params[0].ty.shape]).astype("float32")
    found = [np.full(x.shape[:1], np.nan, "float32") for _ in range(2)]
    compiled(x, *found)
    exact = np.exp(x.astype("f8") - x.max(1, keepdims=True)).sum(1)
    assert tolerance.check(found[1], exact, length=x.shape[1], dtype="float32").ok
