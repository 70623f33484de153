"""Choices between elements by comparisons with earlier results: which fold, and which are refused with numbers."""

from __future__ import annotations

import mpmath
import pytest
import sympy as sp

from campaigns.algebra_trial import evaluated
from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, SUM, Reducer
from tvm_cascade.algebra.verdict import Question, Refusal, Verdict
from tvm_cascade.obligations.derive import derive
from tvm_cascade.obligations.refutation import refutation
from tvm_cascade.symbolic.masks import choice
from tvm_cascade.symbolic.separate import RANK_LIMIT

from .cascades import MAXIMUM, MEAN_SUM, N, absolute, cascade, d, exp, keep, log, m, o, r, s, sqrt, t, v, w, x, y
from .test_data_of_refusals import DIGITS, matrix, refused, results, value


def where(condition: sp.Basic, chosen: sp.Expr | int, other: sp.Expr | int = 0) -> sp.Expr:
    return sp.Piecewise((sp.sympify(chosen), condition), (sp.sympify(other), True))


ORDERED: dict[str, Cascade] = {
    "the largest above a total": cascade(MEAN_SUM, (o, MAX, where(x > s, x))),
    "the least at most a mean": cascade(MEAN_SUM, (o, MIN, where(x <= s / N, x))),
    "masked below half the maximum": cascade(MAXIMUM, (o, MAX, where(2 * x >= m, x, -10000))),
    "either side by its own map": cascade(MEAN_SUM, (t, SUM, r), (o, MAX, where(x > s, x * t, t - exp(x)))),
    "a map that leaps up": cascade(MEAN_SUM, (o, MAX, where(x > s, x + 1, x))),
    "a map that leaps down, from below": cascade(MEAN_SUM, (o, MAX, where(x > s, -x, 1 - x))),
    "a square above a positive total": cascade((s, SUM, r), (o, MAX, where(x > s, x**2))),
    "compared by a rising map": cascade(MEAN_SUM, (o, MAX, where(exp(x) / 2 > s, x))),
    "compared by a falling map": cascade(MEAN_SUM, (o, MAX, where(-2 * x < s, x))),
    "a product of data, divided by a total": cascade((s, SUM, r), (o, MAX, where(x * y / s > 1, x * y))),
    "data on either side": cascade(MEAN_SUM, (o, MAX, where(x > y + s, 1))),
    "compared by a map of products": cascade((s, SUM, r), (o, MAX, where(exp(x * y / s) >= s, 1))),
    "0 if some position is beyond": cascade(MEAN_SUM, (o, MIN, where(w >= s, x**2 * (1 - keep)))),
    "0 if some position is within": cascade(MEAN_SUM, (o, MAX, where(w >= s, 0, -(y**2)))),
}

ATTAINED: dict[str, Cascade] = {
    "an extremum that reads a number": cascade(
        (s, SUM, sp.S.Zero), (m, MAX, exp(x - s)), (o, SUM, where(exp(x - s) <= m, w, v))
    ),
    "a choice in a choice": cascade((m, MIN, x), (o, SUM, where(x <= m, w, where(x <= m, y, v)))),
    "two choices by one extremum": cascade(MAXIMUM, (o, SUM, where(x >= m, w) + where(x <= m, v, y))),
    "a multiple by a total of any sign": cascade((s, SUM, y), (m, MAX, s * x), (o, SUM, where(s * x >= m, w))),
    "and all others": cascade((s, SUM, y), (m, MAX, s * x), (o, SUM, where(s * x < m, w))),
    "exponentials": cascade(MEAN_SUM, (m, MIN, exp(x - s)), (o, MAX, where(exp(x - s) <= m, v + x))),
    "a falling map": cascade(MEAN_SUM, (m, MAX, exp(s - x)), (o, MIN, where(exp(s - x) >= m, y, x))),
    "weighted exponentials": cascade(MEAN_SUM, (m, MAX, w * exp(x - s)), (o, SUM, where(w * exp(x - s) >= m, v))),
    "differences": cascade(MEAN_SUM, (m, MAX, y - s), (o, SUM, where(sp.Eq(y - s, m), w * s, y))),
    "the end of a convex map": cascade(MEAN_SUM, (m, MAX, (x - s / N) ** 2), (o, SUM, where((x - s / N) ** 2 >= m, w))),
    "products by a total of any sign": cascade(
        (s, SUM, y), (m, MIN, s * w * exp(x)), (o, MAX, where(s * w * exp(x) <= m, v))
    ),
    "maps of what is there": cascade(MAXIMUM, (s, SUM, y), (o, MAX, where(x >= m, s * v, (w - s) ** 2))),
    "the least of all others": cascade(MAXIMUM, (s, SUM, y), (o, MIN, where(x < m, exp(v - s), s))),
    "a reciprocal beside a size": cascade(
        (m, MAX, keep * r + (1 - keep) * r),
        (t, MAX, 1 / (sqrt(r) + sp.Abs(m) + 1)),
        (o, SUM, where(1 / (sqrt(r) + sp.Abs(m) + 1) >= t, w)),
    ),
    "a size that a total may make 0": cascade(MEAN_SUM, (m, MIN, s**2 * x), (o, MAX, where(s**2 * x <= m, w, v))),
    "an extremum within a map at its ties": cascade((m, MIN, x + v), (o, SUM, where(x + v <= m, absolute(y - m)))),
    "that map times a total": cascade((m, MIN, x), (s, SUM, y), (o, MAX, where(x <= m, s * absolute(y - m)))),
    "what is taken where an extremum always is": cascade(
        (m, MAX, r), (d, MIN, where(r <= m, x)), (o, SUM, where(x >= d, y))
    ),
    "of a choice": cascade(
        (m, MAX, where(y <= 1, x * (x + 1))), (o, SUM, choice(m <= where(y <= 1, x * (x + 1)), w, sp.S.Zero))
    ),
    "of a choice, which none exceeds": cascade(
        (m, MAX, where(y <= 1, x * (x + 1))), (o, SUM, choice(m >= where(y <= 1, x * (x + 1)), w, sp.S.Zero))
    ),
    "beside a result that is a number": cascade((d, MAX, sp.Integer(2)), (o, MIN, (x - d) ** 2)),
    "beside a sum of zeros": cascade((d, SUM, sp.S.Zero), (o, SUM, absolute(y - d))),
}


