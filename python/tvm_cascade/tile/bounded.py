"""Bounds on weights: whether they fit a narrow operand dtype for all data."""

from __future__ import annotations

import math
from collections.abc import Collection

import sympy as sp

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import Gauge
from tvm_cascade.symbolic.functions import Round

_BOUNDED_FUNCTIONS = (sp.tanh, sp.sin, sp.cos)


def is_bounded(expression: sp.Expr, largest: float, fold: Fold, conditions: Collection[sp.Symbol] = ()) -> bool:
    """Whether an expression's magnitude is at most `largest`.

    exp(x − c) at a running reference c is at most 1, and so is x/c at a scale; 1/(1 + positive) and tanh are bounded by
    themselves.

    Parameters
    ----------
    expression : in elements and references.
    conditions : symbols that are 0 or 1.
    """
    running = {r.symbol for r in fold.references if r.gauge is Gauge.RUNNING and not r.scale}
    scales = {r.symbol for r in fold.references if r.scale}

    def bound(e: sp.Expr) -> float:
        if e.is_number:
            return abs(float(e))
        if isinstance(e, sp.exp):
            return 1.0 if e.free_symbols & running or e.args[0].is_nonpositive else math.inf
        if isinstance(e, _BOUNDED_FUNCTIONS) or e in conditions:
            return 1.0
        if isinstance(e, Round):
            return bound(e.args[0])
        if isinstance(e, sp.Pow) and e.exp.is_negative:
            return 1.0 if (e.base - 1).is_nonnegative else math.inf
        if isinstance(e, sp.Pow):
            return float(bound(e.base) ** float(e.exp)) if e.exp.is_number and e.exp.is_positive else math.inf
        if isinstance(e, sp.Mul) and any(1 / f in scales for f in e.args):
            return abs(float(e.as_coeff_Mul()[0]))
        if isinstance(e, sp.Mul):
            return math.prod(bound(a) for a in e.args)
        return sum(bound(a) for a in e.args) if isinstance(e, sp.Add) else math.inf

    return bound(expression) <= largest
