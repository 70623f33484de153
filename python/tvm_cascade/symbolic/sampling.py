"""Expressions at random points: a nonzero value rules out an identity without simplification."""

from __future__ import annotations

import builtins
import functools
import importlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import sympy as sp
from sympy.logic.boolalg import BooleanFunction

from tvm_cascade.symbolic.masks import is_truth

SAMPLES = 12
CLEAR = 1e-6
"""Differences and signs below this share are left to algebra."""

EXACT_SAMPLES = 4
DIGITS = 60
NOTHING = mpmath.mpf(10) ** -40
"""What is below this share of its largest term, at DIGITS digits, is zero."""

LARGEST_EXPONENT = 100_000
"""exp of more is out of range: computing on with it would take for ever."""

LARGEST_PHASE = mpmath.mpf(2) ** 20_000
"""A wave of more is out of range: that takes π to as many digits."""


def exponential(exponent: mpmath.mpf) -> mpmath.mpf:
    """exp, within a range.

    Raises
    ------
    OverflowError
        Beyond it.
    """
    if mpmath.isfinite(exponent) and abs(exponent) > LARGEST_EXPONENT:
        raise OverflowError(f"exp of {mpmath.nstr(exponent, 5)}")
    return mpmath.exp(exponent)


def _within(function: Callable[[mpmath.mpf], mpmath.mpf], largest: mpmath.mpf) -> Callable[[mpmath.mpf], mpmath.mpf]:
    def bounded(argument: mpmath.mpf) -> mpmath.mpf:
        if mpmath.isfinite(argument) and abs(argument) > largest:
            raise OverflowError(f"a function of {mpmath.nstr(argument, 5)}")
        return function(argument)

    return bounded


IN_RANGE = [
    {
        "exp": exponential,
        "sinh": _within(mpmath.sinh, mpmath.mpf(LARGEST_EXPONENT)),
        "cosh": _within(mpmath.cosh, mpmath.mpf(LARGEST_EXPONENT)),
        "sin": _within(mpmath.sin, LARGEST_PHASE),
        "cos": _within(mpmath.cos, LARGEST_PHASE),
    },
    "mpmath",
]
"""For `as_function`: mpmath's functions, an OverflowError where they would take for ever."""


def as_function(symbols: Sequence[sp.Symbol], expression: Any, modules: Any) -> Callable[..., Any]:
    """An expression, or a list of some, as a function of numbers.

    A symbol that is called as the arithmetic has a function, or Python, is a dummy: lambdify goes by names.

    Parameters
    ----------
    modules : the arithmetic, as lambdify takes it.
    """
    listed = [*modules] if isinstance(modules, list) else [modules]
    known = [vars(importlib.import_module(m)) if isinstance(m, str) else m for m in listed]
    names = {s: sp.Dummy(**s.assumptions0) for s in symbols if any(s.name in m for m in (*known, vars(builtins)))}

    def written(part: Any) -> Any:
        if isinstance(part, list):
            return [written(one) for one in part]
        part = sp.sympify(part).xreplace(names)
        if "numpy" not in listed:
            return part
        for kind, name in _EXTREMA.items():
            part = part.replace(kind, lambda *values, name=name: functools.reduce(name, values))
        return part.replace(sp.ITE, _ChosenCondition)

    return sp.lambdify([names.get(s, s) for s in symbols], written(expression), listed, docstring_limit=0)


class _ChosenCondition(BooleanFunction):
    """ITE as NumPy's choice of conditions: what SymPy writes may be NaN, and so holds numbers."""

    def _numpycode(self, printer: Any) -> str:
        return f"where({', '.join(map(printer._print, self.args))})"


_EXTREMA = {sp.Max: sp.Function("maximum"), sp.Min: sp.Function("minimum")}
"""NumPy's extrema of two arrays, which broadcast: what SymPy writes wants one shape before 1.14."""


def sampled(expression: sp.Expr, seed: int, fixed: Sequence[sp.Symbol] = ()) -> list[float]:
    """The expression at random points, where it is real and finite; symbols in `fixed` have one value throughout."""
    symbols = sorted(expression.free_symbols, key=str)
    source = random.Random(seed)
    try:
        evaluate = as_function(symbols, expression, "math")
    except (TypeError, ValueError, NotImplementedError):
        return []
    constants = {s: _number(s, source) for s in fixed}
    found = []
    for _ in range(SAMPLES):
        try:
            value = float(evaluate(*(constants[s] if s in constants else _number(s, source) for s in symbols)))
        except (ArithmeticError, ValueError, TypeError, NameError):
            continue
        if math.isfinite(value):
            found.append(value)
    return found


def varies_numerically(expression: sp.Expr, symbols: Sequence[sp.Symbol]) -> bool:
    """Whether the expression certainly depends on some of the symbols."""
    others = [s for s in expression.free_symbols if s not in symbols]
    values = sampled(expression, 3, others)
    return bool(values) and max(values) - min(values) > CLEAR * max(map(abs, values))


def has_both_signs(expression: sp.Expr) -> bool:
    """Whether the expression is certainly positive somewhere and negative elsewhere."""
    values = sampled(expression, 5)
    largest = max(map(abs, values), default=0.0)
    return bool(values) and min(values) < -CLEAR * largest and max(values) > CLEAR * largest


def ever_positive(expression: sp.Expr) -> bool:
    """Whether the expression is certainly positive somewhere."""
    values = sampled(expression, 5)
    return bool(values) and max(values) > CLEAR * max(map(abs, values))


def vanishes(expression: sp.Expr) -> bool:
    """Whether a sum is zero at every random point where it has a value, to many digits; False where it has none."""
    terms = sp.Add.make_args(expression)
    symbols = sorted(expression.free_symbols, key=str)
    source, met = random.Random(11), False
    try:
        evaluate = as_function(symbols, list(terms), IN_RANGE)
    except (TypeError, ValueError, NotImplementedError, KeyError):  # the last of what is infinite
        return False
    with mpmath.workdps(DIGITS):
        for _ in range(EXACT_SAMPLES):
            try:
                values = evaluate(*(mpmath.mpf(_number(s, source)) for s in symbols))
                total, largest = mpmath.fsum(values), max(map(abs, values))
            except (ArithmeticError, ValueError, TypeError, NameError):
                continue
            if not mpmath.isfinite(total):
                continue
            if abs(total) > NOTHING * largest:
                return False
            met = True
    return met


def _number(symbol: sp.Symbol, source: random.Random) -> float:
    if is_truth(symbol):
        return float(source.getrandbits(1))
    return source.uniform(0.1 if symbol.is_nonnegative else -2.0, 2.0)
