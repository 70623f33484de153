"""Full tiles: rows are rounded up to vectors and operands padded, so that inner loops have no guards.

    for i in 577: for tile: for j in 289: s[i, j] += if(at(j) < 577, q[i, d] * k[at(j), d], 0)
    ->  q_whole[i in 592] = if(i < 577, q[i], 0);  k_whole[p in 578] = if(p < 577, k[p], 0)
        for i in 592: for tile: for j in 289: s[i, j] += q_whole[i, d] * k_whole[at(j), d]

Rows past the last compute what the last one does, in temporaries that are as much longer; results stay as long as they
are. A schedule moves the copies into the loop, next to the tile that they are for, and may lay them out on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    dtype_of,
    loads_of,
    more_than_one,
    same,
    same_extent,
    substitute,
)
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import find_contraction
from tvm_cascade.schedule.nests import BlockPlan, read_nests
from tvm_cascade.schedule.padding import (
    LongerBuffers,
    PaddedCopies,
    Wide,
    guard_of,
    reading_at,
    without_guard,
)
from tvm_cascade.schedule.roles import FusedLoop, read_fused_loops
from tvm_cascade.schedule.row_plan import contracted_row, padded_rows
from tvm_cascade.transform.nest import TILE_ROLES


def whole_tiles(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The fused function with full tiles wherever a contraction runs over rows; the same object where nothing changes.

    Parameters
    ----------
    func : as the rewrite made it, not scheduled.
    cpu : to whose vectors rows are rounded up.
    """
    for number in range(len(read_fused_loops(func))):
        loop = read_fused_loops(func)[number]
        if loop.rows and (wider := _wider(func, loop, cpu)) is not None:
            func = wider.rewritten()
    return func


def _wider(func: tirx.PrimFunc, loop: FusedLoop, cpu: Cpu) -> _Wider | None:
    """The padding of a loop; None where it contracts nothing over rows, or has full tiles already."""
    row = contracted_row(loop)
    outside = frozenset(loop.rows) - {row}
    products = frozenset(
        plan.name
        for plan in loop.blocks
        if plan.role in ("producer", "partial")
        and (find_contraction(plan, row, outside) or find_contraction(plan, None, outside))
    )
    rows = loop.blocks[0].extents[row]
    tiled = [plan for plan in loop.blocks if plan.role in TILE_ROLES]
    lanes = max(cpu.lanes(str(plan.stores[0].buffer.ty.dtype)) for plan in tiled)
    whole = padded_rows(loop, row, cpu, lanes)
    written = [store.buffer for plan in loop.blocks for store in plan.stores]
    if not products or not more_than_one(rows) or any(b.same_as(p) for b in written for p in func.params):
        return None
    if same_extent(whole, rows) and not loop.guarded:
        return None
    hidden = frozenset(name for name in products if _is_hidden(func, loop, name))
    return _Wider(func, loop, row, rows, whole, products, hidden)


def _is_hidden(func: tirx.PrimFunc, loop: FusedLoop, name: str) -> bool:
    """Whether whatever reads a producer's tile does so under the very condition that guards the producer."""
    plans = {plan.name: plan for plan in loop.blocks}
    nests = {nest.block.name_hint: nest.realize for nest in read_nests(func)}
    axes = {axis: tirx.Var(f"axis_{axis}", var.ty) for plan in loop.blocks for axis, var in plan.variables.items()}

    def condition(plan: BlockPlan, guard: ir.Call) -> ir.Expr:
        pairs = zip(nests[plan.name].block.iter_vars, nests[plan.name].iter_values, strict=True)
        shared = {iv.var: value for iv, value in pairs if not any(iv.var.same_as(v) for v in plan.variables.values())}
        return substitute(guard.args[0], {**shared, **{var: axes[axis] for axis, var in plan.variables.items()}})

    producer = plans[name]
    buffer, guard = producer.stores[0].buffer, guard_of(producer.stores[0])
    if guard is None or producer.role != "producer":
        return False
    wanted = condition(producer, guard)
    for plan in (p for p in loop.blocks if p is not producer):
        reads = [access for access in plan.loads if access.buffer.same_as(buffer)]
        guards = [found for found in map(guard_of, plan.stores) if found is not None]
        under = [load for g in guards if same(condition(plan, g), wanted) for load in loads_of(g.args[1])]
        if len(reads) != sum(load.source.same_as(buffer) for load in under):
            return False
    return True


@dataclass
class _Wider:
    """One fused loop and its rows rounded up.

    Attributes
    ----------
    row, rows, whole : the axis, its extent and the extent rounded up.
    products : names of the blocks whose operands are padded.
    hidden : those of them whose results past the end nobody looks at.
    """

    func: tirx.PrimFunc
    loop: FusedLoop
    row: int
    rows: Extent
    whole: Extent
    products: frozenset[str]
    hidden: frozenset[str]
    _longer: LongerBuffers = field(default_factory=LongerBuffers)

    def rewritten(self) -> tirx.PrimFunc:
        """The function with this loop over whole rows."""
        wide = {self.row: self.whole}
        for plan in self.loop.blocks:
            self._longer.lengthen(plan, wide)
        wider = {plan.name: (plan, wide) for plan in (*self.loop.blocks, *self.loop.after)}
        return self._longer.rewritten(self.func, wider, self._body)

    def _body(self, block: s_tir.SBlock, wide: Wide, iters: Sequence[tirx.IterVar], copies: PaddedCopies) -> tirx.Stmt:
        """What a block of the loop does over whole rows, its product unguarded and of padded operands."""
        plan, body, ragged = wide[0], block.body, not same_extent(self.whole, self.rows)
        row = plan.variables[self.row]
        if plan in self.loop.after:
            exists = prim.LT(row, as_index(self.rows, dtype_of(row)))
            return tirx.IfThenElse(exists, body, None) if ragged else body
        if plan.name in self.products:
            domain = {iv.var: iv.dom.extent for iv in iters}
            inside = [store.buffer for other in self.loop.blocks for store in other.stores]
            hidden = plan.name in self.hidden
            body = copies.padded(body, domain, inside, list(domain) if hidden else [row])
            straight = without_guard(body)
            body = straight if hidden and copies.reads_inside(straight, domain, inside) else body
        if not ragged:
            return body
        last = tirx.min(row, as_index(self.rows, dtype_of(row)) - 1)
        return reading_at(body, row, last, [*self._longer.old(), *copies.buffers()])
