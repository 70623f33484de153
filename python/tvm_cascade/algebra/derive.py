"""The derivation of a fold from a cascade, reduction by reduction, through the table of laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.coincidence import folded_where_extreme
from tvm_cascade.algebra.constants import NamedConstants
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import Move
from tvm_cascade.algebra.laws import LAWS
from tvm_cascade.algebra.predicates import extremum_of_two_values, predicate_of, takes_two_values, truth_of_all
from tvm_cascade.algebra.quotients import taken_apart, where_real
from tvm_cascade.algebra.starts import from_their_starts, plain
from tvm_cascade.algebra.tuple_law import tuple_law
from tvm_cascade.algebra.verdict import Reason, Refusal
from tvm_cascade.algebra.work import ExhaustedError

MOST_CASES = 8
"""Cases, by conditions on results, in which one element may be something else."""


def derived(
    cascade: Cascade,
    rescalable_casts: Sequence[str],
    move: Move,
    meaning: Mapping[sp.Symbol, sp.Expr],
) -> Fold | Refusal:
    """The fold of a cascade, or the refusal that names the reduction, the expression and the law that fails.

    Parameters
    ----------
    cascade, rescalable_casts, move, meaning : see `tvm_cascade.derive`.
    """
    constants = NamedConstants()
    at = cascade.results[-1]
    try:
        started = plain(cascade)
        derivation = Derivation(constants.named(started), tuple(rescalable_casts), constants.values, move, meaning)
        for block in derivation.cascade.blocks:
            at = block[-1].result
            _take_in(derivation, block)
        at = cascade.results[-1]
        return from_their_starts(constants.numbered(derivation.fold(), started), cascade, meaning)
    except Refused as refused:
        return refused.refusal
    except ExhaustedError as exhausted:
        return Refusal(str(at), Reason("work_limit", str(exhausted)))
    except RecursionError:  # SymPy turns some comparisons of logarithms round for ever
        return Refusal(str(at), Reason("work_limit", "rewriting a comparison"))


def _take_in(derivation: Derivation, block: tuple[Reduction, ...]) -> None:
    """One more reduction, or one of tuples, by the law of its reducer."""
    if block[0].reducer.whole is not None:
        tuple_law(derivation, block)
        return
    (reduction,) = block
    derivation.finish[reduction.result] = _in_each_case(derivation, reduction, 1)
    derivation.note(reduction)


def _in_each_case(derivation: Derivation, reduction: Reduction, cases: int) -> sp.Expr:
    """The result, by the law of its reducer: that of each case where results decide between elements.

    `cases` is how many there are beside this one.
    """
    if (choice := derivation.choice_by_results(reduction)) is None:
        return _by_its_law(derivation, reduction)
    cases *= len(choice.args)
    if cases > MOST_CASES:
        raise derivation.refuse(reduction, "work_limit", reduction.element)
    branches = []
    for element, condition in choice.args:
        case = replace(reduction, element=reduction.element.xreplace({choice: element}))
        changes = case.element != reduction.reducer.neutral  # a sum of zeros needs no state
        branches.append((_in_each_case(derivation, case, cases) if changes else case.element, condition))
    return sp.Piecewise(*branches)


def _by_its_law(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    if (predicate := predicate_of(reduction, derivation.elements)) is not None:
        return truth_of_all(derivation, reduction, predicate, _by_its_law)
    if (choice := derivation.choice_by_both(reduction)) is not None:
        if takes_two_values(reduction, choice, derivation.elements):
            return extremum_of_two_values(derivation, reduction, choice, _by_its_law)
        return folded_where_extreme(derivation, reduction, choice, _by_its_law)
    apart, quotients = taken_apart(reduction, derivation)
    element, used = derivation.take_in(apart)
    if used:
        total = LAWS[reduction.reducer.law](derivation, apart, element, used)
    else:
        total = derivation.component(reduction, reduction.reducer, element)
    return where_real(derivation, reduction, quotients, total)
