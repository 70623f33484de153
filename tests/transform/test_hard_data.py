"""Unkind data, by name: infinities and NaN come out as they do unfused, and no digits are lost."""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
import pytest
from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.evaluate.tolerance import kinds

from ..analysis.programs import (
    LENGTH,
    ROWS,
    Combine,
    array,
    fold,
    maximum,
    minimum,
    number,
    product,
    program,
    softmax_stats,
)
from ..tiers import quick_but, slow_but
from .programs import PROGRAMS
from .running import Arrays, Unfused, read

TILINGS = [(5, 1), (4, 3)]
FINITE = ["normal", "large_offset", "rising", "falling", "late_spike", "ties", "zeros", "alternating_sign"]
NON_FINITE = ["all_neg_inf_row", "neg_inf_first_segment", "pos_inf", "nan"]

# The program's element is infinite or NaN on all such data, or overflows by itself.
EXPONENTIALS = [
    "softmax_times_values", "softmax_of_minimum", "softmax_in_base_two", "softmax_at_scale_two",
    "softmax_at_scale_eighth", "softmax_weighted_variance", "second_moment_of_logits", "exponential_and_addend",
]  # fmt: skip
MOMENTS = ["affine_layer_norm_times_matrix", "fourth_power", "cosine", "root_of_a_sum"]


@cache
def unfused(name: str) -> Unfused:
    return read(PROGRAMS[name]())


