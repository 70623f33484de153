"""The derivation of a fold from a cascade, reduction by reduction, through the table of laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.cases import truth_of
from tvm_cascade.algebra.comparisons import folded_choice, truth_of_all
from tvm_cascade.algebra.constants import NamedConstants
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.gauge import Move
from tvm_cascade.algebra.handles import Handle
from tvm_cascade.algebra.order_law import order_law
from tvm_cascade.algebra.product_law import Law, product_law
from tvm_cascade.algebra.quotients import taken_apart, where_real
from tvm_cascade.algebra.reducer import AND, OR
from tvm_cascade.algebra.selection_law import selection_law
from tvm_cascade.algebra.starts import from_their_starts, plain
from tvm_cascade.algebra.sum_law import sum_law
from tvm_cascade.algebra.tuple_law import note_tuple, tuple_law
from tvm_cascade.algebra.verdict import Reason, Refusal, Search
from tvm_cascade.symbolic.work import ExhaustedError

MOST_CASES = 8
"""Cases, by conditions on results, in which one element may be something else."""


def derived(
    cascade: Cascade,
    rescalable_casts: Sequence[str],
    move: Move,
    meaning: Mapping[sp.Symbol, sp.Expr],
    search: Search,
) -> Fold | Refusal:
    """The fold of a cascade, or the refusal that names the reduction, the expression and the law that fails.

    Parameters
    ----------
    cascade, rescalable_casts, move, meaning : see `tvm_cascade.derive`.
    search : what looks for numbers on which a law fails.
    """
    constants, casts = NamedConstants(), tuple(rescalable_casts)
    at = cascade.results[-1]
    try:
        started = plain(cascade)
        derivation = Derivation(constants.named(started), casts, search, constants.values, move, meaning)
        for block in derivation.cascade.blocks:
            at = block[-1].result
            _take_in(derivation, block)
        at = cascade.results[-1]
        return from_their_starts(constants.numbered(derivation.fold(), started), cascade)
    except Refused as refused:
        return refused.refusal
    except ExhaustedError as exhausted:
        return Refusal(str(at), Reason("work_limit", str(exhausted)))
    except RecursionError:  # SymPy turns some comparisons of logarithms round for ever
        return Refusal(str(at), Reason("work_limit", "rewriting a comparison"))


def _take_in(derivation: Derivation, block: tuple[Reduction, ...]) -> None:
    """One more reduction, or one of tuples, by the law of its reducer."""
    block = tuple(sorted(block, key=lambda reduction: reduction.reducer.part))
    for reduction, value in zip(block, _in_each_case(derivation, block, 1), strict=True):
        derivation.finish[reduction.result] = value
    note_tuple(derivation, block) if block[0].reducer.whole is not None else derivation.note(block[0])


def _in_each_case(derivation: Derivation, block: tuple[Reduction, ...], cases: int) -> list[sp.Expr]:
    """The results, by the law of their reducer: those of each case where results decide between elements.

    `cases` is how many there are beside this one.
    """
    block = tuple(replace(reduction, element=derivation.decided(reduction.element)) for reduction in block)
    unions = ((part, derivation.by_results(reduction.element)) for part, reduction in enumerate(block))
    part, union = next(((part, union) for part, union in unions if union is not None), (0, None))
    if union is None:
        whole = block[0].reducer.whole
        if whole is None:
            return [_by_its_law(derivation, block[0])]
        selection = whole.selection
        return tuple_law(derivation, block) if selection is None else selection_law(derivation, block, selection)
    cases *= len(union.cases)
    if cases > MOST_CASES:
        raise derivation.refuse(block[part], "work_limit", block[part].element)
    branches = []
    for case in union.cases:
        within = (*block[:part], replace(block[part], element=case.term), *block[part + 1 :])
        idle = len(block) == 1 and case.term == block[0].reducer.neutral  # a sum of zeros needs no state
        branches.append(([case.term] if idle else _in_each_case(derivation, within, cases), case.guard))
    return [sp.Piecewise(*((values[k], guard) for values, guard in branches)) for k in range(len(block))]


def _by_its_law(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    logical = reduction.reducer in (AND, OR)
    if logical and (predicate := truth_of(reduction.element, derivation.elements)) is not None:
        return truth_of_all(derivation, reduction, predicate, _by_its_law)
    if (union := derivation.by_both(reduction.element)) is not None:
        return folded_choice(derivation, reduction, union, _by_its_law)
    apart, quotients = taken_apart(reduction, derivation)
    element, used = derivation.take_in(apart)
    if (reduction.reducer.ordered or logical) and not element.has(*derivation.elements):
        return element.xreplace(derivation.handles.values)  # the same at all positions
    if used:
        total = LAWS[reduction.reducer.law](derivation, apart, element, used)
    else:
        total = derivation.component(reduction, reduction.reducer, element)
    return where_real(derivation, reduction, quotients, total)


def _logical_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """A predicate on an earlier result has no finite state."""
    raise derivation.refuse(reduction, "logical_dependence", element)


def _no_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """Refuses: no law says how ⊕ commutes with a map."""
    raise derivation.refuse(reduction, "reducer_dependence", element)


LAWS: dict[str, Law] = {
    "sum": sum_law,
    "product": partial(product_law, sum_law),
    "order": order_law,
    "predicate": _logical_law,
    "none": _no_law,
}
"""Keys are what a `Reducer.law` may be."""
