"""Bounds on weights: whether they fit a narrow operand dtype for all data."""

from __future__ import annotations

import math
from collections.abc import Collection

import sympy as sp

from tvm_cascade.algebra.facts.extent import UNIT, Extent, Extents
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import LAZY_DISTANCE, Gauge, Move


def is_bounded(expression: sp.Expr, largest: float, fold: Fold, conditions: Collection[sp.Symbol] = ()) -> bool:
    """Whether an expression's magnitude is at most `largest`.

    exp(x − c) at a running reference c is at most 1, or as large as one that moves lazily lets it be; x/c at a scale is
    at most 1.

    Parameters
    ----------
    expression : in elements and references.
    conditions : symbols that are 0 or 1.
    """
    known: dict[sp.Basic, Extent] = dict.fromkeys(conditions, UNIT)
    for reference in fold.references:
        if reference.scale:
            scaled = (e for e in expression.atoms(sp.Mul) if 1 / reference.symbol in e.args)
            known |= {e: Extent(-size, size) for e in scaled for size in [abs(float(e.as_coeff_Mul()[0]))]}
        elif reference.gauge is Gauge.RUNNING:
            most = Extent(0.0, math.exp(LAZY_DISTANCE)) if reference.move is Move.LAZY else UNIT
            known |= {e: most for e in expression.atoms(sp.exp) if reference.symbol in e.free_symbols}
    return Extents(known).of(expression).size <= largest
