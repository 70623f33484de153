"""Arithmetics for step programs: mpmath at some digits, float64, or arrays of a NumPy dtype.

An arithmetic evaluates expressions, each compiled once; it says what ⊕ and ∘ are on its numbers; and it is a `Kind` of
value for the moves of references.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from tvm_cascade.algebra.reducer import EXTREMES, Reducer, Selection, TupleReducer, first, second
from tvm_cascade.symbolic.sampling import IN_RANGE, as_function
from tvm_cascade.symbolic.separate import strip_rounding

Number = Any
Numbers = dict[sp.Symbol, Number]
Compiled = tuple[list[sp.Symbol], Callable[..., Number]]

NO_VALUE = (TypeError, ValueError, ArithmeticError)
"""What evaluation raises where an expression has no real value, or none that can be computed with."""

_KEPT = 512
"""Functions of an arithmetic, which checks of one fold, and of folds alike, ask for again: each takes some 20 KB."""

LARGEST = mpmath.mpf(10) ** 10_000
"""Totals above this are taken for infinite: an exponential of one would take for ever."""


def _itself(value: Number) -> Number:
    return value


class Arithmetic(ABC):
    """Numbers of one kind.

    Attributes
    ----------
    no_value : stands for a value that there is not.
    """

    no_value: Number = math.nan

    def __init__(self) -> None:
        self._compiled: dict[sp.Basic, Compiled] = {}

    def function(self, expression: sp.Expr) -> Compiled:
        """The symbols that the expression reads, and its value as a function of theirs."""
        found = self._compiled.get(expression)
        if found is None:
            plain = isinstance(expression, sp.Symbol) and expression not in EXTREMES
            made = ([expression], _itself) if plain else self.compiled(sp.sympify(expression))
            found = self._compiled[expression] = made
        return found

    @abstractmethod
    def compiled(self, expression: sp.Expr) -> Compiled:
        """An expression as a function."""

    @abstractmethod
    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        """The value of an expression.

        Raises
        ------
        ArithmeticError, ValueError, TypeError
            Where there is no real value and the arithmetic has no NaN.
        """

    @abstractmethod
    def number(self, value: Number) -> Number:
        """A number of this arithmetic; SymPy's numbers and infinities are taken too."""

    @abstractmethod
    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""

    def combine(self, reducer: Reducer, left: Number, right: Number) -> Number:
        return reducer.on_numbers(left, right)

    def combine_tuples(
        self, reducer: TupleReducer, left: Sequence[Number], right: Sequence[Number]
    ) -> tuple[Number, ...]:
        at = {first(k): v for k, v in enumerate(left)} | {second(k): v for k, v in enumerate(right)}
        return tuple(self.value(expression, at) for expression in reducer.combined)

    def best(self, selection: Selection, tuples: Sequence[Sequence[Number]]) -> list[Number]:
        """The best tuples by key and then by index, one after the other, as one long tuple."""
        sign, way = -1 if selection.largest else 1, 1 if selection.lower else -1
        ranked = sorted((row[: selection.per_rank] for row in tuples), key=lambda row: (sign * row[0], way * row[1]))
        best = [number for row in ranked[: selection.count] for number in row]
        return best + [self.value(absent, {}) for absent in selection.absent[len(best) :]]

    def lifts(self, lift: sp.Expr, positions: Any, scope: Numbers) -> Iterable[Number]:
        """A lift at every position."""
        return [self.value(lift, {**scope, **row}) for row in positions]

    def extended(self, positions: Any, symbol: sp.Symbol, element: sp.Expr, scope: Numbers) -> Any:
        """Positions with one more value each."""
        return [{**row, symbol: self.value(element, {**scope, **row})} for row in positions]

    def total(self, reducer: Reducer, values: Iterable[Number]) -> Number:
        """⊕ of at least one value."""
        return reduce(lambda left, right: self.combine(reducer, left, right), values)

    def usable(self, value: Number, scale: bool) -> bool:
        """Whether a value is usable as a reference: finite, and for a scale with a reciprocal."""
        return self.finite(value) and not (scale and value == 0)

    def near(self, value: Number, other: Number, distance: int) -> bool:
        return bool(abs(value - other) <= distance)

    def but_not(self, condition: bool, excluded: bool) -> bool:
        """The first condition without the second."""
        return condition and not excluded

    def choose(self, condition: bool, value: Number, otherwise: Number) -> Number:
        return value if condition else otherwise

    def difference(self, new: Number, old: Number, decay: float | None) -> Number:
        """new − old; exponentials of these numbers need no bound."""
        return new - old


def _with_extremes(expression: sp.Expr, modules: Any) -> Compiled:
    """An expression as a function; the extremes are numbers, for SymPy takes every symbol to be below ∞ itself."""
    symbols = sorted(expression.free_symbols - EXTREMES.keys(), key=str)
    function = as_function([*symbols, *EXTREMES], expression, modules)
    infinities = [mpmath.mpf(float(value)) if modules is IN_RANGE else float(value) for value in EXTREMES.values()]
    return symbols, lambda *values: function(*values, *infinities)


@lru_cache(maxsize=_KEPT)
def _of_digits(expression: sp.Expr) -> Compiled:
    return _with_extremes(strip_rounding(expression), IN_RANGE)


@lru_cache(maxsize=_KEPT)
def _of_float64(expression: sp.Expr) -> Compiled:
    return _with_extremes(strip_rounding(expression), "numpy")


class Digits(Arithmetic):
    """mpmath's numbers, at the digits of the surrounding `workdps`. Roundings of programs are left out.

    Attributes
    ----------
    span : decimal orders between 1 and the value so far that is farthest from it.
    """

    no_value = mpmath.nan

    def __init__(self) -> None:
        super().__init__()
        self.span = 0

    def compiled(self, expression: sp.Expr) -> Compiled:
        return _of_digits(expression)

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        """The value of an expression; an OverflowError where that would take too long."""
        symbols, function = self.function(expression)
        value = mpmath.mpf(function(*[at[s] for s in symbols]))
        if value.man:  # finite, and not zero
            self.span = max(self.span, abs(value.exp + value.bc) // 3)
        return value

    def number(self, value: Number) -> Number:
        return mpmath.mpf(float(value) if value in (sp.oo, -sp.oo) else value)

    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""
        return bool(mpmath.isfinite(value))

    def total(self, reducer: Reducer, values: Iterable[Number]) -> Number:
        """⊕ of at least one value.

        Raises
        ------
        ValueError
            Where it is so large that computing on would take for ever.
        """
        total = mpmath.mpf(super().total(reducer, values))
        if mpmath.isfinite(total) and abs(total) > LARGEST:
            raise ValueError(f"{reducer} is larger than can be computed with")
        return total


class Float64(Arithmetic):
    """float64, NaN and infinities included. Roundings of programs are left out."""

    def compiled(self, expression: sp.Expr) -> Compiled:
        return _of_float64(expression)

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        symbols, function = self.function(expression)
        with np.errstate(all="ignore"):
            return float(function(*(np.float64(at[s]) for s in symbols)))

    def number(self, value: Number) -> Number:
        return float(value)

    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""
        return math.isfinite(value)
