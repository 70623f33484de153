"""Positions that do not count: masked out or of weight zero, they may hold anything, and there may be no other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import sympy as sp
from tvm import te, tirx
from tvm.ir import Expr

from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, number, program
from .running import Arrays, Unfused, read

TILINGS = [(5, 1), (4, 3)]
Element = Callable[[Expr, Expr, Expr], Expr]


def where_kept(first: Element, then: Element) -> Callable[[], tirx.PrimFunc]:
    """x, w, keep -> Σ over what is kept of an element that reads such a sum and the number of positions kept."""

    def build() -> tirx.PrimFunc:
        x, w, keep = array("x"), array("w"), array("keep", ROWS, LENGTH, dtype="bool")
        zero = number(0)
        n = fold("n", lambda i, j: tirx.if_then_else(keep[i, j], number(1), zero))
        s = fold("s", lambda i, j: tirx.if_then_else(keep[i, j], first(x[i, j], w[i, j], n[i]), zero))
        out = fold("out", lambda i, j: tirx.if_then_else(keep[i, j], then(x[i, j], s[i], n[i]), zero))
        return program(x, w, keep, out)

    return build


PROGRAMS = {
    "variance": where_kept(lambda x, w, n: x / n, lambda x, s, n: (x - s) * (x - s)),
    "share": where_kept(lambda x, w, n: x, lambda x, s, n: x / s),
    "about a total": where_kept(lambda x, w, n: w, lambda x, s, n: (x - s) * (x - s)),
    "about an exponential": where_kept(
        lambda x, w, n: x + number(200), lambda x, s, n: (x - te.exp(s + number(200) - n)) * (x - s)
    ),
    "about two centres": where_kept(lambda x, w, n: w, lambda x, s, n: (x - s) * (x - s * s / number(64))),
    "logarithm": where_kept(lambda x, w, n: x * x, lambda x, s, n: x * te.log(s)),
}


def weighted(weight: Callable[[Expr], Expr]) -> Callable[[], tirx.PrimFunc]:
    """x, w, keep -> the variance of what is kept, by weights of 1 and 0."""

    def build() -> tirx.PrimFunc:
        x, w, keep = array("x"), array("w"), array("keep", ROWS, LENGTH, dtype="bool")
        n = fold("n", lambda i, j: weight(keep[i, j]))
        s = fold("s", lambda i, j: weight(keep[i, j]) * x[i, j])
        centred = each("centred", lambda i, j: x[i, j] - s[i] / te.max(n[i], number(1)))
        return program(x, w, keep, fold("out", lambda i, j: weight(keep[i, j]) * centred[i, j] * centred[i, j]))

    return build


WEIGHTS: dict[str, Callable[[Expr], Expr]] = {
    "a selection": lambda keep: tirx.Select(keep, number(1), number(0)),
    "a branch": lambda keep: tirx.if_then_else(keep, number(1), number(0)),
    "a cast": lambda keep: keep.astype("float32"),
}
PROGRAMS |= {f"weighted by {name}": weighted(weight) for name, weight in WEIGHTS.items()}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_mask_as_a_weight_is_known_not_to_be_negative(name: str) -> None:
    """Else the centre is weighted by magnitudes, in sums of their own."""
    (group,) = unfused_of(f"weighted by {name}").groups
    assert len(group.fold.components) == 5 and not any(c.lift.has(sp.Abs) for c in group.fold.components)


@cache
def unfused_of(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def given(kept: str) -> Arrays:
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal((ROWS, LENGTH)).astype("float32") for _ in range(2))
    keep = rng.random((ROWS, LENGTH)) < 0.5
    if kept == "none":
        keep[0] = False
    return [np.where(keep, x, np.float32(1e12)) if kept == "garbage" else x, w, keep]


@pytest.mark.parametrize("kept", ["some", "none"])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "about an exponential"])
def test_sums_over_what_is_kept(name: str, kept: str) -> None:
    unfused = unfused_of(name)
    for tile, segments in TILINGS:
        unfused.check(given(kept), tile=tile, segments=segments)


def test_nothing_kept_times_an_infinite_factor_is_nothing() -> None:
    unfused, arrays = unfused_of("about an exponential"), given("none")
    for tile, segments in TILINGS:
        assert unfused.fused_results(arrays, tile=tile, segments=segments)["out"][0] == 0.0


@pytest.mark.parametrize("name", ["about a total", "about two centres"])
def test_what_is_masked_out_has_no_part_in_a_centre(name: str) -> None:
    unfused = unfused_of(name)
    for tile, segments in TILINGS:
        unfused.check(given("garbage"), tile=tile, segments=segments)


def exponentials(holds: bool) -> tirx.PrimFunc:
    """x, keep -> Σ exp(x/2 − mean x/2) over the positions where keep is as said; the mean does not bound exponents."""
    x, keep = array("x"), array("keep", ROWS, LENGTH, dtype="bool")
    s = fold("s", lambda i, j: te.tanh(x[i, j]) / number(LENGTH))

    def element(i: Expr, j: Expr) -> Expr:
        value, zero = te.exp(x[i, j] * number(0.5) - s[i]), number(0)
        return tirx.if_then_else(keep[i, j], value, zero) if holds else tirx.if_then_else(keep[i, j], zero, value)

    return program(x, keep, fold("out", element))


@pytest.mark.parametrize("kept", ["some", "none"])
@pytest.mark.parametrize("size", [300.0, 1e12])
@pytest.mark.parametrize("holds", [True, False])
def test_what_is_masked_out_does_not_underflow_what_is_kept(holds: bool, size: float, kept: str) -> None:
    unfused, (x, _, keep) = read(exponentials(holds)), given(kept)
    arrays = [np.where(keep, x, np.float32(size)), keep if holds else ~keep]
    for tile, segments in TILINGS:
        unfused.check(arrays, tile=tile, segments=segments)


def test_what_has_no_weight_has_no_part_in_a_centre() -> None:
    mass, x = array("mass"), array("x")
    s = fold("s", lambda i, j: mass[i, j])
    t = fold("t", lambda i, j: mass[i, j] * x[i, j])
    out = fold("out", lambda i, j: mass[i, j] * (x[i, j] - t[i] / s[i]) * (x[i, j] - t[i] / s[i]))
    unfused = read(program(mass, x, out))
    places, _, weighed = given("some")
    weights = np.where(weighed, np.float32(1), np.float32(0))
    arrays = [weights, np.where(weighed, places, np.float32(1e6))]
    for tile, segments in TILINGS:
        unfused.check(arrays, tile=tile, segments=segments)


def under_two_masks() -> tirx.PrimFunc:
    """x, y, keep, live -> Σ (keep and live ? exp(x/2 − mean)·y : 0), keep and y the same for all rows."""
    x, y = array("x"), array("y", LENGTH)
    keep, live = array("keep", LENGTH, dtype="bool"), array("live", ROWS, LENGTH, dtype="bool")
    s = fold("s", lambda i, j: te.tanh(x[i, j]) / number(LENGTH))

    def element(i: Expr, j: Expr) -> Expr:
        inner = tirx.if_then_else(live[i, j], te.exp(x[i, j] * number(0.5) - s[i]) * y[j], number(0))
        return tirx.if_then_else(keep[j], inner, number(0))

    return program(x, y, keep, live, fold("out", element))


@pytest.mark.parametrize("first", [0, 1, LENGTH // 2])
def test_tiles_in_which_masks_keep_nothing_add_nothing(first: int) -> None:
    """The largest exponent so far is then the lowest number, at which every exponential is infinite."""
    rng, unfused = np.random.default_rng(8), read(under_two_masks())
    keep, live = np.arange(LENGTH) >= first, rng.random((ROWS, LENGTH)) < 0.5
    x, y = rng.standard_normal((ROWS, LENGTH)), rng.standard_normal(LENGTH)
    for tile, segments in TILINGS:
        unfused.check([x.astype("float32"), y.astype("float32"), keep, live], tile=tile, segments=segments)


def test_what_stands_under_a_condition_and_its_opposite_is_nothing() -> None:
    """Σ (not keep ? (keep ? x·exp s : y) : x) with an infinite exp s."""
    x, y, keep = array("x"), array("y"), array("keep", ROWS, LENGTH, dtype="bool")
    s = fold("s", lambda i, j: te.abs(x[i, j]) * number(100))

    def element(i: Expr, j: Expr) -> Expr:
        inner = tirx.if_then_else(keep[i, j], x[i, j] * te.exp(s[i]), y[i, j])
        return tirx.if_then_else(tirx.Not(keep[i, j]), inner, x[i, j])

    rng, unfused = np.random.default_rng(9), read(program(x, y, keep, s, fold("out", element)))
    given = [rng.standard_normal((ROWS, LENGTH)).astype("float32") for _ in range(2)]
    for tile, segments in TILINGS:
        unfused.check([*given, rng.random((ROWS, LENGTH)) < 0.5], tile=tile, segments=segments)


def test_a_quantity_that_is_infinite_where_a_segment_keeps_nothing_is_no_reference_there() -> None:
    """m = max over kept x, t = Σ exp(x − m) over all, Σ (y − t)²."""
    x, y, keep = array("x"), array("y"), array("keep", ROWS, LENGTH, dtype="bool")
    m = fold("m", lambda i, j: tirx.if_then_else(keep[i, j], x[i, j], number(-10000)), maximum)
    t = fold("t", lambda i, j: te.exp(x[i, j] - m[i]))
    square = fold("out", lambda i, j: (y[i, j] - t[i]) * (y[i, j] - t[i]))
    rng, unfused = np.random.default_rng(10), read(program(x, y, keep, square))
    given = [rng.standard_normal((ROWS, LENGTH)).astype("float32") for _ in range(2)]
    kept = np.zeros((ROWS, LENGTH), bool)
    kept[:, [3, LENGTH - 1]] = True
    for tile, segments in (*TILINGS, (2, 5)):
        unfused.check([*given, kept], tile=tile, segments=segments)
