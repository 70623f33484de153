"""max and min of elements that read earlier results, case by case and term by term.

| element                            | max over the positions is                                                       |
|------------------------------------|---------------------------------------------------------------------------------|
| φ(a(x), d), monotone or convex     | φ of the ends of a (see `monotone`)                                             |
| G(x)·H(d) + K(d)                   | max G where H ≥ 0, min G where H ≤ 0, both where its sign is data               |
| G(x)·exp(x − u), G of one sign     | max G(x)·exp(x − c), as a sum is kept whose span has one function: its move is  |
|                                    | positive, so that order is kept                                                 |
| f where a mask holds, g elsewhere  | the larger of max f over the one and max g over the others, if there are such   |

Everything else is refused: with the proof that its envelope has as many pieces as one likes, or as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import expansion_of
from tvm_cascade.algebra.invariants import Invariant
from tvm_cascade.algebra.monotone import kept_by, through_order
from tvm_cascade.algebra.moved_state import MovedState
from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.sections import reference_of
from tvm_cascade.algebra.summand import Summand, deferred, in_exponent_units
from tvm_cascade.symbolic.masks import is_truth, masks_in
from tvm_cascade.symbolic.separate import Step, strip_rounding

MOST_BRANCHES = 16
"""Cases and arguments of extrema that one element is taken apart into."""


def order_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Invariant]) -> sp.Expr:
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
    function : the element there, over invariants; or a part of it of which it is the larger, or smaller, one.
    whole : all of the element there: that a part has no fold proves nothing of it.
    where : each mask that is decided, and whether it holds.
    """

    derivation: Derivation
    reduction: Reduction
    used: tuple[Invariant, ...]
    function: sp.Expr
    whole: sp.Expr
    where: tuple[tuple[sp.Symbol, bool], ...]

    def kept_or_parts(self) -> sp.Expr | list[Case]:
        """The extremum, in invariants and components; else the cases of whose extrema it is ⊕.

        Raises
        ------
        Refused
            Where the element has no fold, or none is known.
        """
        if not isinstance(found := self._at_ends(), str):
            return found
        with self.derivation.over(self.holds):
            scaled = self._scaled()
        if scaled is not None:
            return scaled
        if masks := masks_in(self.function, self.derivation.elements):
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

    def _at_ends(self) -> sp.Expr | str:
        """The extremum of a map of one part; the code of a refusal where it is none."""
        reducer, symbols = self.reduction.reducer, [invariant.symbol for invariant in self.used]
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
        read = [invariant for invariant in self.used if invariant.symbol in body.free_symbols]
        summand = in_exponent_units(derivation, deferred(derivation, self.reduction, body, read))
        kept = kept_by(summand.factor, reducer)
        if summand.tracked:
            ends = self._moved(summand, kept)
        else:
            ends = [derivation.component(self.reduction, end, summand.function) for end in kept]
        if ends is None:
            return None
        return reducer.over([summand.factor * end for end in ends]) + sp.Add(*apart)

    def _moved(self, summand: Summand, kept: tuple[Reducer, ...]) -> list[sp.Expr] | None:
        """The ends of elements that a move of the results multiplies by something positive, at references of those.

        Until a position that counts has been met there is nothing to move.
        """
        derivation, body, invariants = self.derivation, summand.function, summand.tracked
        symbols = [invariant.symbol for invariant in invariants]
        span = expansion_of(body, derivation.elements, symbols)
        if span is None or span.rank > 1 or not span.moving[0].is_positive:
            return None
        if not (span.scale.is_positive or span.scale.is_negative):  # it would exchange the largest and the smallest
            return None
        met = self.met()
        references = [reference_of(derivation, self.reduction, invariant, body) for invariant in invariants]
        shift = span.shift(symbols, [Step(r.symbol, r.moved, r.step) for r in references])
        given = derivation, self.reduction, (body,), shift, invariants, references
        return [MovedState(*given, reducer=end, met=met).final() for end in kept]

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
