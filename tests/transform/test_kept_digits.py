"""Quantities that are no mean of what they are taken from: totals, exponentials, extrema of something else.

While the data drift, such a quantity at partial results is far from the data, and no reference that keeps digits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from benchmarks.check.definition import Definition
from tvm_cascade.algebra.policy import Range
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import INPUTS

from ..analysis.programs import LENGTH, ROWS, array, each, fold, maximum, minimum, number, product, program
from ..tiers import quick_but, slow_but
from .running import Arrays, Unfused, read

KINDS = ["normal", "large_offset", "rising", "falling", "late_spike", "alternating_sign"]
TILINGS = [(1, 1), (5, 1), (4, 3)]


def squares_about_a_total() -> tirx.PrimFunc:
    x, weight = array("x"), array("weight")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, weight, fold("out", lambda i, j: weight[i, j] * te.power(x[i, j] / number(2) - s[i], number(2))))


def squares_about_a_total_of_something_else() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, y, fold("out", lambda i, j: (y[i, j] - s[i]) * (y[i, j] - s[i])))


def squares_about_the_mean_of_something_else() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j])
    centre = number(LENGTH)
    return program(x, y, fold("out", lambda i, j: (y[i, j] - s[i] / centre) * (y[i, j] - s[i] / centre)))


def squares_about_the_maximum_of_something_else() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, y, fold("out", lambda i, j: (y[i, j] - m[i]) * (y[i, j] - m[i])))


def differences_from_a_total_and_from_its_squares() -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    d = fold("d", lambda i, j: (x[i, j] - s[i]) * (x[i, j] - s[i]))
    return program(x, fold("out", lambda i, j: (x[i, j] - d[i]) * (x[i, j] - s[i])))


def differences_from_an_exponential_of_a_total() -> tirx.PrimFunc:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])

    def from_level(i: Expr, j: Expr) -> Expr:
        return x[i, j] / number(64) - te.exp(s[i] / te.max(s[i], number(1)))

    return program(x, fold("out", lambda i, j: from_level(i, j) * (x[i, j] - s[i] / number(LENGTH))))


def fourth_powers_in_another_unit() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: y[i, j] * y[i, j])
    return program(x, y, fold("out", lambda i, j: te.power(x[i, j] * number(1.4426950408889634) - s[i], number(4))))


def residues_of_a_line() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, y, fold("out", lambda i, j: te.power(y[i, j] - s[i] * x[i, j], number(2))))


def products_of_two_differences_from_a_total() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j] * y[i, j])
    return program(x, y, fold("out", lambda i, j: (x[i, j] - s[i]) * (y[i, j] - s[i])))


def points_of_a_line() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, y, fold("out", lambda i, j: y[i, j] - s[i] * x[i, j]))


def softmax_weighted_squares_about_a_total() -> tirx.PrimFunc:
    x = array("x")
    m, s = fold("m", lambda i, j: x[i, j], maximum), fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: te.exp(x[i, j] - m[i]) * te.power(x[i, j] - s[i], number(2))))


def differences_from_a_softmax_moment() -> tirx.PrimFunc:
    x, temperature = array("x"), array("temperature", ROWS)
    m = fold("m", lambda i, j: x[i, j], maximum)
    d = fold("d", lambda i, j: te.exp(x[i, j] - m[i]) / temperature[i] * (x[i, j] - m[i]) * (x[i, j] - m[i]))
    return program(x, temperature, fold("out", lambda i, j: x[i, j] - d[i]))


def waves_about_a_mean() -> tirx.PrimFunc:
    """Two sums of waves about 0 cancel where x is near its mean and weights rise."""
    x, weight = array("x"), array("weight")
    s = fold("s", lambda i, j: te.sin(x[i, j]))

    def wave(i: Expr, j: Expr) -> Expr:
        return weight[i, j] * te.sin(te.sin(x[i, j]) - s[i] / number(LENGTH))

    return program(x, weight, fold("out", wave))


def squares_weighed_by_an_exponential_from_the_same_mean() -> tirx.PrimFunc:
    """The exponent is far larger than what is squared, and one reference would serve both."""
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: y[i, j] / number(LENGTH))

    def weight(i: Expr, j: Expr) -> Expr:
        return te.exp(number(20) * te.sin(x[i, j]) - s[i])

    return program(x, y, fold("out", lambda i, j: weight(i, j) * te.power(y[i, j] - s[i], number(2))))


def differences_from_a_mean_and_from_a_shifted_level() -> tirx.PrimFunc:
    """The level's reference is the mean and the shift: finish sees only the small difference of both references."""
    x, shift = array("x"), array("shift", ROWS)
    s = fold("s", lambda i, j: x[i, j])
    d = fold("d", lambda i, j: te.power(x[i, j] - s[i] / number(LENGTH), number(2)))

    def from_level(i: Expr, j: Expr) -> Expr:
        return x[i, j] + shift[i] - d[i] / shift[i]

    return program(x, shift, fold("out", lambda i, j: (x[i, j] - s[i] / number(LENGTH)) * from_level(i, j)))


