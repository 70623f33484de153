"""Data far from zero: what is added to all elements leaves probabilities as they are, and so their digits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, number, program, softmax_stages
from ..tiers import slow_but
from .running import Arrays, Unfused, read

TILINGS = [(1, 1), (5, 1), (4, 3)]
OFFSETS = [0.0, 1e4, -1e4]


def probabilities(x: te.Tensor) -> Callable[[Expr, Expr], Expr]:
    row_max, row_sum = softmax_stages(x)
    return lambda i, j: te.exp(x[i, j] - row_max[i]) / row_sum[i]


def spread_of_surprise() -> tirx.PrimFunc:
    """x -> Σ (p·(log p + H))² with p = softmax x, H = −Σ p·log p."""
    x = array("x")
    p = probabilities(x)
    entropy = fold("entropy", lambda i, j: number(0) - p(i, j) * te.log(p(i, j)))
    return program(x, fold("out", lambda i, j: te.power(p(i, j) * (te.log(p(i, j)) + entropy[i]), number(2))))


def about_a_mean_distance(power: int) -> Callable[[], tirx.PrimFunc]:
    """x -> Σ exp(x − m)·(x − m + d/N)^power with m = max x, d = Σ (m − x)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        m = fold("m", lambda i, j: x[i, j], maximum)
        d = fold("d", lambda i, j: m[i] - x[i, j])

        def element(i: Expr, j: Expr) -> Expr:
            below = x[i, j] - m[i]
            return te.exp(below) * te.power(below + d[i] / number(LENGTH), number(power))

        return program(x, fold("out", element))

    return build


def product_of_exponentials() -> tirx.PrimFunc:
    """a, b -> Σ exp(a − max a)·exp(b − max b)."""
    a, b = array("a"), array("b")
    m, n = fold("m", lambda i, j: a[i, j], maximum), fold("n", lambda i, j: b[i, j], maximum)
    return program(a, b, fold("out", lambda i, j: te.exp(a[i, j] - m[i]) * te.exp(b[i, j] - n[i])))


def overlap_of_probabilities() -> tirx.PrimFunc:
    """a, b -> Σ softmax(a)·softmax(b)."""
    a, b = array("a"), array("b")
    m, s = softmax_stages(a)
    n, t = softmax_stages(b, suffix="_b")

    def element(i: Expr, j: Expr) -> Expr:
        return te.exp(a[i, j] - m[i]) / s[i] * (te.exp(b[i, j] - n[i]) / t[i])

    return program(a, b, fold("out", element))


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "spread of surprise": spread_of_surprise,
    "distances about their mean": about_a_mean_distance(1),
    "squares about a mean distance": about_a_mean_distance(2),
    "product of exponentials": product_of_exponentials,
    "overlap of probabilities": overlap_of_probabilities,
}


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def at_offset(program: Unfused, offset: float) -> Arrays:
    rng = np.random.default_rng(1)
    inputs = program.func.params[:-1]
    return [(offset + rng.standard_normal((ROWS, LENGTH))).astype("float32") for _ in inputs]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_offset_of_the_data_takes_no_digits(name: str, offset: float) -> None:
    program = unfused(name)
    for tile, segments in TILINGS:
        program.check(at_offset(program, offset), tile=tile, segments=segments)


@pytest.mark.parametrize("shift", [1.0, -1e4])
@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("power", slow_but([2], [2, 4]))
def test_a_parameter_in_a_difference_takes_no_digits(power: int, offset: float, shift: float) -> None:
    """x, p -> Σ (x − max x + p)^power."""
    x, p = array("x"), array("p", ROWS)
    m = fold("m", lambda i, j: x[i, j], maximum)
    func = read(program(x, p, fold("out", lambda i, j: te.power(x[i, j] - m[i] + p[i], number(power)))))
    rng = np.random.default_rng(2)
    values = (offset + rng.standard_normal((ROWS, LENGTH))).astype("float32")
    given = [values, (shift * rng.standard_normal(ROWS)).astype("float32")]
    for tile, segments in TILINGS:
        func.check(given, tile=tile, segments=segments)
