"""The derivation of a fold from a cascade, reduction by reduction, through the table of laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.cases import flattened, truth_of
from tvm_cascade.algebra.coincidence import folded_where_extreme
from tvm_cascade.algebra.constants import NamedConstants
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import Handle, Move
from tvm_cascade.algebra.order_law import order_law
from tvm_cascade.algebra.predicates import extremum_of_two_values, truth_of_all
from tvm_cascade.algebra.product_law import product_law
from tvm_cascade.algebra.quotients import taken_apart, where_real
from tvm_cascade.algebra.reducer import AND, OR
from tvm_cascade.algebra.refute.refutation import refutation
from tvm_cascade.algebra.starts import from_their_starts, plain
from tvm_cascade.algebra.sum_law import sum_law
from tvm_cascade.algebra.tuple_law import tuple_law
from tvm_cascade.algebra.verdict import Reason, Refusal
from tvm_cascade.symbolic.work import ExhaustedError

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
    constants, casts = NamedConstants(), tuple(rescalable_casts)
    at = cascade.results[-1]
    try:
        started = plain(cascade)
        derivation = Derivation(constants.named(started), casts, refutation, constants.values, move, meaning)
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
    if (union := derivation.by_results(reduction.element)) is None:
        return _by_its_law(derivation, reduction)
    cases *= len(union.cases)
    if cases > MOST_CASES:
        raise derivation.refuse(reduction, "work_limit", reduction.element)
    branches = []
    for case in union.cases:
        changes = case.term != reduction.reducer.neutral  # a sum of zeros needs no state
        within = _in_each_case(derivation, replace(reduction, element=case.term), cases) if changes else case.term
        branches.append((within, case.guard))
    return sp.Piecewise(*branches)


def _by_its_law(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    logical = reduction.reducer in (AND, OR)
    if logical and (predicate := truth_of(reduction.element, derivation.elements)) is not None:
        return truth_of_all(derivation, reduction, predicate, _by_its_law)
    flat = flattened(reduction.element, derivation.elements, derivation.cascade.results)
    reduction = replace(reduction, element=flat)
    if (union := derivation.by_both(reduction.element)) is not None:
        if reduction.reducer.ordered and union.is_of_two_values(derivation.elements):
            return extremum_of_two_values(derivation, reduction, union, _by_its_law)
        return folded_where_extreme(derivation, reduction, union, _by_its_law)
    apart, quotients = taken_apart(reduction, derivation)
    element, used = derivation.take_in(apart)
    if used:
        total = LAWS[reduction.reducer.law](derivation, apart, element, used)
    else:
        total = derivation.component(reduction, reduction.reducer, element)
    return where_real(derivation, reduction, quotients, total)


_Law = Callable[[Derivation, Reduction, sp.Expr, list[Handle]], sp.Expr]


def _logical_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """A predicate on an earlier result has no finite state."""
    raise derivation.refuse(reduction, "logical_dependence", element)


def _no_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """Refuses: no law says how ⊕ commutes with a map."""
    raise derivation.refuse(reduction, "reducer_dependence", element)


LAWS: dict[str, _Law] = {
    "sum": sum_law,
    "product": product_law,
    "order": order_law,
    "predicate": _logical_law,
    "none": _no_law,
}
"""Keys are what a `Reducer.law` may be."""
