"""Obligations of an adjoint, at random points with 60 digits, as those of a fold.

1. ∂F/∂d is the central difference of F at d.
2. A sum over positions that is taken from results is that sum, with the results as the cascade defines them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import mpmath
import sympy as sp

from tvm_cascade.algebra.adjoint import derivative, total
from tvm_cascade.algebra.cascade import LENGTH, Cascade
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.definition import definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Digits, Numbers
from tvm_cascade.symbolic.masks import is_truth

DIGITS = 60
STEP = mpmath.mpf(10) ** -20
TOLERANCE = mpmath.mpf(10) ** -25
ROWS, TRIALS, ATTEMPTS = 5, 3, 24


def checked_derivative(element: sp.Expr, by: sp.Symbol) -> sp.Expr:
    """The derivative of an element by one of its symbols.

    Raises
    ------
    NotSmooth
        Where there is none.
    FoldError
        Where it is no derivative, which is a defect of this package.
    """
    slope, arithmetic, source = derivative(element, by), Digits(), random.Random(7)
    symbols = sorted(element.free_symbols, key=str)

    def check() -> None:
        at = {symbol: _number(symbol, source) for symbol in symbols}
        up, down = (arithmetic.value(element, {**at, by: at[by] + side * STEP}) for side in (1, -1))
        expected, found = (up - down) / (2 * STEP), arithmetic.value(slope, at)
        if abs(found - expected) > TOLERANCE * max(1, abs(expected)):
            raise _error(f"{slope} for that of {element} by {by}")

    _tried(check)
    return slope


def summed_derivative(cascade: Cascade, by: sp.Symbol) -> sp.Expr | None:
    """Σ over positions of the last element's derivative by what is constant along them, in results.

    None where the results do not give that sum, or it has no value at any point that was tried.

    Raises
    ------
    NotSmooth
        Where there is no derivative.
    FoldError
        Where an obligation fails, which is a defect of this package.
    """
    slope = checked_derivative(cascade.reductions[-1].element, by)
    found = total(slope, cascade.reductions, cascade.elements)
    if found is None:
        return None
    arithmetic, source = Digits(), random.Random(7)

    def check() -> None:
        rows, known = _drawn(cascade, source)
        at = {**known, **definition(cascade, rows, arithmetic, known), LENGTH: mpmath.mpf(ROWS)}
        slopes = [arithmetic.value(slope, {**at, **row}) for row in rows]
        if abs(mpmath.fsum(slopes) - arithmetic.value(found, at)) > TOLERANCE * max(1, *map(abs, slopes)):
            raise _error(f"{found} for Σ {slope}")

    return found if _tried(check) else None


def _tried(check: Callable[[], None]) -> bool:
    """Whether a check has values at some of the points that it draws; it raises where it fails at one."""
    met = 0
    with mpmath.workdps(DIGITS):
        for _ in range(ATTEMPTS):
            try:
                check()
                met += 1
            except NO_VALUE:
                continue
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


def _error(found: str) -> FoldError:
    return FoldError("an adjoint as the definition has it", found, "gradient", "please report the program")
