"""Folds at infinities: classes against the definition, where they differ, and whether what a guard reads tells it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, MAX, MIN, SUM
from tvm_cascade.obligations import ends
from tvm_cascade.obligations.derive import derive
from tvm_cascade.obligations.ends import Ends, at_infinities
from tvm_cascade.steps.arithmetic import LARGEST, Extended, Float64

from .cascades import FUSABLE, cascade, d, exp, fold_of, i, keep, m, o, p, r, s, selected, t, v, w, x, y

INFINITY = np.array([np.inf])


def ends_of(source: Cascade) -> Ends:
    fold = derive(source)
    assert isinstance(fold, Fold)
    return at_infinities(fold)


def from_infinity(source: Cascade) -> Cascade:
    started = [
        dataclasses.replace(r, reducer=r.reducer.from_infinity) if r.reducer in (MAX, MIN) else r
        for r in source.reductions
    ]
    return Cascade(started, source.elements)


@pytest.mark.parametrize("name", ["softmax", "softmax_times_values", "entropy"])
def test_softmaxes_have_their_classes_at_infinities_whatever_extrema_start_at(name: str) -> None:
    for source in (FUSABLE[name](), from_infinity(FUSABLE[name]())):
        found = ends_of(source)
        assert found.points > 10 and not found.faults
        assert str(found) == f"classes agree at {found.points} points"


def test_a_sum_of_squares_is_infinite_where_they_are_and_not_nan() -> None:
    found = ends_of(FUSABLE["variance"]())
    (fault,) = found.faults.values()
    assert np.isinf(fault.expected) and np.isnan(fault.found) and fault.seen
    assert fault.at.startswith("x is of the order of 1e+200")


def test_a_product_that_a_program_divides_first_is_in_range_there() -> None:
    norm = cascade((s, SUM, x**2), (o, SUM, x / sp.sqrt(s / 7 + 1) * w))
    fault = ends_of(norm).faults[o]
    assert fault.at == "x, w is of the order of 1e+200" and (fault.expected, fault.told) == (0, True)


def test_elements_made_of_data_are_computed_from_them() -> None:
    product, left, right = sp.symbols("xw a b", real=True)
    norm = Cascade([Reduction(s, SUM, x**2), Reduction(o, SUM, product / sp.sqrt(s / 7 + 1))], [x, product])
    fold = derive(norm)
    assert isinstance(fold, Fold)
    meaning = {x: left, product: left * right, left: left, right: right}
    fault = at_infinities(fold, meaning).faults[o]
    assert fault.at == "a, b is of the order of 1e+200" and (fault.expected, fault.told) == (0, True)
    assert not at_infinities(fold).faults  # x and the product are data of their own there


def test_an_extremum_of_nothing_but_nan_is_nan() -> None:
    fault = ends_of(FUSABLE["largest_probability"]()).faults[o]
    assert np.isnan(fault.expected) and np.isinf(fault.found) and fault.told


def test_a_masked_softmax_is_checked_where_no_position_is_kept() -> None:
    masked = keep * x - 10000 * (1 - keep)
    found = ends_of(cascade((m, MAX, masked), (t, SUM, exp(masked - m))))
    assert found.points > 2 * ends_of(FUSABLE["softmax"]()).points and not found.faults
    apart = ends_of(cascade((m, MAX, x), (t, SUM, keep * exp(x - m))))  # an infinite x that is not kept moves the sum
    assert apart.faults[t].seen and apart.faults[t].at == "x is NaN at the first position"


def test_a_finish_that_forgets_where_an_extremum_starts_is_found() -> None:
    started = Cascade([Reduction(m, MAX.from_infinity, x), Reduction(t, SUM, exp(x - m))], [x])
    fold = derive(started)
    assert isinstance(fold, Fold) and not at_infinities(fold).faults
    component = next(c.symbol for c in fold.components if c.owner == t)
    forgetful = dataclasses.replace(fold, finish={**fold.finish, t: component})
    fault = at_infinities(forgetful).faults[t]
    assert (np.isnan(fault.expected), fault.found) == (True, 0.0)
    assert fault.at == "x is −∞ at all positions"
    assert fault.seen  # by the maximum, which is −∞


def test_what_a_guard_cannot_tell_is_said() -> None:
    found = ends_of(cascade((s, SUM, x), (o, SUM, exp(s + (v + x) / v))))  # as 1 + x/v: finite where v is not
    assert not found.faults[o].seen


def test_what_reads_an_extremum_of_some_nan_is_asked_for_where_it_is_nan_whatever_that_is() -> None:
    fold = fold_of("softmax")
    assert not at_infinities(fold).faults
    (extremum, total) = fold.cascade.results
    deaf = dataclasses.replace(fold, finish={**fold.finish, total: sp.Integer(1), extremum: sp.Integer(1)})
    told = at_infinities(deaf).faults
    assert told[total].points > told[extremum].points


def test_parts_of_tuples_are_checked() -> None:
    found = at_infinities(fold_of("softmax_of_argmax"))
    assert found.points > 20 and not found.faults
    wrong = fold_of("softmax_of_argmax")
    (place,) = (r.result for r in wrong.cascade.reductions if r.reducer.part == 1)
    fault = at_infinities(dataclasses.replace(wrong, finish={**wrong.finish, place: sp.Integer(7)})).faults[place]
    assert fault.found == 7 and fault.at == "all is finite"


@pytest.mark.parametrize("name", ["most_probable", "farthest_from_the_mean", "last_smallest"])
def test_what_selects_by_results_may_meet_their_nan_in_another_order(name: str) -> None:
    (fault,) = at_infinities(fold_of(name)).faults.values()
    assert fault.seen and not fault.told and fault.by_order
    assert str(fault).startswith("which NaN comes first decides where x is ∞ at the first position")


def test_another_position_of_an_equal_key_is_as_good() -> None:
    """Of finite keys exp(x − m) all but one are 0 at rows of the order of 1e200."""
    (fault,) = at_infinities(fold_of("most_probable")).faults.values()
    assert fault.points < 20


def test_numbers_are_as_programs_compute_them() -> None:
    arithmetic, zero, one = Extended(), np.zeros(1), np.ones(1)
    value = arithmetic.value
    assert value(keep * x, {keep: zero, x: INFINITY}) == 0
    assert value((1 - keep) * x, {keep: one, x: INFINITY}) == 0
    assert value(sp.Max(x, LOWEST), {x: -INFINITY}) == -LARGEST
    assert value(sp.Min(x, HIGHEST), {x: INFINITY}) == LARGEST


@pytest.mark.parametrize("depth", [1, 9])
def test_a_choice_of_conditions_is_a_condition_also_beside_nan(depth: int) -> None:
    condition, data = w > 0, {w: np.array([-1.0, 1, 1])}
    for symbol in sp.symbols(f"a:{depth}", real=True):
        condition = sp.ITE(symbol > 0, y > 0, condition)
        data |= {symbol: np.array([1.0, -1, np.nan]), y: np.array([1.0, -1, -1])}
    chosen = sp.Piecewise((1, condition), (2, True))
    assert list(Extended().value(chosen, data)) == [1, 1, 1]
    assert [Float64().value(chosen, {s: column[k] for s, column in data.items()}) for k in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("largest", [True, False])
def test_where_fewer_are_there_than_are_selected_a_program_has_what_it_starts_from(largest: bool) -> None:
    best = ends_of(cascade(*selected((p, i, o, d), x, 2, largest), (s, SUM, y)))
    assert best.points > 50 and not best.faults


def test_what_reads_the_best_of_keys_of_which_some_are_nan_is_asked_for_where_every_order_gives_it() -> None:
    least = selected((p, i), r, largest=False)
    assert not ends_of(cascade(*least, (o, MAX, sp.Piecewise((x, r <= p), (0, True))))).faults


def test_equal_folds_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fold, evaluated, points = fold_of("most_probable"), list[object](), ends._points
    found = at_infinities(fold)
    monkeypatch.setattr(ends, "_points", lambda *given: evaluated.append(given) or points(*given))
    assert at_infinities(dataclasses.replace(fold)) is found and not evaluated
    finish = {result: sp.Integer(7) for result in fold.finish}
    assert at_infinities(dataclasses.replace(fold, finish=finish)) != found and len(evaluated) == 1
    assert at_infinities(fold, {x: x}) is not found and len(evaluated) == 2


def test_functions_of_data_are_computed_from_them_too_where_both_are_read() -> None:
    source = cascade((s, SUM, y), (o, SUM, (x - s) ** 2))
    fold = derive(source)
    assert isinstance(fold, Fold)
    apart, computed = (at_infinities(fold, meaning) for meaning in ({}, {y: x**2 * exp(x)}))
    assert computed.points == 2 * apart.points
    assert computed.faults[o].points > apart.faults[o].points  # also where x alone is infinite
