"""Zeros around a tensor: what a program reads where an index is outside, as copies of boxes do by themselves.

if 1 <= p + i < 57: x[p + i - 1] else 0        is x[p + i - 1], or 0 outside of the 56 elements of x
"""

from __future__ import annotations

from tvm import ir, sym
from tvm.ir import prim

from tvm_cascade.analysis.expression import selection_of, widens
from tvm_cascade.analysis.tir import conjuncts
from tvm_cascade.tile.operand import plain_value


def bordered(expression: ir.Expr) -> ir.TensorLoad | None:
    """The load whose value an expression is inside of its tensor, where it is zero outside; None of others."""
    while isinstance(expression, prim.Cast) and widens(expression):
        expression = expression.value
    choice = selection_of(expression)
    load = plain_value(choice[1]) if choice else None
    if choice is None or load is None or not _is_zero(choice[2]):
        return None
    analyzer = sym.Analyzer()
    ends = [end for i, n in zip(load.indices, load.source.ty.shape, strict=True) for end in (i, n - 1 - i)]
    asked = [_spare(condition) for condition in conjuncts(choice[0])]
    inside = all(one is not None and any(analyzer.can_prove_equal(one, end) for end in ends) for one in asked)
    return load if inside else None


def _is_zero(value: ir.Expr) -> bool:
    return isinstance(value, (prim.IntImm, prim.FloatImm)) and value.value == 0


def _spare(condition: ir.Expr) -> ir.Expr | None:
    """What is not negative where a comparison of integers holds; None of other conditions."""
    if isinstance(condition, (prim.LT, prim.LE)):
        return condition.b - condition.a - int(isinstance(condition, prim.LT))
    if isinstance(condition, (prim.GT, prim.GE)):
        return condition.a - condition.b - int(isinstance(condition, prim.GT))
    return None
