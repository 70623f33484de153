"""Arithmetics for step programs: balls that enclose real numbers, float64, or arrays of a NumPy dtype.

An arithmetic evaluates expressions, each compiled once; it says what ⊕ and ∘ are on its numbers; and it is a `Kind` of
value for the moves of references.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key, lru_cache, reduce
from typing import Any

import numpy as np
import sympy as sp
from flint import arb

from tvm_cascade.algebra.reducer import EXTREMES, HIGHEST, LOWEST, Reducer, Selection, TupleReducer, first, second
from tvm_cascade.symbolic.balls import Computed, Enclosed, UndecidedError, compared, enclosed
from tvm_cascade.symbolic.functions import GuardedProduct, LogRatio, PowerOfTwo, WholePower
from tvm_cascade.symbolic.masks import Condition
from tvm_cascade.symbolic.sampling import as_function
from tvm_cascade.symbolic.separate import strip_rounding

Number = Any
Numbers = dict[sp.Symbol, Number]
Compiled = tuple[list[sp.Symbol], Callable[..., Number]]

NO_VALUE = (TypeError, ValueError, ArithmeticError)
"""What evaluation raises where an expression has no real value, or none that can be computed with."""

_KEPT = 512
"""Functions of an arithmetic, which checks of one fold, and of folds alike, ask for again: each takes some 20 KB."""


class Arithmetic(ABC):
    """Numbers of one kind.

    Attributes
    ----------
    no_value : stands for a value that there is not.
    """

    no_value: Number = math.nan

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
        by_index = sorted(tuples, key=lambda row: self.rank(row[1]), reverse=not selection.lower)
        ranked = sorted(by_index, key=lambda row: self.rank(row[0]), reverse=selection.largest)
        best = [number for row in ranked[: selection.count] for number in row[: selection.per_rank]]
        return best + [self.value(absent, {}) for absent in selection.absent[len(best) :]]

    def rank(self, number: Number) -> Any:
        """What numbers are sorted by."""
        return number

    def lifts(self, lift: sp.Expr, positions: Any, scope: Numbers) -> Iterable[Number]:
        """A lift at every position."""
        return [self.value(lift, {**scope, **row}) for row in positions]

    def extended(self, positions: Any, symbol: sp.Symbol, element: sp.Expr, scope: Numbers) -> Any:
        """Positions with one more value each."""
        return [{**row, symbol: self.value(element, {**scope, **row})} for row in positions]

    def total(self, reducer: Reducer, values: Iterable[Number]) -> Number:
        return reduce(lambda left, right: self.combine(reducer, left, right), values)

    def usable(self, value: Number, scale: bool) -> bool:
        """Whether a value is usable as a reference: finite, and for a scale with a reciprocal."""
        return self.finite(value) and not (scale and compared(value, 0) == 0)

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


@lru_cache(maxsize=_KEPT)
def _of_balls(expression: sp.Expr) -> tuple[list[sp.Symbol], Enclosed]:
    bare = strip_rounding(sp.sympify(expression))
    return sorted(bare.free_symbols, key=str), enclosed(bare)


@lru_cache(maxsize=_KEPT)
def of_float64(expression: sp.Expr) -> Compiled:
    """A function; the extremes are numbers, for SymPy takes every symbol to be below ∞ itself."""
    bare = strip_rounding(sp.sympify(expression))
    symbols = sorted(bare.free_symbols - EXTREMES.keys(), key=str)
    function = as_function([*symbols, *EXTREMES], bare, "numpy")
    return symbols, lambda *values: function(*values, *map(float, EXTREMES.values()))


@lru_cache(maxsize=_KEPT)
def _joined(reducer: Reducer) -> sp.Expr:
    """⊕ as an expression of two numbers."""
    return sp.sympify(reducer.combine(first(0), second(0)))


class Balls(Arithmetic):
    """Balls that enclose real numbers, at the bits of the surrounding `workprec`, for as long as these stay.

    Roundings of programs are left out. What balls do not decide is an UndecidedError; see `Computed` for what they do.
    """

    no_value = arb.nan()

    def __init__(self) -> None:
        self._computed, self._numbers = Computed(), dict[float, Number]()

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        """The value of an expression."""
        symbols, function = _of_balls(expression)
        known = {s: self.number(EXTREMES[s]) if s in EXTREMES else at[s] for s in symbols}
        return self._real(function(known, self._computed))

    @staticmethod
    def _real(value: Number) -> Number:
        if not isinstance(value, arb):
            raise ValueError(f"{value} is not real")
        if value.is_nan():
            raise UndecidedError("any number")
        return value

    def number(self, value: Number) -> Number:
        """An exact number, one object for each."""
        if isinstance(value, arb):
            return value
        exact = float(value)
        return self._numbers.setdefault(exact, arb(exact))

    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""
        if not value.is_finite() and value.mid().is_finite():
            raise UndecidedError("any number")
        return bool(value.is_finite())

    def combine(self, reducer: Reducer, left: Number, right: Number) -> Number:
        return self.value(_joined(reducer), {first(0): left, second(0): right})

    def rank(self, number: Number) -> Any:
        """What numbers are sorted by."""
        return cmp_to_key(compared)(number)

    def near(self, value: Number, other: Number, distance: int) -> bool:
        return compared(abs(value - other), arb(distance)) <= 0


class Float64(Arithmetic):
    """float64, NaN and infinities included. Roundings of programs are left out."""

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        symbols, function = of_float64(expression)
        with np.errstate(all="ignore"):
            return float(function(*(np.float64(at[s]) for s in symbols)))

    def number(self, value: Number) -> Number:
        return float(value)

    def finite(self, value: Number) -> bool:
        """Whether a number is neither NaN nor infinite."""
        return math.isfinite(value)


# float64 as a machine computes it, on many points at once: infinities, NaN, and masks that select.
#
# | written                     | where it is not what real numbers give                                |
# |-----------------------------|------------------------------------------------------------------------|
# | keep·f, (1 − keep)·f        | 0 where the condition does not hold, also of an f that is infinite     |
# | lowest, highest             | the dtype's own extreme numbers                                        |
# | GuardedProduct(T, f, d…)    | T where it is 0 or infinite, NaN where some d is not finite            |
# | max, min of some NaN        | NaN, or what the others give: by the order of comparisons, see below   |
# | the best of keys            | what a program starts from in place of those that do not beat it       |


LARGEST = float(np.finfo(np.float64).max)
_EXTREMES = {LOWEST: -LARGEST, HIGHEST: LARGEST}


def _guarded_product(component: Any, factor: Any, *results: Any) -> Any:
    guarded = np.where((component == 0) | np.isinf(component), component, component * factor)
    finite = np.all([np.isfinite(result) for result in results], axis=0) if results else True
    return np.where(finite, guarded, np.nan)


def _power_of_two(value: Any) -> Any:
    plain = np.isfinite(value) & (value != 0)
    return np.where(plain, np.copysign(2.0 ** np.floor(np.log2(np.abs(value))), value), value)


def _product(*factors: Any) -> Any:
    mantissa, exponent = np.float64(1), 0
    for factor in factors:
        share, power = np.frexp(factor)
        mantissa, carried = np.frexp(mantissa * share)
        exponent = exponent + power + carried
    return np.ldexp(mantissa, np.clip(exponent, -_FAR, _FAR))


def _selected(kept: Number, value: Number) -> Number:
    return np.where(kept != 0, value, 0.0)


_PRODUCT = sp.Function("as_written_product")
"""Stands for products of three factors and more."""

_SELECTED = sp.Function("selected")
"""Stands for what conditions keep of a value, 0 elsewhere, whatever the value is."""

_FAR = 5000
"""A power of two that is out of range either way."""

_MEANINGS: dict[type, Callable[..., Any]] = {
    GuardedProduct: _guarded_product,
    LogRatio: lambda above, below: np.log(np.abs(above) / np.abs(below)),
    PowerOfTwo: _power_of_two,
    WholePower: lambda exponent: 2.0**exponent,
}
"""What the functions of folds are as programs write them."""

_NAMES = {kind: sp.Function(f"as_written_{kind.__name__}") for kind in _MEANINGS}
_MODULES: list[Any] = [
    {str(_NAMES[kind]): meaning for kind, meaning in _MEANINGS.items()}
    | {str(_PRODUCT): _product, str(_SELECTED): _selected},
    "numpy",
]


@lru_cache(maxsize=_KEPT)
def _as_written(expression: sp.Expr, wide: bool) -> Compiled:
    bare = _selecting(strip_rounding(sp.sympify(expression)))
    if wide:
        bare = bare.replace(_is_long, lambda product: _PRODUCT(*product.args))
    for kind, name in _NAMES.items():
        bare = bare.replace(kind, name)
    symbols = sorted(bare.free_symbols, key=str)
    return symbols, as_function(symbols, bare, _MODULES)


class Extended(Arithmetic):
    """Arrays of float64, a value per point; each point is computed as a machine would.

    Parameters
    ----------
    wide : products of three factors and more may leave the range on the way: an expression does not say in which order
        a program multiplies.
    drops_nan : extrema of some NaN are those of the other values, as is what is selected by keys; else they are NaN,
        and what has a NaN for a key is selected first.
    """

    def __init__(self, wide: bool = False, drops_nan: bool = False) -> None:
        self.wide, self.drops_nan = wide, drops_nan
        self.extrema = {"maximum": np.fmax, "minimum": np.fmin} if drops_nan else {}

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        symbols, function = _as_written(expression, self.wide)
        with np.errstate(all="ignore"):
            values = (np.asarray(at[s] if s in at else _EXTREMES[s], np.float64) for s in symbols)
            return np.asarray(function(*np.broadcast_arrays(*values)), np.float64)  # it joins conditions of one shape

    def number(self, value: Number) -> Number:
        return np.asarray(float(value), np.float64)

    def finite(self, value: Number) -> Any:
        return np.isfinite(value)

    def combine(self, reducer: Reducer, left: Number, right: Number) -> Number:
        with np.errstate(all="ignore"):
            return (self.extrema.get(reducer.numpy) or getattr(np, reducer.numpy))(left, right)

    def total(self, reducer: Reducer, values: Iterable[Number]) -> Number:
        """⊕ of values and of what a program starts at."""
        given = list(values)
        total = np.asarray(super().total(reducer, [self.value(reducer.neutral, {}), *given]), np.float64)
        return np.where(np.all(np.isnan(np.broadcast_arrays(total, *given)[1:]), axis=0), np.nan, total)

    def best(self, selection: Selection, tuples: Sequence[Sequence[Number]]) -> list[Number]:
        """The best tuples at each point, those that a program starts from among them."""
        width = selection.per_rank
        started = [self.value(absent, {}) for absent in selection.absent]
        ranks = [started[k : k + width] for k in range(0, len(started), width)]
        flat = np.broadcast_arrays(*(part for row in (*tuples, *ranks) for part in row[:width]))
        rows = np.array(flat).reshape(len(tuples) + len(ranks), width, -1)
        points = [self._best_at(selection, list(rows[:, :, k])) for k in range(rows.shape[-1])]
        return list(np.array(points, np.float64).T.reshape(-1, *flat[0].shape))

    def _best_at(self, selection: Selection, rows: Sequence[Any]) -> list[Number]:
        """The best tuples at one point, those of a NaN key first, or left out."""
        first = [] if self.drops_nan else [part for row in rows if np.isnan(row[0]) for part in row]
        others = super().best(selection, [row for row in rows if not np.isnan(row[0])])
        return [*first, *others][: len(selection.absent)]

    def usable(self, value: Number, scale: bool) -> Any:
        return np.isfinite(value) & (value != 0) if scale else np.isfinite(value)

    def near(self, value: Number, other: Number, distance: int) -> Any:
        with np.errstate(all="ignore"):
            return np.abs(value - other) <= distance

    def but_not(self, condition: Any, excluded: Any) -> Any:
        return condition & np.logical_not(excluded)

    def choose(self, condition: Any, value: Number, otherwise: Number) -> Number:
        return np.where(condition, value, otherwise)

    def difference(self, new: Number, old: Number, decay: float | None) -> Number:
        """new − old, no further from 0 than where exp(±decay·Δ) vanishes."""
        with np.errstate(all="ignore"):
            apart = np.subtract(new, old)
        return apart if decay is None else np.clip(apart, -_VANISHES / decay, _VANISHES / decay)


_VANISHES = 2048.0
"""exp of minus that is 0 in float64."""


def _is_long(part: sp.Basic) -> bool:
    return isinstance(part, sp.Mul) and sum(not factor.is_number for factor in part.args) > 2


def _selecting(expression: sp.Expr) -> sp.Expr:
    """The expression with products by conditions as selections."""

    def selection(product: sp.Mul) -> sp.Expr:
        conditions = [factor for factor in product.args if _is_condition(factor)]
        others = [factor for factor in product.args if factor not in conditions]
        if not conditions or all(factor.is_number for factor in others):  # −keep, of 1 − keep
            return product
        return _SELECTED(sp.Mul(*conditions), sp.Mul(*others, evaluate=False))  # opaque: nothing folds cases of it

    return expression.replace(lambda part: isinstance(part, sp.Mul), selection)


def _is_condition(factor: sp.Expr) -> bool:
    """Whether a factor is keep or 1 − keep."""
    return isinstance(factor, Condition) or isinstance(1 - factor, Condition)
