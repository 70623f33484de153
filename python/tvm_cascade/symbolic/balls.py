"""Expressions as functions of balls, python-flint's `arb`, each of which encloses a real number, or infinity.

What is computed of enclosures encloses the result, whatever was rounded on the way, at the bits of the surrounding
`workprec`. A comparison that a ball does not decide is an UndecidedError: more bits may, or other numbers.

| of numbers                           | is                                                        |
|--------------------------------------|-----------------------------------------------------------|
| below zero, a logarithm, power, root | complex, an `acb`, which no comparison takes              |
| zero, a negative power, a logarithm  | a ZeroDivisionError, −∞                                   |
| straddling either                    | NaN, which encloses everything                            |
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy as sp
from flint import acb, arb, ctx, fmpq

from tvm_cascade.symbolic.functions import GuardedProduct, LogRatio, PowerOfTwo, WholePower

Ball: TypeAlias = arb


class Computed:
    """What was computed: an operation on the same numbers gives the same number, the same object.

    So what is computed in one way of the same data ties with itself, which balls alone do not tell. Of a sum and its
    negative, one is computed as minus the other.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def __call__(self, operation: Callable[..., Any], *values: Any) -> Any:
        """The operation's value, once computed."""
        key = operation, *map(id, values)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = values, operation(*values)  # with the values, which then stay what they are
        return found[1]


Enclosed = Callable[[Mapping[sp.Symbol, Ball], Computed], Any]
"""An expression's ball, or truth value, as a function of those of its symbols."""

workprec = ctx.workprec
ZERO, ONE = arb(0), arb(1)


class UndecidedError(Exception):
    """Balls are too large to tell."""


def compared(left: Ball, right: Ball | int) -> int:
    """The sign of left − right.

    Raises
    ------
    UndecidedError
        Where the balls overlap, and are not the same number.
    """
    if left is right or left == right:
        return 0
    if left < right:
        return -1
    if left > right:
        return 1
    raise UndecidedError(f"{left} against {right}")


def extremum(which: Callable[..., Ball], left: Ball, right: Ball) -> Ball:
    """Python's max or min of two balls: one of them, or what encloses it where they overlap."""
    try:
        return right if which(0, compared(right, left)) else left
    except UndecidedError:
        return left.max(right) if which is max else left.min(right)


TOLERANCE = arb((1, -84))
"""2⁻⁸⁴, which is below 1e-25."""


def same(left: Ball, right: Ball, terms: Iterable[Ball], share: Ball = TOLERANCE, least: Ball = ONE) -> bool:
    """Whether two numbers differ by at most a share of the largest of some terms, and of what is least."""
    if left is right or left == right:
        return True
    sizes = (abs(term) for term in terms if term.is_finite())
    return compared(abs(left - right), share * functools.reduce(functools.partial(extremum, max), sizes, least)) <= 0


def enclosed(expression: sp.Basic) -> Enclosed:
    """An expression as a function of balls; of cases, those that do not hold are not computed.

    Raises
    ------
    TypeError
        Of a function that is not known of balls.
    """
    if isinstance(expression, sp.Symbol):
        return lambda at, computed: at[expression]
    if not expression.args:
        constant = _constant(expression)
        return lambda at, computed: computed(constant)
    if isinstance(expression, (sp.ITE, sp.Piecewise)):
        is_choice = isinstance(expression, sp.ITE)
        cases = [expression.args[1::-1], (expression.args[2], sp.true)] if is_choice else expression.args
        return _first_of([(enclosed(value), enclosed(condition)) for value, condition in cases])
    if isinstance(expression, sp.Add) and expression.could_extract_minus_sign():
        expression = sp.Mul(-1, -expression, evaluate=False)
    parts = [enclosed(part) for part in expression.args]
    if isinstance(expression, (sp.And, sp.Or)):
        joined = all if isinstance(expression, sp.And) else any
        return lambda at, computed: joined(part(at, computed) for part in parts)
    meaning = _meaning(expression.func)
    return lambda at, computed: computed(meaning, *[part(at, computed) for part in parts])


