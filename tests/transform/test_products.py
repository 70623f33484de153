"""Products that stay in range though their parts, and partial results, do not."""

from __future__ import annotations

import numpy as np
from tvm import te

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, number, product, program
from .running import read


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