PREDICATES: dict[str, Cascade] = {
    "a choice that cannot be": cascade((s, SUM, y), (o, OR, where(s >= v, where(s < v, 1), where(s < 0, 1)))),
    "a choice by results and data": cascade((s, SUM, y), (o, AND, where(s >= v, where(s < 0, 1), where(s < 1, 1)))),
    "some of those that data choose": cascade((s, SUM, y), (o, OR, where(sp.And(w > 0, x > s), 1))),
    "all of those that data choose": cascade((s, SUM, y), (o, AND, where(sp.Or(w > 0, x > s), 1))),
}


@pytest.mark.parametrize("name", ORDERED | ATTAINED | PREDICATES)
def test_the_choice_folds_and_its_fold_is_its_definition(name: str) -> None:
    fold = derive((ORDERED | ATTAINED | PREDICATES)[name])
    assert isinstance(fold, Fold), str(fold)
    for seed in range(8):
        assert not evaluated(fold, seed)


@pytest.mark.parametrize("name", ORDERED)
def test_a_choice_that_follows_the_order_is_decided_by_extrema_alone(name: str) -> None:
    fold = derive(ORDERED[name])
    assert isinstance(fold, Fold)
    assert not fold.references
    added = [component.reducer for component in fold.components if component.owner == o]
    assert set(added) <= {MAX, MIN}


UNDECIDED: dict[str, Cascade] = {
    # Where log(1 + exp) is 0, floats attain an extremum where their data are no extremum.
    "logarithms of one and an exponential": cascade(
        MEAN_SUM, (m, MAX, sp.log(1 + exp(x - s))), (o, SUM, where(sp.log(1 + exp(x - s)) >= m, 1))
    ),
    "positive beyond a positive total": cascade((s, SUM, r), (o, MIN, keep * where(x >= s, x))),
    "what the farthest have, and zero": cascade(
        MEAN_SUM, (m, MAX, (x - s / N) ** 2), (o, MAX, where((x - s / N) ** 2 >= m, y))
    ),
}
"""Branches of which one bounds the other where it counts, and what is at either of two ends or elsewhere."""


@pytest.mark.parametrize("name", UNDECIDED)
def test_other_choices_are_told_to_be_such(name: str) -> None:
    outcome = derive(UNDECIDED[name])
    assert isinstance(outcome, Refusal) and outcome.reason.code == "select_on_result", str(outcome)
    assert outcome.reduction == "o" and outcome.reason.hint


