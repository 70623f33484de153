"""Inner products of one row along contiguous data, with one vector of partial sums each.

With one row there is nothing to broadcast: each position is a dot product of two contiguous runs. Its reduction is
split into the lanes of a vector, several positions at once so that their additions overlap, and the lanes are added up
last.
"""

from __future__ import annotations

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.nest_schedule import Block, Nest, power_of_two_divisor
from tvm_cascade.schedule.roles import FusedLoop

POSITIONS = 8
"""Dot products that run at once: as many as two pipelined multiply-adders keep busy."""


def find_dot(loop: FusedLoop, cpu: Cpu, contractions: set[str]) -> str | None:
    """The producer that is a dot product, by name. TVM factors only the first nest of a loop."""
    plan = loop.blocks[0]
    if plan.role != "producer" or plan.name in contractions or len(plan.reduce) != 1 or len(plan.stores) != 1:
        return None
    reduction = split_reduction(plan.stores[0])
    (axis,) = plan.reduce
    inside = plan.last_axis()
    contiguous = all(plan.step(access, axis) in (0, 1) for access in plan.loads)
    if reduction is None or reduction[0] is not SUM or not contiguous or inside is None or inside in loop.rows:
        return None
    lanes = cpu.lanes(str(plan.stores[0].buffer.ty.dtype))
    return plan.name if power_of_two_divisor(plan.extents[axis], lanes) > 1 else None


def split_dot(nest: Nest) -> Block:
    """Factors the lanes out of a dot product, before its rows are cut; gives the block of partial sums."""
    (axis,) = nest.plan.reduce
    width = power_of_two_divisor(nest.extent(axis), nest.cpu.lanes(nest.dtype))
    _, lane = nest.sch.split(nest.loops[axis], [None, width])
    return nest.sch.rfactor(lane, len(nest.plan.stores[0].indices))


def schedule_dot(nest: Nest, partial: Block) -> None:
    """Keeps the partial sums of several positions in registers, and reduces their lanes together."""
    sch, deferred = nest.sch, nest.deferred
    inside = nest.plan.last_axis()
    assert inside is not None
    (axis,) = nest.plan.reduce
    together = power_of_two_divisor(nest.extent(inside), POSITIONS)
    outer, position = sch.split(nest.loops[inside], [None, together])
    sch.reorder(outer, nest.loops[axis], position)
    sch.compute_at(partial, outer, preserve_unit_loops=True)
    around = len(sch.get_loops(nest.block)) - 2
    own = sch.get_loops(partial)[around:]
    reduced = own[-1]
    lane, spread = own[0], own[1:-1]
    sch.reorder(*spread, reduced, lane)
    deferred.unrolled.append(reduced)
    sch.set_scope(partial, 0, "local")
    deferred.vector += [lane, *([position] if together > 1 else [])]
    deferred.unrolled += [*spread, nest.loops[axis]]
    deferred.decomposed += [(partial, reduced), (nest.block, nest.loops[axis])]
