"""max and min of w·exp(x − u) with w of either sign: the best element may have the smallest exponent of all."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import Cascade
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.masks import choice

from .cascades import SUM, cascade, exp, o, s, w, x, y
from .on_numbers import LENGTH, assert_exact, folded


def weighted(reducer: Reducer, scale: int = 1) -> Cascade:
    return cascade((s, SUM, y), (o, reducer, scale * w * exp(x - s)))


CASCADES = {
    "largest": weighted(MAX),
    "smallest": weighted(MIN),
    "largest of opposites": weighted(MAX, -3),
    "smallest where kept": cascade(
        (s, SUM, y), (o, MIN, choice(sp.Lt(w, sp.Rational(1, 2)), w * exp(x - s), sp.S.Zero))
    ),
}


@pytest.mark.parametrize("signs", ["positive", "negative", "of both signs", "zeros"])
@pytest.mark.parametrize("name", CASCADES)
def test_the_best_element_keeps_its_digits(name: str, signs: str) -> None:
    """Exponents from −700 to 700 about a reference from which the best element alone is in float64's range."""
    rng = np.random.default_rng(11)
    at = rng.uniform(-700, 700, LENGTH)
    weight = rng.uniform(0.5, 2.0, LENGTH)
    weight *= {"positive": 1.0, "negative": -1.0, "of both signs": np.where(at > 0, 1.0, -1.0), "zeros": at < 0}[signs]
    columns = {x: at, w: weight, y: np.full(LENGTH, np.median(at) / LENGTH)}
    assert_exact(folded(CASCADES[name]), columns, ulps=20_000)  # an exponent of 700 has lost three digits
