"""Which references are chosen, and the range argument that goes with it."""

from __future__ import annotations

import math

import pytest
import sympy as sp

from campaigns.numeric_fold import NumericFold, Rows
from tvm_cascade.algebra.cascade import COUNT, LENGTH, Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.policy import Move, Range
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM
from tvm_cascade.obligations.certificate import certificate
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.masks import TRUTH, truth

x, y, w = element("x y w")
weight = sp.Symbol("weight", real=True)
positive = sp.Symbol("positive", positive=True)
a, b, c, d = result("a b c d")

LOG_SUM_EXP = [Reduction(a, MAX, x), Reduction(b, SUM, sp.exp(x - a))]


def ranges(*reductions: Reduction, move: str = Move.EXACT, **meaning: sp.Expr) -> list[Range]:
    """The range arguments of the fold's references, in order."""
    symbols = {str(s): s for s in (LENGTH, x, y)}
    fold = derive(
        Cascade(reductions, [x, y, w, weight, positive]), move=move, meaning={symbols[k]: v for k, v in meaning.items()}
    )
    assert isinstance(fold, Fold)
    return [reference.range for reference in fold.references]


@pytest.mark.parametrize(
    "reductions",
    [
        [Reduction(a, SUM, x), Reduction(b, SUM, (x - a / LENGTH) ** 2)],
        [Reduction(a, MAX, x), Reduction(b, SUM, w * (x - a))],
        [Reduction(a, MIN, 2 * x), Reduction(b, SUM, (x - a / 2) ** 2)],
        [Reduction(a, SUM, positive), Reduction(b, SUM, positive * x), Reduction(c, SUM, positive * (x - b / a) ** 2)],
        [Reduction(a, PROD, positive), Reduction(b, SUM, (positive - a ** (1 / LENGTH)) ** 2)],
        [*LOG_SUM_EXP, Reduction(c, SUM, (x - a - sp.log(b)) ** 2)],
    ],
    ids=["mean", "maximum", "minimum", "weighted mean", "geometric mean", "log-sum-exp"],
)
def test_a_quantity_that_moves_with_the_data_is_a_reference_itself(reductions: list[Reduction]) -> None:
    assert ranges(*reductions)[-1] is Range.LOCATION


@pytest.mark.parametrize(
    ("second", "power", "references"),
    [(c / LENGTH, 1, 2), (c / LENGTH + sp.log(LENGTH) - 3, 1, 2), (c, 1, 1), (c / LENGTH, 2, 1)],
    ids=["a mean", "a mean and numbers", "a total", "a square"],
)
def test_each_datum_has_a_reference_where_all_are_near_one(second: sp.Expr, power: int, references: int) -> None:
    """(x − u) − (y − v): x − y would not vanish beside u − v where x vanishes beside u, and y beside v."""
    ends = [Reduction(a, SUM, x), Reduction(c, SUM, y)]
    element = w * ((x - a / LENGTH) - (y - second)) ** power
    fold = derive(Cascade([*ends, Reduction(d, SUM, element)], [x, y, w]))
    assert isinstance(fold, Fold)
    assert len(fold.references) == references


def test_a_factor_that_does_not_vary_leaves_a_power_of_differences() -> None:
    """m·(x − m)² is m·Σ (x − m)², not N·m³ − 2·m²·Σ x + m·Σ x², of which an offset leaves no digits."""
    fold = derive(Cascade([Reduction(a, MAX, x), Reduction(b, SUM, a * (x - a) ** 2)], [x]))
    assert isinstance(fold, Fold)
    (reference,) = fold.references
    assert fold.components[1].lift == (x - reference.symbol) ** 2
    assert fold.finish[b] == a * fold.components[1].symbol


def test_a_shift_by_a_parameter_moves_no_reference() -> None:
    p = sp.Symbol("p", real=True)
    fold = derive(Cascade([Reduction(a, MAX, x), Reduction(b, SUM, (x - a + p) ** 2)], [x]))
    assert isinstance(fold, Fold)
    (reference,) = fold.references
    assert reference.range is Range.MEAN
    assert not any(p in expression.free_symbols for c in fold.components for expression in (c.lift, c.shift))
    assert p not in reference.value.free_symbols


