"""Products that keep their digits, and stay in range though their parts, and partial results, do not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tvm import te

from tvm_cascade.evaluate.inputs import INPUTS

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, number, product, program
from .running import Unfused, read

TILINGS = ((1, 3), (5, 1), (64, 1))


@cache
def exponentials_below_a_level() -> Unfused:
    """x, y -> Π exp(x − max y)."""
    x, y = array("x"), array("y")
    m = fold("m", lambda i, j: y[i, j], maximum)
    return read(program(x, y, m, fold("out", lambda i, j: te.exp(x[i, j] - m[i]), product)))


@pytest.mark.parametrize("kind", ["rising", "falling", "normal"])
def test_a_product_of_exponentials_has_the_digits_of_its_factors(kind: str) -> None:
    """Sums of the exponents reach 76 on the way to less than 1, of which float32 holds few digits."""
    func = exponentials_below_a_level()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = INPUTS[kind](rng, (ROWS, LENGTH), "float64")
        y = np.broadcast_to(rng.uniform(0, 0.02, (ROWS, 1)), x.shape)
        given = [a.astype("float32") for a in (x - x.mean(1, keepdims=True), y)]
        for tile, segments in TILINGS:
            func.check(given, tile=tile, segments=segments)


@pytest.mark.parametrize(
    ("exponents", "levels"),
    [(80, 110), (-60, -100), (180, 170), (-180, -170), (60, 30), (-100, -20)],
    ids=["level vanishes", "level", "product overflows", "product vanishes", "both are kept", "result vanishes"],
)
def test_a_product_of_exponentials_is_in_range_where_that_of_the_program_is(exponents: float, levels: float) -> None:
    """Π exp(x) and exp(−N·max y) may be zero or infinite where the program's own partial products are numbers."""
    x, y = (np.full((ROWS, LENGTH), total / LENGTH, "float32") for total in (exponents, levels))
    for tile, segments in TILINGS:
        exponentials_below_a_level().check([x, y], tile=tile, segments=segments)


def test_numbers_and_parameters_are_multiplied_with_what_keeps_them_in_range() -> None:
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    out = fold("out", lambda i, j: te.exp(x[i, j] - m[i]) * number(1000) / (number(1) + m[i] * m[i]), product)
    unfused = read(program(x, out))
    x_values = np.random.default_rng(3).standard_normal((ROWS, LENGTH)).astype("float32") + np.float32(30)
    for tile, segments in ((1, 3), (5, 1)):
        unfused.check([x_values], tile=tile, segments=segments)


def test_a_factor_that_vanishes_at_last_leaves_segments_at_the_reference_of_one_of_them() -> None:
    x, y, r = array("x"), array("y"), array("r")
    m = fold("m", lambda i, j: x[i, j], maximum)
    t = fold("t", lambda i, j: te.exp(y[i, j] - m[i]))
    unfused = read(program(x, y, r, fold("out", lambda i, j: r[i, j] * t[i], product)))
    x_values = np.zeros((ROWS, LENGTH), "float32")
    x_values[:, -1] = 300  # t is zero in float32 from there on
    arrays = [x_values, np.full_like(x_values, -12), np.ones_like(x_values)]
    assert (unfused.results(arrays)["out"] == 0).all()
    for tile, segments in ((1, 2), (5, 3)):
        assert (unfused.fused_results(arrays, tile=tile, segments=segments)["out"] == 0).all()
