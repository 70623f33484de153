"""A fold run on numbers, written from the definition of a fold and from nothing else.

States are dictionaries from symbols to numbers; None is the empty state. Numbers are float64, infinities and NaN
included, or mpmath's at as many digits as are asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Cascade
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.separate import strip_rounding

Number = Any
Numbers = dict[sp.Symbol, Number]
State = Numbers | None

REDUCE: dict[str, Callable[[Number, Number], Number]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": max,
    "min": min,
    "and": min,
    "or": max,
}
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "and": 1.0, "or": 0.0}


LARGEST_EXPONENT = 100_000
"""At digits, exp of more is an OverflowError: an exponential of it would take for ever."""


class Arithmetic:
    """float64, or mpmath inside `workdps(digits)`, which the caller enters; expressions are compiled once.

    Attributes
    ----------
    span : decimal orders between 1 and the value so far, at digits, that is farthest from it.
    """

    def __init__(self, digits: int | None = None) -> None:
        self.digits = digits
        self.span = 0
        self._compiled: dict[sp.Expr, tuple[tuple[sp.Symbol, ...], Callable[..., Number]]] = {}

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        """The expression's value. Roundings are left out.

        Raises
        ------
        ArithmeticError, ValueError, TypeError
            At digits, where there is no real value; float64 gives NaN or an infinity there.
        """
        if expression not in self._compiled:
            bare = strip_rounding(sp.sympify(expression))
            symbols = tuple(sorted(bare.free_symbols, key=str))
            module = "numpy" if self.digits is None else [{"exp": _exponential}, "mpmath"]
            self._compiled[expression] = symbols, sp.lambdify(symbols, bare, module)
        symbols, function = self._compiled[expression]
        if self.digits is None:
            with np.errstate(all="ignore"):
                return float(function(*(np.float64(at[s]) for s in symbols)))
        value = mpmath.mpf(function(*(at[s] for s in symbols)))
        if value and mpmath.isfinite(value):
            self.span = max(self.span, abs(int(mpmath.mag(value))) * 3 // 10)
        return value

    def number(self, value: Number) -> Number:
        """A number of this arithmetic."""
        return float(value) if self.digits is None else mpmath.mpf(value)

    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""
        return math.isfinite(value) if self.digits is None else bool(mpmath.isfinite(value))


def _exponential(exponent: Number) -> Number:
    if mpmath.isfinite(exponent) and abs(exponent) > LARGEST_EXPONENT:
        raise OverflowError(f"exp of {mpmath.nstr(exponent, 5)}")
    return mpmath.exp(exponent)


class NumericFold:
    """A fold of `length` positions in an arithmetic; `parameters` are the symbols that do not vary along the axis."""

    def __init__(
        self, fold: Fold, length: int, arithmetic: Arithmetic | None = None, parameters: Mapping[sp.Symbol, Number] = {}
    ) -> None:
        self.fold, self.arithmetic = fold, arithmetic or Arithmetic()
        self.fixed = {**parameters, LENGTH: self.arithmetic.number(length)}

    def lift(self, element: Mapping[sp.Symbol, Number]) -> State:
        """The state of one position."""
        state: Numbers = {}
        one = self.arithmetic.number(1)
        for step in self.fold.steps:
            scope = {**self.fixed, **element, **state, COUNT: one}
            if isinstance(step, Reference):
                state[step.symbol] = self._moved(step, scope, self.arithmetic.number(int(step.scale)))
            else:
                state[step.symbol] = self.arithmetic.value(step.lift, scope)
        return {**state, COUNT: one}

    def merge(self, first: State, second: State) -> State:
        """Both states at one reference, combined."""
        if first is None or second is None:
            return second if first is None else first
        merged: Numbers = {COUNT: first[COUNT] + second[COUNT]}
        moves: list[Reference] = []
        for step in self.fold.steps:
            if isinstance(step, Reference):
                merged[step.symbol] = self._moved(step, {**self.fixed, **merged}, first[step.symbol])
                moves.append(step)
                continue
            sides = [self._shifted(step, side, merged, moves) for side in (first, second)]
            merged[step.symbol] = REDUCE[step.reducer.name](*sides)
        return merged

    def finish(self, state: State) -> Numbers:
        """The results of a state that has folded everything."""
        assert state is not None
        results: Numbers = {}
        for result, expression in self.fold.finish.items():
            results[result] = self.arithmetic.value(expression, {**self.fixed, **state, **results})
        return results

    def serial(self, rows: Sequence[Mapping[sp.Symbol, Number]]) -> State:
        """The rows folded one after the other."""
        total: State = None
        for row in rows:
            total = self.merge(total, self.lift(row))
        return total

    def split(self, rows: Sequence[Mapping[sp.Symbol, Number]], cuts: Sequence[int]) -> Numbers:
        """The results with the axis cut into segments, each folded in order and then merged in order."""
        segments = [self.serial(rows[start:stop]) for start, stop in pairwise([0, *cuts, len(rows)])]
        return self.finish(reduce(self.merge, segments))

    def scattered(self, rows: Sequence[Mapping[sp.Symbol, Number]], source: random.Random) -> Numbers:
        """The results over random segments, some of them empty, merged in random grouping and order."""
        cuts = sorted(source.randint(0, len(rows)) for _ in range(source.randint(0, 4)))
        states = [self.serial(rows[start:stop]) for start, stop in pairwise([0, *cuts, len(rows)])]
        while len(states) > 1:
            first, second = (states.pop(source.randrange(len(states))) for _ in range(2))
            states.append(self.merge(first, second))
        return self.finish(states[0])

    def _shifted(self, component: Component, state: Numbers, merged: Numbers, moves: list[Reference]) -> Number:
        if component.shift == component.symbol:
            return state[component.symbol]
        moved = {r.moved: merged[r.symbol] for r in moves}
        steps = {r.step: merged[r.symbol] - state[r.symbol] for r in moves}
        return self.arithmetic.value(component.shift, {**self.fixed, **state, **moved, **steps})

    def _moved(self, reference: Reference, scope: Numbers, stay: Number) -> Number:
        """The reference's value; only a guarded one may stay where it is."""
        try:
            found = self.arithmetic.value(reference.value, scope)
        except (ArithmeticError, ValueError, TypeError):
            if not reference.guarded:
                raise
            return stay
        usable = self.arithmetic.finite(found) and not (reference.scale and found == 0)
        return found if usable or not reference.guarded else stay


def definition(
    cascade: Cascade,
    rows: Sequence[Mapping[sp.Symbol, Number]],
    arithmetic: Arithmetic | None = None,
    parameters: Mapping[sp.Symbol, Number] = {},
) -> Numbers:
    """The results as the cascade is written: one pass over the rows for each reduction."""
    arithmetic = arithmetic or Arithmetic()
    results: Numbers = {}
    for reduction in cascade.reductions:
        scope = {**parameters, **results, LENGTH: arithmetic.number(len(rows))}
        terms = (arithmetic.value(reduction.element, {**scope, **row}) for row in rows)
        results[reduction.result] = reduce(
            REDUCE[reduction.reducer.name], terms, arithmetic.number(IDENTITY[reduction.reducer.name])
        )
    return results
