"""max and min taken apart by masks and by inner extrema, and what an earlier extremum tells of the elements."""

from __future__ import annotations

import math
import random

import pytest
import sympy as sp

from campaigns.algebra_trial import evaluated
from campaigns.numeric_fold import NumericFold
from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.cascade import POSITION, Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import LOWEST, MAX, MIN, SUM, Selection
from tvm_cascade.algebra.selection_law import selecting
from tvm_cascade.algebra.verdict import Refusal, Verdict
from tvm_cascade.obligations.derive import derive
from tvm_cascade.steps.arithmetic import Balls
from tvm_cascade.symbolic.masks import is_truth

from .cascades import (
    MAXIMUM,
    MEAN_SUM,
    absolute,
    cascade,
    d,
    exp,
    i,
    keep,
    live,
    log,
    m,
    o,
    p,
    r,
    s,
    selected,
    t,
    v,
    w,
    x,
    y,
)

LAWFUL: dict[str, Cascade] = {
    "a factor that keeps its sign": cascade((d, MIN, exp(v)), (o, MAX, d * v * exp((w - d) / 8))),
    "select of two functions": cascade(MAXIMUM, (o, MAX, keep * exp(x - m) + (1 - keep) * y)),
    "smallest where kept": cascade(MEAN_SUM, (o, MIN, keep * (x - s / N))),
    "both masks": cascade(MEAN_SUM, (o, MAX, keep * (x - s) + (1 - keep) * (live * s * y + (1 - live) * w))),
    "square where kept": cascade(MEAN_SUM, (o, MAX, keep * (x - s / N) ** 2)),
    "scaled exponential where kept": cascade(MEAN_SUM, (o, MAX, keep * w * exp(x - s) + (1 - keep) * y)),
    "convex in the element": cascade(MEAN_SUM, (o, MAX, x**2 / (s**2 + 1) + x)),
    "exponents that a mask selects": cascade(MAXIMUM, (s, MIN, x), (o, SUM, exp(x - keep * m - (1 - keep) * s))),
    "distances to the maximum": cascade(MAXIMUM, (o, SUM, w * absolute(x - m))),
    "cut off at the maximum": cascade(MAXIMUM, (o, SUM, w * sp.Max(x, m))),
    "distances to the minimum of a multiple": cascade((m, MIN, x / 2), (o, SUM, absolute(2 * m - x) ** 3)),
    "a result as a factor of its own exponential": cascade(MEAN_SUM, (o, SUM, s * exp(x - s))),
    "exponentials of one result": cascade(MAXIMUM, (o, SUM, exp(x - m) * exp(y - m))),
    "a factor that may vanish": cascade(MEAN_SUM, (o, SUM, w * (x + s * x / N))),
    "exponential times a result of any sign": cascade(MEAN_SUM, (o, MAX, N * s * exp(x - s))),
    "cube of a difference times a result of any sign": cascade(MAXIMUM, (o, MIN, m * (x - m) ** 3)),
    "softplus where kept, times a result of any sign": cascade(
        (m, MAX, exp(v / 4)), (s, SUM, y), (o, MIN, s * log(1 + exp(keep * v / 4 + (1 - keep) * x - m)))
    ),
    "exponential times elements of any sign": cascade(MEAN_SUM, (o, MIN, w * exp(x - s))),
    "such where kept": cascade(MEAN_SUM, (o, MAX, keep * w * exp(x - s) + (1 - keep) * s)),
    "such times a result of any sign": cascade(MEAN_SUM, (t, SUM, w), (o, MAX, t * w * exp(x / 3 - s / N))),
    "what the largest have, and zero": cascade(MAXIMUM, (o, MAX, sp.Piecewise((y, x >= m), (0, True)))),
    "over a function of the position": cascade(MEAN_SUM, (o, SUM, exp(x - s) / (x**2 + 1))),
}


@pytest.mark.parametrize("name", LAWFUL)
def test_the_form_folds_and_its_fold_is_its_definition(name: str) -> None:
    fold = derive(LAWFUL[name])
    assert isinstance(fold, Fold), str(fold)
    for seed in range(4):
        assert not evaluated(fold, seed)


