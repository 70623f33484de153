"""Obligations of an adjoint, at random points in balls, as those of a fold.

1. ∂F/∂d has a value between d − h and d + h that is the central difference of F there, as a mean value has to be.
2. A sum over positions that is taken from results is that sum, with the results as the cascade defines them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import sympy as sp
from flint import arb

from tvm_cascade.algebra.adjoint import derivative, total
from tvm_cascade.algebra.cascade import LENGTH, Cascade
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.check import number_for
from tvm_cascade.obligations.definition import definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Balls
from tvm_cascade.symbolic.balls import ZERO, UndecidedError, same, workprec

BITS = 512
STEP = arb((1, -128))
"""h: 2⁻¹²⁸ is below 1e-38."""

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
    slope, source = derivative(element, by), random.Random(7)
    symbols = sorted(element.free_symbols, key=str)

    def check(balls: Balls) -> None:
        at = {symbol: balls.number(number_for(symbol, source, None, -2.0)) for symbol in symbols}
        up, down = (balls.value(element, {**at, by: at[by] + side * STEP}) for side in (1, -1))
        expected, found = (up - down) / (2 * STEP), balls.value(slope, {**at, by: arb(at[by], STEP)})
        if not same(found, expected, [expected]):
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
    source = random.Random(7)

    def check(balls: Balls) -> None:
        known, *rows = ({s: balls.number(v) for s, v in row.items()} for row in _drawn(cascade, source))
        at = {**known, **definition(cascade, rows, balls, known), LENGTH: balls.number(ROWS)}
        slopes = [balls.value(slope, {**at, **row}) for row in rows]
        if not same(balls.value(found, at), sum(slopes, ZERO), slopes):
            raise _error(f"{found} for Σ {slope}")

    return found if _tried(check) else None


def _tried(check: Callable[[Balls], None]) -> bool:
    """Whether a check tells at some of the points that it draws; it raises where it fails at one."""
    met = 0
    with workprec(BITS):
        for _ in range(ATTEMPTS):
            try:
                check(Balls())
                met += 1
            except (*NO_VALUE, UndecidedError):
                continue
            if met == TRIALS:
                break
    return met > 0


def _drawn(cascade: Cascade, source: random.Random) -> list[dict[sp.Symbol, float]]:
    """Parameters, and rows of elements."""
    read = set().union(*(reduction.element.free_symbols for reduction in cascade.reductions))
    parameters = sorted(read - {*cascade.elements, *cascade.results, LENGTH}, key=str)
    return [
        {s: number_for(s, source, None, -2.0) for s in symbols} for symbols in (parameters, *[cascade.elements] * ROWS)
    ]


def _error(found: str) -> FoldError:
    return FoldError("an adjoint as the definition has it", found, "gradient", "please report the program")