def residues_of_a_fitted_line() -> tirx.PrimFunc:
    """Squares of y − slope·x − intercept: an offset of x is in both, and cancels."""
    x, y = array("x"), array("y")
    s, t = fold("s", lambda i, j: x[i, j]), fold("t", lambda i, j: y[i, j])
    mean = {name: lambda i, total=total: total[i] / number(LENGTH) for name, total in (("x", s), ("y", t))}
    square = fold("square", lambda i, j: te.power(x[i, j] - mean["x"](i), number(2)))
    mixed = fold("mixed", lambda i, j: (x[i, j] - mean["x"](i)) * (y[i, j] - mean["y"](i)))
    slope = each("slope", lambda i: mixed[i] / (square[i] + number(1e-6)), ROWS)
    intercept = each("intercept", lambda i: mean["y"](i) - slope[i] * mean["x"](i), ROWS)
    return program(x, y, fold("out", lambda i, j: te.power(y[i, j] - slope[i] * x[i, j] - intercept[i], number(2))))


def variance_on_a_scale_from_least_to_largest() -> tirx.PrimFunc:
    x = array("x")
    least, largest = fold("least", lambda i, j: x[i, j], minimum), fold("largest", lambda i, j: x[i, j], maximum)

    def scaled(i: Expr, j: Expr) -> Expr:
        return (x[i, j] - least[i]) / (largest[i] - least[i] + number(1e-6))

    s = fold("s", scaled)
    return program(x, fold("out", lambda i, j: te.power(scaled(i, j) - s[i] / number(LENGTH), number(2))))


def squares_of_differences_of_two_scales() -> tirx.PrimFunc:
    """The distance of two rows that are divided by their own norms, where the weight is of any sign."""
    x, y, weight = array("x"), array("y"), array("weight")
    s, t = fold("s", lambda i, j: x[i, j] * x[i, j]), fold("t", lambda i, j: y[i, j] * y[i, j])

    def apart(i: Expr, j: Expr) -> Expr:
        return x[i, j] * te.rsqrt(s[i] + number(1e-6)) - y[i, j] * te.rsqrt(t[i] + number(1e-6))

    return program(x, y, weight, fold("out", lambda i, j: weight[i, j] * apart(i, j) * apart(i, j)))


def products_of_three_differences() -> tirx.PrimFunc:
    """Eight sums, more than a state by derivatives may have."""
    tensors = [array(name) for name in "xyz"]
    means = [fold(f"s{k}", lambda i, j, a=a: a[i, j] / number(LENGTH)) for k, a in enumerate(tensors)]

    def element(i: Expr, j: Expr) -> Expr:
        first, second, third = (a[i, j] - mean[i] for a, mean in zip(tensors, means, strict=True))
        return first * second * third

    return program(*tensors, fold("out", element))


def cubes_beside_squares_about_a_total() -> tirx.PrimFunc:
    x, y, z = array("x"), array("y"), array("z")
    s = fold("s", lambda i, j: y[i, j])

    def element(i: Expr, j: Expr) -> Expr:
        cube = te.power(z[i, j] * x[i, j] + y[i, j] * number(0.5) - s[i], number(3))
        return cube * (te.power(x[i, j] - s[i], number(2)) + y[i, j])

    return program(x, y, z, fold("out", element))


