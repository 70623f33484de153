"""Joins a block that initialises a buffer with the block that goes on to accumulate into it.

for i: s[i] = a;  for i, j: s[i] = s[i] + e     →  for i, j: with init: s[i] = a;  s[i] = s[i] + e
for i: s[i] = a;  for i: s[i] = s[i] + e        →  for i: s[i] = a + e

That is the same where nothing touches s between the two, both run over the same elements of it, and what a is computed
from stays as it was. Over no positions a block with init leaves s as it found it, so that the lengths must be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.extent import Extent, extent_of, same_extent
from tvm_cascade.analysis.reducers import combiner_of
from tvm_cascade.analysis.statements import (
    mentions,
    realized_block,
    renewed,
    replaced,
    uses_of,
    why_not_plain,
    with_block,
)
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, dtype_of, loads_of, reads_buffer, substitute
from tvm_cascade.analysis.update import single_store, split_update


@dataclass(frozen=True)
class _Store:
    """The store that a plain nest amounts to, without an init."""

    nest: tirx.Stmt
    block: s_tir.SBlock
    store: tirx.BufferStore
    extents: dict[tirx.Var, Extent]

    def at(self, index: ir.Expr) -> tirx.Var | int | None:
        """An index as a variable of the block or as a constant, which a variable over one position is too."""
        if isinstance(index, prim.IntImm):
            return int(index)
        own = next((var for var in self.extents if var.same_as(index)), None)
        return 0 if own is not None and self.extents[own] == 1 else own

    def over(self) -> list[tirx.Var]:
        """The block's variables over more than one position."""
        return [var for var, extent in self.extents.items() if extent != 1]


def filled_first(nests: Sequence[tirx.Stmt]) -> list[tirx.Stmt]:
    """The nests with each fill made the init of the reduction that accumulates into its buffer."""
    found: list[tirx.Stmt | None] = list(nests)
    for position, nest in enumerate(nests):
        later = _store_of(nest)
        if later is None or not reads_buffer(later.store.value, later.store.buffer):
            continue
        before = next((k for k in reversed(range(position)) if _touches(found[k], later.store.buffer)), None)
        if before is None:
            continue
        one = found[before]
        earlier = None if one is None else _store_of(one)
        between = [other for other in found[before + 1 : position] if other is not None]
        if earlier is None or not earlier.store.buffer.same_as(later.store.buffer) or not _stays(earlier, between):
            continue
        if (joined := _joined(earlier, later)) is not None:
            found[before], found[position] = None, joined
    return [nest for nest in found if nest is not None]


def _touches(nest: tirx.Stmt | None, buffer: tirx.Var) -> bool:
    return nest is not None and mentions(nest, buffer)


def _store_of(nest: tirx.Stmt) -> _Store | None:
    """The store of a nest over whole domains, each loop a variable of its block."""
    realize = realized_block(nest)
    if realize is None or realize.block.init is not None or why_not_plain(nest) is not None:
        return None
    store = single_store(realize.block.body)
    if store is None:
        return None
    extents = {iv.var: extent_of(iv.dom.extent) for iv in realize.block.iter_vars}
    return _Store(nest, realize.block, store, extents)


def _stays(fill: _Store, between: Sequence[tirx.Stmt]) -> bool:
    """Whether a fill is a function of what no nest between writes."""
    read = [load.source for e in (fill.store.value, *fill.store.indices) for load in loads_of(e)]
    if any(buffer.same_as(fill.store.buffer) for buffer in read):
        return False
    for nest in between:
        known = realized_block(nest)
        written = (
            [buffer for buffer, _ in uses_of(nest)[1]] if known is not None else [b for b in read if mentions(nest, b)]
        )
        if any(buffer.same_as(other) for buffer in read for other in written):
            return False
    return True


def _joined(fill: _Store, later: _Store) -> tirx.Stmt | None:
    """The later nest, started by the fill; None where they are not over the same elements."""
    starts = _start_at(fill, later)
    own = tirx.BufferLoad(later.store.buffer, list(later.store.indices))
    update = split_update(later.store.value, own, starts)
    if starts is None or update is None or update.element is None or update.reducer is None:
        return None
    if any(reads_buffer(e, later.store.buffer) for e in (update.element, *later.store.indices)):
        return None
    indices = list(later.store.indices)
    rows = [var for var in later.over() if any(var.same_as(index) for index in indices)]
    reduced = [var for var in later.over() if not any(var.same_as(row) for row in rows)]
    if not all(isinstance(extent, int) and extent > 0 for extent in map(later.extents.__getitem__, reduced)):
        return None
    if not reduced:
        value = combiner_of(update.reducer)(starts, update.element)
        body = replaced(later.block, tirx.BufferStore(later.store.buffer, value, indices), None)
        return renewed(with_block(later.nest, later.block, body))
    iters = [
        tirx.IterVar(iv.dom, iv.var, REDUCTION if any(iv.var.same_as(v) for v in reduced) else DATA_PARALLEL)
        for iv in later.block.iter_vars
    ]
    init = tirx.BufferStore(later.store.buffer, starts, indices)
    return renewed(with_block(later.nest, later.block, replaced(later.block, later.block.body, init, iters)))


def _start_at(fill: _Store, later: _Store) -> ir.Expr | None:
    """What the fill stores at the indices of the later store; None where one of them is over other elements."""
    values: dict[tirx.Var, ir.Expr] = {}
    for written, index in zip(fill.store.indices, later.store.indices, strict=True):
        one, other = fill.at(written), later.at(index)
        if isinstance(one, int) and one == other:
            continue
        if not isinstance(one, ir.Var) or not isinstance(other, ir.Var) or dtype_of(one) != dtype_of(other):
            return None
        taken = any(one.same_as(v) or other.same_as(w) for v, w in values.items())
        if taken or not same_extent(fill.extents[one], later.extents[other]):
            return None
        values[one] = other
    if any(not any(var.same_as(key) for key in values) for var in fill.over()):
        return None
    values |= {var: tirx.const(0, dtype_of(var)) for var, extent in fill.extents.items() if extent == 1}
    return substitute(fill.store.value, values)
