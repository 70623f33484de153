"""Folds on float64 numbers: whatever the split, the fold gives what the definition gives, on kind and unkind data."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import sympy as sp

from campaigns.numeric_fold import Numbers, NumericFold
from tvm_cascade.algebra.cascade import POSITION, Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.obligations.definition import definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.masks import is_truth

from .cascades import FUSABLE, MAXIMUM, MEAN_SUM, SUM, cascade, d, exp, fold_of, m, o, r, s, t, x

LENGTH = 23
SPLITS = [[], [1], [22], [11], [0, 0, 5], [4, 8, 12, 16, 20], [3, 3, 17], list(range(1, LENGTH))]


def rows_of(source: Cascade, rng: np.random.Generator, offset: float = 0.0, spread: float = 1.0) -> list[Numbers]:
    logical = any(reduction.reducer.name in ("and", "or") for reduction in source.reductions)

    def draw(symbol: sp.Symbol) -> float:
        if is_truth(symbol):
            return float(rng.integers(0, 2))
        if symbol.is_nonnegative:
            return float(rng.integers(0, 2)) if logical and not symbol.is_positive else float(rng.uniform(0.5, 1.5))
        return float(offset + spread * rng.standard_normal())

    return [{e: float(k) if e == POSITION else draw(e) for e in source.elements} for k in range(LENGTH)]


@pytest.mark.parametrize("name", FUSABLE)
def test_every_split_gives_the_definition(name: str) -> None:
    fold, source = fold_of(name), FUSABLE[name]()
    rows = rows_of(source, np.random.default_rng(0))
    expected = definition(source, rows)
    for cuts in SPLITS:
        found = NumericFold(fold, LENGTH).split(rows, cuts)
        for result in source.results:
            assert found[result] == pytest.approx(expected[result], rel=1e-10, abs=1e-10), (result, cuts)


@pytest.mark.parametrize("name", ["variance", "third_moment", "covariance", "softmax_weighted_variance", "inertia"])
def test_moments_keep_their_digits_far_from_zero(name: str) -> None:
    """At mean 1e6 raw moments would keep at most four of float64's digits."""
    fold, source = fold_of(name), FUSABLE[name]()
    rows = rows_of(source, np.random.default_rng(1), offset=1e6)
    last = source.results[-1]
    exact = definition(source, [{e: row[e] - (1e6 if e != r else 0) for e in row} for row in rows])[last]
    for cuts in SPLITS:
        assert NumericFold(fold, LENGTH).split(rows, cuts)[last] == pytest.approx(exact, rel=1e-8, abs=1e-8), cuts


@pytest.mark.parametrize("order", ["rising", "falling", "late_spike"])
@pytest.mark.parametrize("name", ["softmax", "scaled_softmax", "softmax_times_values", "entropy", "kl_divergence"])
def test_exponentials_of_large_numbers_do_not_overflow(name: str, order: str) -> None:
    ramp = {"rising": np.linspace(0, 2000, LENGTH), "falling": np.linspace(2000, 0, LENGTH)}
    base = ramp.get(order, np.r_[np.zeros(LENGTH - 1), 2000.0])
    fold, source = fold_of(name), FUSABLE[name]()
    rows = [{e: float(base[k]) for e in source.elements} for k in range(LENGTH)]
    expected = definition(source, rows)
    for cuts in SPLITS:
        found = NumericFold(fold, LENGTH).split(rows, cuts)
        for result in source.results:
            assert found[result] == pytest.approx(expected[result], rel=1e-9), (result, cuts)


def test_an_exponential_about_the_mean_is_bounded_by_a_maximum_of_its_own() -> None:
    """exp(x − mean) is large while the partial mean is far from the final one; the state must not be."""
    fold, source = fold_of("exponential_about_the_mean"), FUSABLE["exponential_about_the_mean"]()
    rows = [{x: 3000.0 if k == 0 else 2900.0 + k} for k in range(LENGTH)]
    found = NumericFold(fold, LENGTH).split(rows, [5, 9])
    assert found[t] == pytest.approx(definition(source, rows)[t], rel=1e-9)


