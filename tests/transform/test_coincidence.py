"""Sums over the positions at which an element is its own extremum: how choices are lowered, with ties in many tiles.

On numbers, and on more of them, they are in `tests/algebra/test_coincidence.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.evaluate import oracle

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, minimum, number, program
from .running import Array, Unfused, read

TILE, SEGMENTS = 4, 3


def how_many() -> tirx.PrimFunc:
    """m = max x, Σ [x = m]."""
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, m, fold("out", lambda i, j: tirx.EQ(x[i, j], m[i]).astype("float32")))


def mean_where_largest() -> tirx.PrimFunc:
    """Σ y over the positions of the largest x·w, over their number."""
    x, w, y = array("x"), array("w"), array("y")
    m = fold("m", lambda i, j: x[i, j] * w[i, j], maximum)

    def at(i: Expr, j: Expr, value: Expr) -> Expr:
        return tirx.if_then_else(x[i, j] * w[i, j] >= m[i], value, number(0))

    total, count = (fold(name, lambda i, j, v=v: at(i, j, v(i, j))) for name, v in
                    (("total", lambda i, j: y[i, j]), ("count", lambda i, j: number(1))))  # fmt: skip
    return program(x, w, y, te.compute((ROWS,), lambda i: total[i] / count[i], name="out"))


def probability_of_the_mode() -> tirx.PrimFunc:
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    t = fold("t", lambda i, j: te.exp(x[i, j] - m[i]))
    mode = lambda i, j: tirx.if_then_else(tirx.EQ(x[i, j], m[i]), te.exp(x[i, j] - m[i]) / t[i], number(0))  # noqa: E731
    return program(x, fold("out", mode))


def all_but_the_smallest() -> tirx.PrimFunc:
    """Σ (x > min x ? x : 0): the smallest may be far below the others."""
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], minimum)
    return program(x, fold("out", lambda i, j: tirx.if_then_else(x[i, j] > m[i], x[i, j], number(0))))


def squares_above_the_smallest() -> tirx.PrimFunc:
    """Σ (x ≠ min x ? (x − min x)² : y)."""
    x, y = array("x"), array("y")
    m = fold("m", lambda i, j: x[i, j], minimum)
    square = lambda i, j: (x[i, j] - m[i]) * (x[i, j] - m[i])  # noqa: E731
    return program(x, y, fold("out", lambda i, j: tirx.if_then_else(tirx.NE(x[i, j], m[i]), square(i, j), y[i, j])))


def margin_of_the_largest() -> tirx.PrimFunc:
    """The largest x, less the largest of the others: what a classifier is sure by."""
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    second = fold("second", lambda i, j: tirx.if_then_else(x[i, j] < m[i], x[i, j], number(-1e9)), maximum)
    return program(x, te.compute((ROWS,), lambda i: m[i] - second[i], name="out"))


def least_where_largest() -> tirx.PrimFunc:
    """min (x = max x ? y : x): among the positions of ties the least y, and of the others the least x."""
    x, y = array("x"), array("y")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, y, fold("out", lambda i, j: tirx.if_then_else(tirx.EQ(x[i, j], m[i]), y[i, j], x[i, j]), minimum))


def a_result_where_largest() -> tirx.PrimFunc:
    """max (x = max x ? Σ y : x), whose value at the largest is a result alone."""
    x, y = array("x"), array("y")
    m, s = fold("m", lambda i, j: x[i, j], maximum), fold("s", lambda i, j: y[i, j])
    return program(x, y, fold("out", lambda i, j: tirx.if_then_else(tirx.EQ(x[i, j], m[i]), s[i], x[i, j]), maximum))


def weights_of_terms() -> tirx.PrimFunc:
    """Σ (x = max x ? y²·s + y : 0) with s = Σ y: one state for each term."""
    x, y = array("x"), array("y")
    m, s = fold("m", lambda i, j: x[i, j], maximum), fold("s", lambda i, j: y[i, j])
    weight = lambda i, j: y[i, j] * y[i, j] * s[i] + y[i, j]  # noqa: E731
    return program(x, y, fold("out", lambda i, j: tirx.if_then_else(x[i, j] >= m[i], weight(i, j), number(0))))


def largest_above_a_total() -> tirx.PrimFunc:
    """max (x ≥ s ? x : −100) with s = Σ (y − 2): a choice in the order of x, which all positions or none may meet."""
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: y[i, j] - number(2))
    chosen = lambda i, j: tirx.if_then_else(x[i, j] >= s[i], x[i, j], number(-100))  # noqa: E731
    return program(x, y, fold("out", chosen, maximum))


BUILDS: list[Callable[[], tirx.PrimFunc]] = [
    how_many, mean_where_largest, probability_of_the_mode, all_but_the_smallest, squares_above_the_smallest,
    margin_of_the_largest, least_where_largest, a_result_where_largest, weights_of_terms,
    largest_above_a_total,
]  # fmt: skip


@cache
def unfused(build: Callable[[], tirx.PrimFunc]) -> Unfused:
    return read(build())


def drawn(kind: str) -> Array:
    rng = np.random.default_rng(6)
    if kind == "ties":
        return rng.integers(-2, 3, (ROWS, LENGTH)).astype("float32")
    return np.broadcast_to(np.floor(np.linspace(0, 4, LENGTH)), (ROWS, LENGTH)).astype("float32")


@pytest.mark.parametrize("kind", ["ties", "rising"])
@pytest.mark.parametrize("build", BUILDS, ids=lambda f: f.__name__)
def test_positions_of_an_extremum_are_summed_wherever_it_moves(build: Callable[[], tirx.PrimFunc], kind: str) -> None:
    rng, x = np.random.default_rng(7), drawn(kind)
    x[1:, 9] = x[1:, 11] = -1e6
    others = len(oracle.signature(unfused(build).func).inputs) - 1
    given = [x, *(rng.integers(1, 4, (ROWS, LENGTH)).astype("float32") for _ in range(others))]
    unfused(build).check(given, tile=TILE, segments=SEGMENTS)
