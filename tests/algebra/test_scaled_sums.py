"""Sums relative to their largest weight: whatever the split, the same sum, of weights that a narrow dtype holds."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

from campaigns.numeric_fold import NumericFold
from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.algebra.scaled import can_scale, with_factors, with_scales

from .cascades import FUSABLE, fold_of
from .on_numbers import LENGTH, SPLITS, folded

w, u, v = sp.symbols("w u v", real=True)
a, b, c = sp.symbols("a b c", real=True)
SUMS = Cascade([Reduction(a, SUM, w * v), Reduction(b, SUM, w * u), Reduction(c, SUM, u * v)], [w, u, v])


@pytest.mark.parametrize("size", [2.0**-40, 1.0, 2.0**40])
def test_every_split_gives_the_sum(size: float) -> None:
    """a and b share their weights' reference; c is left as it is."""
    plain = folded(SUMS)
    weights = {part.symbol: w for part in plain.components if part.lift.has(w)}
    assert len(weights) == 2 and all(can_scale(plain, part) for part in plain.components)
    scaled = with_scales(plain, weights)
    (reference,) = scaled.references
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((LENGTH, 3)) * [size, 1, 1] * np.exp2(rng.integers(-9, 9, (LENGTH, 1)))
    drawn[3] = 0
    rows = [dict(zip((w, u, v), map(float, row), strict=True)) for row in drawn]
    expected = {a: drawn[:, 0] @ drawn[:, 2], b: drawn[:, 0] @ drawn[:, 1], c: drawn[:, 1] @ drawn[:, 2]}
    for cuts in SPLITS:
        fold = NumericFold(scaled, LENGTH)
        found = fold.split(rows, cuts)
        assert all(found[result] == pytest.approx(value, rel=1e-12) for result, value in expected.items())
    largest = np.abs(drawn[:, 0]).max()
    lifts = [part.lift for part in scaled.components if part.symbol in weights]
    at = sp.lambdify([w, u, v, reference.symbol], lifts)(drawn[:, 0], 1, 1, 2 * 2.0 ** np.floor(np.log2(largest)))
    assert all(0.5 <= np.abs(lift).max() < 1 for lift in at)


def test_what_moves_already_or_is_read_elsewhere_has_no_scale() -> None:
    moving = fold_of("variance")
    assert "variance" in FUSABLE and not all(can_scale(moving, part) for part in moving.components)
    softmax = fold_of("softmax")
    assert [can_scale(softmax, part) for part in softmax.components] == [False] * len(softmax.components)


def test_a_number_of_every_element_is_left_to_the_result() -> None:
    """Σ w·v as 1/8 of it in the state, where Σ w·u stays whole."""
    plain = folded(SUMS)
    first, second, *_ = plain.components
    halved = with_factors(plain, {first.symbol: sp.Rational(8)})
    drawn = np.random.default_rng(0).standard_normal((LENGTH, 3))
    rows = [dict(zip((w, u, v), map(float, row), strict=True)) for row in drawn]
    assert [part.lift for part in halved.components][:2] == [first.lift / 8, second.lift]
    for cuts in SPLITS:
        found = NumericFold(halved, LENGTH).split(rows, cuts)
        assert found[a] == pytest.approx(drawn[:, 0] @ drawn[:, 2]) and found[b] == pytest.approx(
            drawn[:, 0] @ drawn[:, 1]
        )