def drawn(name: str, kind: str) -> Arrays:
    """The first input of that kind, the others normal."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {kind}".encode()))
    params = oracle.signature(unfused(name).func).inputs
    shapes = [tuple(int(extent) for extent in param.ty.shape) for param in params]
    return [INPUTS[kind if k == 0 else "normal"](rng, shape, "float32") for k, shape in enumerate(shapes)]


OTHERS = {
    "second_moment_of_logits",
    "entropy_of_probabilities",
    "overlap_of_softmaxes",
    "softmax_at_scale_eighth",
    "softmax_in_base_two",
    "root_of_a_sum",
    "largest_tangent",
    "smallest_in_a_range",
    "largest_of_negative_multiples",
    "fourth_power",
    "covariance_matrix",
}
"""Of laws and references that others of these have too."""


@pytest.mark.parametrize("kind", slow_but(FINITE[-1:], FINITE))
@pytest.mark.parametrize("name", quick_but(OTHERS, PROGRAMS))
def test_finite_data_keeps_its_digits(name: str, kind: str) -> None:
    given = drawn(name, kind)
    for tile, segments in TILINGS:
        unfused(name).check(given, tile=tile, segments=segments)


@pytest.mark.parametrize("kind", NON_FINITE)
@pytest.mark.parametrize("name", EXPONENTIALS + MOMENTS)
def test_infinities_and_nan_come_out_as_they_do_unfused(name: str, kind: str) -> None:
    given = drawn(name, kind)
    expected = unfused(name).results(given)["out"]
    exact = oracle.evaluate(unfused(name).func, given)["out"]
    for tile, segments in TILINGS:
        found = unfused(name).fused_results(given, tile=tile, segments=segments)["out"]
        np.testing.assert_array_equal(kinds(found), kinds(expected), f"tile {tile}, segments {segments}")
        told = kinds(expected) == kinds(exact)  # elsewhere only the order of evaluation defines the value
        tolerance.assert_close(found[told], exact[told], expected[told], length=LENGTH, dtype="float32")


def check_both(program_: Unfused, given: Arrays) -> None:
    for tile, segments in TILINGS:
        program_.check(given, tile=tile, segments=segments)


def masks() -> dict[str, np.ndarray]:
    keep = np.random.default_rng(5).random((ROWS, LENGTH)) < 0.7
    late, empty = np.ones((ROWS, LENGTH), bool), np.ones((ROWS, LENGTH), bool)
    late[:, :20] = False
    empty[0] = False
    return {"some": keep, "late": late, "an empty row": empty}


MASKED = {
    "zero outside": lambda keep, x, m: tirx.if_then_else(keep, te.exp(x - m), number(0)),
    "one outside": lambda keep, x, m: tirx.if_then_else(keep, te.exp(x - m), number(1)),
    "minus infinity inside": lambda keep, x, m: te.exp(tirx.if_then_else(keep, x - m, number(float("-inf")))),
    "first moment": lambda keep, x, m: tirx.if_then_else(keep, te.exp(x - m) * (x - m), number(0)),
    "second moment": lambda keep, x, m: tirx.if_then_else(keep, te.exp(x - m) * (x - m) * (x - m), number(0)),
    "mask as a factor": lambda keep, x, m: te.exp(x - m) * keep.astype("float32"),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_programs_are_right_where_whole_tiles_and_rows_are_masked(name: str) -> None:
    x, mask = array("x"), array("mask", dtype="bool")
    m = fold("m", lambda i, j: tirx.if_then_else(mask[i, j], x[i, j], number(float("-inf"))), maximum)
    out = fold("out", lambda i, j: MASKED[name](mask[i, j], x[i, j], m[i]))
    func = read(program(x, mask, m, out))
    for keep in masks().values():
        for kind in ("normal", "rising", "falling"):
            # A mask as a factor multiplies exp(x − lowest) = inf by 0 in an empty row, in any order: not compared.
            if name == "mask as a factor" and not keep.any(axis=1).all():
                continue
            check_both(func, [INPUTS[kind](np.random.default_rng(1), (ROWS, LENGTH), "float32"), keep])


@pytest.mark.parametrize("combine", [minimum, maximum])
def test_a_mask_makes_an_extremum_zero_beside_a_factor_that_is_infinite(combine: Combine) -> None:
    x, keep = array("x"), array("keep", dtype="bool")
    p = fold("p", lambda i, j: x[i, j], product)
    out = fold("out", lambda i, j: tirx.if_then_else(keep[i, j], x[i, j] / p[i], number(0)), combine)
    func = read(program(x, keep, out))
    values = np.exp(INPUTS["normal"](np.random.default_rng(6), (ROWS, LENGTH), "float32"))
    values[0] *= np.float32(1e-3)  # p[0] underflows: 1/p[0] is infinite
    kept = masks()["some"]
    kept[0, ::2] = False
    if combine is maximum:
        kept[0] = False
    assert func.results([values, np.ones_like(kept)])["out"][0] > 3e38  # the identity of min, or infinite
    check_both(func, [values, kept])


@pytest.mark.parametrize("reads", [True, False], ids=["moment", "probability"])
def test_a_row_that_keeps_nothing_is_zero_rather_than_divided_by_its_empty_sum(reads: bool) -> None:
    x, keep = array("x"), array("keep", dtype="bool")

    def kept(value: Expr, i: Expr, j: Expr) -> Expr:
        return tirx.if_then_else(keep[i, j], value, number(0))

    m = fold("m", lambda i, j: tirx.if_then_else(keep[i, j], x[i, j], number(-1e30)), maximum)
    t = fold("t", lambda i, j: kept(te.exp(x[i, j] - m[i]), i, j))
    factor = (lambda i, j: x[i, j] - m[i]) if reads else (lambda i, j: x[i, j])
    func = read(program(x, keep, fold("out", lambda i, j: kept(te.exp(x[i, j] - m[i]) / t[i] * factor(i, j), i, j))))
    given = [INPUTS["normal"](np.random.default_rng(7), (ROWS, LENGTH), "float32"), masks()["an empty row"]]
    check_both(func, given)
    given[0][1, 3] = np.nan
    assert np.isnan(func.fused_results(given, tile=5)["out"][1])


def test_two_exponentials_with_references_that_move_far_do_not_overflow() -> None:
    x, w = array("x"), array("w")
    m, n = fold("m", lambda i, j: x[i, j], maximum), fold("n", lambda i, j: w[i, j], maximum)
    func = read(program(x, w, fold("out", lambda i, j: te.exp(x[i, j] - m[i]) + te.exp(w[i, j] - n[i]))))
    ramp = np.broadcast_to(np.linspace(0, 800, LENGTH, dtype=np.float32), (ROWS, LENGTH)).copy()
    for given in ([ramp, ramp / 2], [ramp, -ramp], [-ramp, ramp]):
        check_both(func, given)


@pytest.mark.parametrize("scale", [1.0, 0.0, 0.5, -1.0, 3.0])
def test_a_temperature_that_is_an_input_may_have_any_value(scale: float) -> None:
    x, temperature = array("x"), array("temperature", 1)
    m = fold("m", lambda i, j: x[i, j], maximum)
    func = read(program(x, temperature, fold("out", lambda i, j: te.exp((x[i, j] - m[i]) * temperature[0]))))
    check_both(func, [INPUTS["normal"](np.random.default_rng(2), (ROWS, LENGTH), "float32"), np.float32([scale])])


@pytest.mark.parametrize("combine", [maximum, minimum])
def test_elements_beyond_the_start_of_an_extremum_leave_it_there(combine: Combine) -> None:
    """By a factor of 1/0 all elements are infinite: TVM's max starts at its dtype's lowest number."""
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: y[i, j] * y[i, j])
    sign = -1 if combine is maximum else 1
    func = read(program(x, y, fold("out", lambda i, j: (x[i, j] * x[i, j] + 1) / s[i] * number(sign), combine)))
    given = [INPUTS["normal"](np.random.default_rng(k), (ROWS, LENGTH), "float32") for k in (4, 5)]
    given[1][0] = 0
    check_both(func, given)
    assert np.isfinite(func.fused_results(given, tile=5)["out"][0])


def test_a_logarithm_of_a_constant_stays_in_the_exponent() -> None:
    """64^200, which SymPy would take out of exp(x + 200·log 64), is beyond every float."""
    x, y = array("x"), array("y")
    s = fold("s", lambda i, j: y[i, j])
    shift = te.compute((ROWS,), lambda i: (s[i] + te.log(number(1 / 64))) * number(200), name="shift")
    func = read(program(x, y, fold("out", lambda i, j: te.exp(x[i, j] - shift[i]))))
    given = [INPUTS["normal"](np.random.default_rng(k), (ROWS, LENGTH), "float32") for k in (2, 3)]
    given[1] = (given[1] * 1e-4 + np.log(64) / LENGTH).astype("float32")
    check_both(func, given)


@pytest.mark.parametrize("value", [1.0, 20.0, 0.01])
def test_a_product_of_ratios_neither_overflows_nor_underflows(value: float) -> None:
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    func = read(program(x, fold("out", lambda i, j: x[i, j] / m[i], product)))
    ripple = 1 + 0.001 * np.cos(np.arange(ROWS * LENGTH, dtype=np.float32)).reshape(ROWS, LENGTH)
    check_both(func, [np.float32(value) * ripple])


@pytest.mark.parametrize("size", [1.0, 1e5, 1e-5])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_to_half_width_happens_in_range_or_the_program_is_left_alone(dtype: str, size: float) -> None:
    """float16 of x · rsqrt(mean square) is near 1; float16 of x itself may be infinite or subnormal."""
    x, weight = array("x"), array("weight", LENGTH, 3)
    s = fold("s", lambda i, j: x[i, j] * x[i, j])
    out = fold(
        "out",
        lambda i, n, j: (
            (x[i, j] * te.rsqrt(s[i] / number(LENGTH) + number(1e-12))).astype(dtype).astype("float32") * weight[j, n]
        ),
        rows=(ROWS, 3),
    )
    func = program(x, weight, out)
    (candidate,) = Reductions(read_program(func)).cascades()
    if candidate.group is None:
        assert candidate.reason.code in ("rounding", "rounding_rank")
        return
    rng = np.random.default_rng(3)
    given = [(size * rng.standard_normal((ROWS, LENGTH))).astype("float32"),
             rng.standard_normal((LENGTH, 3)).astype("float32")]  # fmt: skip
    check_both(read(func), given)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_statistics_in_the_programs_own_dtype(dtype: str) -> None:
    func = read(softmax_stats(dtype=dtype))
    for kind in ("normal", "rising", "late_spike", "neg_inf_first_segment"):
        check_both(func, [INPUTS[kind](np.random.default_rng(6), (ROWS, LENGTH), dtype)])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_maximum_of_a_masked_row_is_the_lowest_number_of_its_dtype(dtype: str) -> None:
    x = array("x", dtype=dtype)
    m = fold("m", lambda i, j: x[i, j], maximum)
    func = read(program(x, m, fold("out", lambda i, j: te.exp(x[i, j] - m[i]))))
    given = [INPUTS["all_neg_inf_row"](np.random.default_rng(4), (ROWS, LENGTH), dtype)]
    for tile, segments in TILINGS:
        found = func.fused_results(given, tile=tile, segments=segments)
        np.testing.assert_array_equal(found["m"], func.results(given)["m"])
        assert found["m"][0] == np.finfo(dtype).min
        assert found["out"][0] == 0
