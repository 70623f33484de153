"""Exponentials in base 2 with loop-invariants hoisted: exp(k·r − c) = 2^((k·log₂e)·r + h), h once a row.

The hardware has 2^x, and one fused multiply-add in front of it is all that an element then costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy as sp

LOG2_E = sp.Float(math.log2(math.e), 17)


class Exp2(sp.Function):
    """2^x."""

    nargs = 1
    is_positive = True

    @staticmethod
    def _imp_(exponent: Any) -> Any:
        return 2.0**exponent  # for lambdify


class Clamped(sp.Function):
    """min(x, the largest number of the dtype): −inf·k + this is −inf, where −inf·k + inf would be NaN."""

    nargs = 1


def in_base_two(
    expression: sp.Expr, varies: Callable[[sp.Expr], bool], hoist: Callable[[sp.Expr], sp.Symbol], safe: bool = True
) -> sp.Expr:
    """The expression with every exponential that varies along a row in base 2, where that is safe.

    Parameters
    ----------
    varies : whether a term has a value per position.
    hoist : keeps a value per row and gives its symbol.
    safe : scaling the row's part by log₂e cannot overflow where the element is finite.
    """

    def convert(exponential: sp.Expr) -> sp.Expr:
        exponent = sp.expand(exponential.args[0])
        if not varies(exponent) or not safe:  # SymPy would take (r − c)·log₂e apart, and both products may overflow
            return exponential
        terms = sp.Add.make_args(exponent)
        moving = sp.Add(*(t for t in terms if varies(t)))
        fixed = sp.Add(*(t for t in terms if not varies(t)))
        scaled = sp.expand(moving * LOG2_E)
        return Exp2(scaled if fixed == 0 else scaled + hoist(Clamped(sp.expand(fixed * LOG2_E))))

    return expression.replace(lambda e: isinstance(e, sp.exp), convert)
