"""Refusals whose counterexample needs data found for it: each is computed again here, from the shown data alone."""

from __future__ import annotations

from collections.abc import Mapping

import mpmath
import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM
from tvm_cascade.algebra.verdict import Counterexample, Refusal, Values
from tvm_cascade.obligations.derive import derive

from .cascades import N, absolute, cascade, d, exp, keep, log, m, r, s, t, v, w, x, y

DIGITS = 400
COMBINE = {SUM: mpmath.fsum, PROD: mpmath.fprod, MAX: max, MIN: min}

RANK: dict[str, Cascade] = {
    "a total far from its elements": cascade((s, SUM, N**3 * x), (t, SUM, absolute(s - v))),
    "a product of elements that are not read": cascade((d, PROD, r), (t, SUM, absolute(d - x))),
    "a sum of squares between elements": cascade((s, SUM, y**2), (t, SUM, absolute(s - y))),
    "a maximum that other elements exceed": cascade((m, MAX, y), (t, SUM, absolute(m - w * y / 2))),
    "a total where a mask must hold everywhere": cascade(
        (s, SUM, keep * x / 64 + 1000 * (keep - 1)), (t, SUM, absolute(w - (s + 1) / N))
    ),
    "exponentials of every size": cascade(
        (s, SUM, y), (d, SUM, N * exp(x - s) / (s**2 + 1)), (t, SUM, sp.Max(d, 3 * y / 2))
    ),
    "a logarithm of at least ten": cascade((s, SUM, x**2 + 1), (t, SUM, sp.Max(w / 2, log(s)))),
    "a sigmoid of a total": cascade((s, SUM, exp(x / 4)), (t, SUM, 1 / (1 + exp(s - x)))),
    "a threshold above most elements": cascade(
        (s, SUM, keep * x**2 + 1), (t, SUM, sp.Piecewise((2 * x, x <= s), (s / N, True)))
    ),
    "a product of two results": cascade(
        (m, MAX, r), (d, SUM, exp(r - log(m) / N)), (t, SUM, absolute(d * (d / N - m) + r * x))
    ),
    "elements of one sign alone": cascade((s, SUM, x), (m, MAX, exp(w - s) * r), (t, SUM, sp.Max(s, w / 8))),
    "a sigmoid of a minimum": cascade((m, MIN, x), (t, SUM, 1 / ((m**2 + 1) * exp(m - x) + 1))),
}


def refused(source: Cascade) -> Counterexample:
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.counterexample is not None, str(outcome)
    return outcome.reason.counterexample


def value(function: sp.Expr, at: Mapping[sp.Symbol, object]) -> mpmath.mpf:
    symbols = sorted(function.free_symbols, key=str)
    return mpmath.mpf(sp.lambdify(symbols, function, "mpmath")(*(mpmath.mpf(at[f]) for f in symbols)))


def results(source: Cascade, data: Values) -> dict[sp.Symbol, mpmath.mpf]:
    """Every result but the last of the data."""
    columns = {e: dict(data)[str(e)] for e in source.elements if str(e) in dict(data)}
    length = len(next(iter(columns.values())))
    known: dict[sp.Symbol, mpmath.mpf] = {N: mpmath.mpf(length)}
    for reduction in source.reductions[:-1]:
        rows = [{e: values[k] for e, values in columns.items()} for k in range(length)]
        known[reduction.result] = COMBINE[reduction.reducer]([value(reduction.element, known | row) for row in rows])
    return known


def matrix(source: Cascade, shown: Counterexample) -> mpmath.matrix:
    """The last element at the shown positions, over the results of the shown data; scaled."""
    at = {e: dict(shown.at)[str(e)] for e in source.elements if str(e) in dict(shown.at)}
    columns = [results(source, data) for data in shown.data]
    element = source.reductions[-1].element
    positions = [{e: values[k] for e, values in at.items()} for k in range(len(columns))]
    lines = [[value(element, column | row) for row in positions] for column in columns]
    return mpmath.matrix([[entry / max(map(abs, line)) for entry in line] for line in lines])


@pytest.mark.parametrize("name", RANK)
def test_the_shown_data_make_the_element_a_matrix_of_more_rank_than_any_state(name: str) -> None:
    shown = refused(RANK[name])
    assert shown.outcomes == (7, 6) and len(shown.data) == 7
    determinants = []
    for digits in (DIGITS, 2 * DIGITS):
        with mpmath.workdps(digits):
            determinants.append(mpmath.det(matrix(RANK[name], shown)))
    assert determinants[0] != 0 and abs(determinants[0] / determinants[1] - 1) < 1e-20