CASCADES: dict[str, tuple[Callable[[], tirx.PrimFunc], Range | None]] = {
    "squares about a total": (squares_about_a_total, Range.MEAN),
    "squares about a total of something else": (squares_about_a_total_of_something_else, Range.MEAN),
    "squares about the mean of something else": (squares_about_the_mean_of_something_else, Range.MEAN),
    "squares about the maximum of something else": (squares_about_the_maximum_of_something_else, Range.MEAN),
    "differences from a total and from its squares": (differences_from_a_total_and_from_its_squares, Range.MEAN),
    "differences from an exponential of a total": (differences_from_an_exponential_of_a_total, Range.MEAN),
    "fourth powers in another unit": (fourth_powers_in_another_unit, Range.MEAN),
    "residues of a line": (residues_of_a_line, Range.WEIGHED),
    "products of two differences from a total": (products_of_two_differences_from_a_total, Range.WEIGHED),
    "cubes beside squares about a total": (cubes_beside_squares_about_a_total, None),
    "points of a line": (points_of_a_line, None),
    "softmax-weighted squares about a total": (softmax_weighted_squares_about_a_total, Range.MEAN),
    "differences from a softmax moment": (differences_from_a_softmax_moment, Range.MEAN),
    "squares weighed by an exponential": (squares_weighed_by_an_exponential_from_the_same_mean, Range.LARGEST),
    "residues of a fitted line": (residues_of_a_fitted_line, Range.LOCATION),
    "variance on a scale": (variance_on_a_scale_from_least_to_largest, Range.WEIGHED),
    "squares of differences of two scales": (squares_of_differences_of_two_scales, Range.WEIGHED),
    "products of three differences": (products_of_three_differences, Range.NEAR),
    "waves about a mean": (waves_about_a_mean, Range.LOCATION),
    "differences from a shifted level": (differences_from_a_mean_and_from_a_shifted_level, Range.MEAN),
}


DEVIATIONS: dict[str, str] = {
    "asymmetric loss": "total = sum x; out = sum exp(x - total/N) - (x - total/N) - 1",
    "change from the largest": "top = max x; out = sum exp(x - top) - 1",
    "squared change": "top = max x; out = sum (exp(x - top) - 1)**2",
    "weighted change": "top = max x; out = sum w*(exp(x - top) - 1)",
    "angle": "total = sum x; out = sum 1 - cos(x - total/N)",
    "divergence of a ratio": "total = sum p; out = sum p/(total/N) - 1 - log(p/(total/N))",
    "divergence of a squared ratio": "total = sum p; out = sum (p/(total/N))**2 - 1 - log((p/(total/N))**2)",
    "square of a ratio to the largest": "top = max p; out = sum (1 - p/top)**2",
    "square of a share": "top = max x; mass = sum exp(x - top); out = sum (N*exp(x - top)/mass - 1)**2",
    "change beside other data": "top = max x; out = sum exp(x - top) - 1 + y",
    "ratio to the largest": "top = max p; out = sum 1 - p/top",
}
"""Elements that are zero where all data are equal, though their terms are not: sums of these are guarded."""

DEVIATION_ROWS = 67
"""The largest error of a few rows is luck."""


# A divergence of a squared ratio is one of a ratio, with twice the exponent.
@pytest.mark.parametrize("name", slow_but(DEVIATIONS.keys() - {"divergence of a squared ratio"}, DEVIATIONS))
def test_an_element_near_its_own_zero_keeps_its_digits(name: str) -> None:
    func = read(Definition(name, DEVIATIONS[name], rows=DEVIATION_ROWS, length=64).build())
    for spread in (1.0, 1e-2, 1e-4):
        rng = np.random.default_rng(0)
        shapes = [tuple(int(n) for n in param.ty.shape) for param in oracle.signature(func.func).inputs]
        given = [
            (2 * (1 + 0.25 * spread * rng.standard_normal(shape).clip(-3, 3))).astype("float32") for shape in shapes
        ]
        for tile, segments in ((64, 1), (4, 3)):
            func.check(given, tile=tile, segments=segments)


@cache
def unfused(name: str) -> Unfused:
    return read(CASCADES[name][0]())


def drawn(func: tirx.PrimFunc, kind: str) -> Arrays:
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    shapes = [tuple(int(extent) for extent in param.ty.shape) for param in oracle.signature(func).inputs]
    return [INPUTS[kind if k == 0 else "normal"](rng, shape, "float32") for k, shape in enumerate(shapes)]


