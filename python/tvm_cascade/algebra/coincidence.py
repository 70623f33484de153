"""Sums over the positions at which an element is its own extremum: how many maxima there are, the mean of y over them.

Σ (a = max a ? f : g) = Σ [a = d]·f + Σ [a ≠ d]·g with d = max a. What counts at a reference c, the maximum so far,
does so at a later one c′ ≥ c where these are equal, and nothing does elsewhere: Σ [a = c′]·w = [c = c′]·Σ [a = c]·w.
No other comparison of elements with results is of finite rank.

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
from tvm_cascade.algebra.counterexample import rank_grows
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Gauge, Move, Range
from tvm_cascade.algebra.reducer import MAX, MIN, SUM

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


def sum_where_extreme(derivation: Derivation, reduction: Reduction, choice: sp.Piecewise, law: Law) -> sp.Expr:
    """The sum of an element with such a choice.

    Raises
    ------
    Refused
        Where what is compared is no extremum of the element, or what is summed there has no law.
    """
    (chosen, condition), *others = choice.args
    held = _at_and_elsewhere(derivation, condition)
    if reduction.reducer is not SUM or held is None or len(others) != 1:
        shown = rank_grows(derivation.question(reduction, reduction.element)) if reduction.reducer is SUM else None
        code = "select_on_result" if shown is None else "infinite_rank"
        raise derivation.refuse(reduction, code, reduction.element, shown=shown)
    extreme, (at, elsewhere) = held
    branches = {True: chosen, False: others[0][0]}
    here, there = (reduction.element.xreplace({choice: branches[side]}) for side in (at, elsewhere))
    if there.has(*derivation.cascade.results):
        total = law(derivation, replace(reduction, element=there))
        return total + _sum_at(derivation, reduction, extreme, sp.expand(here - there))
    return _sum_elsewhere(derivation, reduction, extreme, there) + _sum_at(derivation, reduction, extreme, here)


def _at_and_elsewhere(derivation: Derivation, condition: sp.Basic) -> tuple[Reduction, tuple[bool, bool]] | None:
    """The extremum that a comparison is with, and whether it holds there and elsewhere."""
    if type(condition) not in AT_A_MAXIMUM:
        return None
    for element, other, relation in ((*condition.args, condition), (*condition.args[::-1], condition.reversed)):
        for done in derivation.done:
            if derivation.plain(done.result) == other and done.element == element and done.reducer in (MAX, MIN):
                kind = type(relation) if done.reducer is MAX else type(relation.reversed)
                return done, AT_A_MAXIMUM[kind]
    return None


def _sum_at(derivation: Derivation, reduction: Reduction, extreme: Reduction, weight: sp.Expr) -> sp.Expr:
    """Σ [a = d]·w: a state that starts anew wherever the extremum moves."""
    if extreme.element.is_Symbol:
        weight = weight.subs(extreme.element, derivation.plain(extreme.result))
    factor, varying = sp.factor_terms(weight).as_independent(*derivation.elements, as_Add=False)
    if varying.has(*derivation.cascade.results):
        raise derivation.refuse(reduction, "select_on_result", weight)
    return factor * _state(derivation, reduction, extreme, varying) if weight != 0 else sp.S.Zero


def _state(derivation: Derivation, reduction: Reduction, extreme: Reduction, weight: sp.Expr) -> sp.Symbol:
    """The component Σ [a = c]·w."""
    reference = _reference(derivation, extreme)
    lift = derivation.masked(SUM, sp.Piecewise((weight, sp.Eq(extreme.element, reference.symbol)), (0, True)))
    symbol = derivation.unused(reduction)
    shift = sp.Piecewise((symbol, sp.Eq(reference.symbol, reference.moved)), (0, True))
    return derivation.known(SUM, lift) or derivation.add(reduction, SUM, lift, shift)


def _sum_elsewhere(derivation: Derivation, reduction: Reduction, extreme: Reduction, weight: sp.Expr) -> sp.Expr:
    """Σ [a ≠ d]·w, to which positions are added once the extremum leaves them: subtracted, they would take digits."""
    if weight == 0:
        return sp.S.Zero
    reference, at = _reference(derivation, extreme), _state(derivation, reduction, extreme, weight)
    lift = derivation.masked(SUM, sp.Piecewise((0, sp.Eq(extreme.element, reference.symbol)), (weight, True)))
    symbol = derivation.unused(reduction)
    left = sp.Piecewise((0, sp.Eq(reference.symbol, reference.moved)), (at, True))
    return derivation.known(SUM, lift) or derivation.add(reduction, SUM, lift, symbol + left)


def _reference(derivation: Derivation, extreme: Reduction) -> Reference:
    handle = derivation.handles.of(extreme.result)
    exact = "" if derivation.move is Move.EXACT else "exact"
    value = derivation.predicted(handle.value, Gauge.RUNNING)
    return derivation.refer((handle, exact), handle.value, Gauge.RUNNING, value, range=Range.EXTREME)
