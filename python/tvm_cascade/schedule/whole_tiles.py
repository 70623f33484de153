"""Full tiles: rows are rounded up to vectors and operands padded, so that inner loops have no guards.

    for i in 577: for tile: for j in 289: s[i, j] += if(at(j) < 577, q[i, d] * k[at(j), d], 0)
    ->  q_whole[i in 592] = if(i < 577, q[i], 0);  k_whole[p in 578] = if(p < 577, k[p], 0)
        for i in 592: for tile: for j in 289: s[i, j] += q_whole[i, d] * k_whole[at(j), d]

Rows past the last compute what the last one does, in temporaries that are as much longer; results stay as long as they
are. A schedule moves the copies into the loop, next to the tile that they are for, and may lay them out on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.analysis.tir import (
    Extent,
    as_index,
    ceil_div,
    dtype_of,
    loads_of,
    more_than_one,
    same,
    same_extent,
    substitute,
)
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import (
    MOST_ROWS,
    Contraction,
    find_contraction,
    product_alone,
    row_block,
    terms_of,
    tile_cycles,
    tile_of_unknown,
)
from tvm_cascade.schedule.nest_schedule import power_of_two_divisor
from tvm_cascade.schedule.nests import BlockPlan, plan_alone
from tvm_cascade.schedule.padding import LongerBuffers, PaddedCopies, Wide, guard_of, reading_at, without_guard
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
        func = _over_whole_rows(func, read_fused_loops(func)[number], cpu)
    return func


def _over_whole_rows(func: tirx.PrimFunc, loop: FusedLoop, cpu: Cpu) -> tirx.PrimFunc:
    """The function with a loop over whole rows, where it contracts something over them and has no full tiles yet."""
    if not loop.rows:
        return func
    row = contracted_row(loop)
    outside = frozenset(loop.rows) - {row}
    products = {
        plan.name
        for plan in loop.blocks
        if plan.role in ("producer", "partial")
        and (find_contraction(plan, row, outside) or find_contraction(plan, None, outside))
    }
    rows = loop.blocks[0].extents[row]
    tiled = [plan for plan in loop.blocks if plan.role in TILE_ROLES]
    whole = padded_rows(loop, row, cpu, max(cpu.lanes(plan.dtype) for plan in tiled))
    inside, ragged = [store.buffer for plan in loop.blocks for store in plan.stores], not same_extent(whole, rows)
    if not products or not more_than_one(rows) or not {*inside}.isdisjoint(func.params):
        return func
    if not ragged and not loop.guarded:
        return func
    hidden, longer = {name for name in products if _is_hidden(func, loop, name)}, LongerBuffers()
    for plan in loop.blocks:
        longer.lengthen(plan, {row: whole})

    def body(block: s_tir.SBlock, wide: Wide, copies: PaddedCopies) -> tirx.Stmt:
        """What a block of the loop does over whole rows, its product unguarded and of padded operands."""
        plan, found = wide[0], block.body
        at = plan.variables[row]
        end = as_index(rows, dtype_of(at))
        if plan in loop.after:
            return tirx.IfThenElse(prim.LT(at, end), found, None) if ragged else found
        if plan.name in products:
            domain = {iv.var: iv.dom.extent for iv in block.iter_vars}
            found = copies.padded(found, domain, inside, list(domain) if plan.name in hidden else [at])
            straight = without_guard(found)
            if plan.name in hidden and copies.reads_inside(straight, domain, inside):
                found = straight
        return reading_at(found, at, tirx.min(at, end - 1), [*longer.old(), *copies.buffers()]) if ragged else found

    wider: dict[str, Wide] = {plan.name: (plan, {row: whole}) for plan in (*loop.blocks, *loop.after)}
    return longer.rewritten(func, wider, body)


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


# Single products in full register tiles: rows and columns are rounded up, operands padded with zeros.
#
#     for i in 577, j in 577, d: s[i, j] += q[i, d] * k[j, d]   ->   q_whole, k_whole: zeros past the end
#                                                                   for i in 592, j in 592, d: s_whole[i, j] += …
#
# So are lengths that are known at the call alone. A temporary becomes as much longer; what the caller is given is
# computed in a longer one and copied.


GAIN = 1.1
"""How much faster whole register tiles must look: copies take time as well."""

MORE_VECTORS = 3
"""Of lanes beyond those that they need, at most, for a number of vectors that register tiles divide."""

BLOCK_ROWS = 8
"""Rows whose time a block takes beyond that of its own: it reads the whole other operand."""


def whole_products(func: tirx.PrimFunc, cpu: Cpu) -> tirx.PrimFunc:
    """The unfused function with full register tiles in its products; the same object where nothing changes.

    Parameters
    ----------
    func : plain nests, not scheduled.
    cpu : to whose vectors lanes are rounded up.
    """
    plans = plan_alone(func)
    products: dict[str, Wide] = {plan.name: (plan, found) for plan in plans if (found := _rounded(plan, cpu))}
    if not products:
        return func
    wider, longer = {**products, **_writers(func, plans, products)}, LongerBuffers()
    for plan, extents in wider.values():
        longer.lengthen(plan, extents)

    def body(block: s_tir.SBlock, wide: Wide, copies: PaddedCopies) -> tirx.Stmt:
        if block.name_hint in products:
            domain = {iv.var: iv.dom.extent for iv in block.iter_vars}
            return copies.padded(block.body, domain, longer.old(), list(domain))
        plan, found = wide[0], block.body
        for axis in wide[1]:  # past the end it is what it is at the last
            var, extent = plan.variables[axis], plan.extents[axis]
            found = reading_at(found, var, tirx.min(var, as_index(extent, dtype_of(var)) - 1), [])
        return found

    return longer.rewritten(func, wider, body)


def _rounded(plan: BlockPlan, cpu: Cpu) -> dict[int, Extent]:
    """The axes of a product that are rounded up, with their extents."""
    contraction = product_alone(plan, cpu) if not plan.role else None
    if contraction is None:
        return {}
    extents = plan.extents[contraction.lanes], plan.extents[contraction.broadcast]
    if not all(isinstance(extent, int) for extent in extents):
        return _rounded_unknown(plan, contraction, cpu)
    written = [plan.axis_at(index) for index in plan.stores[0].indices]
    lanes = cpu.lanes(plan.dtype)
    wide, rows = int(plan.extents[contraction.lanes]), int(plan.extents[contraction.broadcast])
    if wide < lanes or contraction.lanes not in written or contraction.broadcast not in written:
        return {}
    given, terms, least = rows, terms_of(plan), -(-wide // lanes)

    def cycles(lanes: int, size: int) -> float:
        """Of one step over k, with row tiles of a size."""
        most = tile_cycles(lanes, MOST_ROWS, cpu, plan.dtype, terms) / MOST_ROWS
        return -(-given // size) * (tile_cycles(lanes, size, cpu, plan.dtype, terms) + BLOCK_ROWS * most)

    whole = [count * lanes for count in range(least, least + MORE_VECTORS + 1)]
    sizes = range(1, min(rows, MOST_ROWS) + 1)
    more = min((cycles(whole[0], size), -(-rows // size) * size) for size in sizes)[1]
    found: dict[int, Extent] = {}
    if cycles(whole[0], row_block(rows)) > GAIN * cycles(whole[0], row_block(more)):
        found[contraction.broadcast] = rows = more
    best = min(whole, key=lambda one: cycles(one, row_block(rows)))
    if cycles(wide, row_block(rows)) > GAIN * cycles(best, row_block(rows)):
        found[contraction.lanes] = best
    return found


def _rounded_unknown(plan: BlockPlan, contraction: Contraction, cpu: Cpu) -> dict[int, Extent]:
    """The axes of a product of unknown lanes or rows, which are rounded up to whole register tiles."""
    lanes = cpu.lanes(plan.dtype)
    wide = plan.extents[contraction.lanes]
    whole: dict[int, Extent] = {}
    if isinstance(wide, int) and lanes / power_of_two_divisor(wide, lanes) * wide > GAIN * -(-wide // lanes) * lanes:
        whole[contraction.lanes] = -(-wide // lanes) * lanes
        plan = replace(plan, extents={**plan.extents, **whole})
    width, vectors, tall = tile_of_unknown(plan, contraction, cpu)
    for axis, size in ((contraction.lanes, width * vectors), (contraction.broadcast, tall)):
        extent = plan.extents[axis]
        if not isinstance(extent, int) and not sym.Analyzer().can_prove_equal(tirx.floormod(extent, size), 0):
            # One tile at least: places of tiles are divided by their number.
            whole[axis] = ceil_div(tirx.max(extent, tirx.const(1, dtype_of(extent))), size) * size
    return whole


def _writers(func: tirx.PrimFunc, plans: list[BlockPlan], products: Mapping[str, Wide]) -> dict[str, Wide]:
    """Elementwise nests whose temporaries products read past the end, which then run as far; others are copied."""
    found: dict[str, Wide] = {}
    for product, wide in products.values():
        for access in product.loads:
            writers = [plan for plan in plans if any(s.buffer.same_as(access.buffer) for s in plan.stores)]
            given = access.buffer in {*func.params}
            if given or len(writers) != 1 or writers[0].reduce or len(writers[0].stores) != 1 or writers[0].role:
                continue
            written = [writers[0].axis_at(index) for index in writers[0].stores[0].indices]
            read = [product.axis_at(index) for index in access.indices]
            pairs = ((w, r) for w, r in zip(written, read, strict=True) if w is not None and r is not None)
            extents = {w: wide[r] for w, r in pairs if r in wide}
            if extents and writers[0].name not in products:
                earlier = found.get(writers[0].name, (writers[0], {}))[1]
                found[writers[0].name] = (writers[0], {**earlier, **extents})
    return found