OTHERS = {
    "residues of a fitted line",
    "residues of a line",
    "differences from a total and from its squares",
    "squares weighed by an exponential",
    "squares about a total",
    "differences from a softmax moment",
    "squares about a total of something else",
    "differences from a shifted level",
    "squares about the maximum of something else",
    "products of two differences from a total",
}
"""Of a policy that others have too, or fitted, as in test_fitted_lines.py."""


@pytest.mark.parametrize("kind", slow_but(["large_offset"], KINDS))
@pytest.mark.parametrize("name", quick_but(OTHERS, CASCADES))
def test_digits_are_kept_however_the_data_drift(name: str, kind: str) -> None:
    func = unfused(name)
    for tile, segments in TILINGS:
        func.check(drawn(func.func, kind), tile=tile, segments=segments)


@pytest.mark.parametrize("name", CASCADES)
def test_the_last_reference_is_where_the_data_are(name: str) -> None:
    (group,) = unfused(name).groups
    ranges = [reference.range for reference in group.fold.references]
    assert (ranges[-1] if ranges else None) is CASCADES[name][1]


def test_positions_of_weight_zero_do_not_move_the_reference_away() -> None:
    x, weight = array("x"), array("weight")
    s = fold("s", lambda i, j: weight[i, j] * x[i, j])
    func = read(program(x, weight, fold("out", lambda i, j: weight[i, j] * (x[i, j] - s[i]) * (x[i, j] - s[i]))))
    values, weights = (INPUTS["normal"](np.random.default_rng(k), (ROWS, LENGTH), "float32") for k in range(2))
    weights[:, ::3], values[:, ::3] = 0.0, 1e6
    for tile, segments in TILINGS:
        func.check([values, weights], tile=tile, segments=segments)


def test_a_product_of_differences_keeps_its_digits_where_one_is_near_and_the_other_far() -> None:
    """Half way between data near zero and data near 10 000, what is summed is of 5 000² and ends in a few thousand."""
    x, y, z = array("x"), array("y"), array("z")
    s = fold("s", lambda i, j: z[i, j])
    func = read(program(x, y, z, fold("out", lambda i, j: (x[i, j] - s[i]) * (y[i, j] - s[i]))))
    near, far, level = (INPUTS["normal"](np.random.default_rng(k), (ROWS, LENGTH), "float32") for k in range(3))
    far = np.where(far > 0, np.float32(10_000), far)
    for tile, segments in TILINGS:
        func.check([near, far, level / 64], tile=tile, segments=segments)


def test_a_softmax_moment_divided_by_a_parameter_takes_the_maximum_as_reference() -> None:
    """exp(x) by itself overflows, and the parameter may have any sign."""
    func = unfused("differences from a softmax moment")
    given = [np.float32(200) + INPUTS["rising"](np.random.default_rng(0), (ROWS, LENGTH), "float32"),
             np.array([1, -2, 0.5, 3], "float32")]  # fmt: skip
    for tile, segments in TILINGS:
        func.check(given, tile=tile, segments=segments)


@pytest.mark.parametrize("power", [2, 3, 4])
def test_a_total_out_of_range_gives_the_infinity_that_the_elements_give(power: int) -> None:
    x = array("x")
    p = fold("p", lambda i, j: te.exp(x[i, j]), product)
    func = read(program(x, fold("out", lambda i, j: te.power(p[i] - x[i, j], number(power)))))
    given = [INPUTS["large_offset"](np.random.default_rng(0), (ROWS, LENGTH), "float32")]
    for tile, segments in TILINGS:
        np.testing.assert_array_equal(func.fused_results(given, tile=tile, segments=segments)["out"], np.inf)


def test_exponentials_that_cancel_are_joined_before_one_overflows() -> None:
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: x[i, j])
    func = read(program(x, y, fold("out", lambda i, j: te.exp(y[i, j] - s[i]) / te.exp(number(0) - te.abs(s[i])))))
    values = np.full((ROWS, LENGTH), 0.1, "float32")
    values[:, -1] = 89 - 0.1 * (LENGTH - 1)  # exp(89) is infinite, exp(−89) is not yet zero
    given = [values, INPUTS["normal"](np.random.default_rng(1), (ROWS, LENGTH), "float32")]
    for tile, segments in TILINGS:
        func.check(given, tile=tile, segments=segments)
