"""(b(x)·h)^k and Π b(x)·h where b^k and h^k are out of range: the scaled norm of BLAS, standardised moments."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.reducer import PROD
from tvm_cascade.obligations.certificate import certificate

from .cascades import MAX, SUM, Row, absolute, cascade, d, m, o, s, sqrt, w, x
from .on_numbers import LENGTH, assert_exact, folded

LARGEST: Row = (m, MAX, absolute(x))
MEAN: Row = (s, SUM, x / N)
VARIANCE: Row = (d, SUM, (x - s) ** 2 / N)

CASCADES = {
    "scaled norm": cascade(LARGEST, (o, SUM, (x / m) ** 2)),
    "scaled fifth power": cascade(LARGEST, (o, SUM, (x / m) ** 5)),
    "weighted scaled norm": cascade(LARGEST, (o, SUM, (x / m) ** 2 * absolute(w))),
    "kurtosis": cascade(MEAN, VARIANCE, (o, SUM, ((x - s) / sqrt(d)) ** 4)),
    "product over a maximum": cascade(LARGEST, (o, PROD, x / m)),
    "product over a negative mean": cascade((s, SUM, -absolute(x) / N), (o, PROD, x / s)),
}
SIZES = {
    "ordinary": np.ones(LENGTH),
    "large": np.full(LENGTH, 1e120),
    "small": np.full(LENGTH, 1e-120),
    "growing": np.logspace(-100, 100, LENGTH),
    "shrinking": np.logspace(100, -100, LENGTH),
}


OUT_OF_RANGE = ("scaled fifth power", "kurtosis")
"""Whose powers alone are beyond float64 at these sizes, as are products."""


@pytest.mark.parametrize("name", CASCADES)
def test_powers_that_may_be_out_of_range_are_guarded(name: str) -> None:
    assert not certificate(folded(CASCADES[name])).bounded


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASCADES)
def test_powers_stay_in_range_where_those_of_the_definition_do(name: str, size: str) -> None:
    if (name in OUT_OF_RANGE or "product" in name) and size != "ordinary":
        pytest.skip("guarded")
    rng = np.random.default_rng(3)
    values = rng.uniform(0.2, 1, LENGTH) * rng.choice([-1, 1], LENGTH)
    assert_exact(folded(CASCADES[name]), {x: values * SIZES[size], w: rng.uniform(1, 2, LENGTH)}, ulps=2000)
