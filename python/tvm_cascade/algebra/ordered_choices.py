"""max and min of selections [a > d] ? f : g whose branches are ordered like the compared quantity.

Let s be the part that a is monotone in, say rising: then the positions with a > d are those of the largest s, and the
selection is a map of s where its branches read no more.

| for max, where                          | max over the positions is                                          |
|-----------------------------------------|--------------------------------------------------------------------|
| f rises with s, g falls with it         | the larger of the selections at max s and at min s                 |
| both rise, and f ≥ g at a = d           | the selection at max s                                             |
| both fall, and g ≥ f at a = d           | the selection at min s                                             |

A branch counts on its own side alone: there s = d + t with a t > 0 where a is s itself. So x² rises with x where x > d
and d is positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.cases import Union
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.facts.trend import trend
from tvm_cascade.algebra.monotone import Map
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.separate import strip_rounding
from tvm_cascade.symbolic.signs import stand_in


@dataclass(frozen=True)
class Ordered:
    """A choice by the order of one part.

    Attributes
    ----------
    choice : the selection, of s.
    upper, lower : the element where s is large, and where it is small, with known signs and without roundings.
    rising : the comparison holds where s is large.
    edge : the s at which a = d; None where a is not s itself.
    """

    choice: Map
    upper: sp.Expr
    lower: sp.Expr
    rising: bool
    edge: sp.Expr | None

    def kept(self, reducer: Reducer) -> tuple[Reducer, ...] | None:
        """The ends of s at which an extremum of the selection stands; None where others may decide."""
        way = 1 if reducer is MAX else -1
        rises, falls = self._trend(self.upper, True), self._trend(self.lower, False)
        if rises is None or falls is None:
            return None
        if way * rises >= 0 >= way * falls:
            return (MAX, MIN)
        jump = way * (self.upper - self.lower)
        if way * rises >= 0 and self._at_least(jump):
            return (MAX,)
        return (MIN,) if way * falls <= 0 and self._at_least(-jump) else None

    @property
    def variable(self) -> sp.Symbol:
        """The symbol of s."""
        return self.choice.symbols[0]

    def _trend(self, branch: sp.Expr, upper: bool) -> int | None:
        """That of a branch in s, on its own side of the edge."""
        way = trend(branch, self.variable)
        if way is None and self.edge is not None:
            away = sp.Dummy(positive=True)
            way = trend(branch.xreplace({self.variable: self.edge + (away if upper else -away)}), away)
            return way if way is None or upper else -way
        return way

    def is_nonnegative_beyond(self, gap: sp.Expr, holds: bool) -> bool:
        """Whether a function of s is nowhere negative where the comparison holds, or where it does not."""
        if self.edge is None or self.edge.has(self.variable):
            return False
        away = sp.Dummy(positive=True)
        return bool(gap.subs(*self.choice.parts, self.edge + (away if holds is self.rising else -away)).is_nonnegative)

    def _at_least(self, jump: sp.Expr) -> bool:
        """Whether a difference of the branches is nowhere negative, at the edge at least."""
        at_edge = jump if self.edge is None else jump.xreplace({self.variable: self.edge})
        return bool(jump.is_nonnegative or sp.expand(at_edge).is_nonnegative)


def extremum_at_ends(derivation: Derivation, reduction: Reduction, ordered: Ordered) -> sp.Expr | None:
    """The max or min of an element of two such cases; None where its branches are not ordered."""
    reducer = reduction.reducer
    reads_more = (ordered.upper + ordered.lower).has(*derivation.elements)
    if reads_more or (kept := ordered.kept(reducer)) is None:
        return None
    return ordered.choice.over(reducer, kept, lambda end, part: derivation.component(reduction, end, part))


def in_order(derivation: Derivation, union: Union) -> Ordered | None:
    """The choice by the order of the one element symbol that is compared, or of the part that reads no result."""
    relation = union.guard
    if not isinstance(relation, (sp.Gt, sp.Ge, sp.Lt, sp.Le)):
        return None
    gap = relation.gts - relation.lts
    moving = gap.expand().as_independent(*derivation.elements, as_Add=True)[1].as_coeff_Mul()[1]
    varying = [s for s in derivation.elements if s in gap.free_symbols]
    part = varying[0] if len(varying) == 1 else moving
    variable = stand_in(part, "_s")
    written, *terms = (strip_rounding(derivation.signed(e.subs(part, variable))) for e in (gap, *union.terms))
    way = trend(written, variable)
    if not way or written.has(*derivation.elements):
        return None
    slope = sp.diff(written, variable)
    edge = sp.expand(variable - written / slope) if slope.is_number else None
    upper, lower = terms if way > 0 else terms[::-1]
    choice = sp.Piecewise(*((case.term.subs(part, variable), case.guard.subs(part, variable)) for case in union.cases))
    return Ordered(Map((part,), (variable,), choice), upper, lower, way > 0, edge)
