"""log(x/s) and √(x/s), of which neither sign is known: a number where the signs agree, as unfused.

Digits on numbers are in `tests/algebra/test_ratios.py` and `test_quotients.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, minimum, number, program
from .running import Array, Unfused, read

TILINGS = [(5, 1), (4, 3)]


def after_sum(element: Callable[[Expr, Expr], Expr]) -> tirx.PrimFunc:
    """s = Σ x; out = Σ element(x, s)."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: element(x[i, j], s[i])))


def divergence_of_counts() -> tirx.PrimFunc:
    """Σ p · log(p/q), with p and q two rows of counts over their totals, where both count."""
    x, y, keep = array("x"), array("y"), array("keep", ROWS, LENGTH, dtype="bool")
    s = fold("s", lambda i, j: tirx.Select(keep[i, j], x[i, j], number(0)))
    t = fold("t", lambda i, j: tirx.Select(keep[i, j], y[i, j], number(0)))

    def element(i: Expr, j: Expr) -> Expr:
        p, q = x[i, j] / s[i], y[i, j] / t[i]
        return tirx.Select(keep[i, j], p * te.log(p / q), number(0))

    return program(x, y, keep, fold("out", element))


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "entropy of counts": lambda: after_sum(lambda x, s: te.log(x / s) * (x / s)),
    "bits of counts": lambda: after_sum(lambda x, s: te.log2(x / s)),
    "roots of shares": lambda: after_sum(lambda x, s: te.sqrt(x / s)),
    "powers of shares": lambda: after_sum(lambda x, s: te.power(x / s, number(1.5))),
}


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def of_signs() -> Array:
    """Rows of positive numbers, of negative ones, of both, and of positive ones and a zero."""
    x = np.random.default_rng(0).uniform(0.1, 2.0, (ROWS, LENGTH)).astype("float32")
    x[1] *= -1
    x[2, LENGTH // 2] *= -1
    x[3, -1] = 0
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_signs_decide_as_they_do_element_by_element(name: str) -> None:
    program = unfused(name)
    for tile, segments in TILINGS:
        program.check([of_signs()], tile=tile, segments=segments)
        found = np.isnan(program.fused_results([of_signs()], tile=tile, segments=segments)["out"])
        assert found[:3].tolist() == [False, False, True]


def after_extremum(combine: Callable[..., Expr], element: Callable[[Expr, Expr], Expr]) -> Callable[[], tirx.PrimFunc]:
    """s = max or min of x; out = Σ element(x, s)."""

    def build() -> tirx.PrimFunc:
        x = array("x")
        s = fold("s", lambda i, j: x[i, j], combine)
        return program(x, fold("out", lambda i, j: element(x[i, j], s[i])))

    return build


NEAR_ONE: dict[str, Callable[[], tirx.PrimFunc]] = {
    "below the largest": after_extremum(maximum, lambda x, m: te.log(x / m)),
    "bits above the least": after_extremum(minimum, lambda x, m: te.log2(x / m)),
    "squares below the largest": after_extremum(maximum, lambda x, m: te.power(te.log(x / m), number(2))),
    "weighed by the ratio": after_extremum(maximum, lambda x, m: x / m * te.log(x / m)),
}


@pytest.mark.parametrize("name", NEAR_ONE)
def test_logarithms_of_ratios_near_one_keep_their_digits(name: str) -> None:
    program = read(NEAR_ONE[name]())
    for scale in (3.0, -700.0, 2e-20):
        x = scale * (1 - 1e-3 * np.random.default_rng(3).random((ROWS, LENGTH)))
        program.check([x.astype("float32")], tile=4, segments=3)


def test_what_is_masked_out_may_have_any_sign() -> None:
    x, y = of_signs()[[0, 1, 0, 1]], of_signs()[[1, 0, 0, 1]]
    keep = np.random.default_rng(1).random((ROWS, LENGTH)) < 0.8
    x[:, 7] *= -1
    keep[:, 7] = False
    program = read(divergence_of_counts())
    for tile, segments in TILINGS:
        program.check([x, y, keep], tile=tile, segments=segments)
        found = np.isnan(program.fused_results([x, y, keep], tile=tile, segments=segments)["out"])
        assert found.tolist() == [False] * 4
