"""log(x/max x) near 1 keeps its digits, at any scale and of either sign."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_cascade.algebra.policy import Range
from tvm_cascade.algebra.reducer import MIN

from .cascades import MAXIMUM, SUM, cascade, log, m, o, x
from .on_numbers import LENGTH, assert_exact, folded

CASCADES = {
    "below the largest": cascade(MAXIMUM, (o, SUM, log(x / m))),
    "above the least": cascade((m, MIN, x), (o, SUM, log(x / m))),
    "squares below the largest": cascade(MAXIMUM, (o, SUM, log(x / m) ** 2)),
    "weighed by the ratio": cascade(MAXIMUM, (o, SUM, x / m * log(x / m))),
}


@pytest.mark.parametrize("scale", [3.0, -700.0, 2e-200, 1e300])
@pytest.mark.parametrize("name", CASCADES)
def test_logarithms_of_ratios_near_one_keep_their_digits(name: str, scale: float) -> None:
    fold = folded(CASCADES[name])
    assert Range.RATIO in {reference.range for reference in fold.references}
    near = 1 - 1e-6 * np.random.default_rng(3).random(LENGTH)
    assert_exact(fold, {x: scale * near}, ulps=1e7)  # the ratio itself has lost six digits, and its square twice that
