"""Whether some position, or every one, compares so with earlier results: by the extrema of what is compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import (
    LENGTH,
    ROWS,
    Combine,
    array,
    conjunction,
    disjunction,
    fold,
    maximum,
    minimum,
    number,
    program,
    softmax_stages,
)
from .running import Array, Unfused, read

TILINGS = [(5, 1), (4, 3)]


def after_sum(predicate: Callable[[Expr, Expr], Expr], combine: Callable[..., Expr]) -> tirx.PrimFunc:
    """mean x; out = combine predicate(x, mean)."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: predicate(x[i, j], s[i] / number(LENGTH)), combine))


def outlier() -> tirx.PrimFunc:
    """Whether some x is more than three deviations from the mean."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    square = fold("square", lambda i, j: te.power(x[i, j] - s[i] / number(LENGTH), number(2)))

    def far(i: Expr, j: Expr) -> Expr:
        return te.abs(x[i, j] - s[i] / number(LENGTH)) > number(3) * te.sqrt(square[i] / number(LENGTH))

    return program(x, fold("out", far, disjunction))


def likely() -> tirx.PrimFunc:
    """Whether some softmax probability is above a half, and what then becomes of the sum."""
    x = array("x")
    row_max, row_sum = softmax_stages(x)
    p = lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i]  # noqa: E731
    some = fold("some", lambda i, j: p(i, j) > number(0.5), disjunction)
    return program(x, some, fold("out", lambda i, j: tirx.Select(some[i], p(i, j) * x[i, j], x[i, j])))


def where_kept(combine: Callable[..., Expr], kept: Callable[[Expr, Expr], Expr]) -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    element = lambda i, j: kept(x[i, j] < number(0.5), x[i, j] > s[i] / number(LENGTH) - number(1.5))  # noqa: E731
    return program(x, fold("out", element, combine))


def all_at_the_maximum() -> tirx.PrimFunc:
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(
        x,
        fold("out", lambda i, j: tirx.EQ(x[i, j], m[i]), conjunction),
        fold("other", lambda i, j: tirx.NE(x[i, j], m[i]), disjunction),
    )


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "some above": lambda: after_sum(lambda x, mean: x > mean + number(2.5), disjunction),
    "some below": lambda: after_sum(lambda x, mean: x <= mean - number(2.5), disjunction),
    "all above": lambda: after_sum(lambda x, mean: mean - number(2.5) < x, conjunction),
    "all between": lambda: after_sum(
        lambda x, mean: tirx.And(x >= mean - number(2.5), x <= mean + number(2.5)), conjunction
    ),
    "an outlier": outlier,
    "a likely one": likely,
    "some above, as a maximum of numbers": lambda: after_sum(
        lambda x, mean: (x > mean + number(2.5)).astype("float32"), maximum
    ),
    "all above, as a minimum of numbers": lambda: after_sum(
        lambda x, mean: tirx.Select(x > mean - number(2.5), number(1), number(0)), minimum
    ),
    "some of those kept": lambda: where_kept(disjunction, lambda keep, above: tirx.And(keep, above)),
    "all of those kept": lambda: where_kept(conjunction, lambda keep, above: tirx.Or(tirx.Not(keep), above)),
}


BY_NO_EXTREMUM: dict[str, Callable[[], tirx.PrimFunc]] = {
    "all at the maximum": all_at_the_maximum,
}


@pytest.mark.parametrize("name", BY_NO_EXTREMUM)
def test_other_predicates_have_no_law(name: str) -> None:
    decisions = fuse_function(BY_NO_EXTREMUM[name](), FuseOptions(force=True)).decisions
    assert "logical_dependence" in {decision.reason.code for decision in decisions}


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def rows() -> Array:
    """Rows with a value far above, one far below, equal values, and none far from the others."""
    x = np.random.default_rng(0).uniform(-1, 1, (ROWS, LENGTH)).astype("float32")
    x[0, 7], x[1, -1], x[2] = 20, -20, 0.75
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_truth_is_the_one_that_the_elements_have(name: str) -> None:
    for tile, segments in TILINGS:
        unfused(name).check([rows()], tile=tile, segments=segments)
    truths = next(iter(unfused(name).results([rows()]).values()))
    assert 0 < truths.sum() < ROWS  # the data tell


@pytest.mark.parametrize("combine", [maximum, minimum])
def test_one_of_two_results_is_chosen_by_whether_positions_compare(combine: Combine) -> None:
    chosen = after_sum(lambda x, mean: tirx.Select(x > mean + number(2.5), mean, number(0.125) - mean), combine)
    for tile, segments in TILINGS:
        read(chosen).check([rows()], tile=tile, segments=segments)


def test_a_row_of_negative_infinity_has_nothing_above_its_mean() -> None:
    x = rows()
    x[1] = -np.inf
    for tile, segments in TILINGS:
        unfused("some above").check([x], tile=tile, segments=segments)
