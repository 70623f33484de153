"""max and min of selections [a > d] ? f : g whose branches are ordered like the compared quantity.

Let s be the part that a is monotone in, say rising: then the positions with a > d are those of the largest s.

| for max, where                          | max over the positions is                                          |
|-----------------------------------------|--------------------------------------------------------------------|
| f rises with s, g falls with it         | f(max s) if a(max s) > d; g(min s) if not a(min s) > d; the larger |
| both rise, and f ≥ g at a = d           | that of the position of max s                                      |
| both fall, and g ≥ f at a = d           | that of the position of min s                                      |
| g is the same everywhere, and g ≥ f     | g if a ≤ d somewhere, max f over all positions elsewhere           |

A branch counts on its own side alone: there s = d + t with a t > 0 where a is s itself. So x² rises with x where x > d
and d is positive.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction, masks_in
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.monotone import trend
from tvm_cascade.algebra.predicates import Law, truth_over
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR
from tvm_cascade.algebra.separate import strip_rounding


@dataclass(frozen=True)
class _Ordered:
    """A choice by the order of one part.

    Attributes
    ----------
    part, variable : s, and the symbol that stands for it below.
    holds : the comparison.
    upper, lower : the element where s is large, and where it is small.
    inverted : the comparison holds where s is small.
    edge : the s at which a = d; None where a is not s itself.
    """

    part: sp.Expr
    variable: sp.Symbol
    holds: sp.Basic
    upper: sp.Expr
    lower: sp.Expr
    inverted: bool
    edge: sp.Expr | None


def extremum_where_ordered(
    derivation: Derivation, reduction: Reduction, choice: sp.Piecewise, law: Law
) -> sp.Expr | None:
    """The max or min of an element with such a selection; None where its branches are not ordered."""
    ordered = _ordered(derivation, reduction, choice)
    if ordered is not None and (found := _from_ends(derivation, reduction, ordered)) is not None:
        return found
    return _bounded_by_a_branch(derivation, reduction, choice, ordered, law)


def _ordered(derivation: Derivation, reduction: Reduction, choice: sp.Piecewise) -> _Ordered | None:
    """The choice by the order of the one element symbol that is compared, or of the part that reads no result."""
    (chosen, relation), (other, _) = choice.args
    if not isinstance(relation, (sp.Gt, sp.Ge, sp.Lt, sp.Le)):
        return None
    gap = relation.gts - relation.lts
    moving = gap.expand().as_independent(*derivation.elements, as_Add=True)[1].as_coeff_Mul()[1]
    varying = [s for s in derivation.elements if s in gap.free_symbols]
    part = varying[0] if len(varying) == 1 else moving
    facts = {"positive": True} if part.is_positive else {"nonnegative": True} if part.is_nonnegative else {}
    variable = sp.Dummy(real=True, **facts)
    written = derivation.signed(gap.subs(part, variable))
    way = trend(strip_rounding(written), variable)
    if not way or written.has(*derivation.elements):
        return None
    slope = sp.diff(strip_rounding(written), variable)
    edge = sp.expand(variable - strip_rounding(written) / slope) if slope.is_number else None
    sides = [reduction.element.xreplace({choice: branch}).subs(part, variable) for branch in (chosen, other)]
    upper, lower = sides if way > 0 else sides[::-1]
    return _Ordered(part, variable, relation.subs(part, variable), upper, lower, way < 0, edge)


def _from_ends(derivation: Derivation, reduction: Reduction, ordered: _Ordered) -> sp.Expr | None:
    """The extremum from the largest and smallest s; None where a branch reads more, or other positions may decide."""
    upper, lower, variable = ordered.upper, ordered.lower, ordered.variable
    if (upper + lower).has(*derivation.elements):
        return None
    way = 1 if reduction.reducer is MAX else -1
    rises, falls = (_trend(derivation, ordered, side) for side in (True, False))
    if rises is None or falls is None:
        return None
    ends: tuple[sp.Expr, ...]
    if way * rises >= 0 >= way * falls:
        ends = tuple(derivation.component(reduction, reducer, ordered.part) for reducer in (MAX, MIN))
    elif way * rises >= 0 and _above(derivation, ordered, way * (upper - lower)):
        ends = (derivation.component(reduction, MAX, ordered.part),) * 2
    elif way * falls <= 0 and _above(derivation, ordered, way * (lower - upper)):
        ends = (derivation.component(reduction, MIN, ordered.part),) * 2
    else:
        return None
    at_upper, at_lower = (ordered.holds.xreplace({variable: end}) for end in ends)
    first, second = upper.xreplace({variable: ends[0]}), lower.xreplace({variable: ends[1]})
    some, others = (sp.Not(at_upper), at_lower) if ordered.inverted else (at_upper, sp.Not(at_lower))
    if ends[0] == ends[1]:
        return sp.Piecewise((first, some), (second, True))
    both = (reduction.reducer.combine(first, second), sp.And(some, others))
    return sp.Piecewise(both, (first, some), (second, True))


def _trend(derivation: Derivation, ordered: _Ordered, upper: bool) -> int | None:
    """That of a branch in s, on its own side of the edge."""
    branch = derivation.signed(strip_rounding(ordered.upper if upper else ordered.lower))
    way = trend(branch, ordered.variable)
    if way is None and ordered.edge is not None:
        away = sp.Dummy(positive=True)
        beyond = branch.xreplace({ordered.variable: ordered.edge + (away if upper else -away)})
        way = trend(beyond, away)
        return way if way is None or upper else -way
    return way


def _above(derivation: Derivation, ordered: _Ordered, gap: sp.Expr) -> bool:
    """Whether a difference of the branches is nowhere negative, at the edge at least."""
    gap = derivation.signed(strip_rounding(gap))
    at_edge = gap if ordered.edge is None else gap.xreplace({ordered.variable: ordered.edge})
    return bool(gap.is_nonnegative or sp.expand(at_edge).is_nonnegative)


def _bounded_by_a_branch(
    derivation: Derivation, reduction: Reduction, choice: sp.Piecewise, ordered: _Ordered | None, law: Law
) -> sp.Expr | None:
    """The extremum where one branch is the same at all positions and none of the others exceeds it."""
    way = 1 if reduction.reducer is MAX else -1
    condition = choice.args[0][1]
    branches = [reduction.element.xreplace({choice: branch}) for branch, _ in choice.args]
    for bound, other in (branches, branches[::-1]):
        chosen = other is branches[0]
        if bound.has(*derivation.elements):
            continue
        gap = derivation.signed(strip_rounding(way * (bound - other)))
        if not (_is_nonnegative(gap, derivation) or _on_its_side(gap, ordered, chosen)):
            continue
        try:
            reaching = truth_over(derivation, replace(reduction, reducer=AND if chosen else OR), condition, law)
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


def _on_its_side(gap: sp.Expr, ordered: _Ordered | None, chosen: bool) -> bool:
    """Whether what a branch lacks to its bound is nowhere negative where the branch counts."""
    if ordered is None or ordered.edge is None or ordered.edge.has(ordered.variable):
        return False
    away = sp.Dummy(positive=True)
    beyond = ordered.edge + (away if chosen is not ordered.inverted else -away)
    return bool(gap.subs(ordered.part, beyond).is_nonnegative)
