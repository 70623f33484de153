"""float64 as a machine computes it, on many points at once: infinities, NaN, and masks that select.

| written                     | where it is not what real numbers give                                |
|-----------------------------|------------------------------------------------------------------------|
| keep·f, (1 − keep)·f        | 0 where the condition does not hold, also of an f that is infinite     |
| lowest, highest             | the dtype's own extreme numbers                                        |
| GuardedProduct(T, f, d…)    | T where it is 0 or infinite, NaN where some d is not finite            |
| StickyInfinity(T, moved, Δ) | T where it is infinite and every Δ is finite                           |
| max, min of some NaN        | NaN, or what the others give: by the order of comparisons, see below   |
| the best of keys            | what a program starts from in place of those that do not beat it       |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Reducer, Selection
from tvm_cascade.steps.arithmetic import Arithmetic, Compiled, Number
from tvm_cascade.symbolic.functions import (
    GuardedProduct,
    LogRatio,
    PowerOfTwo,
    StickyInfinity,
    WholePower,
)
from tvm_cascade.symbolic.masks import Condition
from tvm_cascade.symbolic.sampling import as_function
from tvm_cascade.symbolic.separate import strip_rounding

LARGEST = float(np.finfo(np.float64).max)
_EXTREMES = {LOWEST: -LARGEST, HIGHEST: LARGEST}


def _guarded_product(component: Any, factor: Any, *results: Any) -> Any:
    guarded = np.where((component == 0) | np.isinf(component), component, component * factor)
    finite = np.all([np.isfinite(result) for result in results], axis=0) if results else True
    return np.where(finite, guarded, np.nan)


def _sticky_infinity(component: Any, moved: Any, *steps: Any) -> Any:
    still = np.all([np.isfinite(step) for step in steps], axis=0) if steps else True
    return np.where(np.isinf(component) & still, component, moved)


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
    StickyInfinity: _sticky_infinity,
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
        super().__init__()
        self.wide, self.drops_nan = wide, drops_nan
        self.extrema = {"maximum": np.fmax, "minimum": np.fmin} if drops_nan else {}

    def compiled(self, expression: sp.Expr) -> Compiled:
        bare = _selecting(strip_rounding(expression))
        if self.wide:
            bare = bare.replace(_is_long, lambda product: _PRODUCT(*product.args))
        for kind, name in _NAMES.items():
            bare = bare.replace(kind, name)
        symbols = sorted(bare.free_symbols, key=str)
        return symbols, as_function(symbols, bare, _MODULES)

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Number]) -> Number:
        symbols, function = self.function(expression)
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