@pytest.mark.parametrize(
    ("name", "first"),
    [("softmax", -np.inf), ("softmax_times_values", -np.inf), ("softmax_of_minimum", np.inf)],
)
def test_identities_before_the_first_number_leave_no_trace(name: str, first: float) -> None:
    """A masked prefix has the lowest number as reference, as in programs, and is then moved to a real reference."""
    fold, source = fold_of(name), FUSABLE[name]()
    lowest = float(np.copysign(np.finfo(np.float64).max, first))
    drawn = rows_of(source, np.random.default_rng(2))
    rows = [{**row, x: lowest} for row in drawn[:6]] + drawn[6:]
    expected = definition(source, rows)
    for cuts in SPLITS:
        found = NumericFold(fold, LENGTH).split(rows, cuts)
        assert found[t] == pytest.approx(expected[t], rel=1e-10), cuts


def test_a_product_of_ratios_that_leaves_its_range_is_no_number() -> None:
    rows = [{r: 1e20 * (1 + 0.001 * (k % 3))} for k in range(LENGTH)]
    for cuts in SPLITS:
        assert np.isnan(NumericFold(fold_of("product"), LENGTH).split(rows, cuts)[o]), cuts


@pytest.mark.parametrize("scale", [0.0, -1.0, 0.25, 3.0])
def test_a_temperature_that_is_data_may_have_any_value(scale: float) -> None:
    temperature = sp.Symbol("temperature", real=True)
    source = cascade(MAXIMUM, (t, SUM, exp((x - m) * temperature)))
    fold = derive(source)
    assert isinstance(fold, Fold), str(fold)
    rows = [{**row, temperature: scale} for row in rows_of(source, np.random.default_rng(3))]
    expected = definition(source, rows)
    # The parameter is the same at every position; states carry it with them.
    finished = _with_parameter(fold, rows, temperature, scale)
    assert finished[t] == pytest.approx(expected[t], rel=1e-10)


def _with_parameter(fold: Fold, rows: list[Numbers], parameter: sp.Symbol, number: float) -> Numbers:
    exact = sp.Rational(number)
    steps = tuple(
        dataclasses.replace(
            step, **{f: getattr(step, f).subs(parameter, exact) for f in ("lift", "shift", "value") if hasattr(step, f)}
        )
        for step in fold.steps
    )
    finish = {key: expression.subs(parameter, exact) for key, expression in fold.finish.items()}
    return NumericFold(dataclasses.replace(fold, steps=steps, finish=finish), LENGTH).split(rows, [7])


def test_constant_data_has_no_variance_at_any_split() -> None:
    rows = [{x: 0.1}] * LENGTH
    for cuts in SPLITS:
        assert NumericFold(fold_of("variance"), LENGTH).split(rows, cuts)[d] == pytest.approx(0.0, abs=1e-20)


def test_zeros_are_no_special_case() -> None:
    for name in ("variance", "rmsnorm_times_weight", "layernorm_times_weight", "sum_after_sum", "softmax"):
        source = FUSABLE[name]()
        rows = [dict.fromkeys(source.elements, 0.0)] * LENGTH
        expected = definition(source, rows)
        for cuts in SPLITS:
            assert NumericFold(fold_of(name), LENGTH).split(rows, cuts) == pytest.approx(expected, abs=1e-20), name


def test_a_sum_of_terms_in_two_powers_of_a_result_survives_a_result_of_zero() -> None:
    source = cascade(MEAN_SUM, (t, SUM, x * s + s * s))
    fold = derive(source)
    assert isinstance(fold, Fold), str(fold)
    for rows in ([{x: 0.0}] * LENGTH, rows_of(source, np.random.default_rng(4))):
        expected = definition(source, rows)
        for cuts in SPLITS:
            assert NumericFold(fold, LENGTH).split(rows, cuts)[t] == pytest.approx(expected[t], rel=1e-9, abs=1e-12), (
                cuts
            )
