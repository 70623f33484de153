"""Reducers in TensorIR: which one a store applies, and its identity as a constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, MAX, MIN, REDUCERS, Reducer
from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.tir import dtype_of, reads_buffer, same, substitute


def combiner_of(reducer: Reducer) -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    return getattr(prim, reducer.tir[0])


def applied_reducer(value: ir.Expr) -> tuple[Reducer, ir.Expr, ir.Expr] | None:
    """(⊕, a, b) where an expression is a ⊕ b; None for anything else."""
    call = isinstance(value, ir.Call) and isinstance(value.op, ir.Op)
    name = value.op.name.split(".")[-1] if call else type(value).__name__
    for reducer in REDUCERS.values():
        if name in reducer.tir and (not reducer.logical or dtype_of(value) == "bool"):
            a, b = value.args if call else (value.a, value.b)
            return reducer, a, b
    return None


def split_reduction(store: tirx.BufferStore) -> tuple[Reducer, ir.Expr] | None:
    """(⊕, e) of `buffer[i] = buffer[i] ⊕ e`, in either order; None for anything else."""
    if (applied := applied_reducer(store.value)) is None:
        return None
    reducer, a, b = applied
    own = tirx.BufferLoad(store.buffer, list(store.indices))
    for mine, element in ((a, b), (b, a)):
        if same(mine, own) and not reads_buffer(element, store.buffer):
            return reducer, element
    return None


def starts_at_identity(reducer: Reducer, init: ir.Expr) -> bool:
    """Whether a reduction's init is ⊕'s identity in its dtype."""
    if not isinstance(init, (prim.FloatImm, prim.IntImm)):
        return False
    return started_at(reducer, init).infinite or same(init, identity_of(reducer, dtype_of(init)))


def started_at(reducer: Reducer, init: ir.Expr | None) -> Reducer:
    """The reducer with the program's init: its infinite identity where the init is that."""
    infinite = reducer.ordered and isinstance(init, prim.FloatImm) and float(init) == float(reducer.identity)
    return reducer.from_infinity if infinite else reducer


def extreme(symbol: sp.Expr, dtype: str) -> ir.Expr | None:
    """The dtype's own lowest or highest value, or an infinity, as a constant; None for any other expression."""
    table: dict[sp.Expr, Callable[[], ir.Expr]] = {
        LOWEST: lambda: tirx.min_value(dtype),
        HIGHEST: lambda: tirx.max_value(dtype),
        -sp.oo: lambda: tirx.const(float("-inf"), dtype) if _has_infinity(dtype) else tirx.min_value(dtype),
        sp.oo: lambda: tirx.const(float("inf"), dtype) if _has_infinity(dtype) else tirx.max_value(dtype),
    }
    return table[symbol]() if symbol in table else None


