"""Schedules what is no contraction: elementwise blocks, row reductions, state updates; one axis is vectorised.

The axis is that along which the output is contiguous; or the rows, where the tile's temporaries hold these side by
side, so that folding a row is vertical arithmetic and nothing has to be reduced across a vector.
"""

from __future__ import annotations

from tvm_cascade.analysis.tir import uses
from tvm_cascade.schedule.nest_schedule import Loop, Nest, power_of_two_divisor
from tvm_cascade.schedule.nests import BlockPlan
from tvm_cascade.schedule.padding import guard_of
from tvm_cascade.transform.nest import TILE_ROLES

MAX_VECTORS = 4
"""Vectors that a fold keeps at once: enough chains to hide the latency of an addition."""


MOST_SUMS = 8
"""Vectors of sums that a reduction keeps at once where it only reads and adds: a load starts each cycle."""

TILE_SUMS, MOST_PLACES = 14, 16
"""Vectors of sums of rows whose windows meet, which registers hold beside what is read; places of a window at most."""


def lane_axis(nest: Nest) -> int | None:
    """The axis that is vectorised; None leaves the nest to LLVM's own vectoriser."""
    plan = nest.plan
    if plan.binds or nest.dtype == "bool":  # TVM makes int8 of truth values in vectors, and cannot store them
        return None
    axis = nest.row if nest.panel and plan.role in TILE_ROLES else plan.last_axis()
    if nest.alone and axis is not None and _is_padded(plan, axis):
        return None
    return axis if axis in nest.loops and axis not in plan.reduce else None


def _is_padded(plan: BlockPlan, axis: int) -> bool:
    """Whether a map has values under a condition on an axis: LLVM masks these, TVM takes their vectors apart."""
    guard = None if plan.reduce else guard_of(plan.stores[0])
    return guard is not None and uses(guard.args[0], [plan.variables[axis]])


def vector_width(nest: Nest) -> int:
    """Elements that a nest computes at once along the axis that is vectorised; 1 where none is."""
    axis = lane_axis(nest)
    if axis is None:
        return 1
    most = nest.cpu.lanes(nest.dtype) * (1 if axis == nest.row else MAX_VECTORS)
    return power_of_two_divisor(nest.extent(axis), most)


def sums_together(vectors: int, most: int = MOST_SUMS) -> int:
    """Vectors of sums that are kept at once, of so many."""
    return max(size for size in range(1, most + 1) if vectors % size == 0)


def overlapping_axes(plan: BlockPlan) -> tuple[int, int] | None:
    """An axis of the result and a reduced one along which the same is read, as by overlapping windows; or None."""
    for access in plan.loads:
        for axis in plan.spatial[:-1]:
            for reduced in plan.reduce:
                step, extents = plan.step(access, axis), (plan.extents[axis], plan.extents[reduced])
                several = all(isinstance(extent, int) and extent > 1 for extent in extents)
                if step and step == plan.step(access, reduced) and several and int(extents[1]) <= MOST_PLACES:
                    return axis, reduced
    return None


