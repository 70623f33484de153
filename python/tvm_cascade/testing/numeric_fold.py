"""A fold run on numbers, written from the definition of a fold and from nothing else.

States are dictionaries from symbols to numbers; None is the empty state. Numbers are float64, infinities and NaN
included, or mpmath's at as many digits as are asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Cascade
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.reducer import EXTREMES, ON_NUMBERS, Selection, TupleReducer, first, second
from tvm_cascade.algebra.sampling import IN_RANGE, as_function
from tvm_cascade.algebra.separate import strip_rounding

Number = Any
Numbers = dict[sp.Symbol, Number]
State = Numbers | None


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
            module = "numpy" if self.digits is None else IN_RANGE
            self._compiled[expression] = symbols, as_function(symbols, bare, module)
        symbols, function = self._compiled[expression]
        given = (self.number(EXTREMES[s]) if s in EXTREMES else at[s] for s in symbols)
        if self.digits is None:
            with np.errstate(all="ignore"):
                return float(function(*map(np.float64, given)))
        value = mpmath.mpf(function(*given))
        if value and mpmath.isfinite(value):
            self.span = max(self.span, abs(int(mpmath.mag(value))) * 3 // 10)
        return value

    def number(self, value: Number) -> Number:
        """A number of this arithmetic; SymPy's numbers and infinities are taken too."""
        return float(value) if self.digits is None else mpmath.mpf(float(value) if value in (sp.oo, -sp.oo) else value)

    def combine(self, whole: TupleReducer, left: Sequence[Number], right: Sequence[Number]) -> list[Number]:
        """left ∘ right, as the reducer of tuples writes it."""
        at = {first(k): v for k, v in enumerate(left)} | {second(k): v for k, v in enumerate(right)}
        return [self.value(expression, at) for expression in whole.combined]

    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""
        return math.isfinite(value) if self.digits is None else bool(mpmath.isfinite(value))


FLOAT64 = Arithmetic()


class NumericFold:
    """A fold of `length` positions in an arithmetic; `parameters` are the symbols that do not vary along the axis."""

    def __init__(
        self, fold: Fold, length: int, arithmetic: Arithmetic | None = None, parameters: Mapping[sp.Symbol, Number] = {}
    ) -> None:
        self.fold, self.arithmetic = fold, arithmetic or FLOAT64
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

    def merge(self, left: State, right: State) -> State:
        """Both states at one reference, combined."""
        if left is None or right is None:
            return right if left is None else left
        merged: Numbers = {COUNT: left[COUNT] + right[COUNT]}
        moves: list[Reference] = []
        for step in self.fold.steps:
            if isinstance(step, Reference):
                merged[step.symbol] = self._moved(step, {**self.fixed, **merged}, left[step.symbol])
                moves.append(step)
                continue
            if step.reducer.whole is not None:
                # A part that the fold does not keep has no bearing on those that it does.
                tuples = [[side.get(part, self.arithmetic.number(0)) for part in step.parts] for side in (left, right)]
                merged[step.symbol] = self.arithmetic.combine(step.reducer.whole, *tuples)[step.reducer.part]
                continue
            sides = [self._shifted(step, side, merged, moves) for side in (left, right)]
            merged[step.symbol] = ON_NUMBERS[step.reducer.name](*sides)
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
            left, right = (states.pop(source.randrange(len(states))) for _ in range(2))
            states.append(self.merge(left, right))
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
    arithmetic = arithmetic or FLOAT64
    results: Numbers = {}
    for block in cascade.blocks:
        parts = sorted(block, key=lambda reduction: reduction.reducer.part)
        scope = {**parameters, **results, LENGTH: arithmetic.number(len(rows))}
        tuples = [[arithmetic.value(part.element, {**scope, **row}) for part in parts] for row in rows]
        reducer = parts[0].reducer
        if reducer.whole is None:
            numbers = (number for (number,) in tuples)
            total = [reduce(ON_NUMBERS[reducer.name], numbers, arithmetic.number(reducer.identity))]
        elif reducer.whole.selection is None:
            total = reduce(partial(arithmetic.combine, reducer.whole), tuples)
        else:
            total = _best(reducer.whole.selection, tuples, arithmetic)
        results.update({part.result: number for part, number in zip(parts, total, strict=True)})
    return results


def _best(selection: Selection, tuples: Sequence[Sequence[Number]], arithmetic: Arithmetic) -> list[Number]:
    """The best tuples by key and then by index, one after the other, as one long tuple."""
    left = [list(row[: selection.per_rank]) for row in tuples]
    ranked: list[Number] = []
    for _ in range(min(selection.count, len(left))):
        best = left[0]
        for row in left[1:]:
            larger = row[0] > best[0] if selection.largest else row[0] < best[0]
            sooner = row[1] < best[1] if selection.lower else row[1] > best[1]
            best = row if larger or (row[0] == best[0] and sooner) else best
        left.remove(best)
        ranked += best
    return ranked + [arithmetic.value(absent, {}) for absent in selection.absent[len(ranked) :]]
