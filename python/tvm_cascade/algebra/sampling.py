"""Values of expressions at random points: what they rule out need not be simplified."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import mpmath
import sympy as sp

SAMPLES = 12
CLEAR = 1e-6
"""Differences and signs below this share are left to algebra."""

EXACT_SAMPLES = 4
DIGITS = 60
NOTHING = mpmath.mpf(10) ** -40
"""What is below this share of its largest term, at DIGITS digits, is zero."""


def sampled(expression: sp.Expr, seed: int, fixed: Sequence[sp.Symbol] = ()) -> list[float]:
    """The expression at random points, where it is real and finite; symbols in `fixed` have one value throughout."""
    symbols = sorted(expression.free_symbols, key=str)
    source = random.Random(seed)
    try:
        evaluate = sp.lambdify(symbols, expression, "math")
    except (TypeError, ValueError, NotImplementedError):
        return []
    held = {s: _number(s, source) for s in fixed}
    found = []
    for _ in range(SAMPLES):
        try:
            value = float(evaluate(*(held[s] if s in held else _number(s, source) for s in symbols)))
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
        evaluate = sp.lambdify(symbols, list(terms), "mpmath")
    except (TypeError, ValueError, NotImplementedError):
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
    return source.uniform(0.1 if symbol.is_nonnegative else -2.0, 2.0)
