"""Moves a reduction's store at the first position of its axis into the block's init.

if k == 0: s = a;  s = s ⊕ e                →  with init: s = a;  s = s ⊕ e
s = select(k == 0, a, s) ⊕ e                →  with init: s = a;  s = s ⊕ e
s = select(k == 0, a, s ⊕ e)                →  with init: s = identity;  s = s ⊕ select(k == 0, a, e)

The nest is one of loops from 0, so that the first position comes first. Of an extremum the identity is the infinity:
nothing else leaves a first element of −∞ as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.bindings import alone
from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.index_sets import cover
from tvm_cascade.analysis.reducers import combiner_of, identity_of, single_store, split_update
from tvm_cascade.analysis.statements import (
    mentions,
    realized_block,
    renewed,
    replaced,
    uses_of,
    why_not_plain,
    with_block,
)
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    REDUCTION,
    Extent,
    conjuncts,
    dtype_of,
    extent_of,
    loads_of,
    reads_buffer,
    same,
    substitute,
    uses,
    zero_of,
)


def started(nest: tirx.Stmt) -> tirx.Stmt:
    """The nest with an init where its block initialises itself at the first position; else the same object."""
    realize = realized_block(nest)
    if realize is None or realize.block.init is not None or why_not_plain(nest) is not None:
        return nest
    block = realize.block
    if (found := _started(block)) is None:
        return nest
    init, body, reduced = found
    return renewed(with_block(nest, block, replaced(block, body, init, _reducing(block, reduced))))


def _reducing(block: s_tir.SBlock, reduced: Sequence[tirx.Var]) -> list[tirx.IterVar]:
    """The iterators of a block, some of which are reduced."""
    kinds = {iv.var: REDUCTION if iv.var in {*reduced} else DATA_PARALLEL for iv in block.iter_vars}
    return [tirx.IterVar(iv.dom, iv.var, kinds[iv.var]) for iv in block.iter_vars]


Parts = tuple[tirx.Stmt, tirx.Stmt, list[tirx.Var]]
"""An init, a body, and the variables that are reduced."""


def _started(block: s_tir.SBlock) -> Parts | None:
    """s = select(first, a, s) ⊕ e, or s = select(first, a, s ⊕ e)."""
    store = single_store(block.body)
    if store is None:
        return None
    reduced, indices = _reduced(block, store), list(store.indices)
    own = tirx.BufferLoad(store.buffer, indices)
    starts: list[ir.Expr] = []

    def without(choice: ir.Expr) -> ir.Expr:
        condition, chosen, other = selection_of(choice) or (None, None, None)
        if condition is None or not _is_first(condition, reduced) or not same(other, own):
            return choice
        starts.append(chosen)
        return own

    value = tvm_ffi.structural_map(store.value, [(ir.Call, without), (prim.Select, without)])
    if len(starts) == 1:
        if reads_buffer(starts[0], store.buffer) or split_update(value, own) is None:
            return None
        return _init(store, starts[0], reduced), tirx.BufferStore(store.buffer, value, indices), reduced
    condition, chosen, other = selection_of(store.value) or (None, None, None)
    if starts or condition is None or not _is_first(condition, reduced) or reads_buffer(chosen, store.buffer):
        return None
    update = split_update(other, own)
    if update is None or update.reducer is None or update.element is None:
        return None
    element = update.element
    if reads_buffer(element, store.buffer):
        return None
    element = element if same(chosen, element) else tirx.if_then_else(condition, chosen, element)
    reducer = update.reducer
    identity = identity_of(reducer.from_infinity if reducer.ordered else reducer, dtype_of(store.buffer))
    body = tirx.BufferStore(store.buffer, combiner_of(reducer)(own, element), indices)
    return _init(store, identity, reduced), body, reduced


def _init(store: tirx.BufferStore, value: ir.Expr, reduced: list[tirx.Var]) -> tirx.BufferStore:
    first = substitute(value, {var: zero_of(var) for var in reduced})
    return tirx.BufferStore(store.buffer, first, list(store.indices))


def _reduced(block: s_tir.SBlock, store: tirx.BufferStore) -> list[tirx.Var]:
    """The variables that a store accumulates over: none of its indices uses them, and all others are indices."""
    over = [iv.var for iv in block.iter_vars if extent_of(iv.dom.extent) != 1]
    rows = {*store.indices}
    reduced = [var for var in over if var not in rows]
    return reduced if not any(uses(index, reduced) for index in store.indices) else []


def _is_first(condition: ir.Expr, reduced: list[tirx.Var]) -> bool:
    """Whether a condition says that all of the variables are at 0, and nothing else."""
    at_zero: list[tirx.Var] = []
    for one in conjuncts(condition):
        sides = [(one.a, one.b), (one.b, one.a)] if isinstance(one, prim.EQ) else []
        var = next((a for a, b in sides if isinstance(b, prim.IntImm) and int(b) == 0), None)
        if var is None or var not in {*reduced}:
            return False
        at_zero.append(var)
    return bool(reduced) and {*reduced} <= {*at_zero}


# Joins a block that initialises a buffer with the block that goes on to accumulate into it.
#
# for i: s[i] = a;  for i, j: s[i] = s[i] + e     →  for i, j: with init: s[i] = a;  s[i] = s[i] + e
# for i: s[i] = a;  for i: s[i] = s[i] + e        →  for i: s[i] = a + e
#
# That is the same where nothing touches s between the two, both run over the same elements of it, and what a is
# computed from stays as it was. Over no positions a block with init leaves s as it found it, so that the lengths must
# be known.


@dataclass(frozen=True)
class _Store:
    """The store that a plain nest amounts to, without an init; `over` are its variables of more than one position."""

    nest: tirx.Stmt
    block: s_tir.SBlock
    store: tirx.BufferStore
    over: dict[tirx.Var, Extent]


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
    over = {iv.var: extent_of(iv.dom.extent) for iv in realize.block.iter_vars if extent_of(iv.dom.extent) != 1}
    return _Store(nest, realize.block, store, over)


def _stays(fill: _Store, between: Sequence[tirx.Stmt]) -> bool:
    """Whether a fill is a function of what no nest between writes."""
    read = [load.source for e in (fill.store.value, *fill.store.indices) for load in loads_of(e)]
    if fill.store.buffer in {*read}:
        return False
    for nest in between:
        known = realized_block(nest)
        written = (
            [buffer for buffer, _ in uses_of(nest)[1]] if known is not None else [b for b in read if mentions(nest, b)]
        )
        if not {*read}.isdisjoint(written):
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
    reduced = [var for var in later.over if var not in {*indices}]
    if not all(isinstance(extent, int) and extent > 0 for extent in map(later.over.__getitem__, reduced)):
        return None
    if not reduced:
        value = combiner_of(update.reducer)(starts, update.element)
        body = replaced(later.block, tirx.BufferStore(later.store.buffer, value, indices), None)
        return renewed(with_block(later.nest, later.block, body))
    iters = _reducing(later.block, reduced)
    init = tirx.BufferStore(later.store.buffer, starts, indices)
    return renewed(with_block(later.nest, later.block, replaced(later.block, later.block.body, init, iters)))


def _start_at(fill: _Store, later: _Store) -> ir.Expr | None:
    """What the fill stores at the indices of the later store; None where one of them is over other elements."""
    shape, units = fill.store.buffer.ty.shape, alone(fill.block) | alone(later.block)
    filled, stored = ([substitute(index, units) for index in one.store.indices] for one in (fill, later))
    more = cover(filled, fill.over, stored, later.over, shape)
    if not more or not cover(stored, later.over, filled, fill.over, shape):
        return None
    values = {one: other for one, other in zip(filled, stored, strict=True) if one in fill.over}
    fit = len(values) == len(fill.over) and all(dtype_of(one) == dtype_of(other) for one, other in values.items())
    return substitute(fill.store.value, units | values) if fit else None
