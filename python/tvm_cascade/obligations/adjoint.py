"""Obligations of an adjoint, at random points with 60 digits, as those of a fold.

1. ∂F/∂d is the central difference of F at d.
2. A sum over positions that is taken from results is that sum, with the results as the cascade defines them.
"""

from __future__ import annotations

import random

import mpmath
import sympy as sp

from tvm_cascade.algebra.adjoint import derivative, total
from tvm_cascade.algebra.cascade import LENGTH, Cascade
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.definition import Numbers, definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Digits
from tvm_cascade.symbolic.masks import is_truth

DIGITS = 60
STEP = mpmath.mpf(10) ** -20
TOLERANCE = mpmath.mpf(10) ** -25
ROWS, TRIALS, ATTEMPTS = 5, 3, 24


def summed_derivative(cascade: Cascade, by: sp.Symbol) -> sp.Expr | None:
    """Σ over positions of the last element's derivative by what is constant along them, in results; checked.

    None where the results do not give that sum, or it has no value at any point that was tried.

    Raises
    ------
    NotSmooth
        Where there is no derivative.
    FoldError
        Where an obligation fails, which is a defect of this package.
    """
    element = cascade.reductions[-1].element
    slope = derivative(element, by)
    found = total(slope, cascade.reductions, cascade.elements)
    return found if found is not None and _holds(cascade, by, slope, found) else None


def _holds(cascade: Cascade, by: sp.Symbol, slope: sp.Expr, found: sp.Expr) -> bool:
    """Whether the obligations hold at some points; False where there is no value at any."""
    source, arithmetic, met = random.Random(7), Digits(), 0
    element = cascade.reductions[-1].element
    with mpmath.workdps(DIGITS):
        for _ in range(ATTEMPTS):
            try:
                rows, known = _drawn(cascade, source)
                at = {**known, **definition(cascade, rows, arithmetic, known), LENGTH: mpmath.mpf(ROWS)}
                slopes = [arithmetic.value(slope, {**at, **row}) for row in rows]
                ends = [
                    [arithmetic.value(element, {**at, **row, by: at[by] + side * STEP}) for row in rows]
                    for side in (1, -1)
                ]
                differences = [(up - down) / (2 * STEP) for up, down in zip(*ends, strict=True)]
                claimed = arithmetic.value(found, at)
            except NO_VALUE:
                continue
            scale = TOLERANCE * max(1, *(abs(value) for value in slopes))
            if any(abs(one - other) > scale for one, other in zip(slopes, differences, strict=True)):
                raise _error(cascade, f"the derivative {slope} by {by}")
            if abs(mpmath.fsum(slopes) - claimed) > scale * ROWS:
                raise _error(cascade, f"Σ {slope} as {found}")
            met += 1
            if met == TRIALS:
                break
    return met > 0


def _drawn(cascade: Cascade, source: random.Random) -> tuple[list[Numbers], Numbers]:
    """Rows of elements, and parameters."""
    read = set().union(*(reduction.element.free_symbols for reduction in cascade.reductions))
    parameters = sorted(read - {*cascade.elements, *cascade.results, LENGTH}, key=str)
    rows = [{symbol: _number(symbol, source) for symbol in cascade.elements} for _ in range(ROWS)]
    return rows, {symbol: _number(symbol, source) for symbol in parameters}


def _number(symbol: sp.Symbol, source: random.Random) -> mpmath.mpf:
    if is_truth(symbol):
        return mpmath.mpf(source.random() < 0.7)
    return mpmath.mpf(source.uniform(0.1 if symbol.is_nonnegative else -2.0, 2.0))


def _error(cascade: Cascade, found: str) -> FoldError:
    names = ", ".join(map(str, cascade.results))
    return FoldError("an adjoint as the definition has it", found, f"cascade of {names}", "please report the program")
