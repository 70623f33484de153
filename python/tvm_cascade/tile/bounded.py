"""Whether weights stay within the range of a narrow dtype, whatever the data: what float16 operands need."""

from __future__ import annotations

from collections.abc import Collection

import sympy as sp

from tvm_cascade.algebra.cascade import Round
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import Gauge

_LARGEST = 60000
"""Numbers up to this are float16."""

_BOUNDED_FUNCTIONS = (sp.tanh, sp.sin, sp.cos)


def is_bounded(expression: sp.Expr, fold: Fold, conditions: Collection[sp.Symbol] = ()) -> bool:
    """Whether an expression's magnitude has a bound of the order of 1.

    exp(x − c) at a running reference c is at most 1, and so is x/c at a scale; 1/(1 + positive) and tanh are bounded by
    themselves.

    Parameters
    ----------
    expression : in elements and references.
    conditions : symbols that are 0 or 1.
    """
    running = {r.symbol for r in fold.references if r.gauge is Gauge.RUNNING and not r.scale}
    scales = {r.symbol for r in fold.references if r.scale}

    def bounded(e: sp.Expr) -> bool:
        if e.is_number:
            return abs(float(e)) < _LARGEST
        if isinstance(e, sp.exp):
            return bool(e.free_symbols & running) or bool(e.args[0].is_nonpositive)
        if isinstance(e, _BOUNDED_FUNCTIONS) or e in conditions:
            return True
        if isinstance(e, Round):
            return bounded(e.args[0])
        if isinstance(e, sp.Pow) and e.exp.is_negative:
            return bool((e.base - 1).is_nonnegative)
        if isinstance(e, sp.Pow):
            return bool(e.exp.is_positive) and bounded(e.base)
        if isinstance(e, sp.Mul) and any(1 / f in scales for f in e.args):
            return True
        return isinstance(e, (sp.Add, sp.Mul)) and all(bounded(a) for a in e.args)

    return bounded(expression)
