"""Guards: values that may not be used are reduced again as the program does it, all others stay as they are."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import sympy as sp
import tvm_ffi
from tvm import s_tir, te, tirx

from benchmarks.check.definition import Definition
from campaigns.program_trial import scheduled
from tvm_cascade.analysis.statements import ROLE
from tvm_cascade.evaluate.tolerance import assert_close, kinds
from tvm_cascade.schedule.roles import read_fused_loops
from tvm_cascade.transform.guard import size_of
from tvm_cascade.transform.nest import GUARD

from ..analysis.programs import LENGTH, ROWS, array, fold, number, program, softmax_stages
from .running import Unfused, build, read, run

LARGE_ROW, PLAIN_ROW = 1, 2


def standardised() -> tirx.PrimFunc:
    """x -> Σ z⁴ with z = (x − mean)/deviation: Σ (x − mean)⁴ leaves the range where z⁴ is in it."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    mean = te.compute((ROWS,), lambda i: s[i] / number(LENGTH), name="mean")
    q = fold("q", lambda i, j: te.power(x[i, j] - mean[i], number(2)))
    return program(x, fold("out", lambda i, j: te.power((x[i, j] - mean[i]) / te.sqrt(q[i]), number(4))))


def by_a_sum() -> tirx.PrimFunc:
    """x, v -> Σ v/Σ x: the divisor may have any size."""
    x, v = array("x"), array("v")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, v, fold("out", lambda i, j: v[i, j] / s[i]))


def softmax() -> tirx.PrimFunc:
    x = array("x")
    _, row_sum = softmax_stages(x)
    return program(x, row_sum)


def sure() -> tirx.PrimFunc:
    """x -> whether some probability is above 0.1."""
    return Definition("sure", "top = max x; mass = sum exp(x - top); out = any exp(x - top)/mass > 0.1").build()


@cache
def subject(name: str) -> Unfused:
    return read({"standardised": standardised, "by_a_sum": by_a_sum, "softmax": softmax, "sure": sure}[name]())


def roles(func: tirx.PrimFunc) -> list[str]:
    found: list[str] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, lambda b: found.append(str(b.annotations.get(ROLE, "")))))
    return found


def data() -> np.ndarray:
    """Normal rows; one of them large enough that its fourth powers are infinite, and squares as well."""
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    x[LARGE_ROW] *= np.float32(1e30)
    return x


def test_what_attains_an_extremum_that_underflows_is_folded_again() -> None:
    """exp(x − s) is 0 at all positions of a row, which then all attain the largest of them, and at one of another."""
    text = "s = sum y; m = max exp(x - s); out = sum (1.0 if exp(x - s) >= m else 0.0)"
    one = read(Definition("attained", text).build())
    x, y = (np.random.default_rng(k).standard_normal((5, 37)).astype("float32") for k in range(2))
    y[LARGE_ROW] += 100
    found, expected = one.fused_results([x, y], tile=5)["out"], one.results([x, y])["out"]
    assert expected[LARGE_ROW] == 37
    np.testing.assert_array_equal(found, expected)
    assert one.fused_results([x, y], tile=5, guards="off")["out"][LARGE_ROW] != 37


@pytest.mark.parametrize("guards", ["auto", "always"])
@pytest.mark.parametrize("tiling", [(5, 1), (4, 3)])
def test_a_row_that_leaves_the_range_is_what_the_program_makes_of_it(tiling: tuple[int, int], guards: str) -> None:
    one, (tile, segments) = subject("standardised"), tiling
    plain = one.results([data()])["out"]
    off = one.fused_results([data()], guards="off", tile=tile, segments=segments)["out"]
    on = one.fused_results([data()], guards=guards, tile=tile, segments=segments)["out"]
    assert np.isnan(off[LARGE_ROW])
    assert not np.isnan(plain[LARGE_ROW])
    assert on[LARGE_ROW] == plain[LARGE_ROW]


def test_rows_that_pass_are_the_fused_ones_bit_for_bit() -> None:
    one = subject("standardised")
    off, on = (one.fused_results([data()], guards=guards, tile=5)["out"] for guards in ("off", "always"))
    np.testing.assert_array_equal(np.delete(on, LARGE_ROW), np.delete(off, LARGE_ROW))


def test_sums_that_vanish_before_they_are_divided_are_folded_again() -> None:
    x, v = data(), data()
    x[PLAIN_ROW], v[PLAIN_ROW] = np.float32(1e-36), np.float32(1e-42)
    one = subject("by_a_sum")
    plain = one.results([x, v])["out"]
    on = one.fused_results([x, v], tile=5)["out"]
    assert on[PLAIN_ROW] == plain[PLAIN_ROW]


def test_a_factor_that_vanishes_before_it_is_applied_is_folded_again() -> None:
    """y/s/s where s² is infinite, and neither quotient is zero."""
    one = read(Definition("twice divided", "total = sum x; out = sum y/total/total").build())
    x, y = (np.random.default_rng(k).uniform(0.5, 1, (5, 37)).astype("float32") for k in range(2))
    x[PLAIN_ROW], y[PLAIN_ROW] = np.float32(1e20), np.float32(1e15)
    total = x.astype("float64").sum(axis=1)
    exact = (y.astype("float64").sum(axis=1) / total / total)[[PLAIN_ROW]]
    found = one.fused_results([x, y], tile=5)["out"][[PLAIN_ROW]]
    assert_close(found, exact, length=37, dtype="float32")


