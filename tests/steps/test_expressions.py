"""Expressions as text: the very same expression comes back, and nothing in a text is executed."""

from __future__ import annotations

import random

import pytest
import sympy as sp

from tvm_cascade.errors import InputError
from tvm_cascade.steps.expressions import parsed, text_of
from tvm_cascade.symbolic.functions import Rescaled, Round

a, b, c = SYMBOLS = sp.symbols("a b c", real=True)
NAMES = {symbol: symbol.name for symbol in SYMBOLS}
RAW = {"evaluate": False}


def symbol(name: str) -> sp.Symbol:
    return next(s for s in SYMBOLS if s.name == name)


READABLE = {
    "a - b": a - b,
    "-a": -a,
    "exp(a - b)": sp.exp(a - b),
    "1/3*a**2 - 2*b*c": a**2 / 3 - 2 * b * c,
    "a*b**-1": a / b,
    "a**(1/2)": sp.sqrt(a),
    "-oo": -sp.oo,
    "c*(-a - b)": -(a + b) * c,
    "Piecewise((a, a >= 0), (0, True))": sp.Piecewise((a, a >= 0), (0, True)),
    "Max(a, b)": sp.Max(a, b),
}
UNEVALUATED = [
    sp.Add(a, sp.Add(b, c, **RAW), **RAW),
    sp.Add(b, a, -3, **RAW),
    sp.Mul(a, 2, b, **RAW),
    sp.Mul(2, 3, **RAW),
    sp.Mul(-1, 2, a, **RAW),
    sp.Mul(-1, sp.Mul(2, a, **RAW), **RAW),
    sp.Mul(-1, sp.Add(a, b, **RAW), **RAW),
    sp.Mul(a, sp.Mul(b, c, **RAW), **RAW),
    sp.Add(a, sp.Mul(-1, sp.Rational(1, 2), **RAW), **RAW),
    sp.Add(a, sp.Mul(sp.Rational(-1, 2), b, **RAW), sp.S.NegativeInfinity, **RAW),
    sp.Pow(sp.Pow(a, 2, **RAW), 3, **RAW),
    sp.Pow(-2, sp.Pow(a, b), **RAW),
    sp.Pow(sp.Rational(-2, 3), -1, **RAW),
    sp.Mul(sp.Pow(2, -1, **RAW), a, **RAW),
    sp.Mul(sp.Rational(1, 2), sp.Pow(3, -1, **RAW), **RAW),
    sp.Not(sp.Or(a > b, sp.Eq(a, c)), **RAW),
    sp.And(a >= b, sp.Ne(b, c)),
    Round(a + b, c),
    Rescaled(a, b, c, 3),
    sp.exp(sp.Mul(0, a, **RAW), **RAW),
]


@pytest.mark.parametrize("text", READABLE)
def test_texts_are_as_one_writes_them(text: str) -> None:
    assert text_of(READABLE[text], NAMES) == text
    assert parsed(text, symbol) == READABLE[text]


@pytest.mark.parametrize("expression", UNEVALUATED, ids=sp.srepr)
def test_what_is_not_simplified_stays_so(expression: sp.Basic) -> None:
    found = parsed(text_of(expression, NAMES), symbol)
    assert sp.srepr(found) == sp.srepr(expression)


def _drawn(source: random.Random, depth: int) -> sp.Expr:
    if depth == 0 or source.random() < 0.15:
        numbers = (sp.Integer(source.randint(-3, 3)), sp.Rational(source.randint(-3, 3), 2), sp.oo)
        return source.choice([*SYMBOLS, *numbers])
    several = [_drawn(source, depth - 1) for _ in range(source.randint(2, 3))]
    one, other = several[:2]
    kind = source.randrange(6)
    if kind == 0:
        return sp.Piecewise((one, sp.Ge(a, b)), (other, True), **RAW)
    if kind == 1:
        return sp.exp(one, **RAW)
    if kind == 2:
        return sp.Pow(one, source.choice([2, -1, sp.Rational(1, 2)]), **RAW)
    return (sp.Mul if kind == 3 else sp.Add)(*several, **RAW)


def test_whatever_operators_are_nested_comes_back() -> None:
    source = random.Random(0)
    for _ in range(300):
        expression = _drawn(source, 3)
        assert parsed(text_of(expression, NAMES), symbol) == expression


REFUSED = [
    *("", "a +", "(" * 5000, "1.5", "'a'", "a.b", "a[0]", "a and b", "a if b else c", "lambda: a", "a < b < c"),
    *("a // b", "__import__('os').system('x')", "exec(a)", "exp(a, evaluate=True)", "exp(*a)", "f'{a}'"),
    *("Piecewise(a)", "a / b", "exp(a, b, c)", "[a]", "1/0", "a @ b", "a := b"),
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_a_text_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parsed(text, symbol)


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(InputError, match="known functions"):
        text_of(sp.zeta(a), NAMES)
