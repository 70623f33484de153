"""Single products in full register tiles: rows and columns are rounded up, operands padded with zeros.

    for i in 577, j in 577, d: s[i, j] += q[i, d] * k[j, d]   ->   q_whole, k_whole: zeros past the end
                                                                  for i in 592, j in 592, d: s_whole[i, j] += …

So are lengths that are known at the call alone. A temporary becomes as much longer; what the caller is given is
computed in a longer one and copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tvm import s_tir, sym, tirx

from tvm_cascade.analysis.tir import Extent, ceil_div, dtype_of
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.microkernel import (
    MOST_ROWS,
    Contraction,
    product_alone,
    row_block,
    terms_of,
    tile_cycles,
    tile_of_unknown,
)
from tvm_cascade.schedule.nest_schedule import power_of_two_divisor
from tvm_cascade.schedule.nests import BlockPlan, plan_alone
from tvm_cascade.schedule.padding import LongerBuffers, PaddedCopies, Wide, reading_at

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

    def body(block: s_tir.SBlock, wide: Wide, iters: Sequence[tirx.IterVar], copies: PaddedCopies) -> tirx.Stmt:
        if block.name_hint in products:
            domain = {iv.var: iv.dom.extent for iv in iters}
            return copies.padded(block.body, domain, longer.old(), list(domain))
        found, axes = block.body, {wide[0].variables[axis] for axis in wide[1]}
        for iv in block.iter_vars:  # past the end it is what it is at the last
            found = reading_at(found, iv.var, tirx.min(iv.var, iv.dom.extent - 1), []) if iv.var in axes else found
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
    now, least = _Blocks(rows, wide, cpu, plan.dtype, terms_of(plan)), -(-wide // lanes)
    whole = [replace(now, lanes=count * lanes) for count in range(least, least + MORE_VECTORS + 1)]
    more = whole[0].rounded()
    found: dict[int, Extent] = {}
    if whole[0].cycles(row_block(rows)) > GAIN * whole[0].cycles(row_block(more)):
        found[contraction.broadcast] = rows = more
    best = min(whole, key=lambda one: one.cycles(row_block(rows)))
    if now.cycles(row_block(rows)) > GAIN * best.cycles(row_block(rows)):
        found[contraction.lanes] = best.lanes
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


@dataclass(frozen=True)
class _Blocks:
    """The rows of a product, how many `lanes` each has, and the terms of a block of their sums."""

    rows: int
    lanes: int
    cpu: Cpu
    dtype: str
    terms: int

    def rounded(self) -> int:
        """The rows rounded up to blocks of the size at which they take the least time."""
        sizes = range(1, min(self.rows, MOST_ROWS) + 1)
        return min((self.cycles(size), -(-self.rows // size) * size) for size in sizes)[1]

    def cycles(self, size: int) -> float:
        """Cycles of one step over k with row tiles of this size."""
        most = tile_cycles(self.lanes, MOST_ROWS, self.cpu, self.dtype, self.terms) / MOST_ROWS
        block = tile_cycles(self.lanes, size, self.cpu, self.dtype, self.terms) + BLOCK_ROWS * most
        return -(-self.rows // size) * block


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
