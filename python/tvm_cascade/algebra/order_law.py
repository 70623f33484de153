"""max and min of elements that read earlier results, case by case and term by term.

| element                            | max over the positions is                                                       |
|------------------------------------|---------------------------------------------------------------------------------|
| φ(a(x), d), monotone or convex     | φ of the ends of a (see `monotone`)                                             |
| φ(Max(f, g)), φ rising; |f|        | the larger of max φ(f) and max φ(g)                                             |
| G(x)·H(d) + K(d)                   | max G where H ≥ 0, min G where H ≤ 0, both where its sign is data               |
| G(x)·exp(x − u), G of one sign     | max G(x)·exp(x − c), as a sum is kept whose span has one function: its move is  |
|                                    | positive, so that order is kept                                                 |
| the same, G of either sign         | G and a of the best G·exp(a) so far, as a tuple                                 |
| f where a mask holds, g elsewhere  | the larger of max f over the one and max g over the others, if there are such   |

exp(−u) is positive, so the order of the elements does not depend on u, and a tuple needs no reference. The largest
exponent would be a bad one: the best element of min x·exp(x) over positive x is that of the smallest exponent, and
underflows beside the largest. Elements of two signs are compared by G alone, those of one sign by
G·exp(a) / exp(the larger a).

Everything else is refused: with the proof that its envelope has as many pieces as one likes, or as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import expansion_of
from tvm_cascade.algebra.facts.extent import pole
from tvm_cascade.algebra.facts.relation import EXTREMA, taken_from
from tvm_cascade.algebra.facts.trend import trend
from tvm_cascade.algebra.handles import Handle, exponents, factor_in
from tvm_cascade.algebra.monotone import kept_by, through_order
from tvm_cascade.algebra.moved_state import MovedState
from tvm_cascade.algebra.reducer import MAX, Reducer, TupleReducer, first, second
from tvm_cascade.algebra.sections import reference_of
from tvm_cascade.algebra.summand import Summand, deferred, in_exponent_units
from tvm_cascade.symbolic.functions import GuardedProduct
from tvm_cascade.symbolic.masks import is_truth, masks_in
from tvm_cascade.symbolic.separate import Step, strip_rounding
from tvm_cascade.symbolic.work import simplified

MOST_BRANCHES = 16
"""Cases and arguments of extrema that one element is taken apart into."""


def order_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """The extremum in the state that is added for it: ⊕ of those of its terms, each where there is such a position."""
    reducer, found, function = reduction.reducer, dict[sp.Basic, list[sp.Expr]](), strip_rounding(element)
    for case, term in _by_cases(Case(derivation, reduction, tuple(used), function, function, ())):
        found.setdefault(case.met(), []).append(term)
    derivation.deferred[reduction.result] = tuple(derivation.plain(h.value) for h in used)
    terms = (sp.Piecewise((reducer.over(extrema), met), (reducer.neutral, True)) for met, extrema in found.items())
    return reducer.over(terms).xreplace({h.symbol: h.value for h in used})


def _by_cases(whole: Case) -> Iterator[tuple[Case, sp.Expr]]:
    """What is kept of an element, case by case.

    Raises
    ------
    Refused
        Where there is no fold of a case, or none is known, or there are too many.
    """
    pending, taken = [whole], 0
    while pending:
        case, taken = pending.pop(0), taken + 1
        if taken > MOST_BRANCHES:
            raise whole.derivation.refuse(whole.reduction, "order_unknown", case.function)
        term = case.kept_or_parts()
        if isinstance(term, list):
            pending = term + pending
        else:
            yield case, term


@dataclass(frozen=True)
class Case:
    """An element over the positions where some masks have some values.

    Attributes
    ----------
    function : the element there, over handles; or a part of it of which it is the larger, or smaller, one.
    whole : all of the element there: that a part has no fold proves nothing of it.
    where : each mask that is decided, and whether it holds.
    """

    derivation: Derivation
    reduction: Reduction
    used: tuple[Handle, ...]
    function: sp.Expr
    whole: sp.Expr
    where: tuple[tuple[sp.Symbol, bool], ...]

    def kept_or_parts(self) -> sp.Expr | list[Case]:
        """The extremum, in handles and components; else the cases of whose extrema it is ⊕.

        Raises
        ------
        Refused
            Where the element has no fold, or none is known.
        """
        masks = masks_in(self.function, self.derivation.elements)
        if (zeroing := self._zeroing(masks)) is not None:
            return self._split(zeroing)
        if not isinstance(found := self._at_ends(), str):
            return found
        if (arguments := self._arguments()) is not None:
            return [replace(self, function=argument) for argument in arguments]
        with self.derivation.over(self.holds):
            scaled = self._scaled()
        if scaled is not None:
            return scaled
        if masks:
            return self._split(masks[0])
        raise self._refused(found)

    @property
    def holds(self) -> sp.Basic:
        return sp.And(*(mask > 0 if holds else sp.Le(mask, 0) for mask, holds in self.where))

    def met(self) -> sp.Basic:
        """Whether there has been a position of this case, as a condition on the state."""
        if not self.where:
            return sp.true
        here = sp.Piecewise((1, self.holds), (0, True))
        return sp.Eq(self.derivation.component(self.reduction, MAX, here), 1)

    def _zeroing(self, masks: list[sp.Symbol]) -> sp.Symbol | None:
        """A mask that makes the element 0 next to a factor that may be infinite: deferred, that is 0·inf."""
        found = next((m for m in masks if sp.S.Zero in (self.function.subs(m, 0), self.function.subs(m, 1))), None)
        if found is None:
            return None
        weights = (factor_in(self.function, h.symbol, self.derivation.elements) for h in self.used)
        factor = sp.Mul(*(weight for weight in weights if weight is not None))
        values = {handle.symbol: handle.value for handle in self.used}
        return found if pole(factor.xreplace(values), self.derivation.results, partial=True) else None

    def _at_ends(self) -> sp.Expr | str:
        """The extremum of a map of one part; the code of a refusal where it is none."""
        reducer, symbols = self.reduction.reducer, [handle.symbol for handle in self.used]
        if not self.function.has(*self.derivation.elements):
            return self.function
        passed = through_order(self.function, reducer, self.derivation.elements, symbols)
        if isinstance(passed, str) or is_truth(*passed[0].parts):
            return passed if isinstance(passed, str) else "several_element_parts"
        found, kept = passed
        with self.derivation.over(self.holds):
            return found.over(reducer, kept, lambda end, part: self.derivation.component(self.reduction, end, part))

    def _scaled(self) -> sp.Expr | None:
        """The extremum of G·H + K; None where the element has another form."""
        derivation, reducer = self.derivation, self.reduction.reducer
        apart = [term for term in sp.Add.make_args(self.function) if not term.has(*derivation.elements)]
        body = sp.factor_terms(self.function - sp.Add(*apart))
        read = [handle for handle in self.used if handle.symbol in body.free_symbols]
        summand = in_exponent_units(derivation, deferred(derivation, self.reduction, body, read))
        kept = kept_by(summand.factor, reducer)
        if summand.tracked:
            ends = self._best_products(summand, kept) or self._moved(summand, kept)
        else:
            ends = [derivation.component(self.reduction, end, summand.function) for end in kept]
        if ends is None:
            return None
        return reducer.over([summand.factor * end for end in ends]) + sp.Add(*apart)

    def _best_products(self, summand: Summand, kept: tuple[Reducer, ...]) -> list[sp.Expr] | None:
        """The best of products G·exp(a − u) that need to be kept as pairs.

        None where the results bound the exponent, or G has the sign with which the largest exponent is best.
        """
        derivation, function, tracked = self.derivation, summand.function, [h.symbol for h in summand.tracked]
        found = {e for symbol in tracked for e in exponents(function, symbol, derivation.elements)}
        if len(found) != 1 or derivation.bounds(exponent := found.pop(), function):
            return None
        weight, still = simplified(function / sp.exp(exponent)), exponent.subs(dict.fromkeys(tracked, 0))
        moving = sp.expand(exponent - still)
        if weight.has(*tracked) or moving.has(*derivation.elements):
            return None
        if weight.is_nonnegative if kept == (MAX,) else len(kept) == 1 and weight.is_nonpositive:
            return None
        ends = []
        for whole in map(best_product, kept):
            lifts = [derivation.masked(whole.of(part), lift) for part, lift in enumerate((weight, still))]
            best, power = derivation.tuple_of(whole, [self.reduction] * 2, lifts)
            ends.append(GuardedProduct(best, sp.exp(moving.xreplace(derivation.handles.values) + power)))
        return ends

    def _moved(self, summand: Summand, kept: tuple[Reducer, ...]) -> list[sp.Expr] | None:
        """The ends of elements that a move of the results multiplies by something positive, at references of those.

        Until a position that counts has been met there is nothing to move.
        """
        derivation, body, handles = self.derivation, summand.function, summand.tracked
        symbols = [handle.symbol for handle in handles]
        span = expansion_of(body, derivation.elements, symbols)
        if span is None or span.rank > 1 or not span.moving[0].is_positive:
            return None
        if not (span.scale.is_positive or span.scale.is_negative):  # it would exchange the largest and the smallest
            return None
        met = self.met()
        references = [reference_of(derivation, self.reduction, handle, body) for handle in handles]
        shift = span.shift(symbols, [Step(r.symbol, r.moved, r.step) for r in references])
        given = derivation, self.reduction, (body,), shift, handles, references
        return [MovedState(*given, reducer=end, met=met).final() for end in kept]

    def _arguments(self) -> list[sp.Expr] | None:
        """The functions of which the element is the larger one everywhere, for max: φ(f), φ(g) for φ(Max(f, g))."""
        way = 1 if self.reduction.reducer is MAX else -1
        for extremum in sorted(self.function.atoms(*EXTREMA), key=sp.count_ops, reverse=True):
            if not extremum.has(*(handle.symbol for handle in self.used)):
                continue
            upper, arguments = taken_from(extremum)
            variable = sp.Dummy(real=True)
            if trend(self.function.xreplace({extremum: variable}), variable) == (way if upper else -way):
                return [self.function.xreplace({extremum: argument}) for argument in arguments]
        return None

    def _split(self, mask: sp.Symbol) -> list[Case]:
        """The cases where the mask holds, and where it does not."""
        sides = []
        for holds in (True, False):
            function, whole = (part.subs(mask, int(holds)) for part in (self.function, self.whole))
            if function.has(sp.nan, sp.zoo, sp.oo):
                raise self.derivation.refuse(self.reduction, "order_unknown", self.function)
            sides.append(replace(self, function=function, whole=whole, where=(*self.where, (mask, holds))))
        return sides

    def _refused(self, code: str) -> Exception:
        """With positions each of which decides the result of some data, where such are found."""
        shown = self.derivation.counterexample("not_monotone", self.reduction, self.whole, self.holds)
        code = "not_monotone" if shown else "order_unknown" if code == "not_monotone" else code
        return self.derivation.refuse(self.reduction, code, self.whole, shown=shown)


@cache
def best_product(reducer: Reducer) -> TupleReducer:
    """The reducer of (G, a) that keeps the pair with the largest, or smallest, G·exp(a).

    It starts with an exponent above all others, so that every element of its sign is better.
    """
    (g, a), (h, b) = ((side(0), side(1)) for side in (first, second))
    at_least = sp.Ge if reducer is MAX else sp.Le
    gap = sp.exp(-sp.Abs(a - b))
    of_one_sign = sp.Or(sp.And(g > 0, h > 0), sp.And(g < 0, h < 0))
    scaled = sp.Or(sp.And(a < b, at_least(g * gap, h)), sp.And(a >= b, at_least(g, h * gap)))
    better = sp.Or(sp.And(of_one_sign, scaled), sp.And(sp.Not(of_one_sign), at_least(g, h)))
    combined = tuple(sp.Piecewise((mine, better), (theirs, True)) for mine, theirs in ((g, h), (a, b)))
    return TupleReducer(f"{reducer.name}_product", combined, (reducer.identity, sp.oo))