def _has_infinity(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16", "float32", "float64")


def identity_of(reducer: Reducer, dtype: str) -> ir.Expr:
    """⊕'s neutral element as a constant; for max and min the dtype's own lowest and highest value, as TVM has it.

    For those that a program starts at an infinity, it is that.
    """
    if (bound := extreme(reducer.neutral, dtype)) is not None:
        return bound
    return tirx.const((float if dtype.startswith(("float", "bfloat")) else int)(reducer.neutral), dtype)


# Recognises accumulation: a store as `acc ⊕ e`, however it is written.
#
# acc + a − b, select(c, acc + e, acc), if c: acc = acc ⊕ e, select(e > acc, e, acc) and lets before the store all
# become one ⊕ and one element. The element of a position at which nothing happens is ⊕'s identity.


_GREATER = {prim.GT: MAX, prim.GE: MAX, prim.LT: MIN, prim.LE: MIN}
"""What select(a > b, a, b) is, for each comparison."""


@dataclass(frozen=True)
class Update:
    """acc ⊕ element; `reducer` and `element` are None where the value is acc itself."""

    reducer: Reducer | None
    element: ir.Expr | None


def single_store(body: tirx.Stmt) -> tirx.BufferStore | None:
    """A block's body as one store, with lets substituted and conditions as selections; None where it is not one."""
    stores = stores_at_once(body)
    return stores[0] if stores is not None and len(stores) == 1 else None


def stores_at_once(body: tirx.Stmt) -> list[tirx.BufferStore] | None:
    """The last stores of a body, with what they store in what was there before the body; None for other statements.

    None as well where an element is read, or stored again, beside one of the same buffer that was stored.
    """
    lets: dict[tirx.Var, ir.Expr] = {}
    stores: dict[tirx.Var, tirx.BufferStore] = {}
    beside: list[ir.TensorLoad | tirx.BufferStore] = []

    def is_there(one: ir.TensorLoad | tirx.BufferStore, buffer: tirx.Var) -> bool:
        if (known := stores.get(buffer)) is not None and not same(list(known.indices), list(one.indices)):
            beside.append(one)
        return known is not None

    def before(value: ir.Expr) -> ir.Expr:
        def replace(load: ir.TensorLoad) -> ir.Expr:
            return stores[load.source].value if is_there(load, load.source) else load

        # Loads first: what a let stands for was read when it was bound.
        read = tvm_ffi.structural_map(value, (ir.TensorLoad, replace)) if stores else value
        return substitute(read, lets) if lets else read

    for statement in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        store = _selected(statement) if isinstance(statement, tirx.IfThenElse) else statement
        if isinstance(store, tirx.Bind):
            lets[store.var] = before(store.value)
        elif isinstance(store, tirx.BufferStore):
            new = tirx.BufferStore(store.buffer, before(store.value), list(map(before, store.indices)))
            is_there(new, store.buffer)
            stores[store.buffer] = new
        else:
            return None
    return None if beside else list(stores.values())


def _selected(branch: tirx.IfThenElse) -> tirx.BufferStore | None:
    """if c: a[i] = x; else: a[i] = y  →  a[i] = if_then_else(c, x, y), with a[i] for y where there is no else."""
    chosen = single_store(branch.then_case)
    other = None if branch.else_case is None else single_store(branch.else_case)
    if chosen is None or (branch.else_case is not None and other is None):
        return None
    if other is None:
        value = tirx.BufferLoad(chosen.buffer, list(chosen.indices))
    elif other.buffer.same_as(chosen.buffer) and same(list(other.indices), list(chosen.indices)):
        value = other.value
    else:
        return None
    return tirx.BufferStore(
        chosen.buffer, tirx.if_then_else(branch.condition, chosen.value, value), list(chosen.indices)
    )


def split_update(value: ir.Expr, own: ir.TensorLoad, start: ir.Expr | None = None) -> Update | None:
    """⊕ and e where a value is `own ⊕ e`; None where it is not.

    Parameters
    ----------
    own : the load of what is accumulated into.
    start : what it is before, where that is known: of a max that starts at −∞ nothing else is neutral.
    """
    if same(value, own):
        return Update(None, None)
    if parts := selection_of(value):
        return _split_selection(value, parts, own, start)
    inverse = next((r for r in REDUCERS.values() if r.inverse == type(value).__name__), None)
    applied = applied_reducer(value) if inverse is None else (inverse, value.a, value.b)
    if applied is None:
        return None
    reducer, a, b = applied
    if _reads(a, own) == _reads(b, own) or (inverse is not None and _reads(b, own)):
        return None
    accumulated, other = (a, b) if _reads(a, own) else (b, a)
    inner = split_update(accumulated, own, start)
    if inner is None or inner.reducer not in (None, reducer):
        return None
    combine = combiner_of(reducer) if inverse is None else type(value)
    if inner.element is not None:
        return Update(reducer, combine(inner.element, other))
    return Update(reducer, other if inverse is None else combine(identity_of(reducer, dtype_of(other)), other))


def _reads(expression: ir.Expr, own: ir.TensorLoad) -> bool:
    return reads_buffer(expression, own.source)


def _split_selection(
    value: ir.Expr, parts: tuple[ir.Expr, ir.Expr, ir.Expr], own: ir.TensorLoad, start: ir.Expr | None
) -> Update | None:
    condition, chosen, other = parts
    if _reads(condition, own):
        return _split_comparison(condition, chosen, other, own)
    both = split_update(chosen, own, start), split_update(other, own, start)
    if both[0] is None or both[1] is None:
        return None
    reducers = {update.reducer for update in both if update is not None} - {None}
    if len(reducers) != 1:
        return None
    (reducer,) = reducers
    assert reducer is not None
    neutral = identity_of(started_at(reducer, start), dtype_of(own))
    elements = [neutral if u is None or u.element is None else u.element for u in both]
    select = prim.Select if isinstance(value, prim.Select) else tirx.if_then_else
    return Update(reducer, select(condition, *elements))


def _split_comparison(condition: ir.Expr, chosen: ir.Expr, other: ir.Expr, own: ir.TensorLoad) -> Update | None:
    """select(e > acc, e, acc) and its seven like."""
    reducer = _GREATER.get(type(condition))
    if reducer is None:
        return None
    if same(condition.a, other) and same(condition.b, chosen):
        reducer = MIN if reducer is MAX else MAX
    elif not (same(condition.a, chosen) and same(condition.b, other)):
        return None
    element = other if same(chosen, own) else chosen
    return None if _reads(element, own) else Update(reducer, element)
