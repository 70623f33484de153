"""Cascades by name, as a textbook writes them; `N` is the length of the axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.cascade import POSITION, Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import (
    AND,
    HIGHEST,
    LOWEST,
    MAX,
    MIN,
    OR,
    PROD,
    SUM,
    Reducer,
    Selection,
    TupleReducer,
    first,
    second,
)
from tvm_cascade.algebra.selection_law import bottom, selecting
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import truth

EPSILON = sp.Rational(1, 100_000)
HALF = sp.Symbol("float16")

x, y, v, w = element("x y v w")
r = element("r", positive=True)
q = element("q", nonnegative=True)
keep, live = truth("keep live")
m, s, t, o, d, m2, t2, i, p = result("m s t o d m2 t2 i p")
exp, log, sqrt, absolute = sp.exp, sp.log, sp.sqrt, sp.Abs

Row = tuple[sp.Symbol, Reducer, sp.Expr]


def cascade(*rows: Row) -> Cascade:
    """A cascade of (result, reducer, element) rows over the elements that they mention."""
    reductions = [Reduction(*row) for row in rows]
    mentioned = set().union(*(sp.sympify(row[2]).free_symbols for row in rows))
    return Cascade(reductions, [e for e in (x, y, v, w, r, q, keep, live, POSITION) if e in mentioned])


def selected(
    results: tuple[sp.Symbol, ...], key: sp.Expr, count: int = 1, largest: bool = True, lower: bool = True
) -> list[Row]:
    """Rows of the `count` best keys and their positions."""
    absent = (LOWEST if largest else HIGHEST, sp.Integer(-1)) * count
    selection = Selection(count, largest, lower, 0, absent)
    elements = [key, POSITION, *bottom(selection)[2:]]
    return [(results[k], selecting(selection).of(k), element) for k, element in enumerate(elements)]


def tupled(whole: TupleReducer, results: tuple[sp.Symbol, ...], *elements: sp.Expr | int) -> list[Row]:
    """Rows of a reduction of tuples."""
    return [(results[k], whole.of(k), sp.sympify(element)) for k, element in enumerate(elements)]


def _log_sum_exp() -> TupleReducer:
    (a, b), (c, e) = (first(0), first(1)), (second(0), second(1))
    largest = sp.Max(a, c)
    return TupleReducer("lse", (largest, b * exp(a - largest) + e * exp(c - largest)), (LOWEST, sp.Integer(0)))


def _welford() -> TupleReducer:
    (mean, square, n), (mean_2, square_2, n_2) = ([side(k) for k in range(3)] for side in (first, second))
    step = mean_2 - mean
    combined = (mean + step * n_2 / (n + n_2), square + square_2 + step**2 * n * n_2 / (n + n_2), n + n_2)
    return TupleReducer("welford", combined, (sp.Integer(0),) * 3)


LOG_SUM_EXP, WELFORD = _log_sum_exp(), _welford()
COMPLEX_PRODUCT = TupleReducer(
    "complex_product",
    (first(0) * second(0) - first(1) * second(1), first(0) * second(1) + first(1) * second(0)),
    (sp.Integer(1), sp.Integer(0)),
)


MAXIMUM: Row = (m, MAX, x)
SUM_EXP: Row = (t, SUM, exp(x - m))
MEAN_SUM: Row = (s, SUM, x)
LOG_PROBABILITY = x - m - log(t)


def _moment(order: int) -> Cascade:
    return cascade(MEAN_SUM, (d, SUM, (x - s / N) ** order))


FUSABLE: dict[str, Callable[[], Cascade]] = {
    "largest_where_kept": lambda: cascade(MAXIMUM, (o, MAX, keep * exp(x - m) + (1 - keep) * y)),
    "exponentials_about_either_end": lambda: cascade(
        MAXIMUM, (s, MIN, x), (o, SUM, exp(x - keep * m - (1 - keep) * s))
    ),
    "softmax": lambda: cascade(MAXIMUM, SUM_EXP),
    "softmax_times_values": lambda: cascade(MAXIMUM, SUM_EXP, (o, SUM, exp(x - m) / t * v)),
    "softmax_of_minimum": lambda: cascade((m, MIN, x), (t, SUM, exp(m - x))),
    "softmax_weighted_variance": lambda: cascade(
        MAXIMUM, SUM_EXP, (s, SUM, exp(x - m) / t * v), (o, SUM, exp(x - m) / t * (v - s) ** 2)
    ),
    "scaled_softmax": lambda: cascade(MAXIMUM, (t, SUM, exp((x - m) * 2))),
    "variance": lambda: _moment(2),
    "third_moment": lambda: _moment(3),
    "fourth_moment": lambda: _moment(4),
    "covariance": lambda: cascade(MEAN_SUM, (t, SUM, y), (d, SUM, (x - s / N) * (y - t / N))),
    "residues_of_a_fitted_slope": lambda: cascade(
        MEAN_SUM,
        (t, SUM, y),
        (d, SUM, (x - s / N) ** 2),
        (m, SUM, (x - s / N) * (y - t / N)),
        (o, SUM, (y - m / d * x - s) ** 2),
    ),
    "residues_of_a_plane": lambda: cascade(MEAN_SUM, (t, SUM, w), (o, SUM, r * (y - s * x - t * w) ** 2)),
    "inertia": lambda: cascade((s, SUM, r), (t, SUM, r * x), (d, SUM, r * (x - t / s) ** 2)),
    "entropy": lambda: cascade(MAXIMUM, SUM_EXP, (o, SUM, -exp(LOG_PROBABILITY) * LOG_PROBABILITY)),
    "kl_divergence": lambda: cascade(
        MAXIMUM,
        SUM_EXP,
        (m2, MAX, y),
        (t2, SUM, exp(y - m2)),
        (o, SUM, exp(LOG_PROBABILITY) * (LOG_PROBABILITY - (y - m2 - log(t2)))),
    ),
    "layernorm_times_weight": lambda: cascade(
        MEAN_SUM, (t, SUM, (x - s / N) ** 2), (o, SUM, (x - s / N) / sqrt(t / N + EPSILON) * w)
    ),
    "rmsnorm_times_weight": lambda: cascade((s, SUM, x**2), (o, SUM, x / sqrt(s / N + EPSILON) * w)),
    "sum_after_sum": lambda: cascade((s, SUM, x**2), (o, SUM, x * y / sqrt(sp.Max(s - 2, 1)))),
    "exponential_about_the_mean": lambda: cascade(MEAN_SUM, (t, SUM, exp(x - s / N))),
    "cosine": lambda: cascade(MEAN_SUM, (t, SUM, sp.cos(x - s))),
    "sine": lambda: cascade(MEAN_SUM, (t, SUM, sp.sin(x - s) * v)),
    "product": lambda: cascade((m, MAX, r), (o, PROD, r / m)),
    "largest_deviation": lambda: cascade(MEAN_SUM, (o, MAX, absolute(x - s / N))),
    "largest_multiple": lambda: cascade((s, SUM, r), (o, MAX, x * s)),
    "largest_probability": lambda: cascade(MAXIMUM, SUM_EXP, (o, MAX, exp(x - m) / t)),
    "smallest_sum": lambda: cascade(MEAN_SUM, (o, MIN, x + s)),
    "sum_where_all_hold": lambda: cascade((s, AND, q), (o, SUM, x * s)),
    "sum_where_any_holds": lambda: cascade((s, OR, q), (o, SUM, x * s)),
    "most_probable": lambda: cascade(MAXIMUM, SUM_EXP, *selected((p, i), exp(x - m) / t)),
    "softmax_of_argmax": lambda: cascade(*selected((m, i), x), SUM_EXP),
    "last_smallest": lambda: cascade(MEAN_SUM, *selected((p, i), x - s, largest=False, lower=False)),
    "farthest_from_the_mean": lambda: cascade(MEAN_SUM, *selected((p, i), absolute(x - s / N))),
    "argmin_of_negated": lambda: cascade(MEAN_SUM, *selected((p, i), s - x, largest=False)),
    "log_sum_exp_pair": lambda: cascade(*tupled(LOG_SUM_EXP, (m, t), x, 1), (o, SUM, exp(x - m) / t * v)),
    "most_probable_by_a_pair": lambda: cascade(*tupled(LOG_SUM_EXP, (m, t), x, 1), *selected((p, i), exp(x - m) / t)),
    "welford": lambda: cascade(*tupled(WELFORD, (s, d, t), x, 0, 1), (o, SUM, (x - s) / sqrt(d / t + EPSILON) * w)),
    "complex_product": lambda: cascade(*tupled(COMPLEX_PRODUCT, (s, d), x, y), (o, SUM, s * w)),
    "rounded_probabilities": lambda: cascade(MAXIMUM, SUM_EXP, (o, SUM, Round(exp(x - m) / t, HALF) * v)),
}
"""Each must become a fold."""


@cache
def fold_of(name: str) -> Fold:
    """The fold of a named cascade, derived once for all tests."""
    outcome = derive(FUSABLE[name]())
    assert isinstance(outcome, Fold), str(outcome)
    return outcome
