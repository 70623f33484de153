"""The range of an expression, and where it has a pole: an interval for each part, from those of its parts.

What SymPy knows of the sign of a part bounds it as well: of x² + x·y + y² the parts do not tell that it is positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import sympy as sp

from tvm_cascade.symbolic.elementary import ELEMENTARY, Elementary
from tvm_cascade.symbolic.functions import InRange, Round
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.signs import sign_of


class Pole(IntEnum):
    """Where an expression is infinite, or has no value, though what it reads is finite."""

    NONE = 0
    AT_AN_END = 1
    """Of where it is defined: 1/t with t ≥ 0, log t, or an exponential out of range."""
    WITHIN = 2
    """Between numbers of either sign: 1/s near s = 0."""


@dataclass(frozen=True)
class Extent:
    """The numbers that an expression may be.

    Attributes
    ----------
    low, high : what bounds them.
    zero : whether it may be zero.
    pole : the worst of its parts.
    """

    low: float = -math.inf
    high: float = math.inf
    zero: bool = True
    pole: Pole = Pole.NONE

    @property
    def size(self) -> float:
        """The largest magnitude."""
        return max(-self.low, self.high)

    @property
    def is_positive(self) -> bool:
        """Whether all are above zero."""
        return self.low >= 0 and not self.zero


UNIT = Extent(0.0, 1.0)
"""Of exp(x − c) with c the largest x, and of a truth value."""


def pole(value: sp.Expr, results: Iterable[sp.Symbol]) -> Pole:
    """The worst pole of a value at finite results, of the parts that read them."""
    return Extents(results=frozenset(results)).of(value).pole


def sign_within(expression: sp.Expr) -> dict[str, bool]:
    """The assumptions of a symbol with the sign of an expression: of k·r + (1 − k)·r, k a mask, its extent tells it."""
    return sign_of(expression) or ({"nonnegative": True} if Extents().of(expression).low >= 0 else {})


class Extents:
    """The extents of expressions.

    Parameters
    ----------
    known : of parts, beyond what their structure tells.
    results : a part that reads none of them has no pole, as the program has that pole itself.
    """

    def __init__(
        self, known: Mapping[sp.Basic, Extent] | None = None, results: Collection[sp.Symbol] = frozenset()
    ) -> None:
        self._found: dict[sp.Basic, Extent] = dict(known or {})
        self._results = frozenset(results)

    def of(self, expression: sp.Expr) -> Extent:
        if expression not in self._found:
            found = _with_sign(expression, self._by_structure(expression))
            reads = found.pole and expression.free_symbols & self._results
            self._found[expression] = found if reads else replace(found, pole=Pole.NONE)
        return self._found[expression]

    def _by_structure(self, expression: sp.Expr) -> Extent:
        if expression.is_number:
            return _of_number(expression)
        if is_truth(expression):
            return UNIT
        if isinstance(expression, InRange):
            return self.of(expression.written_out)
        if isinstance(expression, Round):
            return self.of(expression.args[0])
        if isinstance(expression, sp.Piecewise):
            return _either([self.of(value) for value, _ in expression.args])
        parts = [self.of(part) for part in expression.args]
        rule = _RULES.get(type(expression))
        if rule is not None:
            return rule(parts)
        if isinstance(expression, sp.Pow):
            return _of_power(expression, *parts)
        row = ELEMENTARY.get(type(expression))
        return _of_row(row, *parts) if row is not None else Extent(pole=_worst(parts))


def _with_sign(expression: sp.Expr, found: Extent) -> Extent:
    """The extent, no wider than the sign that SymPy knows."""
    if found.low < 0 < found.high:
        if expression.is_nonnegative:
            found = replace(found, low=0.0)
        elif expression.is_nonpositive:
            found = replace(found, high=0.0)
    return replace(found, zero=False) if found.zero and expression.is_nonzero else found


def _of_number(number: sp.Expr) -> Extent:
    try:
        value = float(number)
    except TypeError:  # no real number
        return Extent(pole=Pole.WITHIN)
    if math.isnan(value):
        return Extent(pole=Pole.WITHIN)
    return Extent(value, value, value == 0) if math.isfinite(value) else Extent()


def _worst(parts: Iterable[Extent]) -> Pole:
    return max((part.pole for part in parts), default=Pole.NONE)


def _either(parts: list[Extent]) -> Extent:
    return Extent(min(p.low for p in parts), max(p.high for p in parts), any(p.zero for p in parts), _worst(parts))


def _sum(parts: list[Extent]) -> Extent:
    low, high = math.fsum(p.low for p in parts), math.fsum(p.high for p in parts)
    zero = low <= 0 <= high and not any(p.is_positive for p in parts if low >= 0)
    return Extent(low, high, zero, _worst(parts))


def _product(parts: list[Extent]) -> Extent:
    low, high = 1.0, 1.0
    for part in parts:
        ends = [_times(a, b) for a in (low, high) for b in (part.low, part.high)]
        low, high = min(ends), max(ends)
    return Extent(low, high, any(p.zero for p in parts), _worst(parts))


def _times(left: float, right: float) -> float:
    return 0.0 if left == 0 or right == 0 else left * right  # what is unbounded is finite: no 0·∞


def _largest(parts: list[Extent]) -> Extent:
    low, high = max(p.low for p in parts), max(p.high for p in parts)
    return Extent(low, high, low <= 0 <= high and not any(p.is_positive for p in parts), _worst(parts))


def _smallest(parts: list[Extent]) -> Extent:
    low, high = min(p.low for p in parts), min(p.high for p in parts)
    return Extent(low, high, low <= 0 <= high and any(p.zero for p in parts), _worst(parts))


_RULES: dict[type[sp.Basic], Callable[[list[Extent]], Extent]] = {
    sp.Add: _sum,
    sp.Mul: _product,
    sp.Max: _largest,
    sp.Min: _smallest,
}


def _of_row(row: Elementary, argument: Extent) -> Extent:
    """Of a function of one number."""
    low, high, at = argument.low, argument.high, argument.pole
    if row.of_positive:
        at = max(at, Pole.NONE if argument.is_positive else Pole.AT_AN_END)
        low = max(low, 0.0)
    if row.even:
        nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        low, high = nearest, argument.size
    if row.at is None or not (row.rises or row.even):
        return Extent(row.least, row.most, True, at)
    below, above = max(row.least, _value(row, low, -math.inf)), min(row.most, _value(row, high, math.inf))
    if row.at is math.exp:
        return Extent(below, above, False, max(at, Pole.AT_AN_END) if above == math.inf else at)
    return Extent(below, above, below <= 0 <= above, at)


def _value(row: Elementary, number: float, beyond: float) -> float:
    """The value of a function at the end of a range; `beyond` where that is out of range."""
    assert row.at is not None
    try:
        return row.at(number)
    except (OverflowError, ValueError):
        return beyond


def _of_power(power: sp.Pow, base: Extent, exponent: Extent) -> Extent:
    pole = max(base.pole, exponent.pole)
    if not power.exp.is_number:
        whole = power.exp.is_integer and power.exp.is_nonnegative
        return Extent(0.0 if base.low >= 0 else -math.inf, pole=max(pole, Pole.NONE if whole else Pole.AT_AN_END))
    number, whole = float(power.exp), bool(power.exp.is_integer)
    if not whole and base.low < 0:
        pole, base = max(pole, Pole.AT_AN_END), replace(base, low=0.0, high=max(base.high, 0.0))
    if number < 0:
        side = base.low >= 0 or base.high <= 0
        pole = max(pole, Pole.NONE if not base.zero else Pole.AT_AN_END if side else Pole.WITHIN)
        if not side:
            even = whole and number % 2 == 0
            return Extent(0.0 if even else -math.inf, zero=False, pole=pole)
        base = Extent(_reciprocal(base.high, base.low < 0), _reciprocal(base.low, base.low < 0), False)
    ends = [_raised(base.low, abs(number)), _raised(base.high, abs(number))]
    even = whole and number % 2 == 0
    low = 0.0 if even and base.low <= 0 <= base.high else min(ends)
    return Extent(low, max(ends), base.zero, pole)


def _reciprocal(end: float, negative: bool) -> float:
    return 1 / end if end else -math.inf if negative else math.inf


def _raised(end: float, exponent: float) -> float:
    try:
        return float(end**exponent)
    except OverflowError:
        return math.inf if end > 0 or exponent % 2 == 0 else -math.inf
