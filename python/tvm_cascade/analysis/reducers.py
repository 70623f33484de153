"""Reducers in TensorIR: which one a store applies, and its identity as a constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, REDUCERS, Reducer
from tvm_cascade.analysis.tir import dtype_of, reads_buffer, same

_COMBINERS: tuple[tuple[Any, str], ...] = (
    (prim.Add, "sum"),
    (prim.Mul, "prod"),
    (prim.Max, "max"),
    (prim.Min, "min"),
    (prim.And, "and"),
    (prim.Or, "or"),
)
_COMBINING_CALLS = {"bitwise_and": "and", "bitwise_or": "or"}


def split_reduction(store: tirx.BufferStore) -> tuple[Reducer, ir.Expr] | None:
    """(⊕, e) of `buffer[i] = buffer[i] ⊕ e`, in either order; None for anything else."""
    value = store.value
    name: str | None = None
    sides: tuple[ir.Expr, ...] = ()
    for kind, reducer in _COMBINERS:
        if isinstance(value, kind):
            name, sides = reducer, (value.a, value.b)
    if isinstance(value, ir.Call) and isinstance(value.op, ir.Op) and dtype_of(value) == "bool":
        name = _COMBINING_CALLS.get(value.op.name.split(".")[-1])
        sides = tuple(value.args)
    if name is None:
        return None
    own = tirx.BufferLoad(store.buffer, list(store.indices))
    for mine, element in ((sides[0], sides[1]), (sides[1], sides[0])):
        if same(mine, own) and not reads_buffer(element, store.buffer):
            return REDUCERS[name], element
    return None


def starts_at_identity(reducer: Reducer, init: ir.Expr) -> bool:
    """Whether a reduction's init is ⊕'s identity in its dtype."""
    if not isinstance(init, (prim.FloatImm, prim.IntImm)):
        return False
    return started_at(reducer, init).infinite or same(init, identity_of(reducer, dtype_of(init)))


def started_at(reducer: Reducer, init: ir.Expr | None) -> Reducer:
    """The reducer as a program starts it: at its infinite identity where that is what the init is."""
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
    if reducer.whole is not None or reducer.infinite:
        bound = extreme(reducer.identity, dtype)
        plain = float(reducer.identity) if bound is None and dtype.startswith(("float", "bfloat")) else None
        return bound if bound is not None else tirx.const(int(reducer.identity) if plain is None else plain, dtype)
    table: dict[str, Callable[[], ir.Expr]] = {
        "sum": lambda: tirx.const(0, dtype),
        "prod": lambda: tirx.const(1, dtype),
        "max": lambda: tirx.min_value(dtype),
        "min": lambda: tirx.max_value(dtype),
        "and": lambda: tirx.const(True, dtype),
        "or": lambda: tirx.const(False, dtype),
    }
    return table[reducer.name]()
