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

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import expansion_of
from tvm_cascade.algebra.invariants import Invariant
from tvm_cascade.algebra.monotone import Cases, kept_by, through_order
from tvm_cascade.algebra.moved_state import MovedState
from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.sections import reference_of
from tvm_cascade.algebra.summand import Summand, deferred, in_exponent_units
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.separate import Step, strip_rounding


def order_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Invariant]) -> sp.Expr:
    """The extremum in the state that is added for it: ⊕ of those of its cases, each where there is such a position."""
    extrema = Extrema(derivation, reduction, used).kept(strip_rounding(element))
    derivation.deferred[reduction.result] = tuple(derivation.plain(h.value) for h in used)
    nothing = (reduction.reducer.neutral, True)
    total = reduction.reducer.over(sp.Piecewise((extremum, met), nothing) for extremum, met in extrema)
    return total.xreplace({h.symbol: h.value for h in used})


class Extrema(Cases[tuple[sp.Expr, sp.Basic]]):
    """Extrema of numbers, each with the condition on the state that there has been a position of its case."""

    def at_once(self, element: sp.Expr) -> list[tuple[sp.Expr, sp.Basic]] | str:
        """The extremum at the ends of what decides it, or of a product that moves."""
        if isinstance(found := self._at_ends(element), str):
            extremum = self._scaled(element)
            return found if extremum is None else [(extremum, self._met())]
        return [(found, self._met())]

    def _met(self) -> sp.Basic:
        derivation = self.derivation
        if derivation.where == sp.true:
            return sp.true
        return sp.Eq(derivation.component(self.reduction, MAX, sp.S.One), 1)

    def _at_ends(self, element: sp.Expr) -> sp.Expr | str:
        """The extremum of a map of one part; the code of a refusal where it is none."""
        reducer, symbols = self.reduction.reducer, [invariant.symbol for invariant in self.used]
        if not element.has(*self.derivation.elements):
            return element
        passed = through_order(element, reducer, self.derivation.elements, symbols)
        if isinstance(passed, str) or is_truth(*passed[0].parts):
            return passed if isinstance(passed, str) else "several_element_parts"
        found, kept, _ = passed
        return found.over(reducer, kept, lambda end, part: self.derivation.component(self.reduction, end, part))

    def _scaled(self, element: sp.Expr) -> sp.Expr | None:
        """The extremum of G·H + K; None where the element has another form."""
        derivation, reducer = self.derivation, self.reduction.reducer
        apart = [term for term in sp.Add.make_args(element) if not term.has(*derivation.elements)]
        body = sp.factor_terms(element - sp.Add(*apart))
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
        met = self._met()
        references = [reference_of(derivation, self.reduction, invariant, body) for invariant in invariants]
        shift = span.shift(symbols, [Step(r.symbol, r.moved, r.step) for r in references])
        given = derivation, self.reduction, (body,), shift, invariants, references
        return [MovedState(*given, reducer=end, met=met).final() for end in kept]
