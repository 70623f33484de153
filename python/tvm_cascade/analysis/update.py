"""How a block's store updates what it accumulates into: as `acc ⊕ e`, however that is written.

acc + a − b, select(c, acc + e, acc), if c: acc = acc ⊕ e, select(e > acc, e, acc) and lets before the store all become
one ⊕ and one element. The element of a position at which nothing happens is ⊕'s identity.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import REDUCERS
from tvm_cascade.analysis.expression import selection_of
from tvm_cascade.analysis.reducers import identity_of, started_at
from tvm_cascade.analysis.tir import dtype_of, reads_buffer, same, substitute

COMBINERS: dict[str, type] = {
    "sum": prim.Add,
    "prod": prim.Mul,
    "max": prim.Max,
    "min": prim.Min,
    "and": prim.And,
    "or": prim.Or,
}
_INVERSES: dict[type, str] = {prim.Sub: "sum", prim.Div: "prod"}
_GREATER = {prim.GT: "max", prim.GE: "max", prim.LT: "min", prim.LE: "min"}
"""What select(a > b, a, b) is, for each comparison."""


@dataclass(frozen=True)
class Update:
    """acc ⊕ element; `name` and `element` are None where the value is acc itself."""

    name: str | None
    element: ir.Expr | None


def single_store(body: tirx.Stmt) -> tirx.BufferStore | None:
    """The one store that a block's body amounts to, without lets and with conditions inside; None for anything else."""
    lets: dict[tirx.Var, ir.Expr] = {}
    for statement in body.seq[:-1] if isinstance(body, tirx.SeqStmt) else ():
        if not isinstance(statement, tirx.Bind):
            return None
        lets[statement.var] = substitute(statement.value, lets)
    last = body.seq[-1] if isinstance(body, tirx.SeqStmt) else body
    if isinstance(last, tirx.IfThenElse):
        last = _selected(last)
    if not isinstance(last, tirx.BufferStore):
        return None
    if not lets:
        return last
    return tirx.BufferStore(last.buffer, substitute(last.value, lets), [substitute(i, lets) for i in last.indices])


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
    kind = type(value)
    name = next((n for n, combiner in COMBINERS.items() if kind is combiner), _INVERSES.get(kind))
    if name is None:
        return None
    if _reads(value.a, own) == _reads(value.b, own) or (kind in _INVERSES and _reads(value.b, own)):
        return None
    held, other = (value.a, value.b) if _reads(value.a, own) else (value.b, value.a)
    inner = split_update(held, own, start)
    if inner is None or inner.name not in (None, name):
        return None
    if inner.element is None:
        element = other if kind not in _INVERSES else kind(identity_of(REDUCERS[name], dtype_of(other)), other)
    else:
        element = kind(inner.element, other)
    return Update(name, element)


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
    names = {update.name for update in both if update is not None} - {None}
    if len(names) != 1:
        return None
    (name,) = names
    assert name is not None
    neutral = identity_of(started_at(REDUCERS[name], start), dtype_of(own))
    elements = [neutral if u is None or u.element is None else u.element for u in both]
    select = prim.Select if isinstance(value, prim.Select) else tirx.if_then_else
    return Update(name, select(condition, *elements))


def _split_comparison(condition: ir.Expr, chosen: ir.Expr, other: ir.Expr, own: ir.TensorLoad) -> Update | None:
    """select(e > acc, e, acc) and its seven like."""
    name = _GREATER.get(type(condition))
    if name is None:
        return None
    if same(condition.a, other) and same(condition.b, chosen):
        name = "min" if name == "max" else "max"
    elif not (same(condition.a, chosen) and same(condition.b, other)):
        return None
    element = other if same(chosen, own) else chosen
    return None if _reads(element, own) else Update(name, element)
