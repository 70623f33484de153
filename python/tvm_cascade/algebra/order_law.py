"""max and min of elements that read earlier results, case by case and term by term.

| element                            | max over the positions is                                                       |
|------------------------------------|---------------------------------------------------------------------------------|
| φ(a(x), d), monotone or convex     | φ of the ends of a (see `monotone`)                                             |
| φ(Max(f, g)), φ rising; |f|        | the larger of max φ(f) and max φ(g)                                             |
| G(x)·H(d) + K(d)                   | the extremum of G, relative to a reference (see `scaled_order`)                 |
| f where a mask holds, g elsewhere  | the larger of max f over the one and max g over the others, if there are such   |

Everything else is refused: with the proof that its envelope has as many pieces as one likes, or as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.facts.extent import pole
from tvm_cascade.algebra.facts.relation import EXTREMA, taken_from
from tvm_cascade.algebra.facts.trend import trend
from tvm_cascade.algebra.handles import Handle, factor_in
from tvm_cascade.algebra.monotone import through_order
from tvm_cascade.algebra.reducer import MAX
from tvm_cascade.symbolic.masks import is_truth, masks_in

MOST_BRANCHES = 16
"""Cases and arguments of extrema that one element is taken apart into."""


def extremum(whole: Case) -> sp.Expr:
    """The extremum in the state that is added for it: ⊕ of those of its terms, each where there is such a position."""
    derivation, reducer, found = whole.derivation, whole.reduction.reducer, dict[sp.Basic, list[sp.Expr]]()
    for case, term in by_cases(whole):
        found.setdefault(case.met(), []).append(term)
    derivation.deferred[whole.reduction.result] = tuple(derivation.plain(h.value) for h in whole.used)
    terms = (sp.Piecewise((reducer.over(extrema), met), (reducer.neutral, True)) for met, extrema in found.items())
    return reducer.over(terms).xreplace({h.symbol: h.value for h in whole.used})


def by_cases(whole: Case) -> Iterator[tuple[Case, Any]]:
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

    def kept_or_parts(self) -> Any:
        """The extremum, in handles and components; else a list of the cases of whose extrema it is ⊕.

        Raises
        ------
        Refused
            Where the element has no fold, or none is known.
        """
        masks = masks_in(self.function, self.derivation.elements)
        if (zeroing := self._zeroing(masks)) is not None:
            return self._split(zeroing)
        if not isinstance(found := self.at_ends(), str):
            return found
        if (arguments := self.arguments()) is not None:
            return [replace(self, function=argument) for argument in arguments]
        if (scaled := self.scaled()) is not None:
            return scaled
        if masks:
            return self._split(masks[0])
        raise self.refused(found)

    @property
    def holds(self) -> sp.Basic:
        """The condition of this case."""
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

    def at_ends(self) -> Any:
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

    def scaled(self) -> Any:
        """What is kept of products with results; None where the element has another form."""
        return None

    def arguments(self) -> list[sp.Expr] | None:
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

    def refused(self, code: str) -> Exception:
        """With positions each of which decides the result of some data, where such are found."""
        shown = self.derivation.counterexample("not_monotone", self.reduction, self.whole, self.holds)
        if shown is None:
            code = "order_unknown" if code == "not_monotone" else code
            return self.derivation.refuse(self.reduction, code, self.whole)
        return self.derivation.refuse(self.reduction, "not_monotone", self.whole, shown=shown)