def _first_of(cases: Sequence[tuple[Enclosed, Enclosed]]) -> Enclosed:
    def value(at: Mapping[sp.Symbol, Ball], computed: Computed) -> Any:
        for chosen, holds in cases:
            if holds(at, computed):
                return chosen(at, computed)
        raise ValueError("no case holds")

    return value


_CONSTANTS: dict[sp.Basic, Callable[[], Any]] = {
    sp.true: lambda: True,
    sp.false: lambda: False,
    sp.oo: arb.pos_inf,
    -sp.oo: arb.neg_inf,
    sp.nan: arb.nan,
    sp.pi: arb.pi,
    sp.E: arb.const_e,
    sp.I: lambda: acb(0, 1),
}


@functools.lru_cache(maxsize=512)
def _constant(expression: sp.Basic) -> Callable[[], Any]:
    if expression in _CONSTANTS:
        return _CONSTANTS[expression]
    if not isinstance(expression, (sp.Rational, sp.Float)):
        raise TypeError(f"{expression} is not known of balls")
    exact = sp.Rational(expression)
    fraction = fmpq(int(exact.p), int(exact.q))
    return lambda: arb(fraction)


def _logarithm(value: Any) -> Any:
    if isinstance(value, arb) and not value > 0:
        return arb.neg_inf() if value.is_zero() else acb(value).log() if value < 0 else arb.nan()
    return value.log()


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, arb) and isinstance(exponent, arb):
        if base.is_zero() and exponent < 0:
            raise ZeroDivisionError(f"0**{exponent}")
        if not exponent.is_integer():
            return acb(base) ** exponent if base < 0 else base**exponent
        if exponent > 0 and base.mid() == 0:  # of a ball about zero itself, `arb` has no power but NaN
            return (acb(base) ** exponent).real
    return base**exponent


def _power_of_two(value: Ball) -> Ball:
    if value.is_zero() or not value.mid().is_finite():
        return value
    ends = (end.man_exp() for end in (value.abs_lower(), value.abs_upper()))
    least, most = (int(mantissa).bit_length() + int(exponent) for mantissa, exponent in ends)
    if least != most:
        raise UndecidedError(f"a power of two below {value}")
    return arb((compared(value, ZERO), least - 1))


_MEANINGS: dict[type[sp.Basic], Callable[..., Any]] = {
    sp.Add: lambda *terms: functools.reduce(operator.add, terms),
    sp.Mul: lambda *factors: functools.reduce(operator.mul, factors),
    sp.Pow: _power,
    sp.log: _logarithm,
    sp.Abs: abs,
    sp.conjugate: lambda value: value if isinstance(value, arb) else value.conjugate(),
    sp.sign: arb.sgn,
    sp.floor: lambda value: value.floor() if value.is_finite() else value,
    sp.ceiling: lambda value: value.ceil() if value.is_finite() else value,
    sp.Max: lambda *values: functools.reduce(functools.partial(extremum, max), values),
    sp.Min: lambda *values: functools.reduce(functools.partial(extremum, min), values),
    sp.Not: operator.not_,
    sp.Eq: lambda left, right: compared(left, right) == 0,
    sp.Ne: lambda left, right: compared(left, right) != 0,
    sp.Lt: lambda left, right: compared(left, right) < 0,
    sp.Le: lambda left, right: compared(left, right) <= 0,
    sp.Gt: lambda left, right: compared(left, right) > 0,
    sp.Ge: lambda left, right: compared(left, right) >= 0,
    PowerOfTwo: _power_of_two,
    WholePower: lambda exponent: arb(2) ** exponent,
    LogRatio: lambda above, below: _logarithm(abs(above) / abs(below)),
    GuardedProduct: lambda component, factor, *_results: component * factor,
}
"""What functions are of balls; all others are what `arb` has under their own name."""


@functools.cache
def _meaning(function: type[sp.Basic]) -> Callable[..., Any]:
    if function in _MEANINGS:
        return _MEANINGS[function]
    if not hasattr(arb, function.__name__):
        raise TypeError(f"{function} is not known of balls")
    return operator.methodcaller(function.__name__)
