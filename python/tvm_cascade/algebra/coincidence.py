"""Folds over the positions at which an element is its own extremum: how many maxima there are, the mean of y over them.

⊕ (a = max a ? f : g) = (⊕ of f where a = d) ⊕ (⊕ of g where a ≠ d) with d = max a, for sums, max and min. What is in at
a reference c, the maximum so far, is in at a later one c′ ≥ c where these are equal, and nothing is elsewhere:
Σ [a = c′]·w = [c = c′]·Σ [a = c]·w. So is the largest of all but the maximum found. Other comparisons of elements
with results are refused where numbers show that they need all positions, and unknown elsewhere.

| a ? d, the maximum of a | is         |
|-------------------------|------------|
| a = d, a ≥ d            | [a = d]    |
| a ≠ d, a < d            | not so     |
| a ≤ d                   | everywhere |
| a > d                   | nowhere    |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.counterexample import deciding_positions, rank_grows, rank_of
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.envelope import envelope
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Gauge, Move, Range
from tvm_cascade.algebra.ordered_choices import extremum_where_ordered
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.algebra.separate import RANK_LIMIT
from tvm_cascade.algebra.thresholds import envelope_at_thresholds, rank_at_thresholds

Law = Callable[[Derivation, Reduction], sp.Expr]

AT_A_MAXIMUM: dict[type, tuple[bool, bool]] = {
    sp.Eq: (True, False),
    sp.Ge: (True, False),
    sp.Ne: (False, True),
    sp.Lt: (False, True),
    sp.Le: (True, True),
    sp.Gt: (False, False),
}
"""Whether a comparison with the maximum holds at it, and elsewhere; with a minimum, once its sides are exchanged."""


def folded_where_extreme(derivation: Derivation, reduction: Reduction, choice: sp.Piecewise, law: Law) -> sp.Expr:
    """The sum, max or min of an element with such a choice.

    Raises
    ------
    Refused
        Where what is compared is no extremum of the element, or what is folded there has no law.
    """
    (chosen, condition), *others = choice.args
    held, reducer = _at_and_elsewhere(derivation, condition), reduction.reducer
    if held is None and reducer.ordered and len(others) == 1:
        if (found := extremum_where_ordered(derivation, reduction, choice, law)) is not None:
            return found
    if reducer not in (SUM, MAX, MIN) or held is None or len(others) != 1:
        raise _refused(derivation, reduction)
    extreme, (at, elsewhere) = held
    branches = {True: chosen, False: others[0][0]}
    here, there = (reduction.element.xreplace({choice: branches[side]}) for side in (at, elsewhere))
    if at is elsewhere:
        return law(derivation, replace(reduction, element=here))
    if reducer is SUM and there.has(*derivation.cascade.results):
        total = law(derivation, replace(reduction, element=there))
        return total + _at(derivation, reduction, extreme, sp.expand(here - there))
    return reducer.combine(_elsewhere(derivation, reduction, extreme, there), _at(derivation, reduction, extreme, here))


def _refused(derivation: Derivation, reduction: Reduction) -> Exception:
    """A choice that no extremum makes: with numbers, where it can be shown that it needs all positions."""
    question = derivation.question(reduction, reduction.element)
    if reduction.reducer is SUM:
        points = rank_at_thresholds(question.over_results, question.earlier, RANK_LIMIT + 1)
        code, shown = "infinite_rank", rank_of(points, question) if points else rank_grows(question)
    else:
        asked = (question.over_results, reduction.reducer, question.earlier, RANK_LIMIT + 1)
        found = (envelope_at_thresholds(*asked) or envelope(*asked)) if reduction.reducer.ordered else None
        code, shown = "not_monotone", deciding_positions(found, question) if found else None
    return derivation.refuse(reduction, code if shown else "select_on_result", reduction.element, shown=shown)


def _at_and_elsewhere(derivation: Derivation, condition: sp.Basic) -> tuple[Reduction, tuple[bool, bool]] | None:
    """The extremum that a comparison is with, and whether it holds there and elsewhere."""
    if type(condition) not in AT_A_MAXIMUM:
        return None
    for element, other, relation in ((*condition.args, condition), (*condition.args[::-1], condition.reversed)):
        if element.has(*derivation.cascade.results):
            continue
        for done in derivation.done:
            known = derivation.plain(done.result) == other and done.element == element and done.reducer in (MAX, MIN)
            if known and derivation.lift_of(done) is not None:
                kind = type(relation) if done.reducer is MAX else type(relation.reversed)
                return done, AT_A_MAXIMUM[kind]
    return None


def _at(derivation: Derivation, reduction: Reduction, extreme: Reduction, weight: sp.Expr) -> sp.Expr:
    """⊕ of w where a = d: states that start anew wherever the extremum moves."""
    if extreme.element.is_Symbol:
        weight = weight.subs(extreme.element, derivation.plain(extreme.result))
    if reduction.reducer is not SUM:
        if weight.has(*derivation.elements):
            return _state(derivation, reduction, extreme, weight)
        count = _state(derivation, replace(reduction, reducer=SUM), extreme, sp.S.One)
        return sp.Piecewise((weight, count > 0), (reduction.reducer.neutral, True))
    whole = sp.factor_terms(weight)
    apart = whole.as_independent(*derivation.elements, as_Add=False)[1].has(*derivation.cascade.results)
    total = sp.S.Zero
    for term in sp.Add.make_args(sp.expand(weight)) if apart else (whole,):
        factor, varying = term.as_independent(*derivation.elements, as_Add=False)
        total += factor * _state(derivation, reduction, extreme, varying) if term != 0 else 0
    return total


def _state(derivation: Derivation, reduction: Reduction, extreme: Reduction, weight: sp.Expr) -> sp.Symbol:
    """The component ⊕ of w where a = c."""
    if weight.has(*derivation.cascade.results):
        raise derivation.refuse(reduction, "select_on_result", weight)
    reference, reducer = _reference(derivation, extreme), reduction.reducer
    chosen = sp.Piecewise((weight, _met(derivation, extreme, reference)), (reducer.neutral, True))
    lift, symbol = derivation.masked(reducer, chosen), derivation.unused(reduction)
    shift = sp.Piecewise((symbol, sp.Eq(reference.symbol, reference.moved)), (reducer.neutral, True))
    return derivation.known(reducer, lift) or derivation.add(reduction, reducer, lift, shift)


def _elsewhere(derivation: Derivation, reduction: Reduction, extreme: Reduction, weight: sp.Expr) -> sp.Expr:
    """⊕ of w where a ≠ d, to which positions are added once the extremum leaves them.

    A sum of all from which those at the extremum are subtracted would lose their digits.
    """
    reducer = reduction.reducer
    if weight == reducer.identity:
        return weight
    reference, at = _reference(derivation, extreme), _state(derivation, reduction, extreme, weight)
    chosen = sp.Piecewise((reducer.neutral, _met(derivation, extreme, reference)), (weight, True))
    lift, symbol = derivation.masked(reducer, chosen), derivation.unused(reduction)
    left = sp.Piecewise((reducer.neutral, sp.Eq(reference.symbol, reference.moved)), (at, True))
    return derivation.known(reducer, lift) or derivation.add(reduction, reducer, lift, reducer.combine(symbol, left))


def _met(derivation: Derivation, extreme: Reduction, reference: Reference) -> sp.Basic:
    """a = c, where a is written as the extremum's own lift is: log √x and log(x)/2 round apart."""
    return sp.Eq(derivation.lift_of(extreme), reference.symbol)


def _reference(derivation: Derivation, extreme: Reduction) -> Reference:
    handle = derivation.handles.of(extreme.result)
    exact = "" if derivation.move is Move.EXACT else "exact"
    value = derivation.predicted(handle.value, Gauge.RUNNING)
    return derivation.refer((handle, exact), handle.value, Gauge.RUNNING, value, range=Range.EXTREME)
