"""Awkward elements: derivations end soon, in a fold or a refusal, and never in an error of SymPy or mpmath."""

from __future__ import annotations

import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction, element, result
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.algebra.verdict import Refusal
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import LogRatio, PowerOfTwo, Round
from tvm_cascade.symbolic.rounding import round_to
from tvm_cascade.symbolic.work import simplified

x, v, w, r = (*element("x v w"), element("r", positive=True))
keep = element("keep", nonnegative=True)
a, b, c = result("a b c")
HALF = sp.Symbol("float16")


def test_a_wave_of_elements_alone_is_not_expanded_to_ten_thousand_multiples() -> None:
    wave = sp.sin((keep * w + 10000 * keep - 10000) * sp.log(r))
    outcome = derive(Cascade([Reduction(a, MAX, x), Reduction(b, SUM, sp.exp(x - a) * wave / a)], [x, w, r, keep]))
    assert isinstance(outcome, Fold) and any(component.lift.has(wave) for component in outcome.components)


def test_a_ratio_of_both_signs_is_not_simplified() -> None:
    # SymPy's logcombine raises a KeyError on it.
    first = Reduction(a, MIN, sp.exp(w / 16))
    second = Reduction(b, MIN, v * (1 - keep) / 8 - 1 / (LENGTH * sp.sqrt(a)))
    third = Reduction(c, SUM, v * (1 - keep) * sp.exp(w * sp.log(sp.sqrt(r)) - sp.Abs(b)) / a)
    assert isinstance(derive(Cascade([first, second, third], [v, w, r, keep])), Fold)


def test_a_quotient_by_a_sign_is_not_written_as_cases_that_divide_by_zero() -> None:
    # SymPy's logcombine raises a KeyError on those.
    first = Reduction(a, SUM, LENGTH * (1 - keep) * (Round(sp.Abs(w * x), HALF) - 1) + keep * w)
    second = Reduction(b, SUM, sp.exp(w * x * sp.log(r) - sp.Abs(a)))
    assert isinstance(derive(Cascade([first, second], [x, w, r, keep])), Fold)
    assert not simplified(x * sp.log(r) / sp.sign(a)).has(sp.zoo, sp.nan)


def test_an_element_that_rounds_out_of_every_range_is_refused() -> None:
    huge = sp.exp(sp.exp(x) * 40 * a)
    outcome = derive(Cascade([Reduction(a, SUM, x), Reduction(b, SUM, Round(huge, HALF))], [x]), rescalable_casts=())
    assert isinstance(outcome, Refusal)
    assert round_to(1e300, "float16") == pytest.approx(1e300, rel=1e-3)


def test_an_element_that_is_nothing_but_its_rounding_error_is_refused() -> None:
    error = (Round(x, HALF) - x) ** 2
    outcome = derive(Cascade([Reduction(a, MAX, x), Reduction(b, SUM, error * sp.exp(x - a))], [x]))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "rounding_rank"


def test_where_few_values_of_the_results_have_an_element_ranks_are_looked_for_among_others() -> None:
    # Among x and a of either sign alike, sqrt(x + a) is real for most x at few a only.
    outcome = derive(Cascade([Reduction(a, SUM, v), Reduction(b, SUM, sp.sqrt(x + a))], [x, v]))
    assert isinstance(outcome, Refusal) and outcome.reason.code == "infinite_rank"


def test_a_scale_that_cannot_be_solved_for_its_result_is_left_as_it_is() -> None:
    first = Reduction(a, SUM, x)
    ratio = sp.log(r) - sp.log(sp.Max(1, a) / LENGTH) - a / LENGTH
    outcome = derive(Cascade([first, Reduction(b, SUM, sp.exp(-(ratio**2)))], [x, r]))
    assert isinstance(outcome, Refusal) and outcome.reason.code in ("infinite_rank", "separation_unknown")


def test_exponentials_of_exponentials_are_out_of_range_rather_than_written_out() -> None:
    # exp(y·exp(|a|)) with an |a| of thousands has more digits than there is time for.
    first = Reduction(a, SUM, x**2 * v)
    second = Reduction(b, SUM, a * (x - a) * 1000)
    third = Reduction(c, SUM, sp.exp(LENGTH * w * sp.exp(sp.Abs(b + 1)) / 2))
    outcome = derive(Cascade([first, second, third], [x, v, w]))
    assert isinstance(outcome, Refusal) and outcome.reason.code in ("infinite_rank", "separation_unknown")


def test_parameters_count_as_one_symbol_where_a_state_moves() -> None:
    # Polynomials in the logarithms of N and of s apart take half a minute to invert.
    s = sp.Symbol("s", positive=True)
    offset = sp.log(sp.sqrt(s)) + sp.log(sp.sqrt(s) / sp.sqrt(LENGTH))
    fourth = Reduction(b, SUM, (v - a - offset - 1) ** 4)
    outcome = derive(Cascade([Reduction(a, MIN, v), fourth], [v]), work=1000)
    assert isinstance(outcome, Fold) and len(outcome.components) == 6


@pytest.mark.parametrize("function", [LogRatio, PowerOfTwo, Round])
def test_functions_of_programs_are_their_own_conjugates(function: type[sp.Function]) -> None:
    # Of others SymPy may write a size as a root of a product with the conjugate, which no program computes.
    at = (x, v, w, HALF)
    value = function(*(at[: max(function.nargs)] if function.nargs.is_FiniteSet else at[:3]))
    assert sp.conjugate(value) == value and sp.Abs(value).is_extended_nonnegative
