"""(b(x)·h)^k and Π b(x)·h where b^k and h^k are out of range: units that are powers of two, in float32.

On numbers, and at more sizes, they are in `tests/algebra/test_powers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.evaluate import oracle

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, number, product, program
from .running import Array, Unfused, read

TILE, SEGMENTS = 4, 3


def power(value: Expr, degree: int) -> Expr:
    return value if degree == 1 else power(value, degree - 1) * value


def scaled_norm(degree: int = 2) -> tirx.PrimFunc:
    """m = max |x|, Σ (x/m)^k."""
    x = array("x")
    m = fold("m", lambda i, j: te.abs(x[i, j]), maximum)
    return program(x, m, fold("out", lambda i, j: power(x[i, j] / m[i], degree)))


def weighted_scaled_norm() -> tirx.PrimFunc:
    x, weight = array("x"), array("weight")
    m = fold("m", lambda i, j: te.abs(x[i, j]), maximum)
    return program(x, weight, m, fold("out", lambda i, j: x[i, j] * x[i, j] / m[i] / m[i] * weight[i, j]))


def standardised_moment(degree: int) -> tirx.PrimFunc:
    """mean, variance, Σ ((x − mean)/deviation)^k."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j] / number(LENGTH))
    v = fold("v", lambda i, j: (x[i, j] - s[i]) * (x[i, j] - s[i]) / number(LENGTH))
    return program(x, s, v, fold("out", lambda i, j: power((x[i, j] - s[i]) / te.sqrt(v[i]), degree)))


def residue_over_a_total() -> tirx.PrimFunc:
    """s = Σ w, Σ ((x − s)/s)²: s is far from every x."""
    x, w = array("x"), array("w")
    s = fold("s", lambda i, j: te.abs(x[i, j]))
    return program(x, w, fold("out", lambda i, j: (w[i, j] - s[i]) / s[i] * ((w[i, j] - s[i]) / s[i])))


def gradient_norm() -> tirx.PrimFunc:
    """Σ ((g − mean g − z·(g·z)/N)/deviation)², z = (x − mean)/deviation: three quantities move under the power."""
    x, g = array("x"), array("g")
    s = fold("s", lambda i, j: x[i, j] / number(LENGTH))
    v = fold("v", lambda i, j: (x[i, j] - s[i]) * (x[i, j] - s[i]) / number(LENGTH))
    a = fold("a", lambda i, j: g[i, j] / number(LENGTH))
    b = fold("b", lambda i, j: g[i, j] * (x[i, j] - s[i]) / te.sqrt(v[i]) / number(LENGTH))

    def gradient(i: Expr, j: Expr) -> Expr:
        return (g[i, j] - a[i] - (x[i, j] - s[i]) / te.sqrt(v[i]) * b[i]) / te.sqrt(v[i])

    return program(x, g, s, v, a, b, fold("out", lambda i, j: gradient(i, j) * gradient(i, j)))


BUILDS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "scaled norm": scaled_norm,
    "scaled fifth power": lambda: scaled_norm(5),
    "weighted scaled norm": weighted_scaled_norm,
    "skewness": lambda: standardised_moment(3),
    "kurtosis": lambda: standardised_moment(4),
    "residue over a total": residue_over_a_total,
    "gradient norm": gradient_norm,
}

SIZES: dict[str, Callable[[int], Array]] = {
    "small": lambda length: np.full(length, 1e-17),
    "growing": lambda length: np.logspace(-15, 15, length),
    "zeros first": lambda length: np.where(np.arange(length) < length // 2, 0, 1e-17),
}


@cache
def unfused(name: str) -> Unfused:
    return read(BUILDS[name]())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BUILDS)
def test_powers_stay_in_range_where_those_of_the_program_do(name: str, size: str) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((ROWS, LENGTH)) * SIZES[size](LENGTH)).astype("float32")
    others = len(oracle.signature(unfused(name).func).inputs) - 1
    given = [x, *(rng.standard_normal((ROWS, LENGTH)).astype("float32") for _ in range(others))]
    unfused(name).check(given, tile=TILE, segments=SEGMENTS)


def product_over_a_maximum() -> tirx.PrimFunc:
    x = array("x")
    m = fold("m", lambda i, j: te.abs(x[i, j]), maximum)
    return program(x, m, fold("out", lambda i, j: x[i, j] / m[i], product))


def product_over_a_total_where_kept() -> tirx.PrimFunc:
    """Π (keep ? x/(−Σ |x|/N) : 1): the divisor is negative."""
    x, keep = array("x"), array("keep", dtype="bool")
    s = fold("s", lambda i, j: te.abs(x[i, j]) / number(-LENGTH))
    return program(
        x, keep, s, fold("out", lambda i, j: tirx.if_then_else(keep[i, j], x[i, j] / s[i], number(1)), product)
    )


@pytest.mark.parametrize("masked", [False, True], ids=["all", "where kept"])
def test_products_stay_in_range_where_those_of_the_program_do(masked: bool) -> None:
    func = read(product_over_a_total_where_kept() if masked else product_over_a_maximum())
    rng = np.random.default_rng(4)
    x = (rng.uniform(0.2, 1, (ROWS, LENGTH)) * rng.choice([-1, 1], (ROWS, LENGTH)) * 1e20).astype("float32")
    keep = rng.random((ROWS, LENGTH)) < 0.6
    keep[0] = False
    func.check([x, keep] if masked else [x], tile=TILE, segments=SEGMENTS)


def test_a_product_is_not_lost_where_partial_results_are_far_from_the_final_one() -> None:
    """Π r/t, t = Σ exp(x − s)/N, s = Σ x/9: partial sums of falling numbers make t small at first."""
    x, r = array("x"), array("r")
    s = fold("s", lambda i, j: x[i, j] / number(9))
    t = fold("t", lambda i, j: te.exp(x[i, j] - s[i]) / number(LENGTH))
    func = read(program(x, r, fold("out", lambda i, j: r[i, j] / t[i], product)))
    falling = np.broadcast_to(np.linspace(4, -4, LENGTH, dtype="float32"), (ROWS, LENGTH)).copy()
    sizes = np.exp(falling).mean(1, keepdims=True) * np.random.default_rng(5).uniform(0.5, 1.5, (ROWS, LENGTH))
    func.check([falling, sizes.astype("float32")], tile=TILE, segments=SEGMENTS)
