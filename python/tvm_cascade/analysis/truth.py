"""Booleans that a program encodes as numbers, recovered as conditions.

0 < Cast(int64, c)                     →  c
Cast(int8, c) == 0                     →  not c
Cast(bool, Cast(int8, c))              →  c
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of

_ON_NUMBERS: dict[type, Callable[[Any, Any], bool]] = {
    prim.LT: operator.lt,
    prim.LE: operator.le,
    prim.GT: operator.gt,
    prim.GE: operator.ge,
    prim.EQ: operator.eq,
    prim.NE: operator.ne,
}


def without_numbers_for_truth(expression: ir.Expr) -> ir.Expr:
    """The expression with comparisons of a boolean with an integer replaced by the boolean condition."""
    rules = [(kind, _compared) for kind in _ON_NUMBERS]
    return tvm_ffi.structural_map(expression, [*rules, (prim.Cast, _as_condition)])


def _compared(relation: ir.Expr) -> ir.Expr:
    """c, not c, or a constant: what the comparison says at c = 0 and at c = 1."""
    compare = _ON_NUMBERS[type(relation)]
    left, right = _condition_of(relation.a), _condition_of(relation.b)
    if left is not None and isinstance(relation.b, prim.IntImm):
        condition, number = left, int(relation.b)
        fails, holds = compare(0, number), compare(1, number)
    elif right is not None and isinstance(relation.a, prim.IntImm):
        condition, number = right, int(relation.a)
        fails, holds = compare(number, 0), compare(number, 1)
    else:
        return relation
    if fails == holds:
        return tirx.const(holds, "bool")
    return condition if holds else tirx.Not(condition)


def _as_condition(cast: prim.Cast) -> ir.Expr:
    condition = _condition_of(cast.value) if dtype_of(cast) == "bool" else None
    return cast if condition is None else condition


def _condition_of(number: ir.Expr) -> ir.Expr | None:
    """c where an integer is c as 0 or 1, through any further integer dtypes; None for any other number."""
    while isinstance(number, prim.Cast) and dtype_of(number).startswith(("int", "uint")):
        number = number.value
        if dtype_of(number) == "bool":
            return number
    return None
