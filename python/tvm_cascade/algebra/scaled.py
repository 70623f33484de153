"""Sums of scaled weights: by numbers that their results take up, or relative to the largest of them.

Σ g·w·v   →   T = Σ w·v;  finish g·T

A weight without a bound gets a reference of its size, so that a narrow dtype holds it:

T = Σ w·v   →   M = max |w|;  c = 2·2^⌊log₂ M⌋, or 2⁻¹⁰⁰;  T = Σ (w/c)·v;  finish T·c

|w/c| is below 1 whatever the data are, and a power of two leaves digits as they are: what a narrow dtype loses of a
weight is small beside the largest one so far. Zeros alone have a scale beside which every other weight is large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.policy import Move, Policy, Range
from tvm_cascade.algebra.reducer import MAX
from tvm_cascade.symbolic.functions import PowerOfTwo

_SMALLEST = sp.Float(2.0**-100)
"""A scale whose reciprocal is in range, too."""


def can_scale(fold: Fold, component: Component) -> bool:
    """Whether no reference moves a sum yet, and nothing but results read it."""
    return component.shift == component.symbol and not any(
        component.symbol in (step.shift if isinstance(step, Component) else step.value).free_symbols
        for step in fold.steps
        if step is not component
    )


def with_scales(fold: Fold, weights: Mapping[sp.Symbol, sp.Expr]) -> Fold:
    """The fold with sums of scaled weights.

    Parameters
    ----------
    weights : w of the sums that are scaled, by their component; equal ones have one reference.
    """
    references: dict[sp.Expr, Reference] = {}
    steps, scales = list[Component | Reference](), dict[sp.Symbol, sp.Expr]()
    for step in fold.steps:
        weight = weights.get(step.symbol)
        if weight is None or isinstance(step, Reference):
            steps.append(step)
            continue
        if weight not in references:
            largest, references[weight] = _scale(step, weight)
            steps += [largest, references[weight]]
        c = references[weight]
        steps.append(_relative(step, c))
        scales[step.symbol] = c.symbol
    return _finished(fold, steps, scales)


def with_factors(fold: Fold, factors: Mapping[sp.Symbol, sp.Expr]) -> Fold:
    """The fold with numbers that multiply every element of a sum, by its component, left to its results."""

    def without(step: Component | Reference) -> Component | Reference:
        if isinstance(step, Reference) or step.symbol not in factors:
            return step
        return replace(step, lift=step.lift / factors[step.symbol])

    return _finished(fold, list(map(without, fold.steps)), factors)


def _finished(fold: Fold, steps: Sequence[Component | Reference], scales: Mapping[sp.Symbol, sp.Expr]) -> Fold:
    """A fold of these steps, in which components are parts of what they were by these scales."""
    whole = {symbol: symbol * scale for symbol, scale in scales.items()}
    finish = {result: expression.xreplace(whole) for result, expression in fold.finish.items()}
    return Fold(fold.cascade, tuple(steps), finish, fold.deferred)


def _scale(component: Component, weight: sp.Expr) -> tuple[Component, Reference]:
    """The largest weight of a component, and the power of two above it."""
    symbol = sp.Symbol(f"largest_{component.symbol}", real=True)
    largest = Component(symbol, component.owner, MAX, sp.Abs(weight), symbol)
    names = (f"c_{component.symbol}", f"c_{component.symbol}'", f"Δc_{component.symbol}")
    old, moved, step = (sp.Symbol(name, real=True) for name in names)
    value = sp.Max(2 * PowerOfTwo(symbol), _SMALLEST)
    reference = Reference(
        old, moved, step, Policy.RUNNING, symbol, value, guarded=True, auxiliary=True, scale=True,
        move=Move.POWER_OF_TWO, range=Range.POWER_OF_TWO,
    )  # fmt: skip
    return largest, reference


def _relative(component: Component, scale: Reference) -> Component:
    lift, shift = component.lift / scale.symbol, component.symbol * scale.symbol / scale.moved
    return Component(component.symbol, component.owner, component.reducer, lift, shift)
