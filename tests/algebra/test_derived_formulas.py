"""Derivation: each textbook cascade becomes a fold, and its formulas are the ones that were read and approved."""

from __future__ import annotations

import pytest
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.policy import Policy
from tvm_cascade.obligations.derive import derive
from tvm_cascade.symbolic.functions import LogRatio

from ..golden.compare import assert_golden
from .cascades import FUSABLE, MAXIMUM, MEAN_SUM, SUM, cascade, d, fold_of, m, o, s, t, x


@pytest.mark.parametrize("name", FUSABLE)
def test_the_formulas_of_a_fold_are_the_approved_ones(name: str) -> None:
    source = FUSABLE[name]()
    assert_golden(f"fold_{name}", f"{source}\n\n{fold_of(name)}")


@pytest.mark.parametrize("name", ["kl_divergence", "layernorm_times_weight", "covariance"])
def test_deriving_again_gives_the_same_text(name: str) -> None:
    assert str(derive(FUSABLE[name]())) == str(fold_of(name))


def test_variance_moves_between_references_by_chans_formula() -> None:
    fold = fold_of("variance")
    square, residue = fold.components[1:]
    (reference,) = fold.references
    step = reference.step
    chan = square.symbol - 2 * step * residue.symbol + COUNT * step**2
    assert sp.expand(square.shift - chan) == 0
    assert sp.expand(residue.shift - (residue.symbol - COUNT * step)) == 0


def test_softmax_is_rescaled_by_the_exponential_of_the_move() -> None:
    fold = fold_of("softmax")
    total = fold.components[1]
    assert sp.simplify(total.shift / total.symbol - sp.exp(-fold.references[0].step)) == 0


def test_a_factor_is_deferred_to_the_end_and_moves_nothing() -> None:
    fold = fold_of("rmsnorm_times_weight")
    assert not fold.references
    assert not any(component.moves for component in fold.components)


@pytest.mark.parametrize(
    ("name", "policies"),
    [
        ("softmax", [Policy.RUNNING]),
        ("variance", [Policy.CENTRED]),
        ("entropy", [Policy.RUNNING, Policy.CENTRED]),
        ("exponential_about_the_mean", [Policy.RUNNING]),
        ("rmsnorm_times_weight", []),
    ],
)
def test_the_policy_is_the_one_that_keeps_elements_bounded(name: str, policies: list[Policy]) -> None:
    assert [reference.policy for reference in fold_of(name).references] == policies


@pytest.mark.parametrize(
    ("name", "components"),
    [
        ("softmax", 2),
        ("scaled_softmax", 2),
        ("softmax_times_values", 3),
        ("softmax_weighted_variance", 5),
        ("variance", 3),
        ("third_moment", 4),
        ("fourth_moment", 5),
        ("covariance", 5),
        ("inertia", 4),
        ("entropy", 3),
        ("kl_divergence", 5),
        ("layernorm_times_weight", 5),
        ("exponential_about_the_mean", 3),
        ("largest_deviation", 3),
    ],
)
def test_a_state_is_as_small_as_the_rank_asks(name: str, components: int) -> None:
    assert len(fold_of(name).components) == components


def test_an_exponential_in_base_two_has_rank_one() -> None:
    two = sp.Integer(2)
    fold = derive(cascade(MAXIMUM, (t, SUM, two ** ((x - m) * sp.Rational(14427, 10000)))))
    assert isinstance(fold, Fold), str(fold)
    assert len(fold.components) == 2


@pytest.mark.parametrize("name", FUSABLE)
def test_no_exponential_of_a_positive_step_stands_in_a_merge(name: str) -> None:
    """exp(c′ − c) overflows where a running maximum starts at the lowest number; only exp(c − c′) may appear."""
    fold = fold_of(name)
    steps = {r.step: sp.Symbol("step", positive=True) for r in fold.references if _rises(fold, r.symbol)}
    for component in fold.components:
        arguments = [e.args[0].subs(steps) for e in component.shift.atoms(sp.exp)]
        assert not any(argument.is_positive for argument in arguments), component.shift


def _rises(fold: Fold, symbol: sp.Symbol) -> bool:
    """Whether the reference is a running maximum, plainly."""
    reference = next(r for r in fold.references if r.symbol == symbol)
    maxima = {c.symbol for c in fold.components if c.reducer.name == "max"}
    return reference.value in maxima


@pytest.mark.parametrize("name", ["softmax", "variance", "largest_deviation"])
def test_a_fold_prints_as_text_and_as_latex(name: str) -> None:
    fold = fold_of(name)
    for result in FUSABLE[name]().results:
        assert "finish" in str(fold) and str(result) in str(fold)
    latex = fold.latex()
    assert latex.count(r"\text{finish}") == len(fold.finish)
    assert latex.count(r"\begin{aligned}") == latex.count(r"\end{aligned}") == 1


def test_latex_writes_added_terms_first_primes_beside_subscripts_and_steps_by_a_letter() -> None:
    latex = fold_of("softmax").latex()
    for written in ("e^{x - c_{m}}", "c_{m}' &=", r"e^{- \Delta c_{m, 1}}"):
        assert written in latex
    assert "Δ" not in latex and "'}" not in latex


def test_a_fold_restricted_to_one_result_keeps_what_that_result_needs_and_nothing_else() -> None:
    fold = fold_of("softmax_times_values")
    assert [c.owner for c in fold.restricted_to([m]).components] == [m]
    assert {c.owner for c in fold.restricted_to([t]).components} == {m, t}
    assert set(fold.restricted_to([o]).finish) >= {o, t}
    whole = fold.restricted_to(fold.cascade.results)
    assert str(whole) == str(fold)


def test_a_mean_that_is_written_with_the_length_as_a_number_is_centred_all_the_same() -> None:
    fold = derive(cascade(MEAN_SUM, (d, SUM, (x - s / 37) ** 2)))
    assert isinstance(fold, Fold)
    (reference,) = fold.references
    assert sp.simplify(reference.value.subs(LENGTH, 37) - fold.components[0].symbol / COUNT) == 0


def test_what_keeps_digits_is_printed_as_its_formula() -> None:
    ratio = LogRatio(*sp.symbols("c d", positive=True))
    assert str(1 / ratio) == "1/log(c/d)"
    assert sp.latex(ratio**2) == r"\left(\log{\left(\frac{c}{d} \right)}\right)^{2}"
