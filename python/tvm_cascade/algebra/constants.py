"""Floating-point constants as symbols, since SymPy takes exp(1.4427·x) for a power of exp(x/10000).

So too in N**1.4427, whose roots of numbers take minutes, and beside logarithms and under waves: 10000·log N for the log
of a power, sin(10000·x) for a polynomial in sin x.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction
from tvm_cascade.algebra.fold import Component, Fold, Reference

LARGEST_PLAIN = 16
"""Numerators and denominators up to this stay numbers."""


class NamedConstants:
    """Positive symbols for floating-point constants of exponents, logarithms and waves; real ones for fixed logarithms.

    Attributes
    ----------
    values : what each symbol stands for.
    """

    def __init__(self) -> None:
        self.values: dict[sp.Symbol, sp.Expr] = {}

    def named(self, cascade: Cascade) -> Cascade:
        names: dict[sp.Expr, sp.Expr] = {}
        for reduction in cascade.reductions:
            whole = reduction.element.has(sp.log, sp.sin, sp.cos)
            read = [reduction.element] if whole else list(_exponents(reduction.element))
            names.update(self._logarithms(reduction.element, {*cascade.elements, *cascade.results, LENGTH}))
            for expression in read:
                names.update(self._names(expression))
        # Everywhere, not under exponentials alone: max x·k must still be seen to bound exp(x·k − max).
        reductions = [Reduction(r.result, r.reducer, r.element.xreplace(names)) for r in cascade.reductions]
        return Cascade(reductions, cascade.elements)

    def numbered(self, fold: Fold, cascade: Cascade) -> Fold:
        """The fold of the original cascade, with numbers for those symbols."""

        def back(expression: sp.Expr) -> sp.Expr:
            return expression.xreplace(self.values)

        steps = tuple(self._step(step) for step in fold.steps)
        finish = {result: back(value) for result, value in fold.finish.items()}
        deferred = {result: tuple(map(back, quantities)) for result, quantities in fold.deferred.items()}
        return Fold(cascade, steps, finish, deferred)

    def _step(self, step: Component | Reference) -> Component | Reference:
        if isinstance(step, Component):
            lift, shift = step.lift.xreplace(self.values), step.shift.xreplace(self.values)
            return dataclasses.replace(step, lift=lift, shift=shift)
        tracks, value = step.tracks.xreplace(self.values), step.value.xreplace(self.values)
        return dataclasses.replace(step, tracks=tracks, value=value)

    def _logarithms(self, element: sp.Expr, varying: set[sp.Symbol]) -> dict[sp.Expr, sp.Expr]:
        """Symbols for logarithms of parameters: SymPy takes a fourth power of a sum of them apart for minutes."""
        fixed = (e for e in element.atoms(sp.log) if e.is_real and e.free_symbols and not e.free_symbols & varying)
        return {e: self._symbol(e, real=True) for e in sorted(fixed, key=str)}

    def _symbol(self, value: sp.Expr, **facts: bool) -> sp.Symbol:
        """The symbol of a value, made on first use."""
        known = next((symbol for symbol, meant in self.values.items() if meant == value), None)
        symbol = known or sp.Symbol(f"_k{len(self.values)}", **facts)
        self.values[symbol] = value
        return symbol

    def _names(self, argument: sp.Expr) -> dict[sp.Expr, sp.Expr]:
        names: dict[sp.Expr, sp.Expr] = {}
        for number in argument.atoms(sp.Rational):
            if max(abs(number.p), number.q) > LARGEST_PLAIN:
                symbol = self._symbol(abs(number), positive=True)
                names[number] = symbol if number > 0 else -symbol
        return names


def _exponents(expression: sp.Expr) -> Iterator[sp.Expr]:
    """Of exponentials, and those of powers that are no whole numbers: x**32 stays a polynomial."""
    yield from (e.args[0] for e in expression.atoms(sp.exp))
    yield from (p.exp for p in expression.atoms(sp.Pow) if not p.exp.is_integer)