@pytest.mark.parametrize("length", [None, 13, 37], ids=["N", "13", "37"])
def test_a_divergence_from_equal_shares_is_relative_to_what_elements_are_where_they_are_equal(
    length: int | None,
) -> None:
    """log N is no part of the elements: x + log N loses what tells x from c, and Σ p·log(p·N) is all of that."""
    p, positions = sp.exp(x - a) / b, LENGTH if length is None else sp.Integer(length)
    known = {} if length is None else {LENGTH: positions}
    fold = derive(Cascade([*LOG_SUM_EXP, Reduction(c, SUM, p * sp.log(p * positions))], [x]), meaning=known)
    assert isinstance(fold, Fold)
    extremum, mean = fold.references
    largest, total, divergence = fold.components
    assert divergence.lift == (x - mean.symbol) * sp.exp(x - extremum.symbol)
    assert mean.value == largest.symbol + sp.log(total.symbol / COUNT)


def test_a_logarithm_of_a_ratio_to_an_extremum_is_relative_to_its_scale() -> None:
    cascade = Cascade([Reduction(a, MAX, positive), Reduction(b, SUM, w * sp.log(positive / a))], [positive, w])
    fold = derive(cascade)
    assert isinstance(fold, Fold)
    (reference,) = fold.references
    assert (reference.range, reference.tracks) == (Range.RATIO, a)
    assert fold.components[1].lift == w * sp.log(positive / sp.Abs(reference.symbol))


@pytest.mark.parametrize(
    ("element", "means"),
    [
        ((y - a * x - b) ** 2, 2),
        (w * (a * x - b * y) ** 2, 2),
        ((y - a * x - b * w) ** 2, 3),
        ((y - a * x) * (w - b * x), 3),
        (w * (y - a * x - b), 2),
        ((y - a) * (x - b), 0),
        (((x - a) / b) ** 2, 0),
    ],
    ids=["line", "two scales", "plane", "two lines", "signed points", "differences", "scale"],
)
def test_what_results_weigh_against_each_other_is_about_its_means_and_guarded(element: sp.Expr, means: int) -> None:
    fold = derive(
        Cascade(
            [Reduction(a, SUM, y * x), Reduction(b, SUM, y * w), Reduction(c, SUM, element)],
            [x, y, w],
        )
    )
    assert isinstance(fold, Fold)
    assert [reference.range for reference in fold.references].count(Range.WEIGHED) == means
    assert not means or "its parts may cancel" in str(certificate(fold))


def test_exponentials_bounded_together_have_a_reference_for_each_extremum() -> None:
    assert ranges(
        Reduction(a, MAX, x), Reduction(b, MIN, y), Reduction(c, SUM, sp.exp(x - a) * sp.exp(2 * b - 2 * y))
    ) == [Range.BOUNDED, Range.BOUNDED]


def test_exponentials_of_which_one_is_not_bounded_have_one_reference() -> None:
    assert ranges(Reduction(a, MAX, x), Reduction(b, SUM, y), Reduction(c, SUM, sp.exp(x - a) * sp.exp(y - b))) == [
        Range.LARGEST
    ]


@pytest.mark.parametrize(
    "reductions",
    [
        [Reduction(a, SUM, x), Reduction(b, SUM, (x - a) ** 2)],
        [Reduction(a, SUM, x), Reduction(b, SUM, (y - a / LENGTH) ** 2)],
        [Reduction(a, MAX, y), Reduction(b, SUM, (x - a) ** 2)],
        [Reduction(a, SUM, x**2), Reduction(b, SUM, weight * (x - a / LENGTH) ** 2)],
        [Reduction(a, SUM, x), Reduction(b, SUM, (x - sp.exp(a / LENGTH)) ** 2)],
    ],
    ids=["total", "mean of something else", "maximum of something else", "mean square", "exponential of a mean"],
)
def test_any_other_quantity_is_reached_from_the_mean_of_the_data(reductions: list[Reduction]) -> None:
    assert ranges(*reductions) == [Range.MEAN]


def test_the_mean_is_weighted_as_the_element_is() -> None:
    fold = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, weight * (x - a) ** 2)], [x, weight]))
    assert isinstance(fold, Fold)
    (reference,) = fold.references
    lifts = {component.symbol: component.lift for component in fold.components}
    top, bottom = sp.fraction(reference.value)
    assert (lifts[top], lifts[bottom]) == (x * sp.Abs(weight), sp.Abs(weight))


def test_a_written_length_is_known_for_the_length() -> None:
    mean = [Reduction(a, SUM, x), Reduction(b, SUM, (x - a / 64) ** 2)]
    assert ranges(*mean, N=sp.Integer(64)) == [Range.LOCATION]
    assert ranges(*mean, N=sp.Integer(65)) == ranges(*mean) == [Range.MEAN]


