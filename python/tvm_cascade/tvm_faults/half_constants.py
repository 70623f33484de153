"""Arithmetic of constants in half precision, done before TVM sees it.

    float16(1) / float16(2)  ->  float16(0.5)

The fault: TVM folds no constants of half precision. What several kernels of a function compute it computes once,
outside of them, and passes it by value; and CUDA's launches take no halves by value, so a call of such a function
would fail.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.symbolic.rounding import round_to

_HALVES = ("float16", "bfloat16")
_FOLDED: dict[type, Callable[[float, float], float]] = {
    prim.Add: operator.add,
    prim.Sub: operator.sub,
    prim.Mul: operator.mul,
    prim.Div: operator.truediv,
    prim.Min: min,
    prim.Max: max,
}


def fold_half_constants(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its arithmetic of constants in float16 and bfloat16 rounded as at run time; not modified."""
    return func.with_body(tvm_ffi.structural_map(func.body, [(kind, _folded) for kind in _FOLDED]))


def _folded(expression: ir.Expr) -> ir.Expr:
    dtype, (a, b) = dtype_of(expression), (expression.a, expression.b)
    constants = isinstance(a, prim.FloatImm) and isinstance(b, prim.FloatImm)
    if dtype not in _HALVES or not constants or (isinstance(expression, prim.Div) and b.value == 0):
        return expression
    return tirx.const(round_to(_FOLDED[type(expression)](a.value, b.value), dtype), dtype)
