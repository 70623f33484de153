"""Selections that earlier results decide, the same way at every position: the result is that of one side."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from ..analysis.programs import LENGTH, ROWS, array, disjunction, each, fold, maximum, number, product, program
from .running import Array, Unfused, read

TILINGS = [(5, 1), (4, 3)]
ZERO = number(0)


def after_sum(element: Callable[[Expr, Expr], Expr], combine: Callable[..., Expr] = te.sum) -> tirx.PrimFunc:
    """s = Σ x; out = combine element(x, s)."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: element(x[i, j], s[i]), combine))


def variance_of_what_is_above_a_half() -> tirx.PrimFunc:
    """A mean over positions that may be none, divided safely."""
    x = array("x")

    def kept(i: Expr, j: Expr, value: Expr) -> Expr:
        return tirx.Select(x[i, j] > number(0.5), value, ZERO)

    n, s = fold("n", lambda i, j: kept(i, j, number(1))), fold("s", lambda i, j: kept(i, j, x[i, j]))
    mean = each("mean", lambda i: tirx.Select(n[i] > ZERO, s[i] / n[i], ZERO), ROWS)
    return program(x, fold("out", lambda i, j: kept(i, j, (x[i, j] - mean[i]) * (x[i, j] - mean[i]))))


def centred_where_any_is_large() -> tirx.PrimFunc:
    x = array("x")
    some = fold("some", lambda i, j: x[i, j] > number(2.5), disjunction)
    s = fold("s", lambda i, j: x[i, j])

    def element(i: Expr, j: Expr) -> Expr:
        return tirx.Select(some[i], te.power(x[i, j] - s[i] / number(LENGTH), number(2)), x[i, j])

    return program(x, fold("out", element))


def beside_a_condition_on_the_element() -> tirx.PrimFunc:
    x = array("x")
    s, m = fold("s", lambda i, j: x[i, j]), fold("m", lambda i, j: x[i, j], maximum)

    def element(i: Expr, j: Expr) -> Expr:
        both = tirx.And(x[i, j] > ZERO, tirx.Not(tirx.Or(s[i] > ZERO, m[i] < number(2))))
        return tirx.if_then_else(both, x[i, j] / m[i], x[i, j] - s[i])

    return program(x, fold("out", element))


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "safe mean": variance_of_what_is_above_a_half,
    "any": centred_where_any_is_large,
    "beside the element": beside_a_condition_on_the_element,
    "safe quotient": lambda: after_sum(lambda x, s: tirx.Select(s > ZERO, te.sqrt(s) * x, ZERO)),
    "maximum": lambda: after_sum(lambda x, s: tirx.if_then_else(s > ZERO, x * number(2), x - s), maximum),
    "product": lambda: after_sum(lambda x, s: tirx.if_then_else(s > ZERO, x / s, number(1)), product),
    "nested": lambda: after_sum(
        lambda x, s: tirx.if_then_else(s > ZERO, tirx.if_then_else(s < number(9), x, x * s), (x - s) * (x - s))
    ),
}


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def either_way() -> Array:
    """Rows with a positive sum, with a negative one, with none above a half, and with one far above."""
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).clip(-2, 2).astype("float32")
    x[0] += 1
    x[1] -= 0.5
    x[2] = -np.abs(x[2])
    x[3, 5] = 40
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_row_takes_its_own_side(name: str) -> None:
    for tile, segments in TILINGS:
        unfused(name).check([either_way()], tile=tile, segments=segments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_is_one_fold(name: str) -> None:
    (group,) = unfused(name).groups
    assert "out" in group.names