@pytest.mark.parametrize("guards", ["auto", "always"])
def test_truth_values_are_decided_upon_by_the_results_that_they_read(guards: str) -> None:
    x = np.zeros((5, 37), "float32")
    x[1], x[3, 4] = -np.inf, 10.0
    one = subject("sure")
    off, on = (one.fused_results([x], guards=g, tile=5)["out"] for g in ("off", guards))
    np.testing.assert_array_equal(on, one.results([x])["out"])
    np.testing.assert_array_equal(on, [False, False, False, True, False])
    assert off[1]


def test_guards_of_a_schedule_give_the_same() -> None:
    one = subject("standardised")
    func = one.fuse(guards="always", tile=5)
    found = run(build(scheduled(func)), one.func, [data()])["out"]
    assert found[LARGE_ROW] == one.results([data()])["out"][LARGE_ROW]
    assert GUARD in [plan.role for loop in read_fused_loops(func) for plan in loop.after]  # a row's, in its task


@pytest.mark.parametrize(
    ("name", "guards", "emitted"),
    [
        ("softmax", "auto", 0),
        ("softmax", "always", 1),
        ("by_a_sum", "auto", 1),
        ("by_a_sum", "off", 0),
        ("standardised", "auto", 2),
    ],
)
def test_what_is_bounded_has_guards_only_where_all_has(name: str, guards: str, emitted: int) -> None:
    assert roles(subject(name).fuse(guards=guards)).count(GUARD) == emitted


def test_magnitudes_of_terms_have_a_form_in_tir() -> None:
    a, b = sp.symbols("a b")
    size = size_of(a * sp.exp(b) - (a - b) ** 2)
    assert not size.has(sp.re, sp.im)
    assert size.subs({a: 1, b: -2}) == 3 * sp.exp(-2) + 9


POWERS = {
    "by the maximum": "top = max w; out = prod w/top",
    "by the sum": "total = sum w; out = prod N*w/total -> out, total",
}


@pytest.mark.parametrize("name", POWERS)
def test_the_power_of_a_divisor_has_the_digits_of_its_quotients(name: str) -> None:
    one = read(Definition(name, POWERS[name], length=190).build())
    w = (1 + 0.1 * np.random.default_rng(0).uniform(-1, 1, (5, 190))).astype("float32")
    found = one.fused_results([w], tile=190, segments=1)
    divisor = w.max(axis=1) if name == "by the maximum" else found["total"] / np.float64(190)
    exact = np.prod(w / divisor.astype("float64")[:, None], axis=1)
    assert_close(found["out"], exact, length=190, dtype="float32")


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("size", [1e-30, 1e-21, 1.0, 1e20, 1e30])
def test_powers_of_ratios_are_right_where_those_of_the_data_are_out_of_range(size: float, power: int) -> None:
    """Σ (x/m)^k is Σ x^k with m applied at the end, and is decided upon by value."""
    one = read(Definition("scaled norm", f"peak = max abs(x); out = sum (x/peak)**{power}").build())
    x = (np.random.default_rng(1).uniform(0.2, 1, (5, 37)) * size).astype("float32")
    wide = x.astype("float64")
    exact = ((wide / wide.max(axis=1, keepdims=True)) ** power).sum(axis=1)
    found = one.fused_results([x], tile=5)["out"]
    assert_close(found, exact, length=37, dtype="float32")


def test_an_exponential_of_a_large_exponent_is_multiplied_as_it_was_written() -> None:
    text = "total = sum w; out = prod exp(-N*w/total)*N/total"
    one = read(Definition("likelihood", text, length=40).build())
    w = (1 + 0.1 * np.random.default_rng(0).uniform(-1, 1, (5, 40))).astype("float32")
    expected = one.results([w])["out"]
    apart = {
        guards: np.max(np.abs(one.fused_results([w], guards=guards, tile=40, segments=1)["out"] / expected - 1))
        for guards in ("auto", "off")
    }
    assert apart["auto"] < 1e-6 < apart["off"]


def test_a_logarithm_of_a_zero_among_what_is_positive_is_infinite() -> None:
    """Of data of either sign it is NaN in any case: what differs shows where none is negative."""
    one = read(Definition("deviation", "total = sum w; out = sum log(total/N/w)/N", length=40).build())
    w = (1 + 0.1 * np.random.default_rng(0).uniform(-1, 1, (5, 40))).astype("float32")
    w[1, 3], w[2, 3] = 0, np.inf
    expected = one.results([w])["out"]
    assert np.isposinf(expected[1])
    np.testing.assert_array_equal(kinds(one.fused_results([w], tile=40, segments=1)["out"]), kinds(expected))


@pytest.mark.parametrize("text", ["out = sum exp(y - total/total)", "out = max y*(total/total)"])
def test_a_result_that_cancels_against_itself_is_guarded(text: str) -> None:
    """d/d is 1 to algebra, and NaN to the program where d is zero or infinite."""
    one = read(Definition("cancelled", f"total = sum x; {text}").build())
    x, y = (np.random.default_rng(k).standard_normal((5, 37)).astype("float32") for k in range(2))
    x[0], x[1, 3] = 0.0, np.inf
    expected = one.results([x, y])["out"]
    assert np.isnan(expected[:2]).all() and np.isfinite(expected[2:]).all()
    for tile, segments in ((4, 1), (3, 2)):
        found = one.fused_results([x, y], tile=tile, segments=segments)["out"]
        np.testing.assert_array_equal(kinds(found), kinds(expected))
