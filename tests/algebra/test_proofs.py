"""The proof obligations: every derived fold passes them, and a fold with one term changed does not."""

from __future__ import annotations

import dataclasses

import pytest
import sympy as sp

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import MIN, first, second
from tvm_cascade.errors import CascadeError, FoldError
from tvm_cascade.obligations.check import check
from tvm_cascade.obligations.derive import derive

from .cascades import (
    FUSABLE,
    MAXIMUM,
    SUM_EXP,
    WELFORD,
    cascade,
    exp,
    fold_of,
    i,
    m,
    p,
    selected,
    t,
    x,
)


def changed(expression: sp.Expr) -> sp.Expr:
    """The expression with one term doubled: its last one where it is a sum."""
    terms = sp.Add.make_args(expression)
    return sp.Add(*terms[:-1], 2 * terms[-1])


def with_step(fold: Fold, position: int, **fields: sp.Expr) -> Fold:
    steps = list(fold.steps)
    steps[position] = dataclasses.replace(steps[position], **fields)
    return dataclasses.replace(fold, steps=tuple(steps))


LAWS_OF_MERGES = ("merge commutative", "merge associative", "empty is the identity")


@pytest.mark.parametrize("name", FUSABLE)
def test_every_derived_fold_meets_its_obligations_at_other_points_too(name: str) -> None:
    fold = fold_of(name)
    compared = check(fold, seed=20, length=5)
    rounds = compared["finish from any free reference"]
    scalars = [c for c in fold.components if c.reducer.whole is None]
    assert rounds >= 4
    assert compared["finish over any split = definition"] == 2 * rounds
    assert compared["shift between references"] >= rounds * len(scalars)
    assert {compared[law] > 0 for law in LAWS_OF_MERGES} == {bool(scalars)}


def test_a_reference_that_ends_elsewhere_than_its_quantity_is_caught() -> None:
    """Variance reads its second moment without a last shift, so the reference must end at the mean."""
    fold = fold_of("variance")
    (position,) = [k for k, step in enumerate(fold.steps) if step is fold.references[0]]
    with pytest.raises(FoldError):
        check(with_step(fold, position, value=fold.references[0].value + 1))


def test_a_failed_proof_says_what_was_expected_what_was_found_and_of_which_results() -> None:
    fold = fold_of("softmax")
    with pytest.raises(CascadeError) as caught:
        check(with_step(fold, len(fold.steps) - 1, shift=fold.steps[-1].symbol))
    assert "t_0 = " in caught.value.expected
    assert caught.value.found
    assert "m, t" in caught.value.where


def test_data_on_which_digits_decide_a_selection_tell_nothing_of_a_fold() -> None:
    """log(1 + exp(x − 1000)) is one number at sixty digits, whatever x is: it does not tell which ones tie."""
    fold = derive(cascade((m, MIN, x), *selected((p, i), sp.log(1 + exp(x - m - 1000)))))
    assert isinstance(fold, Fold), str(fold)


def with_combine(fold: Fold, combined: tuple[sp.Expr, ...]) -> Fold:
    """The fold with the operation of its tuples replaced; its cascade stays what it was."""
    steps = []
    for step in fold.steps:
        if isinstance(step, Component) and step.reducer.whole is not None:
            whole = dataclasses.replace(step.reducer.whole, combined=combined)
            step = dataclasses.replace(step, reducer=whole.of(step.reducer.part))
        steps.append(step)
    return dataclasses.replace(fold, steps=tuple(steps))


def test_a_selection_that_gives_equal_keys_to_the_other_index_is_caught() -> None:
    key, _ = fold_of("most_probable").components[-1].reducer.whole.combined
    later = sp.Piecewise((first(1), first(0) > second(0)), (second(1), True))
    with pytest.raises(FoldError):
        check(with_combine(fold_of("most_probable"), (key, later)))


def test_a_users_merge_with_a_changed_term_is_caught() -> None:
    mean, square, count = WELFORD.combined
    with pytest.raises(FoldError):
        check(with_combine(fold_of("welford"), (mean, changed(square), count)))


@pytest.mark.parametrize("count", [2, 4])
def test_a_top_k_is_proved_and_one_that_forgets_a_rank_is_caught(count: int) -> None:
    results = sp.symbols(f"z0:{2 * count}", real=True)
    fold = derive(cascade(MAXIMUM, SUM_EXP, *selected(results, sp.exp(x - m) / t, count)))
    assert isinstance(fold, Fold), str(fold)
    assert {str(c.lift) for c in fold.components if c.parts} == {"x", "position", "-oo", "highest"}
    whole = fold.components[-1].reducer.whole
    forgotten = (*whole.combined[:-2], first(2 * count - 2), first(2 * count - 1))
    with pytest.raises(FoldError):
        check(with_combine(fold, forgotten))
