"""Moves a reduction's store at the first position of its axis into the block's init.

if k == 0: s = a;  s = s ⊕ e                →  with init: s = a;  s = s ⊕ e
s = select(k == 0, a, s) ⊕ e                →  with init: s = a;  s = s ⊕ e
s = select(k == 0, a, s ⊕ e)                →  with init: s = identity;  s = s ⊕ select(k == 0, a, e)

The nest is one of loops from 0, so that the first position comes first. Of an extremum the identity is the infinity:
nothing else leaves a first element of −∞ as it is.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.extent import extent_of
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.statements import realized_block, renewed, replaced, why_not_plain, with_block
from tvm_cascade.analysis.tir import DATA_PARALLEL, REDUCTION, dtype_of, reads_buffer, same, substitute, uses
from tvm_cascade.analysis.update import single_store, split_update


def started(nest: tirx.Stmt) -> tirx.Stmt:
    """The nest with an init where its block initialises itself at the first position; else the same object."""
    realize = realized_block(nest)
    if realize is None or realize.block.init is not None or why_not_plain(nest) is not None:
        return nest
    block = realize.block
    found = _by_statement(block) or _by_value(block)
    if found is None:
        return nest
    init, body, reduced = found
    iters = [
        tirx.IterVar(iv.dom, iv.var, REDUCTION if any(iv.var.same_as(v) for v in reduced) else DATA_PARALLEL)
        for iv in block.iter_vars
    ]
    return renewed(with_block(nest, block, replaced(block, body, init, iters)))


Parts = tuple[tirx.Stmt, tirx.Stmt, list[tirx.Var]]
"""An init, a body, and the variables that are reduced."""


def _by_statement(block: s_tir.SBlock) -> Parts | None:
    """if first: s = a;  s = s ⊕ e."""
    parts = list(block.body.seq) if isinstance(block.body, tirx.SeqStmt) else []
    if len(parts) != 2 or not isinstance(parts[0], tirx.IfThenElse) or parts[0].else_case is not None:
        return None
    first, store = single_store(parts[0].then_case), single_store(parts[1])
    if first is None or store is None or not first.buffer.same_as(store.buffer):
        return None
    reduced = _reduced(block, store)
    plain = same(list(first.indices), list(store.indices)) and not reads_buffer(first.value, store.buffer)
    if not plain or not _is_first(parts[0].condition, reduced):
        return None
    return _init(store, first.value, reduced), parts[1], reduced


def _by_value(block: s_tir.SBlock) -> Parts | None:
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
    """The store of a value at the first position."""
    first = substitute(value, {var: tirx.const(0, dtype_of(var)) for var in reduced})
    return tirx.BufferStore(store.buffer, first, list(store.indices))


def _reduced(block: s_tir.SBlock, store: tirx.BufferStore) -> list[tirx.Var]:
    """The variables that a store accumulates over: none of its indices uses them, and all others are indices."""
    over = [iv.var for iv in block.iter_vars if extent_of(iv.dom.extent) != 1]
    rows = [var for var in over if any(var.same_as(index) for index in store.indices)]
    reduced = [var for var in over if not any(var.same_as(row) for row in rows)]
    return reduced if not any(uses(index, reduced) for index in store.indices) else []


def _is_first(condition: ir.Expr, reduced: list[tirx.Var]) -> bool:
    """Whether a condition says that all of the variables are at 0, and nothing else."""
    pending, at_zero = [condition], list[tirx.Var]()
    while pending:
        one = pending.pop()
        if isinstance(one, prim.And):
            pending += [one.a, one.b]
            continue
        sides = [(one.a, one.b), (one.b, one.a)] if isinstance(one, prim.EQ) else []
        var = next((a for a, b in sides if isinstance(b, prim.IntImm) and int(b) == 0), None)
        if var is None or not any(v.same_as(var) for v in reduced):
            return False
        at_zero.append(var)
    return bool(reduced) and all(any(v.same_as(var) for var in at_zero) for v in reduced)
