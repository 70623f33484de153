"""Reducers in TensorIR: which one a store applies, and its identity as a constant."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, REDUCERS, Reducer
from tvm_cascade.analysis.tir import dtype_of, reads_buffer, same


def combiner_of(reducer: Reducer) -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    """The TensorIR constructor of ⊕."""
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