def test_elements_are_known_by_what_they_stand_for() -> None:
    apart = [Reduction(a, SUM, x), Reduction(b, SUM, (y - a / LENGTH) ** 2)]
    assert ranges(*apart, y=x) == [Range.LOCATION]
    assert ranges(*apart) == [Range.MEAN]


@pytest.mark.parametrize(
    "polynomial", [(y - a * x) ** 2, (x - a) * (y - a), (x - a) * (y - a) * (2 * w - a)], ids=["slope", "two", "three"]
)
def test_a_quantity_that_stands_beside_no_part_is_left_to_moments_about_the_means(polynomial: sp.Expr) -> None:
    """A total lies far from the data; extrapolated from a few positions it may lie farther, and what moves cancels."""
    fold = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, polynomial)], [x, y, w]))
    assert isinstance(fold, Fold)
    lifts = {component.symbol: component.lift for component in fold.components}
    means = {reference.value.subs(lifts).subs(COUNT, 1) for reference in fold.references}
    assert means == polynomial.free_symbols - {a}
    assert {reference.range for reference in fold.references} == {Range.WEIGHED}


def test_a_quantity_between_more_parts_than_moments_take_is_about_zero_and_guarded() -> None:
    """Half way, its distance from the parts may be any; what moved by powers of it would not tell at the end."""
    fold = derive(Cascade([Reduction(a, SUM, y), Reduction(b, SUM, (w * x - a) ** 3 * ((x - a) ** 2 + y))], [x, y, w]))
    assert isinstance(fold, Fold)
    assert not fold.references and not any(component.moves for component in fold.components)
    assert sp.degree(fold.finish[b], a) == 5
    assert str(certificate(fold)) == "guarded: b: its parts may cancel"


def test_a_sum_of_lines_moves_nothing() -> None:
    fold = derive(Cascade([Reduction(a, SUM, w), Reduction(b, SUM, weight * (y - a * x))], [x, y, w, weight]))
    assert isinstance(fold, Fold)
    assert not any(component.moves for component in fold.components)


@pytest.mark.parametrize(
    ("reductions", "move", "expected"),
    [
        (LOG_SUM_EXP, Move.EXACT, [Range.BOUNDED]),
        (LOG_SUM_EXP, Move.LAZY, [Range.LAZY]),
        ([Reduction(a, SUM, x), Reduction(b, SUM, sp.exp(x - a))], Move.EXACT, [Range.LARGEST]),
        ([Reduction(a, SUM, x), Reduction(b, SUM, w * sp.sin(x - a))], Move.EXACT, []),
        ([Reduction(a, MAX, sp.Abs(x)), Reduction(b, SUM, w * x / a)], Move.POWER_OF_TWO, [Range.POWER_OF_TWO]),
    ],
    ids=["softmax", "lazy softmax", "exponent that is not bounded", "wave", "scale by powers of two"],
)
def test_every_policy_has_its_argument(reductions: list[Reduction], move: str, expected: list[Range]) -> None:
    assert ranges(*reductions, move=move) == expected


@pytest.mark.parametrize("apart", [-100, sp.Rational("831.776616671934336848"), w, -sp.log(LENGTH)], ids=str)
def test_the_maximum_bounds_exponents_with_an_addend_that_is_the_same_at_all_positions(apart: sp.Expr) -> None:
    fold = derive(Cascade([Reduction(a, MAX, x), Reduction(b, SUM, y * sp.exp(x - a + apart))], [x, y]))
    assert isinstance(fold, Fold)
    assert [reference.range for reference in fold.references] == [Range.BOUNDED]
    assert len(fold.components) == 2
    assert not any(abs(number) > 1e4 for lift in fold.components for number in lift.lift.atoms(sp.Float, sp.Integer))


def test_no_exponential_of_elements_stays_without_its_reference() -> None:
    """Where moves cannot be inverted the products are folded apart, but never exp(x) apart from exp(−u)."""
    parameter = sp.Symbol("parameter", real=True)
    moment = [Reduction(a, MAX, x), Reduction(b, SUM, (x - a) ** 2 * sp.exp(x - a) / parameter)]
    assert ranges(*moment) == [Range.BOUNDED]


@pytest.mark.parametrize("holds", [1, 0])
def test_the_largest_exponent_is_that_of_the_positions_that_a_condition_keeps(holds: int) -> None:
    keep = truth("keep")
    kept = keep if holds else 1 - keep
    fold = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, kept * sp.exp(x**2 - a))], [x, keep]))
    assert isinstance(fold, Fold)
    (largest,) = [component.lift for component in fold.components if component.reducer is MAX]
    assert largest.subs({x: 3, keep: holds}) == 9 and largest.subs({x: 3, keep: 1 - holds}) == MAX.neutral


