"""The derivation of a fold from a cascade, reduction by reduction, through the table of laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, SUM
from tvm_cascade.algebra.selection_law import selection_law
from tvm_cascade.algebra.starts import from_their_starts, plain
from tvm_cascade.algebra.sum_law import sum_law
from tvm_cascade.algebra.tuple_law import note_tuple, tuple_law
from tvm_cascade.algebra.verdict import Reason, Refusal, Search
from tvm_cascade.symbolic.masks import indicator, masks_that_keep
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
    apart, quotients = _taken_apart(reduction, derivation)
    element, used = derivation.take_in(apart)
    if (reduction.reducer.ordered or logical) and not element.has(*derivation.elements):
        return element.xreplace(derivation.handles.values)  # the same at all positions
    if used:
        total = LAWS[reduction.reducer.law](derivation, apart, element, used)
    else:
        total = derivation.component(reduction, reduction.reducer, element)
    return _where_real(derivation, reduction, quotients, total)


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


# Logarithms and roots of quotients split: log(x/s) as log|x| − log|s|, √(x/s) as √|x|/√|s|.
#
# They are the same where x/s is not negative, whichever sign x and s have. Where some x/s is, the element is no number,
# and neither is the sum: the least and the largest x tell.
#
# | log(a·b), (a·b)^r, r no integer  | becomes                        | needed for a number                         |
# |----------------------------------|--------------------------------|---------------------------------------------|
# | b > 0                            | log a + log b                  | nothing: log a is no number where a·b has none |
# | a > 0                            | log a + log b                  | nothing                                     |
# | neither sign is known            | log |a| + log |b|              | min a ≥ 0 and b ≥ 0, or max a ≤ 0 and b ≤ 0 |


@dataclass(frozen=True)
class _Quotient:
    """a(x)·b(d) under a logarithm or a root, of unknown signs: the varying and the loop-invariant factor."""

    varying: sp.Expr
    fixed: sp.Expr


def _taken_apart(reduction: Reduction, derivation: Derivation) -> tuple[Reduction, tuple[_Quotient, ...]]:
    """The sum with logarithms and roots of products split, and the products whose signs are unknown."""
    if reduction.reducer is not SUM or not derivation.results:
        return reduction, ()
    found: dict[_Quotient, None] = {}
    elements, results = derivation.elements, derivation.results

    def split(base: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
        fixed, varying = sp.powsimp(base).as_independent(*elements, as_Add=False)
        if not fixed.has(*results) or varying.has(*results) or varying == 1:
            return None
        if varying.is_nonnegative or fixed.is_nonnegative:
            return varying, fixed
        found[_Quotient(varying, fixed)] = None
        return sp.Abs(varying), sp.Abs(fixed)

    def logarithm(argument: sp.Expr) -> sp.Expr:
        parts = split(argument) if isinstance(argument, sp.Mul) else None
        return sp.log(argument) if parts is None else sum((_log(part) for part in parts), sp.S.Zero)

    def root(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
        parts = split(base) if isinstance(base, sp.Mul) and exponent.is_Rational and not exponent.is_Integer else None
        return base**exponent if parts is None else sp.Mul(*(part**exponent for part in parts))

    element = derivation.signed(reduction.element).replace(sp.log, logarithm).replace(sp.Pow, root)
    return Reduction(reduction.result, reduction.reducer, derivation.plain(element)), tuple(found)


def _log(part: sp.Expr) -> sp.Expr:
    """log of 1/|s| as −log|s|."""
    base, exponent = part.as_base_exp()
    return exponent * sp.log(base) if exponent.is_Integer and base.is_nonnegative else sp.log(part)


def _where_real(
    derivation: Derivation, reduction: Reduction, quotients: Sequence[_Quotient], total: sp.Expr
) -> sp.Expr:
    """The total, or NaN where some quotient was negative, as its element is."""
    kept = indicator(masks_that_keep(reduction.element, derivation.elements))
    for quotient in quotients:
        least, largest = (derivation.component(reduction, reducer, kept * quotient.varying) for reducer in (MIN, MAX))
        real = sp.Or(
            sp.And(least >= 0, quotient.fixed >= 0),
            sp.And(largest <= 0, quotient.fixed <= 0),
        )
        total = sp.Piecewise((total, real), (sp.nan, True))
    return total