def _together(nest: Nest, axis: int) -> tuple[tuple[int, int] | None, int, int, int]:
    """Axes that overlap, if any; vectors and rows of sums that are kept at once; and the lanes of a vector."""
    plan, width, lanes = nest.plan, vector_width(nest), nest.cpu.lanes(nest.dtype)
    if not plan.reduce or not nest.alone or len(plan.stores) > 1 or width < lanes:
        return None, 1, 1, width
    vectors, overlap = nest.extent(axis) // lanes, overlapping_axes(plan)
    if overlap is not None:
        sums = sums_together(vectors, TILE_SUMS)
        return overlap, sums, sums_together(nest.extent(overlap[0]), TILE_SUMS // sums), lanes
    sums = sums_together(vectors)
    return (None, sums, 1, lanes) if sums * lanes > width else (None, 1, 1, width)


def schedule_fold(nest: Nest) -> tuple[Loop, Loop] | None:
    """Vectorises a nest.

    Returns
    -------
    The loop over vectors of rows and the innermost loop around one; None where no rows are in the lanes.
    """
    sch, plan, axis, width = nest.sch, nest.plan, lane_axis(nest), vector_width(nest)
    if axis is None or width == 1:
        if nest.alone and axis is not None:
            _leave_innermost(nest, axis)
        return None
    sideways = axis == nest.row
    overlap, sums, tall, width = _together(nest, axis)
    outer, vector, lane = sch.split(nest.loops[axis], [None, sums, width])
    written = list[Loop]()
    if overlap is not None:
        nest.loops[overlap[0]], row = sch.split(nest.loops[overlap[0]], [None, tall])
        written = [nest.loops[overlap[1]], row]
    others = [nest.loops[a] for a in plan.spatial if a != axis and a in nest.loops]
    reduced = [nest.loops[a] for a in plan.own if a in plan.reduce and nest.loops[a] not in written]
    before, inside = ([], others) if sideways else (others, [])
    sch.reorder(*before, outer, *inside, *reduced, *written, vector, lane)
    nest.deferred.vector.append(lane)
    nest.deferred.unrolled += [*written, vector]
    if plan.reduce and len(plan.stores) == 1:
        hold_in_registers(nest, [outer, *inside][-1], [*reduced, *written][0], width, overlap is not None)
    return (outer, [outer, *inside, *reduced][-1]) if sideways else None


def _leave_innermost(nest: Nest, axis: int) -> None:
    """Puts an output axis of unknown length inside the reduction where only that one lies side by side: for LLVM."""
    plan = nest.plan
    reduced = [nest.loops[a] for a in plan.own if a in plan.reduce]
    unknown = not isinstance(plan.extents[axis], int) and plan.lies_beside(axis)
    if unknown and reduced and len(plan.stores) == 1:
        nest.sch.reorder(*(nest.loops[a] for a in plan.spatial if a != axis), *reduced, nest.loops[axis])
        nest.deferred.decomposed.append((nest.block, reduced[0]))


def hold_in_registers(nest: Nest, around: Loop, reduced: Loop, width: int | None = None, rows: bool = False) -> None:
    """Accumulates in registers, written back once per step of a loop around the reduction, `width` at once or all."""
    sch = nest.sch
    copy = sch.cache_write(nest.block, 0, "local")
    sch.reverse_compute_at(copy, around)
    *_, row, copied = sch.get_loops(copy)
    vector, lane = sch.split(copied, [None, width] if width else [1, None])
    nest.deferred.vector.append(lane)
    nest.deferred.unrolled += [vector, row] if rows else [vector]
    nest.deferred.decomposed.append((nest.block, reduced))


def joins(fold: BlockPlan, element: BlockPlan, between: list[BlockPlan]) -> bool:
    """Whether a row reduction can be fused into the loops that compute its element.

    Parameters
    ----------
    between : blocks between the two, whose results are not there yet when the element is.
    """
    if fold.role != "partial" or fold.own != element.own or len(fold.stores) != 1 or fold.binds or element.binds:
        return False
    mine = [store.buffer for store in element.stores]
    later = [store.buffer for block in between for store in block.stores]
    reads = [access.buffer for access in fold.loads]
    return any(r.same_as(b) for r in reads for b in mine) and not any(r.same_as(b) for r in reads for b in later)


def join_fold(nest: Nest, around: Loop, inner: Loop) -> None:
    """Fuses a row reduction into the loops of its element.

    Parameters
    ----------
    around : the loop over vectors of rows.
    inner : the loop over positions, inside it.
    """
    sch = nest.sch
    sch.reverse_compute_at(nest.block, inner)
    nest.deferred.vector.append(sch.get_loops(nest.block)[-1])
    hold_in_registers(nest, around, inner)
