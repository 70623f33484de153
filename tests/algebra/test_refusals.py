"""Refusals of the algebra: what is no fold says so with a code, the result and the expression; never an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, PROD, SUM
from tvm_cascade.algebra.verdict import Refusal, Verdict
from tvm_cascade.codes import CODES
from tvm_cascade.errors import InputError
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import Round

from .cascades import (
    EPSILON,
    MAXIMUM,
    MEAN_SUM,
    SUM_EXP,
    absolute,
    cascade,
    d,
    exp,
    i,
    keep,
    log,
    m,
    o,
    p,
    q,
    r,
    s,
    selected,
    sqrt,
    t,
    t2,
    v,
    w,
    x,
    y,
)

FLOAT8, INT8, HALF, BFLOAT = (sp.Symbol(name) for name in ("float8_e4m3fn", "int8", "float16", "bfloat16"))

REFUSED: dict[str, tuple[Callable[[], Cascade], str, str]] = {
    # name: (cascade, code, result)
    "logistic": (lambda: cascade(MEAN_SUM, (t, SUM, log(1 + exp(x - s)))), "infinite_rank", "t"),
    "hyperbolic tangent": (lambda: cascade(MEAN_SUM, (t, SUM, sp.tanh(x - s))), "infinite_rank", "t"),
    "reciprocal": (lambda: cascade(MEAN_SUM, (t, SUM, 1 / (x - s))), "infinite_rank", "t"),
    "square root of a sum": (lambda: cascade((s, SUM, r), (t, SUM, sqrt(r + s))), "infinite_rank", "t"),
    "gaussian": (lambda: cascade(MEAN_SUM, (t, SUM, exp(-((x - s / N) ** 2)))), "infinite_rank", "t"),
    "positions of a masked extremum that reads a result": (
        lambda: cascade(
            MEAN_SUM, (m, MAX, keep * (x - s) ** 3), (t, MIN, sp.Piecewise((v, keep * (x - s) ** 3 >= m), (0, True)))
        ),
        "select_on_result",
        "t",
    ),
    "softmax at a computed temperature": (
        lambda: cascade((s, SUM, r), MAXIMUM, (t, SUM, exp((x - m) / s))),
        "infinite_rank",
        "t",
    ),
    "softmax of a softmax": (
        lambda: cascade(MAXIMUM, SUM_EXP, (o, MAX, x / t), (t2, SUM, exp(x / t - o))),
        "infinite_rank",
        "t2",
    ),
    "minimum of a distance": (lambda: cascade(MEAN_SUM, (o, MIN, absolute(x - s))), "not_monotone", "o"),
    "minimum of a square": (lambda: cascade(MEAN_SUM, (o, MIN, (x - s) ** 2)), "not_monotone", "o"),
    "keys of the largest": (
        lambda: cascade(MAXIMUM, *selected((i, p), sp.Piecewise((y, x >= m), (0, True)))),
        "select_on_result",
        "i",
    ),
    "conjunction": (lambda: cascade(MAXIMUM, (t, AND, q * m)), "logical_dependence", "t"),
    "disjunction": (lambda: cascade(MAXIMUM, (t, OR, q * m)), "logical_dependence", "t"),
    "product of sums": (lambda: cascade(MEAN_SUM, (o, PROD, x + s)), "prod_dependence", "o"),
    "float8 not listed": (lambda: cascade(MAXIMUM, (t, SUM, Round(exp(x - m), FLOAT8))), "rounding", "t"),
    "integer rounding": (lambda: cascade((m, MAX, absolute(x)), (o, SUM, Round(x / m, INT8) * w)), "rounding", "o"),
    "rounded difference, squared": (
        lambda: cascade(MEAN_SUM, (t, SUM, Round(x - s / N, HALF) ** 2)),
        "rounding_rank",
        "t",
    ),
    "rounded at an unrelated scale": (
        lambda: cascade((s, SUM, x**2), (t, SUM, Round(r / s, HALF) * w)),
        "rounding_range",
        "t",
    ),
    "rounded at a product": (lambda: cascade((s, PROD, r), (t, SUM, Round(x / s, HALF))), "rounding_range", "t"),
    "a distance beside another input": (
        lambda: cascade(MEAN_SUM, (o, MAX, absolute(x - s) + y)),
        "several_element_parts",
        "o",
    ),
    "a cut beside another input": (
        lambda: cascade(MEAN_SUM, (o, MAX, y + sp.Max(x, s))),
        "several_element_parts",
        "o",
    ),
    "two parts under a maximum": (lambda: cascade(MEAN_SUM, (o, MAX, q * (x - s))), "not_monotone", "o"),
    "sixth moment": (lambda: cascade(MEAN_SUM, (d, SUM, (x - s / N) ** 6)), "rank_limit", "d"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_fold_is_refused_with_its_code_and_the_result_concerned(name: str) -> None:
    source, code, result = REFUSED[name]
    outcome = derive(source())
    assert isinstance(outcome, Refusal), str(outcome)
    assert (outcome.reason.code, outcome.reduction) == (code, result), str(outcome)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_shows_the_expression_in_the_cascades_own_symbols(name: str) -> None:
    source, code, _ = REFUSED[name]
    outcome = derive(source())
    assert isinstance(outcome, Refusal)
    known = {str(symbol) for reduction in source().reductions for symbol in reduction.element.free_symbols}
    assert any(symbol in outcome.reason.detail for symbol in known), outcome.reason.detail
    assert "u0" not in outcome.reason.detail
    assert CODES[code][1] in str(outcome)
    assert outcome.reason.verdict in (Verdict.REFUSED, Verdict.UNKNOWN)


@pytest.mark.parametrize("dtype", [HALF, BFLOAT])
def test_probabilities_rounded_to_half_width_are_accepted(dtype: sp.Symbol) -> None:
    outcome = derive(cascade(MAXIMUM, SUM_EXP, (o, SUM, Round(exp(x - m) / t, dtype) * v)))
    assert isinstance(outcome, Fold), str(outcome)
    assert any(component.lift.has(Round) for component in outcome.components)


def test_float8_is_accepted_where_the_user_lists_it_and_half_width_refused_where_not() -> None:
    rounded = cascade(MAXIMUM, (t, SUM, Round(exp(x - m), FLOAT8)))
    assert isinstance(derive(rounded, ("float8_e4m3fn",)), Fold)
    half = derive(cascade(MAXIMUM, (t, SUM, Round(exp(x - m), HALF))), ())
    assert isinstance(half, Refusal)
    assert half.reason.code == "rounding"


def test_rounding_that_reads_no_result_is_no_obstacle() -> None:
    outcome = derive(cascade((m, MAX, Round(x, INT8)), (t, SUM, exp(Round(x, INT8) - m))))
    assert isinstance(outcome, Fold), str(outcome)


@pytest.mark.parametrize(
    "rows",
    [
        ((s, SUM, w), (o, SUM, x / sqrt(s))),
        ((s, SUM, w), (o, SUM, x * log(s))),
        (MEAN_SUM, (t, SUM, x**2), (o, SUM, (x - s) / sqrt(t - s**2 + EPSILON) * w)),
        ((s, SUM, x - x), (o, SUM, x / s)),
        (MAXIMUM, (t, SUM, m * sp.nan)),
        (MAXIMUM, (t, SUM, exp(q * (x - m) - sp.oo * r))),
    ],
    ids=["root of any sum", "log of any sum", "two-moment norm of one", "division by zero", "NaN", "infinity"],
)
def test_values_outside_a_functions_domain_give_a_verdict_and_no_error(rows: tuple) -> None:  # type: ignore[type-arg]
    assert isinstance(derive(cascade(*rows)), (Fold, Refusal))


@pytest.mark.parametrize("result", ["root", "log"])
def test_a_root_or_logarithm_of_a_sum_is_deferred_like_any_factor(result: str) -> None:
    applied = {"root": x / sqrt(s), "log": x * log(s)}[result]
    outcome = derive(cascade((s, SUM, w), (o, SUM, applied)))
    assert isinstance(outcome, Fold), str(outcome)
    assert not outcome.references


def test_a_result_read_before_it_is_computed_is_an_input_error() -> None:
    with pytest.raises(InputError, match="m read before computed"):
        Cascade([Reduction(t, SUM, exp(x - m)), Reduction(m, MAX, x)], [x])


def test_a_result_computed_twice_is_an_input_error() -> None:
    with pytest.raises(InputError, match="computed twice"):
        Cascade([Reduction(m, MAX, x), Reduction(m, MIN, x)], [x])


def test_a_cascade_is_written_as_its_reductions() -> None:
    assert str(cascade(MAXIMUM, SUM_EXP)) == "m = max x\nt = Σ exp(-m + x)"


def test_every_code_has_a_verdict_a_law_and_a_hint_or_needs_none() -> None:
    for code, (verdict, law, hint) in CODES.items():
        assert isinstance(verdict, Verdict) and law, code
        assert hint or code in ("fold", "single_reduction"), code