def test_a_maximum_of_what_a_condition_keeps_bounds_the_exponents_there() -> None:
    keep = truth("keep")
    largest = Reduction(a, MAX, keep * x - 10000 * (1 - keep))
    fold = derive(Cascade([largest, Reduction(b, SUM, keep * sp.exp(x - a))], [x, keep]))
    assert isinstance(fold, Fold)
    assert [reference.range for reference in fold.references] == [Range.BOUNDED]


def test_a_factor_that_is_0_or_1_drops_nothing() -> None:
    given = sp.Symbol("given", real=True, **TRUTH)
    fold = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, given * sp.exp(x**2 - a))], [x, given]))
    assert isinstance(fold, Fold)
    assert [component.lift for component in fold.components if component.reducer is MAX] == [x**2]


def test_a_factor_beside_what_may_be_zero_is_applied_at_the_end() -> None:
    """A reference in its place would be zero wherever the factor is."""
    choice = sp.Piecewise((y, y >= sp.log(positive) / 4), (0, True))
    fold = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, -(a**2) * choice / LENGTH)], [x, y]))
    assert isinstance(fold, Fold)
    assert not fold.references
    rows: Rows = [{x: 0.0, y: 1.0}, {x: 0.0, y: 2.0}]
    assert NumericFold(fold, 2, parameters={positive: 0.5}).split(rows, [1])[b] == 0


def test_a_product_of_what_is_kept_takes_the_factor_as_often_as_that_is() -> None:
    keep = truth("keep")
    fold = derive(Cascade([Reduction(a, SUM, x), Reduction(b, PROD, keep / a + 1 - keep)], [x, keep]))
    assert isinstance(fold, Fold)
    (dropped,) = [component.symbol for component in fold.components if component.lift == 1 - keep]
    assert fold.finish[b] == (1 / a) ** (LENGTH - dropped)


STATES: dict[str, tuple[list[Reduction], set[sp.Expr]]] = {
    "an exponential and what stands beside it": (
        [*LOG_SUM_EXP, Reduction(c, SUM, y), Reduction(d, SUM, w * (sp.exp(x - a) + y - c))],
        {x, sp.exp(x), y, w * sp.exp(x), w * y, -w},
    ),
    "a result that all terms have as a factor": (
        [Reduction(a, SUM, x), Reduction(d, SUM, w * (a * x + a**2 * y))],
        {x, x * sp.Abs(w), y * sp.Abs(w), sp.Abs(w), w * x, w * y, w},
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_terms_that_results_weigh_are_summed_apart_and_guarded(name: str) -> None:
    """Of w·(exp(x − u) + y − v) and of u·w·x + u²·w·y, where what is summed apart may cancel at the end."""
    reductions, lifts = STATES[name]
    fold = derive(Cascade(reductions, [x, y, w]))
    assert isinstance(fold, Fold)
    at_zero = {component.lift.subs({r.symbol: 0 for r in fold.references}) for component in fold.components}
    assert at_zero == lifts
    assert not certificate(fold).bounded


@pytest.mark.parametrize("parameter", [1.0, 2.5])
def test_a_parameter_may_leave_nothing_of_what_a_mean_is_taken_of(parameter: float) -> None:
    """Of w − u·log t, w/log t is where u stands; at t = 1 it stands nowhere, and the sum is that of w²."""
    t = sp.Symbol("t", positive=True)
    fold = derive(
        Cascade([Reduction(a, MIN, x), Reduction(b, SUM, (w - sp.log(t) / (1 + sp.Abs(a)) / LENGTH) ** 2)], [x, w])
    )
    assert isinstance(fold, Fold)
    (reference,) = fold.references
    assert reference.range is Range.WEIGHED and reference.guarded
    assert not any(component.lift.subs(t, 1).has(sp.zoo, sp.nan) for component in fold.components)
    rows: Rows = [{x: 0.3 * k - 1.0, w: 0.7 - 0.2 * k} for k in range(5)]
    found = NumericFold(fold, 5, parameters={t: parameter}).split(rows, [2])[b]
    least = min(row[x] for row in rows)
    expected = sum((row[w] - math.log(parameter) / (1 + abs(least)) / 5) ** 2 for row in rows)
    assert found == pytest.approx(expected, rel=1e-12)
