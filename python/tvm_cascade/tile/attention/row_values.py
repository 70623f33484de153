"""What of an output's value is the same all along a row, taken out of it: computed once a row, every operation once.

    out[i, f] = exp(m[i] − max(m[i], c))·a[i, f] + …
          →     t₀ = m[i];  t₁ = max(t₀, c);  t₂ = exp(t₀ − t₁);  out[i, f] = t₂·a[i, f] + …

Where states that other kernels left are merged into a row's own, most of the formula is of that kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import function_name
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of, loads_of, same, uses, variables_of

_OPERATIONS = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min, prim.Cast, ir.Call, ir.TensorLoad)


@dataclass(frozen=True)
class RowValues:
    """A value over a row and a free axis.

    Attributes
    ----------
    parts : variables, and what they stand for; in order, as each may read those before it.
    value : in terms of them.
    """

    parts: tuple[tuple[tirx.Var, ir.Expr], ...]
    value: ir.Expr


def with_rows_apart(value: ir.Expr, free: tirx.Var, is_wide: Callable[[ir.TensorLoad], bool]) -> RowValues:
    """A value with what is the same along a free axis taken out of it, where that holds a special function.

    Cheaper parts are left in place: compilers see to them.

    Parameters
    ----------
    is_wide : whether a load is of a result that has a value for every point of the free axis.
    """
    parts: list[tuple[tirx.Var, ir.Expr]] = []

    def apart(node: ir.Expr) -> ir.Expr:
        dtype = dtype_of(node)
        if not dtype.startswith(("float", "bfloat")) or uses(node, [free]) or any(map(is_wide, loads_of(node))):
            return node
        known = next((var for var, part in parts if same(part, node)), None)
        if known is None:
            known = tirx.Var(f"of_row_{len(parts)}", dtype)
            parts.append((known, node))
        return known

    taken = tvm_ffi.structural_map(value, [(kind, apart) for kind in _OPERATIONS])
    if not any(isinstance(part, ir.Call) and function_name(part) for _, part in parts):
        return RowValues((), value)
    return RowValues(tuple(_read(parts, taken)), taken)


def _read(parts: list[tuple[tirx.Var, ir.Expr]], value: ir.Expr) -> list[tuple[tirx.Var, ir.Expr]]:
    """The parts that a value reads, directly or through others."""
    needed, kept = list(variables_of(value)), list[tuple[tirx.Var, ir.Expr]]()
    for var, part in reversed(parts):
        if among(var, needed):
            needed += variables_of(part)
            kept.insert(0, (var, part))
    return kept
