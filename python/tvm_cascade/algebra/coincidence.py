"""Reductions masked to the ties of an extremum: how many maxima there are, the mean of y over them.

⊕ (a = max a ? f : g) = (⊕ of f where a = d) ⊕ (⊕ of g where a ≠ d) with d = max a, for sums, max and min. What is in at
a reference c, the maximum so far, is in at a later one c′ ≥ c where these are equal, and nothing is elsewhere:
Σ [a = c′]·w = [c = c′]·Σ [a = c]·w. So is the largest of all but the maximum found.

Other comparisons fold where the branches follow their order (`ordered_choices`), or one of them bounds the other: max
of (a > d ? f : g) is g if a ≤ d somewhere, and max f elsewhere, where g ≥ f and g is the same everywhere. They are
refused where numbers show that they need all positions (`refute.crossings`), and are unknown elsewhere.

| a ? d, the maximum of a | is      |
|-------------------------|---------|
| a = d, a ≥ d            | [a = d] |
| a ≠ d, a < d            | not so  |

Where a itself reads results, `attained` says at which ends of what it is a map of a = d is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.attained import End, Ends, attained
from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.cases import Union
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.monotone import through_order
from tvm_cascade.algebra.ordered_choices import Ordered, extremum_at_ends, in_order
from tvm_cascade.algebra.predicates import Law, truth_over
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, SUM
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.masks import is_truth, masks_in
from tvm_cascade.symbolic.separate import strip_rounding

State = Callable[[Derivation, Reduction, End, sp.Expr], sp.Expr]


def folded_where_extreme(derivation: Derivation, reduction: Reduction, union: Union, law: Law) -> sp.Expr:
    """The sum, max or min of an element masked to the ties of an extremum.

    Raises
    ------
    Refused
        Where what is compared is no extremum of the element, or what is folded there has no law.
    """
    matched, reducer, two = derivation.compared(union.guard), reduction.reducer, len(union.cases) == 2
    where = None if matched is None else attained(derivation, reduction, matched[0])
    by_order = where is None and reducer.ordered and two
    if by_order and (found := _by_order(derivation, reduction, union, law)) is not None:
        return found
    if reducer not in (SUM, MAX, MIN) or matched is None or where is None or not two:
        raise _refused(derivation, reduction)
    extreme, (at, _) = matched
    here, there = (derivation.decided(union.terms[0 if side is at else 1], extreme, side) for side in (True, False))
    cases = [(_folded(derivation, reduction, ends, (here, there), law), met) for ends, met in where]
    return sp.Piecewise(*cases)


def _by_order(derivation: Derivation, reduction: Reduction, union: Union, law: Law) -> sp.Expr | None:
    """The extremum where the branches are ordered, or one of them bounds the other; None elsewhere."""
    ordered = in_order(derivation, union)
    found = None if ordered is None else extremum_at_ends(derivation, reduction, ordered)
    return _bounded_by_a_branch(derivation, reduction, union, ordered, law) if found is None else found


def _bounded_by_a_branch(
    derivation: Derivation, reduction: Reduction, union: Union, ordered: Ordered | None, law: Law
) -> sp.Expr | None:
    """The extremum where one branch is the same at all positions and none of the others exceeds it."""
    way = 1 if reduction.reducer is MAX else -1
    first, second = union.terms
    for bound, other, chosen in ((first, second, False), (second, first, True)):
        if bound.has(*derivation.elements):
            continue
        gap = derivation.signed(strip_rounding(way * (bound - other)))
        if not (_is_nonnegative(gap, derivation) or (ordered and ordered.is_nonnegative_beyond(gap, chosen))):
            continue
        try:
            reaching = truth_over(derivation, replace(reduction, reducer=AND if chosen else OR), union.guard, law)
            whole = law(derivation, replace(reduction, element=other))
        except Refused:
            return None
        return sp.Piecewise((whole, reaching if chosen else sp.Not(reaching)), (bound, True))
    return None


def _is_nonnegative(gap: sp.Expr, derivation: Derivation) -> bool:
    """Whether it is, whatever masks hold."""
    cases = [gap]
    for mask in masks_in(gap, derivation.elements):
        cases = [case.subs(mask, holds) for case in cases for holds in (0, 1)]
    return all(bool(case.is_nonnegative) for case in cases)


def _folded(
    derivation: Derivation, reduction: Reduction, ends: Ends, elements: tuple[sp.Expr, sp.Expr], law: Law
) -> sp.Expr:
    """⊕ of the one element at some ends, and of the other elsewhere."""
    (here, there), reducer = elements, reduction.reducer
    if ends is None:
        return law(derivation, replace(reduction, element=here))
    if reducer is SUM and there.has(*derivation.cascade.results):
        total = law(derivation, replace(reduction, element=there))
        return total + sp.Add(*(_at(derivation, reduction, end, sp.expand(here - there)) for end in ends))
    if len(ends) > 1 and there != reducer.identity:
        apart = _beside_all(derivation, reduction, ends, there)
    else:
        apart = _elsewhere(derivation, reduction, ends[0], there)
    return reducer.over([apart, *(_at(derivation, reduction, end, here) for end in ends)])


def _beside_all(derivation: Derivation, reduction: Reduction, ends: Sequence[End], there: sp.Expr) -> sp.Expr:
    """max or min of what is the same at all positions but those at the ends, others for each: if any is left."""
    if there.has(*derivation.elements) or derivation.where != sp.true:
        raise derivation.refuse(reduction, "select_on_result", there)
    counting = replace(reduction, reducer=SUM)
    taken = sp.Add(*(_state(derivation, counting, end, sp.S.One) for end in ends))
    return sp.Piecewise((there, taken < LENGTH), (reduction.reducer.neutral, True))


def _refused(derivation: Derivation, reduction: Reduction) -> Exception:
    """A choice that no extremum makes: with numbers, where it can be shown that it needs all positions."""
    code = "infinite_rank" if reduction.reducer is SUM else "not_monotone"
    shown = derivation.counterexample(code, reduction, reduction.element)
    return derivation.refuse(reduction, code if shown else "select_on_result", reduction.element, shown=shown)


def _at(derivation: Derivation, reduction: Reduction, end: End, weight: sp.Expr) -> sp.Expr:
    """⊕ of w at an end: states that start anew wherever that moves."""
    weight = weight.subs(dict(end.known))
    if reduction.reducer is not SUM:
        return _extremum(derivation, reduction, end, weight, _state)
    whole = sp.factor_terms(weight)
    apart = whole.as_independent(*derivation.elements, as_Add=False)[1].has(*derivation.cascade.results)
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(weight)) if apart else (whole,):
        factor, varying = term.as_independent(*derivation.elements, as_Add=False)
        total += factor * _state(derivation, reduction, end, varying) if term != 0 else 0
    return total


def _elsewhere(derivation: Derivation, reduction: Reduction, end: End, weight: sp.Expr) -> sp.Expr:
    """⊕ of w at all other positions."""
    if weight == reduction.reducer.identity:
        return weight
    if reduction.reducer is SUM:
        return _left(derivation, reduction, end, weight)
    return _extremum(derivation, reduction, end, weight, _left)


def _extremum(derivation: Derivation, reduction: Reduction, end: End, weight: sp.Expr, state: State) -> sp.Expr:
    """max or min of w at the positions of a state; w may be a map, by results, of a part that the state is then of."""
    reducer, elements = reduction.reducer, derivation.elements
    if weight.has(*elements) and not weight.has(*derivation.cascade.results):
        return state(derivation, reduction, end, weight)
    if (union := derivation.by_results(weight)) is not None:
        found = [(_extremum(derivation, reduction, end, case.term, state), case.guard) for case in union.cases]
        return sp.Piecewise(*found)
    if any(choice.has(*derivation.cascade.results) for choice in weight.atoms(sp.Piecewise)):
        raise derivation.refuse(reduction, "select_on_result", weight)
    met = state(derivation, replace(reduction, reducer=SUM), end, sp.S.One) > 0
    if not weight.has(*elements):
        return sp.Piecewise((weight, met), (reducer.neutral, True))
    weighted = derivation.extracted(derivation.signed(weight))
    values = derivation.handles.values
    passed = through_order(strip_rounding(weighted), reducer, elements, list(values))
    if isinstance(passed, str) or weighted.has(Round) or is_truth(*passed[0].parts):
        raise derivation.refuse(reduction, "select_on_result", weight)
    mapped, kept = passed
    best = mapped.over(reducer, kept, lambda k, part: state(derivation, replace(reduction, reducer=k), end, part))
    return sp.Piecewise((best.xreplace(values), met), (reducer.neutral, True))


def _state(derivation: Derivation, reduction: Reduction, end: End, weight: sp.Expr) -> sp.Symbol:
    """The component ⊕ of w where a = c."""
    if weight.has(*derivation.cascade.results):
        raise derivation.refuse(reduction, "select_on_result", weight)
    reducer, anew = reduction.reducer, (reduction.reducer.neutral, True)
    stands, chosen = sp.Eq(end.reference.symbol, end.reference.moved), sp.Piecewise((weight, _met(end)), anew)
    return derivation.component(reduction, reducer, chosen, lambda own: sp.Piecewise((own, stands), anew))


def _left(derivation: Derivation, reduction: Reduction, end: End, weight: sp.Expr) -> sp.Symbol:
    """The component ⊕ of w where a ≠ c, to which positions are added once the extremum leaves them.

    A sum of all from which those at the extremum are subtracted would lose their digits.
    """
    reference, reducer, at = end.reference, reduction.reducer, _state(derivation, reduction, end, weight)
    chosen = sp.Piecewise((reducer.neutral, _met(end)), (weight, True))
    left = sp.Piecewise((reducer.neutral, sp.Eq(reference.symbol, reference.moved)), (at, True))
    return derivation.component(reduction, reducer, chosen, lambda own: reducer.combine(own, left))


def _met(end: End) -> sp.Basic:
    return sp.Eq(end.lift, end.reference.symbol)
