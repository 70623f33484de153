"""When a state absorbs an element: by the algebra of the lifts, under stated conditions on the state."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy as sp
from tvm import ir, sym, tirx

from tvm_cascade.algebra.cascade import Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, SUM
from tvm_cascade.analysis.tir import substitute
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.transform.dead_tiles import Absorbing, Relation, absorbing, slacks_of

Magnitude = Callable[[ir.Expr], ir.Expr]
X, V = element("x v")
M, T, A = result("m t a")


def fold(*reductions: Reduction) -> Fold:
    derived = derive(Cascade(reductions, [X, V]))
    assert isinstance(derived, Fold)
    return derived


SOFTMAX = fold(Reduction(M, MAX, X), Reduction(T, SUM, sp.exp(X - M)), Reduction(A, SUM, sp.exp(X - M) * V))


def test_every_state_absorbs_minus_infinity_under_a_softmax() -> None:
    assert absorbing(SOFTMAX, {X: -sp.oo}) == ()


def test_a_finite_mask_is_absorbed_by_a_state_far_above_it() -> None:
    (reference,) = SOFTMAX.references
    maximum = SOFTMAX.components[0].symbol
    assert absorbing(SOFTMAX, {X: sp.Integer(-1000)}) == (
        Absorbing(Relation.AT_LEAST, maximum, sp.Integer(-1000)),
        Absorbing(Relation.VANISHES, -1000 - reference.symbol),
    )


def test_an_exponential_that_is_rounded_vanishes_with_the_plain_one() -> None:
    rounded = fold(Reduction(M, MAX, X), Reduction(A, SUM, Round(sp.exp(X - M), sp.Symbol("float16")) * V))
    plain = fold(Reduction(M, MAX, X), Reduction(A, SUM, sp.exp(X - M) * V))
    for value in (-sp.oo, sp.Integer(-1000)):
        assert absorbing(rounded, {X: value}) == absorbing(plain, {X: value}) is not None


def test_masked_values_alone_do_not_make_a_weight_vanish() -> None:
    assert absorbing(SOFTMAX, {V: sp.Integer(0)}) is None


def test_a_second_result_that_is_not_masked_absorbs_nothing() -> None:
    both = fold(Reduction(M, MAX, X), Reduction(T, SUM, sp.exp(X - M)), Reduction(A, SUM, sp.exp(X - M) + V))
    assert absorbing(both, {X: -sp.oo}) is None


def test_a_state_that_counts_positions_absorbs_nothing() -> None:
    variance = fold(Reduction(T, SUM, X), Reduction(A, SUM, (X - T) ** 2))
    assert absorbing(variance, {X: sp.Integer(0)}) is None


def test_a_weight_of_zero_is_absorbed_by_moments() -> None:
    weighted = fold(Reduction(T, SUM, V * X), Reduction(A, SUM, V * (X - T) ** 2))
    assert absorbing(weighted, {V: sp.Integer(0)}) == ()


@pytest.mark.parametrize(
    ("magnitude", "ends"),
    [
        (lambda d: tirx.abs(d), (-9, 9)),
        (lambda d: tirx.Select(d >= 0, d, -d), (-9, 9)),
        (lambda d: tirx.Select(tirx.const(0, "int32") <= d, d, d * -1), (-9, 9)),
        (lambda d: tirx.Select(d >= 0, d, d * -2), (-4, 9)),
    ],
    ids=["function", "selection", "turned", "not_alike"],
)
def test_slacks_of_a_band_are_negative_outside_of_it_alone(magnitude: Magnitude, ends: tuple[int, int]) -> None:
    """A selection between x and −2·x is no absolute value."""
    distance, analyzer = tirx.Var("distance", "int32"), sym.Analyzer()
    slacks = slacks_of(magnitude(distance) < 10)
    for place in range(-12, 13):
        at = [analyzer.simplify(substitute(slack, {distance: tirx.const(place, "int32")})) for slack in slacks]
        assert all(int(one) >= 0 for one in at) is (ends[0] <= place <= ends[1])
