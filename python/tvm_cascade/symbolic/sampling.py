"""Expressions at random points: a nonzero value rules out an identity without simplification."""

from __future__ import annotations

import builtins
import functools
import importlib
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp
from flint import arb
from sympy.logic.boolalg import BooleanFunction

from tvm_cascade.symbolic.balls import ZERO, Computed, UndecidedError, enclosed, same, workprec
from tvm_cascade.symbolic.masks import is_truth

SAMPLES = 12
CLEAR = 1e-6
"""Differences and signs below this share are left to algebra."""

EXACT_SAMPLES = 4
BITS = 256
NOTHING = arb((1, -133))
"""What is below this share of its largest term, 2⁻¹³³ or some 1e-40, is zero."""


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
    """Whether a sum is zero at every random point where balls tell, to many digits; False where they never do."""
    symbols = sorted(expression.free_symbols, key=str)
    source, met = random.Random(11), False
    try:
        terms = [enclosed(term) for term in sp.Add.make_args(expression)]
    except TypeError:
        return False
    with workprec(BITS):
        for _ in range(EXACT_SAMPLES):
            at = {s: arb(_number(s, source)) for s in symbols}
            try:
                values = [term(at, Computed()) for term in terms]
                if not same(sum(values, ZERO), ZERO, values, NOTHING, ZERO):
                    return False
            except (ArithmeticError, ValueError, TypeError, UndecidedError):
                continue
            met = True
    return met


def _number(symbol: sp.Symbol, source: random.Random) -> float:
    if is_truth(symbol):
        return float(source.getrandbits(1))
    return source.uniform(0.1 if symbol.is_nonnegative else -2.0, 2.0)
