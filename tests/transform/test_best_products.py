"""max and min of w·exp(x − u) with w of either sign, where the best element may have the smallest exponent of all.

Beside the largest exponent it may vanish, which guards see; so too at infinities.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from ..analysis.programs import LENGTH, ROWS, Combine, array, fold, maximum, minimum, number, program, total
from .running import Arrays, Unfused, read

TILE, SEGMENTS = 4, 3


def weighted(combine: Combine, scale: int = 1, kept: bool = False) -> tirx.PrimFunc:
    """x, w, y -> the best of scale·w·exp(x − Σ y), which Σ y does not bound."""
    x, w, y = array("x"), array("w"), array("y")
    s = fold("s", lambda i, j: y[i, j], total)

    def element(i: Expr, j: Expr) -> Expr:
        value = number(scale) * w[i, j] * te.exp(x[i, j] - s[i])
        return tirx.if_then_else(w[i, j] < number(0.5), value, number(0)) if kept else value

    return program(x, w, y, fold("out", element, combine))


PROGRAMS = {
    "largest": lambda: weighted(maximum),
    "smallest": lambda: weighted(minimum),
    "largest of opposites": lambda: weighted(maximum, scale=-3),
    "smallest where kept": lambda: weighted(minimum, kept=True),
}


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def given(kind: str) -> Arrays:
    """Exponents from −100 to 100, with the reference in float32's range of the best element alone."""
    rng = np.random.default_rng(11)
    x = rng.uniform(-90, 90, (ROWS, LENGTH))
    w = rng.uniform(0.5, 2.0, (ROWS, LENGTH))
    w *= {"of both signs": np.where(x > 0, 1.0, -1.0), "zeros": x < 0}[kind]
    y = np.broadcast_to(np.median(x, axis=1, keepdims=True) / LENGTH, x.shape)
    return [array.astype("float32") for array in (x, w, y)]


@pytest.mark.parametrize("kind", ["of both signs", "zeros"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_best_element_keeps_its_digits(name: str, kind: str) -> None:
    unfused(name).check(given(kind), tile=TILE, segments=SEGMENTS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_infinities_come_out_as_they_do_unfused(name: str) -> None:
    x, w, y = given("of both signs")
    x[0, 2], x[1, 3], w[2, 1] = -np.inf, np.inf, np.inf
    unfused(name).check([x, w, y], tile=TILE, segments=SEGMENTS)
