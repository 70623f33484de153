"""The CPU schedule of a fused function, from the roles, iterators and accesses of its blocks.

parallel for block of rows:
    operands that want rows side by side are packed once
    for tile: contractions in register tiles; everything else in vectors
    finish
"""

from __future__ import annotations

import tvm
from tvm import s_tir

from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.reducers import split_reduction
from tvm_cascade.analysis.tir import dtype_of, variables_of
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import (
    Contraction,
    packed_dim,
    register_tile,
    schedule_contraction,
)
from tvm_cascade.schedule.nest_schedule import (
    Block,
    CpuSchedule,
    Deferred,
    Nest,
    cuts,
    loops_after_tiling,
    power_of_two_divisor,
    tile_rows,
)
from tvm_cascade.schedule.nests import Access, BlockPlan, plan_alone
from tvm_cascade.schedule.packing import lay_out, pack_operand
from tvm_cascade.schedule.roles import FusedLoop, read_fused_loops
from tvm_cascade.schedule.row_fold import join_fold, joins, schedule_fold
from tvm_cascade.schedule.row_plan import RowPlan, plan_rows
from tvm_cascade.schedule.unfused import schedule_alone, schedule_each
from tvm_cascade.transform.nest import GUARD
from tvm_cascade.tvm_faults.partition import SHARED_FROM, keeps_tuples


def schedule_cpu(sch: s_tir.Schedule, cpu: Cpu, most_rows: int | None = None) -> CpuSchedule:
    """Schedules a fused function for a CPU, in place.

    Parameters
    ----------
    sch : over a module whose "main" function came from the rewrite. It should own its module: TVM's Schedule may write
        into the very function that it was given.
    cpu : whose vectors, registers and cores loops are cut for.
    most_rows : rows of a block, which one task works on, at most; by the loop where it is left out.

    Returns
    -------
    What it made of the function.
    """
    deferred = Deferred()
    func = sch.mod["main"]
    loops = read_fused_loops(func)
    handled: set[str] = set()
    made: list[str] = []
    for loop in loops:
        handled |= {plan.name for plan in (*loop.before, *loop.blocks, *loop.after)}
        rows = plan_rows(loop, cpu, most_rows)
        made.append(cuts(loop, 0, 0) if rows is None else cuts(loop, rows.block, rows.panel))
        if rows is None:
            for plan in (*loop.before, *loop.blocks, *loop.after):
                schedule_alone(sch, cpu, deferred, plan, loop.outer if plan in loop.blocks else 0)
        else:
            _LoopSchedule(sch, cpu, deferred, loop, rows).run()
    others = [plan for plan in plan_alone(func) if plan.name not in handled]
    rules = schedule_each(sch, cpu, deferred, others)
    deferred.apply(sch)
    return CpuSchedule(tuple(made), rules)


