"""Translation weights: how an expression changes when a constant is added to the elements.

max x moves by what is added to x, Σ x by N times as much, Σ exp(x − max x) not at all; x² by no multiple of it. Of
m + log t − h at data far from zero, m alone is large, and so is a reference of it: the others are small, and added to m
they lose their digits. So a sum is written group by group: (m − c), whose offsets cancel, then log t − h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import SUM, Reducer
from tvm_cascade.symbolic.functions import Round

Offset = Mapping[sp.Symbol, sp.Expr]
"""By which multiple of what is added to an element, or to a parameter, a quantity moves; those that are 0 left out.

A multiple is a number, or does not move itself: (T + W·u)/W moves by as much as u where T and W are still.
"""


class Offsets:
    """The translation weights of a cascade's results, components and references.

    Parameters
    ----------
    reductions : whose results have offsets; every other symbol moves by itself, but for n and N.
    length : N, where it is a number.
    """

    def __init__(self, reductions: Sequence[Reduction], length: int | None = None) -> None:
        self.length: sp.Expr = LENGTH if length is None else sp.Integer(length)
        self.references: frozenset[sp.Symbol] = frozenset()
        self._known: dict[sp.Symbol, Offset | None] = {COUNT: {}, LENGTH: {}}
        for reduction in reductions:
            self._known[reduction.result] = self._folded(reduction.reducer, reduction.element, self.length)

    def add_component(self, symbol: sp.Symbol, reducer: Reducer, lift: sp.Expr) -> None:
        self._known[symbol] = self._folded(reducer, lift, COUNT)

    def add_reference(self, symbol: sp.Symbol, moved: sp.Symbol, step: sp.Symbol, value: sp.Expr) -> None:
        """Adds a reference, what it moves to, and its step, which does not change with the data."""
        offset = self.of(value)
        self.references |= {symbol, moved}
        self._known |= {symbol: offset, moved: offset, step: {}}

    def of(self, expression: sp.Basic) -> Offset | None:
        """The translation weight; None where the quantity does not change by a multiple of what is added."""
        if isinstance(expression, sp.Symbol):
            return self._known.get(expression, {expression: sp.S.One})
        if isinstance(expression, Round):
            return self._if_still([expression.args[0]])
        if isinstance(expression, sp.Add):
            return self._total([self.of(term) for term in expression.args])
        if isinstance(expression, sp.Mul):
            moving = [factor for factor in expression.args if self.of(factor) != {}]
            if len(moving) == 1 and (offset := self.of(moving[0])) is not None:
                scale = sp.Mul(*(f for f in expression.args if f not in moving)).subs(LENGTH, self.length)
                if scale.free_symbols <= self._known.keys():
                    return {symbol: scale * by for symbol, by in offset.items()}
        return self._if_still(expression.args)

    def _folded(self, reducer: Reducer, element: sp.Expr, count: sp.Expr) -> Offset | None:
        offset = self.of(element)
        if not offset or reducer.ordered:
            return offset
        return {symbol: count * by for symbol, by in offset.items()} if reducer is SUM else None

    def _if_still(self, parts: Sequence[sp.Basic]) -> Offset | None:
        return {} if all(self.of(part) == {} for part in parts) else None

    @staticmethod
    def _total(offsets: Sequence[Offset | None]) -> Offset | None:
        total: dict[sp.Symbol, sp.Expr] = {}
        for offset in offsets:
            if offset is None:
                return None
            for symbol, by in offset.items():
                total[symbol] = total.get(symbol, sp.S.Zero) + by
        return {symbol: by for symbol, by in total.items() if by != 0}


def offsets_of(fold: Fold, length: int | None = None) -> Offsets:
    """The translation weights of a fold's results, components and references.

    Parameters
    ----------
    length : N, where it is a number.
    """
    offsets = Offsets(fold.cascade.reductions, length)
    for step in fold.steps:
        if isinstance(step, Component):
            offsets.add_component(step.symbol, step.reducer, step.lift)
        else:
            offsets.add_reference(step.symbol, step.moved, step.step, step.value)
    return offsets


def by_offset(terms: Sequence[sp.Expr], offsets: Offsets) -> tuple[list[list[sp.Expr]], list[sp.Expr]]:
    """The terms grouped by translation weight; one group where some weights are unknown."""
    known = [offsets.of(term) for term in terms]
    groups: list[tuple[set[sp.Symbol], list[sp.Expr]]] = []
    still: list[sp.Expr] = []
    for term, offset in zip(terms, known, strict=True):
        if offset is None:
            return [list(terms)], []
        if not offset:
            still.append(term)
            continue
        shared = [group for group in groups if not group[0].isdisjoint(offset)]
        groups = [group for group in groups if group not in shared]
        symbols = set(offset).union(*(met for met, _ in shared))
        groups.append((symbols, [*(earlier for _, members in shared for earlier in members), term]))
    return [members for _, members in groups], still