PROVED: dict[str, tuple[Cascade, str]] = {
    "product of two differences": (cascade(MEAN_SUM, (o, MAX, (x - s) * (y - s))), "not_monotone"),
    "weighted square": (cascade(MEAN_SUM, (o, MAX, r * (x - s) ** 2)), "not_monotone"),
    "exponential of a square": (cascade(MAXIMUM, (o, MAX, w * exp(-((x - m) ** 2)))), "not_monotone"),
    "exponential and another input": (cascade(MEAN_SUM, (o, MAX, x + exp(y - s))), "not_monotone"),
    "lines where kept": (cascade(MEAN_SUM, (o, MAX, keep * (x + s * y) + (1 - keep) * v)), "not_monotone"),
    "nearest to a positive sum": (cascade((t, SUM, r), (o, MIN, absolute(t - x / 8))), "not_monotone"),
    "hump on a slope": (cascade(MEAN_SUM, (o, MAX, x + exp(-((8 * x - s) ** 2)))), "not_monotone"),
    "distances where kept": (cascade(MEAN_SUM, (o, SUM, (1 - keep) * absolute(x / 16 - s))), "infinite_rank"),
    "cut off at a positive sum": (cascade((t, SUM, r), (o, SUM, sp.Max(t, 9 * x))), "infinite_rank"),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_keeps_no_finite_state_is_proved_to(name: str) -> None:
    source, code = PROVED[name]
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.code == code, str(outcome)


@pytest.mark.parametrize("name", ["product of two differences", "weighted square", "exponential and another input"])
def test_each_shown_position_alone_decides_the_result_at_its_own_value(name: str) -> None:
    source, _ = PROVED[name]
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.counterexample is not None
    shown = outcome.reason.counterexample
    values = dict(shown.at)
    element = source.reductions[-1].element
    rows = [{e: values[str(e)][k] for e in source.elements if str(e) in values} for k in range(7)]
    assert shown.outcomes == (7, 6) and len(values["s"]) == 7
    for k, result in enumerate(values["s"]):
        found = [float(element.subs({**row, s: result})) for row in rows]
        assert found.index(max(found)) == k


def test_a_part_without_a_fold_that_never_decides_proves_nothing() -> None:
    source = cascade(MEAN_SUM, (o, MAX, sp.Max(sp.tanh(x * s + y), 2 + r)))
    outcome = derive(source)
    assert isinstance(outcome, Fold) or outcome.reason.verdict is Verdict.UNKNOWN, str(outcome)


def test_a_truth_value_is_told_from_other_natural_numbers() -> None:
    assert is_truth(keep) and not is_truth(r) and not is_truth(sp.Symbol("n", integer=True, nonnegative=True))


def test_where_no_position_is_kept_the_others_decide() -> None:
    fold = derive(LAWFUL["select of two functions"])
    assert isinstance(fold, Fold)
    final = fold.finish[o]
    kept, others = (c.symbol for c in fold.components if isinstance(c.lift, sp.Piecewise) and c.lift.args[0][0] == 1)
    values = {c.symbol: 2.0 for c in fold.components} | {m: 0.0}
    only_others = final.subs({**values, kept: 0, others: 1})
    assert math.isfinite(float(only_others)) and float(only_others) == 2.0


def _payload(value: sp.Expr) -> Cascade:
    chosen = Selection(1, True, True, 1, (LOWEST, sp.Integer(-1), sp.S.Zero))
    whole = selecting(chosen)
    return cascade(MEAN_SUM, (p, whole.of(0), x), (i, whole.of(1), POSITION), (o, whole.of(2), value))


BEST, TWO = (p, i), (p, i, o, d)
SELECTIONS: dict[str, Cascade] = {
    "keys that results decide": cascade(MEAN_SUM, *selected(BEST, sp.Piecewise((x, s > 0), (y, True)))),
    "a convex map": cascade(MEAN_SUM, *selected(BEST, (x - s / N) ** 2)),
    "the two largest by a falling map": cascade(MEAN_SUM, *selected(TWO, exp(s - x), 2)),
    "a sum about the best key": cascade(*selected(BEST, x), (o, SUM, sp.Piecewise((y, x >= p), (0, True)))),
    "multiples by a result of any sign": cascade(MEAN_SUM, *selected(BEST, x * s)),
    "the two least of them": cascade(MEAN_SUM, *selected(TWO, x * s, 2, largest=False)),
    "multiples by what may vanish": cascade(MEAN_SUM, *selected(TWO, s**2 * exp(x - s), 2)),
    "multiples by a size": cascade(MEAN_SUM, *selected(BEST, absolute(s) * x + s)),
    "exponential times elements of any sign": cascade(MEAN_SUM, *selected(TWO, w * exp(x - s), 2)),
    "exponential times squares": cascade(MEAN_SUM, *selected(BEST, (y - 1) ** 2 * exp(y - s), largest=False)),
    "that by a result of any sign": cascade(MEAN_SUM, *selected(BEST, s * w * exp(x - s))),
    "keys that a mask selects": cascade(MEAN_SUM, *selected(BEST, keep * (x - s) + (1 - keep) * y)),
    "multiples of some keys, squares of others": cascade(
        MEAN_SUM, *selected(BEST, keep * s * x + (1 - keep) * (y - s) ** 2)
    ),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_folds_and_its_fold_is_its_definition(name: str) -> None:
    fold = derive(SELECTIONS[name])
    assert isinstance(fold, Fold), str(fold)
    for seed in range(6):
        assert not evaluated(fold, seed)


def test_where_all_keys_are_the_same_the_first_positions_are_selected() -> None:
    fold = derive(cascade((s, SUM, y), *selected(TWO, s * w * exp(x), 2)))
    assert isinstance(fold, Fold)
    balls = Balls()
    drawn = ({x: k, w: 3 - k, y: k - 2, POSITION: k} for k in range(5))
    rows = [{symbol: balls.number(value) for symbol, value in row.items()} for row in drawn]
    for seed in range(4):
        found = NumericFold(fold, len(rows), balls, {}).scattered(rows, random.Random(seed))
        assert [found[name] for name in TWO] == [0, 0, 0, 1]


def test_keys_out_of_range_are_ordered_as_they_are() -> None:
    fold = derive(SELECTIONS["exponential times elements of any sign"])
    assert isinstance(fold, Fold)
    order = next(c.lift for c in fold.components if c.parts and c.symbol == c.parts[0])
    data = [(-2.0, 5000.0), (-1.0, 5000.0), (-3.0, -4000.0), (0.0, 9.0), (1.0, -5001.0), (1.0, -5000.0), (7.0, 6000.0)]
    lifted = [float(order.subs({w: weight, x: exponent})) for weight, exponent in data]
    assert lifted == sorted(lifted) and len(set(lifted)) == len(data) and all(map(math.isfinite, lifted))


UNORDERED: dict[str, tuple[Cascade, str]] = {
    "the two farthest from the mean": (
        cascade(MEAN_SUM, *selected(TWO, absolute(x - s / N), 2)),
        "order_unknown",
    ),
    "cut off below": (cascade(MEAN_SUM, *selected(BEST, sp.Max(x - s, y))), "several_element_parts"),
    "what the best key has, about the mean": (_payload((y - s / N) * v), "tuple_dependence"),
}
"""Whose order is told by no one part, or by results, and payloads that read results."""


@pytest.mark.parametrize("name", UNORDERED)
def test_keys_that_are_no_map_of_one_part_have_no_law(name: str) -> None:
    source, code = UNORDERED[name]
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.code == code, str(outcome)
    assert outcome.reason.verdict is Verdict.UNKNOWN and outcome.reason.hint


UNSELECTABLE: dict[str, Cascade] = {
    "weighted square": cascade(MEAN_SUM, *selected(BEST, r * (x - s) ** 2)),
    "first above a sum": cascade(MEAN_SUM, *selected(BEST, sp.Piecewise((1, y >= s), (0, True)))),
    "first below a sum": cascade(MEAN_SUM, *selected(TWO, sp.Piecewise((1, y >= s), (0, True)), 2, largest=False)),
    "another input above a sum": cascade(MEAN_SUM, *selected(BEST, sp.Piecewise((x, y >= s), (0, True)))),
}


@pytest.mark.parametrize("name", UNSELECTABLE)
def test_each_shown_position_is_selected_at_its_own_value(name: str) -> None:
    source = UNSELECTABLE[name]
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.code == "not_order_preserving", str(outcome)
    shown = outcome.reason.counterexample
    assert shown is not None
    values, key = dict(shown.at), source.reductions[1]
    assert key.reducer.whole is not None and key.reducer.whole.selection is not None
    sign = 1 if key.reducer.whole.selection.largest else -1
    rows = [{e: values[str(e)][k] for e in source.elements if str(e) in values} for k in range(7)]
    for k, result in enumerate(values["s"]):
        found = [
            (sign * float(key.element.subs({**row, s: result})), -row.get(POSITION, j)) for j, row in enumerate(rows)
        ]
        assert found.index(max(found)) == k


def test_a_comparison_that_always_holds_decides_no_other_comparison() -> None:
    """Every x is at least the smallest one, but only that is at most as large."""
    smallest = (m, MIN, x)
    always, at_it = sp.Ge(x, m), sp.Le(x, m)
    keys = selected(TWO, sp.Piecewise((y, always), (0, True)), 2, largest=False)
    fold = derive(cascade(smallest, *keys))
    assert isinstance(fold, Fold) and {c.lift for c in fold.components if c.reducer.part == 0 and c.parts} == {y}
    nested = sp.Piecewise((sp.Piecewise((y, at_it), (0, True)), always), (0, True), evaluate=False)
    outcome = derive(cascade(smallest, *selected(TWO, nested, 2, largest=False)))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "select_on_result", str(outcome)


def test_an_extremum_of_best_keys_alone_needs_no_positions_to_be_refuted() -> None:
    outcome = derive(cascade(*selected(BEST, r), (o, MIN, (p - x) ** 2)))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "not_monotone", str(outcome)
    assert outcome.reason.counterexample is not None


def test_a_factor_that_may_change_its_sign_moves_no_maximum() -> None:
    """max of d·v·exp((w − d)/8) is d times a minimum once d is negative, as min v may become at any position."""
    found = derive(cascade((d, MIN, v), (o, MAX, d * v * exp((w - d) / 8))))
    assert isinstance(found, Refusal) and found.reason.code == "several_element_parts"
