"""Counterexamples are true: what they claim is computed again here, from the numbers alone."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp

from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM
from tvm_cascade.algebra.verdict import Counterexample, Refusal
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.rounding import FORMATS, round_to

from .cascades import MAXIMUM, MEAN_SUM, absolute, cascade, d, exp, keep, m, o, s, t, w, x


def shown(*rows: tuple) -> Counterexample:  # type: ignore[type-arg]
    outcome = derive(cascade(*rows))
    assert isinstance(outcome, Refusal) and outcome.reason.counterexample is not None, str(outcome)
    return outcome.reason.counterexample


@pytest.mark.parametrize(
    ("reducer", "element"),
    [(SUM, sp.tanh(x - s)), (SUM, exp(x * s)), (SUM, 1 / (x - s)), (PROD, x + s)],
    ids=["tanh", "exponential of a product", "pole", "product"],
)
def test_the_matrix_at_the_shown_points_has_more_rank_than_any_state_allowed(reducer: object, element: sp.Expr) -> None:
    found = shown(MEAN_SUM, (t, reducer, element))
    rows, columns = (values for _, values in found.at)
    function = sp.lambdify((x, s), sp.log(sp.Abs(element)) if reducer is PROD else element, "mpmath")
    assert len(rows) == found.outcomes[0] > found.outcomes[1] == 6
    determinants = []
    for digits in (400, 800):
        with mpmath.workdps(digits):
            matrix = mpmath.matrix([[function(mpmath.mpf(a), mpmath.mpf(b)) for b in columns] for a in rows])
            determinants.append(mpmath.det(matrix))
    assert determinants[0] != 0 and abs(determinants[0] / determinants[1] - 1) < 1e-20


def test_a_result_that_the_element_does_not_read_may_be_out_of_range() -> None:
    out_of_range = (d, SUM, exp(-((10**9 * x) ** 2)))
    assert shown(MEAN_SUM, out_of_range, (t, SUM, sp.tanh(x - s))).outcomes == (7, 6)


def test_results_as_large_as_floats_leave_positions_in_range() -> None:
    """Positions of their size are drawn: exp of what the data's sum exceeds them by is nearly out of range."""
    beyond = x / 2 - s
    halves = Round(keep * (w - x) + (1 - keep) * x, sp.Symbol("float16"))
    element = sp.Piecewise((halves, beyond >= m), (0, True))
    outcome = derive(cascade(MEAN_SUM, (m, MAX, beyond * exp(beyond)), (o, SUM, element)))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "select_on_result"


def test_conditions_on_positions_and_on_results_are_joined() -> None:
    """One reads positions and results, the other results alone."""
    element = sp.Piecewise((sp.tanh(x - s), sp.ITE(sp.Eq(w, 1), x >= s, s <= 0)), (0, True))
    assert shown(MEAN_SUM, (t, SUM, element)).outcomes == (7, 6)


@pytest.mark.parametrize("element", [absolute(x - s), (x - s) ** 2], ids=["distance", "square"])
def test_each_shown_position_decides_at_its_own_result_which_the_shown_data_have(element: sp.Expr) -> None:
    found = shown(MEAN_SUM, (o, MIN, element))
    (_, values), (_, totals) = found.at
    function = sp.lambdify((x, s), element)
    assert len(values) == len(totals) == len(found.data) == 7
    for k, (total, data) in enumerate(zip(totals, found.data, strict=True)):
        ((name, elements),) = data
        assert name == "x" and sum(elements) == pytest.approx(total, rel=1e-9)
        at = [function(value, total) for value in values]
        assert at.index(min(at)) == k


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_an_element_rounds_to_the_shown_values(dtype: str) -> None:
    found = shown((m, MAX, absolute(x)), (d, SUM, Round(x * 100 / m, sp.Symbol(dtype)) * w))
    values = dict(found.at)
    (element,), (first, second) = values["x"], next(v for k, v in found.at if k not in ("x", "w"))
    before, after = element * 100 / first, element * 100 / second
    assert found.outcomes[0] == pytest.approx(round_to(before, dtype) * first / second, rel=1e-9)
    assert found.outcomes[1] == round_to(after, dtype)
    assert found.outcomes[0] != found.outcomes[1]


@pytest.mark.parametrize("dtype", FORMATS)
def test_rounding_is_that_of_the_dtype(dtype: str) -> None:
    import ml_dtypes  # registers the narrow floats

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    limits = ml_dtypes.finfo(kind)
    assert FORMATS[dtype].largest == float(limits.max)
    assert 2.0 ** FORMATS[dtype].smallest == float(limits.smallest_subnormal)
    for value in np.random.default_rng(0).uniform(-20, 20, 200):
        assert round_to(float(value), dtype) == float(np.float64(value).astype(kind))


def test_a_law_without_numbers_to_show_has_no_counterexample() -> None:
    outcome = derive(cascade(MAXIMUM, (d, SUM, (x - m) ** 6)))
    assert isinstance(outcome, Refusal) and outcome.reason.counterexample is None
