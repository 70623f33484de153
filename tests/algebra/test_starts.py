"""Folds of cascades whose extrema start at an infinity: the same on numbers, and told apart where nothing is finite."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sympy as sp

from campaigns.numeric_fold import NumericFold
from tvm_cascade.algebra.cascade import Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import LOWEST, MAX, MIN, SUM, Reducer
from tvm_cascade.obligations.definition import definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.obligations.ends import at_infinities
from tvm_cascade.symbolic.masks import truth

from .cascades import FUSABLE
from .test_folds_on_numbers import LENGTH, SPLITS, rows_of

x, w = element("x w")
keep = truth("keep")
m, n, t = result("m least t")
FROM_INFINITY = MAX.from_infinity
WITH_EXTREMA = [name for name in FUSABLE if any(r.reducer in (MAX, MIN) for r in FUSABLE[name]().reductions)]


def from_infinity(cascade: Cascade) -> Cascade:
    reductions = [
        dataclasses.replace(r, reducer=r.reducer.from_infinity) if r.reducer in (MAX, MIN) else r
        for r in cascade.reductions
    ]
    return Cascade(reductions, cascade.elements)


def fold_of(*reductions: tuple[sp.Symbol, Reducer, sp.Expr]) -> Fold:
    derived = derive(Cascade([Reduction(*reduction) for reduction in reductions], [x, w, keep]))
    assert isinstance(derived, Fold), str(derived)
    return derived


@pytest.mark.parametrize("name", WITH_EXTREMA)
def test_on_numbers_it_is_the_definition_whatever_the_split(name: str) -> None:
    source = from_infinity(FUSABLE[name]())
    fold = derive(source)
    assert isinstance(fold, Fold) and fold.cascade == source
    rows = rows_of(source, np.random.default_rng(0))
    expected = definition(source, rows)
    for cuts in SPLITS:
        found = NumericFold(fold, LENGTH).split(rows, cuts)
        for symbol in source.results:
            assert found[symbol] == pytest.approx(expected[symbol], rel=1e-10, abs=1e-10), (symbol, cuts)


def test_the_reference_is_finite_and_the_result_is_not() -> None:
    lines = str(fold_of((m, FROM_INFINITY, x), (t, SUM, sp.exp(x - m)))).splitlines()
    assert "reference (running)  c_m' = Max(lowest, m_0)" in lines
    assert "finish               m = m_0" in lines
    assert "finish               t = Piecewise((nan, lowest > m), (t_0, True))" in lines


def test_a_minimum_is_a_maximum_turned_round() -> None:
    lines = str(fold_of((n, MIN.from_infinity, x), (t, SUM, sp.exp(n - x)))).splitlines()
    assert "reference (running)  c_least' = Min(highest, least_0)" in lines
    assert "finish               t = Piecewise((nan, highest < least), (t_0, True))" in lines


def test_a_sum_over_masked_positions_is_nan_where_one_is_kept() -> None:
    fold = fold_of((m, FROM_INFINITY, x), (t, SUM, keep * sp.exp(x - m)))
    (count,) = [c for c in fold.components if c.lift == keep]
    value, condition = fold.finish[t].args[0]
    assert value is sp.nan and set(condition.args) == {sp.Gt(LOWEST, m), count.symbol > 0}


def test_positions_that_are_not_kept_may_have_a_value_of_their_own() -> None:
    fold = fold_of((m, FROM_INFINITY, x), (t, SUM, keep * sp.exp(x - m) + (1 - keep) * w))
    assert keep in [c.lift for c in fold.components] and fold.finish[t].args[0][0] is sp.nan


def test_what_starts_at_the_lowest_number_is_finished_from_there() -> None:
    """Both maxima share a component."""
    fold = fold_of(
        (m, FROM_INFINITY, x), (n, MAX, x), (t, SUM, sp.exp(x - m)), (result("s"), SUM, sp.exp(x - n))
    )  # fmt: skip
    (shared,) = [c for c in fold.components if c.reducer.ordered]
    assert shared.reducer == FROM_INFINITY
    assert fold.finish[m] == shared.symbol and fold.finish[n] == sp.Max(shared.symbol, LOWEST)
    assert fold.finish[t].has(sp.nan) and not fold.finish[result("s")].has(sp.nan)


def test_a_guard_is_told_of_an_element_that_has_a_value_there() -> None:
    fold = fold_of((m, FROM_INFINITY, x), (t, SUM, w / m))
    assert fold.finish[t].args[0][0] is sp.nan
    fault = at_infinities(fold).faults[t]
    assert fault.seen and np.isnan(fault.found) and not np.isnan(fault.expected)


def test_elements_are_compared_with_a_finite_reference_too() -> None:
    here = sp.Piecewise((w, sp.Eq(x, m)), (0, True))
    fold = fold_of((m, FROM_INFINITY, x), (t, SUM, here), (n, SUM, sp.exp(x - m)))
    (lift,) = [c.lift for c in fold.components if isinstance(c.lift, sp.Piecewise)]
    assert lift.has(sp.Max) and all(r.value.has(sp.Max) for r in fold.references)


def test_extrema_at_the_dtype_s_own_numbers_are_as_they_are_without() -> None:
    fold = fold_of((m, MAX, x), (t, SUM, sp.exp(x - m)))
    assert not any(e.has(sp.nan, LOWEST) for e in fold.finish.values())
    assert [r.value for r in fold.references] == [fold.finish[m]]
