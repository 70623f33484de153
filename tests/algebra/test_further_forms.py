"""Forms that random cascades brought up: each folds, and its fold is its definition over splits, at high precision."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sympy as sp

from campaigns.algebra_trial import evaluated
from campaigns.numeric_fold import NumericFold
from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM
from tvm_cascade.algebra.verdict import Refusal
from tvm_cascade.obligations.definition import definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.steps.arithmetic import Balls
from tvm_cascade.symbolic.balls import workprec
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import truth

from .cascades import HALF, MAXIMUM, MEAN_SUM, absolute, cascade, d, exp, log, m, o, r, s, sqrt, t, v, w, x, y

BFLOAT = sp.Symbol("bfloat16")
temperature = sp.Symbol("temperature", positive=True)
keep = truth("keep")
LOG2_E = sp.Rational("1.4426950408889634")

LAWFUL: dict[str, Cascade] = {
    "two quantities of one result": cascade(MEAN_SUM, (o, SUM, (x - s) * (x - s / N))),
    "parts that vanish together": cascade(MEAN_SUM, (o, SUM, w * (x * s + y * s**2))),
    "square over a function of the position": cascade(MEAN_SUM, (o, SUM, (x - s) ** 2 / (x**2 + sp.Rational(1, 2)))),
    "translation with a constant": cascade(MEAN_SUM, (o, SUM, r - s - 1)),
    "translation with the length": cascade((t, SUM, r), (o, SUM, x + log(t / N))),
    "maximum of a weighted exponential": cascade(MAXIMUM, (o, MAX, w * exp(x - m))),
    "minimum over a result of either sign": cascade(MEAN_SUM, (o, MIN, w * y / (s - 100) + s)),
    "maximum of parts taken together": cascade(MAXIMUM, (o, MAX, exp((v + y - m) / 8))),
    "larger of both": cascade(MEAN_SUM, (o, MAX, sp.Max(x, s))),
    "falls, then rises": cascade(MEAN_SUM, (o, MAX, (x - s) * exp(x - s))),
    "product of exponentials": cascade(MEAN_SUM, (o, PROD, exp(x - s / N))),
    "product of exponentials over a root": cascade((t, SUM, r), (o, PROD, exp(x - t) / sqrt(t))),
    "rounding of a rounding": cascade((t, SUM, r), (o, SUM, Round(x * Round(w, HALF) / t, BFLOAT))),
    "rounded argument of an exponential": cascade((t, SUM, r), (o, SUM, exp(Round(x, HALF) + t) / t * log(r))),
    "exponentials of two quantities of one result": cascade(
        (t, SUM, r), (o, SUM, w * exp(x - t) * exp((v - t) / 8) / t)
    ),
    "exponentials of two results": cascade(MAXIMUM, (s, SUM, v), (o, SUM, w * exp(x - m) * exp(v - s))),
    "exponentials of two quantities in one factor of a product": cascade(
        (t, SUM, r), (o, SUM, (exp(x - log(t) * t / (t + 1)) + w / t) * exp(absolute(x) - t / 2) / t)
    ),
    "powers of the length and of a parameter that are long numbers": cascade(
        (t, SUM, r), (o, SUM, (N / temperature) ** LOG2_E * exp(LOG2_E * (x / 16 - t)))
    ),
    "a mask under itself": cascade(
        MEAN_SUM, (o, SUM, keep * (keep * x / 2 + r**LOG2_E * (1 - keep) * (y - s / N) * exp(y - s / N)))
    ),
    "cube about a logarithm of a parameter": cascade(
        MAXIMUM, (o, SUM, (x - m - log((temperature + 1) / sqrt(temperature))) ** 3)
    ),
    "phase of many parts": cascade(MEAN_SUM, (o, SUM, sp.cos(w * x + w * (1 - w) * (w * v + 3) - s))),
}


@pytest.mark.parametrize("name", LAWFUL)
def test_the_form_folds_and_its_fold_is_its_definition(name: str) -> None:
    fold = derive(LAWFUL[name])
    assert isinstance(fold, Fold), str(fold)
    for seed in range(3):
        assert not evaluated(fold, seed)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (cascade(MEAN_SUM, (o, MAX, s * x + y)), "not_monotone"),
        (cascade(MEAN_SUM, (o, MIN, absolute(x - s))), "not_monotone"),
        (cascade(MEAN_SUM, (o, MAX, exp(-((x - s) ** 2)))), "not_monotone"),
        (cascade(MEAN_SUM, (o, SUM, absolute(x - s))), "infinite_rank"),
        (cascade(MEAN_SUM, (o, SUM, sp.Max(x, s))), "infinite_rank"),
        (cascade(MEAN_SUM, (o, PROD, x + s)), "prod_dependence"),
    ],
    ids=str,
)
def test_what_keeps_no_finite_state_is_proved_to(source: Cascade, code: str) -> None:
    outcome = derive(source)
    assert isinstance(outcome, Refusal) and outcome.reason.code == code, str(outcome)


def test_a_total_that_drifts_does_not_cancel_later() -> None:
    """Σ (x − s)² with s = Σ x: predicting s as N times a mean is far off while the data fall."""
    source = cascade(MEAN_SUM, (d, SUM, (x - s) ** 2))
    fold = derive(source)
    assert isinstance(fold, Fold)
    rows = [{x: 8.0 - k} for k in range(17)]
    exact = definition(source, rows)[d]
    assert NumericFold(fold, len(rows)).split(rows, [5, 11])[d] == pytest.approx(exact, rel=1e-15)


def test_two_quantities_that_meet_leave_no_singular_shift() -> None:
    fold = derive(cascade(MEAN_SUM, (o, SUM, (x - s) * (x - s / N))))
    assert isinstance(fold, Fold)
    balls = Balls()
    rows = [{x: balls.number(0)}] * 4
    with workprec(128):
        numeric = NumericFold(fold, 4, balls)
        assert numeric.scattered(rows, random.Random(0))[o] == 0


def test_what_its_own_mask_excludes_is_not_kept() -> None:
    """keep·(1 − keep) is 0, whatever stands beside it: an exponential there would overflow for nothing."""
    fold = derive(LAWFUL["a mask under itself"])
    assert isinstance(fold, Fold)
    assert not any(step.lift.has(sp.exp) for step in fold.components)


def test_exponentials_that_go_opposite_ways_meet_before_they_overflow() -> None:
    """Σ (1 − p)²·log p: among its functions is (1 − exp(m − x))·exp(2·x − 2·m), inf·0 far below the maximum."""
    source = cascade(MAXIMUM, (s, SUM, exp(x - m)), (o, SUM, (1 - exp(x - m) / s) ** 2 * (x - m - log(s))))
    fold = derive(source)
    assert isinstance(fold, Fold)
    for step in fold.components:
        symbols = sorted(step.lift.free_symbols, key=str)
        far_below = [-1000.0 if symbol == x else 1.0 for symbol in symbols]
        with np.errstate(over="ignore"):
            assert np.isfinite(sp.lambdify(symbols, step.lift, "numpy")(*map(np.float64, far_below))), step.lift


def test_an_exponent_of_two_quantities_apart_by_a_rounding_is_refused() -> None:
    # The largest of x − log t − s would have to be known at partial log t.
    outcome = derive(cascade((t, SUM, r), (s, SUM, v), (o, SUM, exp(Round(x - log(t) / 2, HALF) - s))))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "separation_unknown"
