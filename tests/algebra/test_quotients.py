"""log(x/s) and √(x/s), of which neither sign is known: a number where the signs agree, and none where they do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp

from campaigns.numeric_fold import NumericFold

from .cascades import SUM, cascade, log, o, s, sqrt, x
from .on_numbers import LENGTH, SPLITS, assert_exact, folded

TOTAL = (s, SUM, x)
CASCADES = {
    "logarithms": cascade(TOTAL, (o, SUM, log(x / s))),
    "entropy of counts": cascade(TOTAL, (o, SUM, log(x / s) * (x / s))),
    "roots of shares": cascade(TOTAL, (o, SUM, sqrt(x / s))),
    "powers of shares": cascade(TOTAL, (o, SUM, (x / s) ** sp.Rational(3, 2))),
}


def counts(sign: float) -> np.ndarray:
    return sign * np.random.default_rng(0).uniform(0.1, 2.0, LENGTH)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", CASCADES)
def test_quotients_of_one_sign_are_numbers(name: str, sign: float) -> None:
    assert_exact(folded(CASCADES[name]), {x: counts(sign)})


@pytest.mark.parametrize("position", [0, 11, 22])
@pytest.mark.parametrize("name", CASCADES)
def test_one_element_of_the_other_sign_leaves_no_number(name: str, position: int) -> None:
    values = counts(1.0)
    values[position] *= -1
    fold = folded(CASCADES[name])
    for cuts in SPLITS:
        assert math.isnan(NumericFold(fold, LENGTH).split([{x: float(value)} for value in values], cuts)[o]), cuts
