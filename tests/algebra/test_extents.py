"""Ranges and poles of expressions: every value lies in the range, and what may be infinite has a pole."""

from __future__ import annotations

import math
import random

import pytest
import sympy as sp

from tvm_cascade.algebra.facts.extent import UNIT, Extents, Pole, pole

x, y = sp.symbols("x y", real=True)
p = sp.Symbol("p", positive=True)
n = sp.Symbol("n", nonnegative=True)

INSIDE = [
    x * y,
    x**2,
    x**3,
    (x - y) ** 2 + 1,
    1 / (1 + sp.exp(x)),
    1 / p**3,
    1 / (-1 - n) ** 2,
    -1 / (2 + n),
    sp.exp(-(x**2)),
    sp.exp(sp.tanh(x)) * p,
    sp.tanh(x) - sp.atan(y),
    sp.sin(x) * sp.cos(y) - 1,
    sp.cosh(x),
    sp.Abs(x) / (1 + sp.Abs(x)),
    sp.sqrt(p) * sp.log(p),
    sp.sqrt(n + 4),
    p ** sp.Rational(-1, 3),
    sp.Max(x, p, 1),
    sp.Min(x, n),
    sp.Max(sp.tanh(x), sp.sin(y)),
    sp.Piecewise((sp.exp(-n), x > 0), (-2, True)),
]


@pytest.mark.parametrize("expression", INSIDE, ids=str)
def test_every_value_lies_in_the_range(expression: sp.Expr) -> None:
    found, source = Extents().of(expression), random.Random(7)
    for _ in range(40):
        drawn = {s: source.uniform(0.01 if s.is_nonnegative else -4, 4) for s in expression.free_symbols}
        value = float(expression.subs(drawn))
        assert found.low <= value <= found.high
        assert found.zero or value != 0


@pytest.mark.parametrize(
    ("expression", "low", "high"),
    [
        (1 / (1 + sp.exp(x)), 0, 1),
        (sp.exp(-(x**2)), 0, 1),
        (3 * sp.tanh(x) ** 3, -3, 3),
        (1 / (2 + n), 0, 0.5),
        (sp.cosh(x), 1, math.inf),
        (x**2 * sp.sin(y), -math.inf, math.inf),
    ],
    ids=str,
)
def test_ranges_are_as_narrow_as_the_parts_tell(expression: sp.Expr, low: float, high: float) -> None:
    found = Extents().of(expression)
    assert (found.low, found.high) == (low, high)


def test_what_is_known_of_a_part_bounds_the_whole() -> None:
    assert Extents().of(3 * sp.exp(x - y)).high == math.inf
    assert Extents({sp.exp(x - y): UNIT}).of(3 * sp.exp(x - y)).size == 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1 / (1 + sp.Abs(x)), Pole.NONE),
        (x**2 + sp.Max(x, 1), Pole.NONE),
        (1 / p, Pole.NONE),
        (sp.log(p) / sp.sqrt(p), Pole.NONE),
        (sp.exp(-n), Pole.NONE),
        (1 / n, Pole.AT_AN_END),
        (sp.log(x), Pole.AT_AN_END),
        (sp.sqrt(x), Pole.AT_AN_END),
        (sp.exp(x), Pole.AT_AN_END),
        (1 / x, Pole.WITHIN),
        (sp.sqrt(x) / (x - y), Pole.WITHIN),
        (sp.Piecewise((1 / x, y > 0), (1, True)), Pole.WITHIN),
    ],
    ids=str,
)
def test_poles_of_what_reads_results(value: sp.Expr, expected: Pole) -> None:
    assert pole(value, value.free_symbols) is expected


def test_only_poles_in_results_count() -> None:
    assert pole(x / y, [x]) is Pole.NONE
    assert pole(x / y, [y]) is Pole.WITHIN


def test_a_positive_result_may_be_zero_on_a_part_of_the_row() -> None:
    assert pole(1 / p, [p]) is Pole.NONE
