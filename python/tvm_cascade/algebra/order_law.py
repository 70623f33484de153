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

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction, is_truth, masks_in
from tvm_cascade.algebra.counterexample import deciding_positions
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.envelope import envelope
from tvm_cascade.algebra.gauge import Handle, factor_in, may_be_singular
from tvm_cascade.algebra.monotone import through_order, trend
from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.scaled_order import scaled_extremum
from tvm_cascade.algebra.separate import RANK_LIMIT, strip_rounding

MOST_BRANCHES = 16
"""Cases and arguments of extrema that one element is taken apart into."""


def order_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """The extremum in the state that this law adds."""
    derivation.deferred[reduction.result] = tuple(derivation.plain(h.value) for h in used)
    function = strip_rounding(element)
    case = _Case(derivation, reduction, tuple(used), function, function, (), [0])
    return case.extremum().xreplace({h.symbol: h.value for h in used})


@dataclass(frozen=True)
class _Case:
    """An element over the positions where some masks have some values.

    Attributes
    ----------
    function : the element there, over handles; or a part of it of which it is the larger, or smaller, one.
    whole : all of the element there: that a part has no fold proves nothing of it.
    where : each mask that is decided, and whether it holds.
    branches : how many cases the element has been taken apart into so far; shared by all of them.
    """

    derivation: Derivation
    reduction: Reduction
    used: tuple[Handle, ...]
    function: sp.Expr
    whole: sp.Expr
    where: tuple[tuple[sp.Symbol, bool], ...]
    branches: list[int]

    @property
    def reducer(self) -> Reducer:
        return self.reduction.reducer

    def extremum(self) -> sp.Expr:
        """The extremum in handles and components.

        Raises
        ------
        Refused
            Where the element has no fold, or none is known.
        """
        self.branches[0] += 1
        if self.branches[0] > MOST_BRANCHES:
            raise self.derivation.refuse(self.reduction, "order_unknown", self.function)
        if not self.function.has(*self.derivation.elements):
            return self.function
        masks = masks_in(self.function, self.derivation.elements)
        if (zeroing := self._zeroing(masks)) is not None:
            return self._split(zeroing)
        passed = through_order(self.function, self.reducer, self.derivation.elements, self._handles)
        if not isinstance(passed, str) and not is_truth(passed[0]):
            inner, kept, outer = passed
            with self.derivation.over(self._holds):
                ends = [self.derivation.component(self.reduction, reducer, inner) for reducer in kept]
            return self.reducer.over([outer(end) for end in ends])
        if (arguments := self._arguments()) is not None:
            return self.reducer.over([replace(self, function=argument).extremum() for argument in arguments])
        if (scaled := self._scaled()) is not None:
            return scaled
        if masks:
            return self._split(masks[0])
        raise self._refused(passed if isinstance(passed, str) else "several_element_parts")

    @property
    def _handles(self) -> list[sp.Symbol]:
        return [handle.symbol for handle in self.used]

    @property
    def _holds(self) -> sp.Basic:
        """The condition of this case."""
        return sp.And(*(mask > 0 if holds else sp.Le(mask, 0) for mask, holds in self.where))

    def _met(self) -> sp.Basic:
        """Whether there has been a position of this case, as a condition on the state."""
        if not self.where:
            return sp.true
        here = sp.Piecewise((1, self._holds), (0, True))
        return sp.Eq(self.derivation.component(self.reduction, MAX, here), 1)

    def _zeroing(self, masks: list[sp.Symbol]) -> sp.Symbol | None:
        """A mask that makes the element 0 next to a factor that may be infinite: deferred, that is 0·inf."""
        found = next((m for m in masks if sp.S.Zero in (self.function.subs(m, 0), self.function.subs(m, 1))), None)
        if found is None:
            return None
        weights = (factor_in(self.function, h.symbol, self.derivation.elements) for h in self.used)
        factor = sp.Mul(*(weight for weight in weights if weight is not None))
        values = {handle.symbol: handle.value for handle in self.used}
        return found if may_be_singular(factor.xreplace(values), self.derivation.results) else None

    def _scaled(self) -> sp.Expr | None:
        met = self._met()
        with self.derivation.over(self._holds):
            return scaled_extremum(self.derivation, self.reduction, self.function, list(self.used), met)

    def _arguments(self) -> list[sp.Expr] | None:
        """The functions of which the element is the larger one everywhere, for max: φ(f), φ(g) for φ(Max(f, g))."""
        way = 1 if self.reducer is MAX else -1
        for extremum, arguments, upper in _extrema_in(self.function):
            if not extremum.has(*self._handles):
                continue
            variable = sp.Dummy(real=True)
            if trend(self.function.xreplace({extremum: variable}), variable) == (way if upper else -way):
                return [self.function.xreplace({extremum: argument}) for argument in arguments]
        return None

    def _split(self, mask: sp.Symbol) -> sp.Expr:
        """The extremum from those over the positions where the mask holds, and where it does not."""
        sides = []
        for holds in (True, False):
            function = self.function.subs(mask, int(holds))
            if function.has(sp.nan, sp.zoo, sp.oo):
                raise self.derivation.refuse(self.reduction, "order_unknown", self.function)
            whole = self.whole.subs(mask, int(holds))
            side = replace(self, function=function, whole=whole, where=(*self.where, (mask, holds)))
            sides.append((side.extremum(), side._met()))
        (first, some), (second, others) = sides
        return sp.Piecewise(
            (self.reducer.combine(first, second), sp.And(some, others)),
            (first, some),
            (second, others),
            (self.reducer.neutral, True),
        )

    def _refused(self, code: str) -> Exception:
        question = self.derivation.question(self.reduction, self.whole)
        found = envelope(question.over_results, self.reducer, question.earlier, RANK_LIMIT + 1, self._holds)
        if found is None:
            code = "order_unknown" if code == "not_monotone" else code
            return self.derivation.refuse(self.reduction, code, self.whole)
        shown = deciding_positions(found, question)
        return self.derivation.refuse(self.reduction, "not_monotone", self.whole, shown=shown)


def _extrema_in(function: sp.Expr) -> Iterator[tuple[sp.Expr, tuple[sp.Expr, ...], bool]]:
    """Each Max, Min and absolute value in it, what it selects from, and whether it selects the largest."""
    for extremum in sorted(function.atoms(sp.Max, sp.Min, sp.Abs), key=sp.count_ops, reverse=True):
        if isinstance(extremum, sp.Abs):
            yield extremum, (extremum.args[0], -extremum.args[0]), True
        else:
            yield extremum, extremum.args, isinstance(extremum, sp.Max)
