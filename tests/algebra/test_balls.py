"""Balls: what encloses a number, what they decide and what they do not, and how near a wrong fold may be."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import pytest
import sympy as sp
from flint import arb

from tvm_cascade.algebra.reducer import MAX, MIN
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.check import check
from tvm_cascade.steps.arithmetic import NO_VALUE, Balls
from tvm_cascade.symbolic.balls import UndecidedError, same, workprec
from tvm_cascade.symbolic.elementary import ELEMENTARY
from tvm_cascade.symbolic.functions import GuardedProduct, LogRatio, PowerOfTwo, WholePower

from .cascades import fold_of

a, b = sp.symbols("a b", real=True)
NEAR_ZERO = arb(0, 1e-9)


@pytest.fixture(autouse=True)
def _bits() -> Iterator[None]:
    with workprec(256):
        yield


def value(expression: sp.Expr, at: float | arb = 0.0, other: float | arb = 0.0) -> arb:
    balls = Balls()
    return balls.value(sp.sympify(expression), {a: balls.number(at), b: balls.number(other)})


@pytest.mark.parametrize("function", ELEMENTARY)
def test_every_elementary_function_is_known_of_balls(function: type[sp.Basic]) -> None:
    known = ELEMENTARY[function].at
    found = value(function(a), 3.0)
    assert found.is_finite() and (known is None or abs(float(found) - known(3.0)) <= 1e-15 * abs(known(3.0)))


@pytest.mark.parametrize(
    ("expression", "at", "expected"),
    [
        (sp.Rational(1, 3) * a, 3.0, 1.0),
        (a**-2 + sp.sqrt(a), 4.0, 2.0625),
        ((a - 5) ** 3, 3.0, -8.0),
        (sp.pi * sp.exp(a), 0.0, math.pi),
        (PowerOfTwo(a), -7.0, -4.0),
        (PowerOfTwo(a), 0.0, 0.0),
        (WholePower(a), 5.0, 32.0),
        (LogRatio(a, 2), -2.0, 0.0),
        (LogRatio(a, 2), 0.0, -math.inf),
        (GuardedProduct(a, 3, b), 2.0, 6.0),
        (sp.Piecewise((1, a < 1), (sp.log(a), True)), 0.0, 1.0),
        (sp.Piecewise((1, sp.ITE(a > 0, a > 1, a < -1)), (0, True)), -3.0, 1.0),
        (sp.Piecewise((1, (a > 0) | ~(a <= -1)), (0, True)), -3.0, 0.0),
        (sp.floor(a) + sp.ceiling(a), 2.5, 5.0),
        (sp.Max(a, 1, 7) - sp.Min(a, 1, 7), 3.0, 6.0),
    ],
)
def test_balls_are_about_the_number(expression: sp.Expr, at: float, expected: float) -> None:
    found = value(expression, at)
    assert float(found) == expected and (found.is_exact() or float(found.rad()) < 1e-70)


@pytest.mark.parametrize("expression", [sp.log(a), sp.sqrt(a), a ** sp.Rational(1, 3), sp.log(a) * sp.log(a)])
def test_what_is_not_real_has_no_value(expression: sp.Expr) -> None:
    with pytest.raises(NO_VALUE):
        value(expression, -1.0)


def test_nor_has_what_divides_by_zero_or_is_no_function_of_balls() -> None:
    for expression in (1 / a, sp.Function("f")(a), sp.Piecewise((a, a > 0))):
        with pytest.raises(NO_VALUE):
            value(expression)


@pytest.mark.parametrize(
    "expression",
    [
        sp.log(a),
        sp.sqrt(a),
        1 / a,
        PowerOfTwo(a),
        PowerOfTwo(a + 1),
        sp.Piecewise((1, a > 0), (0, True)),
        sp.Piecewise((1, sp.Eq(a, 0)), (0, True)),
    ],
)
def test_a_ball_that_straddles_a_boundary_is_undecided(expression: sp.Expr) -> None:
    with pytest.raises(UndecidedError):
        value(expression, NEAR_ZERO)


def test_a_power_of_a_ball_about_zero_encloses_its_powers() -> None:
    assert value(a**2, NEAR_ZERO).contains(arb(1e-18)) and value(a**2, NEAR_ZERO).is_finite()


def test_what_overlaps_ties_where_it_is_the_same_computation_alone() -> None:
    tie = sp.Piecewise((1, sp.Eq(a, b)), (0, True))
    balls, third = Balls(), sp.Rational(1, 3)
    at = {a: balls.number(5.0), b: balls.number(3.0)}
    ones = [balls.value(sp.exp(a * third), at) for _ in range(2)]
    assert balls.value(tie, {a: ones[0], b: ones[1]}) == 1
    turned = [balls.value(form, {a: ones[0], b: ones[0]}) for form in (-(a + third), -a - third)]
    assert balls.value(tie, {a: turned[0], b: turned[1]}) == 1
    root = balls.value(sp.exp(a * third / 2), at)
    with pytest.raises(UndecidedError):
        balls.value(tie, {a: ones[0], b: balls.value(a * b, {a: root, b: root})})
    assert balls.value(tie, {a: ones[0], b: balls.value(sp.exp(a * third + sp.Rational(1, 10**60)), at)}) == 0


def test_an_extremum_of_balls_that_overlap_encloses_it_and_one_of_others_is_one_of_them() -> None:
    balls, wide = Balls(), arb(1, 0.5)
    assert balls.combine(MAX, wide, balls.number(9.0)) is balls.number(9.0)
    assert balls.combine(MIN, wide, balls.number(9.0)) is wide
    largest = balls.combine(MAX, wide, balls.number(1.0))
    assert largest.contains(arb(1)) and largest.contains(arb(1.5)) and not largest.contains(arb(0.6))


def test_more_bits_decide_what_fewer_do_not() -> None:
    tiny = sp.exp(-400 * sp.log(10))
    choice = sp.Piecewise((1, sp.exp(a) * sp.exp(1) + tiny > sp.exp(a + 1)), (0, True))
    with pytest.raises(UndecidedError), workprec(256):
        value(choice, 2.0)
    with workprec(2048):
        assert value(choice, 2.0) == 1


@pytest.mark.parametrize(("apart", "equal"), [(2.0**-85, True), (2.0**-83, False)])
def test_numbers_are_the_same_up_to_the_tolerance(apart: float, equal: bool) -> None:
    assert same(arb(8) + 8 * arb(apart), arb(8), [arb(8)]) is equal
    with pytest.raises(UndecidedError):
        same(arb(8, 1e-20), arb(8), [arb(8)])


@pytest.mark.parametrize("name", ["softmax", "variance", "entropy", "largest_probability"])
def test_a_coefficient_that_is_off_by_1e_20_is_told_and_one_by_1e_30_is_within_the_tolerance(name: str) -> None:
    fold = fold_of(name)
    last = fold.cascade.results[-1]

    def off(share: int) -> None:
        check(
            dataclasses.replace(fold, finish={**fold.finish, last: fold.finish[last] * (1 + sp.Rational(1, 10**share))})
        )

    off(30)
    with pytest.raises(FoldError):
        off(20)
