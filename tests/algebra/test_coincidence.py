"""Sums, maxima and minima over the positions at which an element is its own extremum, ties and all."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, Reducer
from tvm_cascade.symbolic.masks import choice

from .cascades import MAXIMUM, SUM, SUM_EXP, Row, cascade, exp, m, o, s, t, w, x, y
from .on_numbers import LENGTH, assert_exact, folded

ONE, ZERO = sp.S.One, sp.S.Zero
SHARE: Row = (s, SUM, y - 2)
"""A sum of any sign."""


def where(condition: sp.Expr, value: sp.Expr, otherwise: sp.Expr = ZERO) -> sp.Expr:
    return choice(condition, sp.sympify(value), otherwise)


MINIMUM: Row = (m, MIN, x)
CASCADES: dict[str, Cascade] = {
    "how many": cascade(MAXIMUM, (o, SUM, where(sp.Eq(x, m), ONE))),
    "total where a product is largest": cascade((m, MAX, x * w), (o, SUM, where(sp.Ge(x * w, m), y))),
    "probability of the mode": cascade(MAXIMUM, SUM_EXP, (o, SUM, where(sp.Eq(x, m), exp(x - m) / t))),
    "all but the smallest": cascade(MINIMUM, (o, SUM, where(sp.Gt(x, m), x))),
    "squares above the smallest": cascade(MINIMUM, (o, SUM, where(sp.Ne(x, m), (x - m) ** 2, y))),
    "largest of the others": cascade(MAXIMUM, (o, MAX, where(sp.Lt(x, m), x, sp.Integer(-(10**9))))),
    "least where largest": cascade(MAXIMUM, (o, MIN, where(sp.Eq(x, m), y, x))),
    "a result where largest": cascade(MAXIMUM, (s, SUM, y), (o, MAX, where(sp.Eq(x, m), s, x))),
    "weights of terms": cascade(MAXIMUM, (s, SUM, y), (o, SUM, where(sp.Ge(x, m), y**2 * s + y))),
    "largest above a total": cascade(SHARE, (o, MAX, where(sp.Ge(x, s), x, sp.Integer(-100)))),
}


@pytest.mark.parametrize("condition", [sp.Le(x, m), sp.Or(sp.Le(x, m), y > s), sp.And(m >= x, y >= t)], ids=str)
def test_a_comparison_that_always_holds_is_no_condition(condition: sp.Expr) -> None:
    smallest: Row = (t, MIN, y)
    fold = folded(cascade(MAXIMUM, SHARE, smallest, (o, SUM, where(condition, w, y))))
    assert [c.lift for c in fold.components if c.owner == o] == [w] and not fold.references


@pytest.mark.parametrize("reducer", [AND, OR, MAX, MIN], ids=str)
def test_an_extremum_of_what_is_the_same_everywhere_needs_no_state(reducer: Reducer) -> None:
    fold = folded(cascade(MAXIMUM, (o, reducer, where(sp.Le(x, m), ONE))))
    assert [c.owner for c in fold.components] == [m] and fold.finish[o] == 1


def test_a_condition_on_a_selection_is_one_on_each_of_its_cases() -> None:
    selection = where(sp.Min(x, sp.tanh(x)) > 0, sp.tanh(x), x / 3)
    found = where(sp.Eq(selection, m), y)
    assert [guard for _, guard in found.args] == [guard for _, guard in selection.args]
    assert [case.args[0][1] for case, _ in found.args] == [sp.Eq(m, sp.tanh(x)), sp.Eq(m, x / 3)]


RAMP = np.floor(np.linspace(0, 4, LENGTH))
KINDS = {
    "ties": np.random.default_rng(6).integers(-2, 3, LENGTH),
    "equal": np.full(LENGTH, 3),
    "rising": RAMP,
    "falling": RAMP[::-1],
    "one far below": np.where(np.arange(LENGTH) % 11 == 9, -600, RAMP),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASCADES)
def test_positions_of_an_extremum_are_folded_wherever_it_moves(name: str, kind: str) -> None:
    rng = np.random.default_rng(7)
    others = {e: rng.integers(1, 4, LENGTH) for e in (y, w)}
    assert_exact(folded(CASCADES[name]), {x: KINDS[kind], **others})