DECIDED: dict[str, Cascade] = {
    "the least above a share of the maximum": cascade((m, MAX, r), (o, MIN, where(2 * r >= m, r, 10000))),
    "a square above a total of its own": cascade(
        MEAN_SUM, (t, SUM, exp(x - s / N)), (o, MAX, where(x**2 >= t, exp(x - s) / t))
    ),
    "of two totals": cascade((s, SUM, x), (d, SUM, x * exp(w - s)), (o, MAX, where(x <= d / N, w))),
    "another element above a mean": cascade((s, SUM, r), (o, MAX, where(w >= s / N, x))),
    "another element below a total": cascade(MEAN_SUM, (o, MIN, where(log(r) >= s, x))),
    "the largest below a total": cascade(MEAN_SUM, (o, MAX, where(w < s, w, -10000))),
    "a masked element": cascade((s, SUM, y), (o, MIN, where(s >= log(r), keep * x + (1 - keep) * y))),
    "branches that read results": cascade((s, SUM, r), (o, MIN, where(s >= w, v, exp(v - s) / s**2))),
    "no choice, but a total of its own": cascade((s, SUM, sp.Abs(y)), (o, MAX, (1 + w**2 / 4) * (y - s) ** 2)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_each_shown_position_decides_the_result_of_its_own_data(name: str) -> None:
    source = DECIDED[name]
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.code == "not_monotone", str(outcome)
    shown = refused(source)
    assert len(shown.data) == RANK_LIMIT + 1
    at, last = dict(shown.at), source.reductions[-1]
    positions = [{e: at[str(e)][k] for e in source.elements if str(e) in at} for k in range(RANK_LIMIT + 1)]
    for k, data in enumerate(shown.data):
        known = results(source, data)
        values = [value(last.element, known | row) for row in positions]
        best = max(values) if last.reducer is MAX else min(values)
        assert [j for j, found in enumerate(values) if found == best] == [k]


@pytest.mark.parametrize(("reducer", "within"), [(OR, 1), (AND, 0)])
def test_each_shown_position_meets_a_condition_on_two_results_alone(reducer: Reducer, within: int) -> None:
    element = where(sp.And(y <= d, x > s), within, 1 - within)
    source = cascade((s, SUM, w), (d, SUM, v), (o, reducer, element))
    shown = refused(source)
    assert derive(source).reason.code == "logical_dependence"
    at = dict(shown.at)
    positions = [{e: at[str(e)][k] for e in (x, y)} for k in range(RANK_LIMIT + 1)]
    for k, data in enumerate(shown.data):
        known = results(source, data)
        assert [j for j, row in enumerate(positions) if value(element, known | row) == within] == [k]


RANK: dict[str, Cascade] = {
    "sums beyond half the maximum": cascade((m, MAX, x), (t, SUM, where(2 * x >= m, sp.sin(x)))),
    "sums beyond a total of the compared": cascade((s, SUM, sp.Abs(w) / 16 + 1), (t, SUM, where(w >= s, w * exp(w)))),
    "sums of another element beyond a total": cascade((s, SUM, y), (t, SUM, where(x**2 <= s, w))),
    "distances from an extremum of another element": cascade((m, MIN, x), (t, SUM, absolute(absolute(y) + 1 - m))),
}


@pytest.mark.parametrize("name", RANK)
def test_the_shown_data_make_a_sum_over_choices_a_matrix_of_more_rank_than_any_state(name: str) -> None:
    assert derive(RANK[name]).reason.code == "infinite_rank"
    with mpmath.workdps(DIGITS):
        assert abs(mpmath.det(matrix(RANK[name], refused(RANK[name])))) > 1e-100


def test_a_matrix_is_told_from_a_singular_one_where_its_entries_agree_in_the_first_eighty_digits() -> None:
    source = cascade((s, SUM, r**2 + 1), (d, SUM, r - s), (t, SUM, sp.tanh(w - d)))
    assert derive(source).reason.code == "infinite_rank"
    with mpmath.workdps(1200):
        assert abs(mpmath.det(matrix(source, refused(source)))) > mpmath.mpf(10) ** -1000


UNSHOWN: dict[str, Cascade] = {
    "distances from a total, whatever else is in it": cascade((s, SUM, r * w**2 + r), (t, SUM, absolute(s - r))),
}


@pytest.mark.parametrize("name", UNSHOWN)
def test_where_positions_are_part_of_what_they_are_compared_with_nothing_is_claimed(name: str) -> None:
    outcome = derive(UNSHOWN[name])
    assert isinstance(outcome, Refusal) and outcome.reason.verdict is Verdict.UNKNOWN, str(outcome)
    assert outcome.reason.counterexample is None


@pytest.mark.parametrize(
    ("code", "element"),
    [
        ("not_monotone", where(x > s, x)),
        ("not_monotone", where(x > s, -x, 1 - x)),
        ("not_monotone", where(x > s, 3)),
        ("not_monotone", where(keep > s, y)),
        ("not_monotone", (x + y - s) ** 2),
        ("infinite_rank", where(w > s, y, y)),
        ("infinite_rank", (x - s) ** 5),
    ],
)
def test_nothing_is_shown_against_a_fold(code: str, element: sp.Expr) -> None:
    reducer = MAX if code == "not_monotone" else SUM
    asked = Question(reducer, element, {}, [Reduction(*MEAN_SUM)], [x, y, w, keep], {})
    assert refutation(code, asked) is None