class _LoopSchedule:
    """One fused loop with shared rows."""

    def __init__(self, sch: s_tir.Schedule, cpu: Cpu, deferred: Deferred, loop: FusedLoop, rows: RowPlan) -> None:
        self.sch, self.cpu, self.deferred, self.loop, self.rows = sch, cpu, deferred, loop, rows

    def run(self) -> None:
        sch, row = self.sch, self.rows.row
        dot = find_dot(self.loop, self.cpu, set(self.rows.contractions))
        partial = None if dot is None else split_dot(self._whole_nest(dot))
        self.tasks, self.tile = tile_rows(sch, self.loop, row, self.rows.block)
        finishers = [sch.get_sblock(plan.name) for plan in self.loop.after]
        for block in finishers:
            sch.reverse_compute_at(block, self.tasks, preserve_unit_loops=True)
        nests = {plan.name: self._nest(plan) for plan in self.loop.blocks}
        for plan in self.loop.before:
            self._bring(plan)
        for plan in self.loop.blocks:
            if plan.name in self.rows.contractions:
                self._pack(nests[plan.name], self.rows.contractions[plan.name])
        for plan in self.loop.blocks:
            buffer, dim = plan.stores[0].buffer, self.rows.laid_out.get(plan.name)
            if dim is not None and dim != len(buffer.ty.shape) - 1:
                lay_out(sch, nests[plan.name].block, buffer, dim, self.rows.panel)
        if dot is not None and partial is not None:
            schedule_dot(nests.pop(dot), partial)
        self._schedule_blocks(nests)
        for plan, block in zip(self.loop.after, finishers, strict=True):
            if plan.role == GUARD:
                continue  # a row after another, as few fail
            own = [a for a in plan.own if a not in self.loop.rows]
            inner = sch.get_loops(block)[-len(own) :] if own else []
            schedule_fold(Nest(sch, self.cpu, self.deferred, plan, block, dict(zip(own, inner, strict=True))))
        self.deferred.parallel.append(self.tasks)
        static = all(plan.is_static for plan in self.loop.blocks)
        # Nothing in a whole tile is worth that: what is guarded there is no product.
        tuples = keeps_tuples(len(plan.stores) for plan in self.loop.blocks if plan.role == "partial")
        kept = tuples and not self._shares_what_is_carried()
        if self.loop.guarded and not self.loop.before and self.loop.separable and static and kept:
            self.deferred.guarded.append(self.tile)

    def _shares_what_is_carried(self) -> bool:
        """Whether TVM may give storage of what goes from tile to tile to something else."""
        carried = (s.buffer for plan in self.loop.blocks for s in plan.stores if s.buffer.name in self.loop.carried)
        return any(self.rows.block * tvm.DataType(dtype_of(buffer)).bits > SHARED_FROM for buffer in carried)

    def _whole_nest(self, name: str) -> Nest:
        """A nest before its rows are cut."""
        plan = next(plan for plan in self.loop.blocks if plan.name == name)
        block = self.sch.get_sblock(name)
        loops = dict(zip(plan.own, self.sch.get_loops(block)[self.loop.outer :], strict=True))
        return Nest(self.sch, self.cpu, self.deferred, plan, block, loops)

    def _nest(self, plan: BlockPlan) -> Nest:
        panel = self.rows.panel if plan.name in self.rows.in_panels else 0
        loops = loops_after_tiling(self.sch, plan, self.loop, self.rows.row)
        block = self.sch.get_sblock(plan.name)
        return Nest(self.sch, self.cpu, self.deferred, plan, block, loops, self.rows.row, panel)

    def _bring(self, plan: BlockPlan) -> None:
        """Copies an operand where the loop needs it: once for a block of rows, or for each tile."""
        readers = [(b, a) for b in self.loop.blocks for a in b.loads if a.buffer.same_as(plan.stores[0].buffer)]
        once = all(self._same_in_all_tiles(reader, access) for reader, access in readers)
        block = self.sch.get_sblock(plan.name)
        self.sch.compute_at(block, self.tasks if once else self.tile, preserve_unit_loops=True)
        loops = dict(zip(plan.own, self.sch.get_loops(block)[-len(plan.own) :], strict=True))
        schedule_fold(Nest(self.sch, self.cpu, self.deferred, plan, block, loops))

    def _pack(self, nest: Nest, contraction: Contraction) -> None:
        for access in contraction.packed:
            if self.loop.writer(access.buffer) is not None:
                continue
            dim = packed_dim(nest.plan, access, contraction.lanes)
            assert dim is not None
            width = self.rows.panel if contraction.lanes == self.rows.row else self._panel_of(nest, contraction)
            copy = next((p for p in self.loop.before if p.stores[0].buffer.same_as(access.buffer)), None)
            if copy is not None:
                lay_out(self.sch, self.sch.get_sblock(copy.name), access.buffer, dim, width)
                continue
            once = self._same_in_all_tiles(nest.plan, access)
            pack_operand(nest, access, dim, width, self.tasks if once else self.tile)

    def _panel_of(self, nest: Nest, contraction: Contraction) -> int:
        rows = nest.extent(contraction.broadcast)
        width, vectors, _ = register_tile(nest.extent(contraction.lanes), rows, self.cpu, nest.dtype)
        return width * vectors

    @staticmethod
    def _same_in_all_tiles(plan: BlockPlan, access: Access) -> bool:
        own = list(plan.variables.values())
        return all(any(v.same_as(o) for o in own) for index in access.indices for v in variables_of(index))

    def _schedule_blocks(self, nests: dict[str, Nest]) -> None:
        blocks = [plan for plan in self.loop.blocks if plan.name in nests]
        joined: set[str] = set()
        for position, plan in enumerate(blocks):
            nest = nests[plan.name]
            if plan.name in joined:
                continue
            if contraction := self.rows.contractions.get(plan.name):
                schedule_contraction(
                    nest, contraction, rows_in_panels=bool(nest.panel) and contraction.lanes != nest.row
                )
                continue
            vectors = schedule_fold(nest)
            if vectors is None or plan.role != "element":
                continue
            for later, fold in enumerate(blocks[position + 1 :], position + 1):
                if fold.name not in self.rows.contractions and joins(fold, plan, list(blocks[position + 1 : later])):
                    join_fold(nests[fold.name], *vectors)
                    joined.add(fold.name)


# Inner products of one row along contiguous data, with one vector of partial sums each.
#
# With one row there is nothing to broadcast: each position is a dot product of two contiguous runs. Its reduction is
# split into the lanes of a vector, several positions at once so that their additions overlap, and the lanes are added
# up last.


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
