"""Reductions initialised with ±∞: where no element is finite, the result is that infinity.

A fold is derived as if every extremum started at the dtype's own lowest or highest number. A row of −∞ then has finite
references, which what is met later may still move. For those d that start at −∞ four things change:

    component    starts at −∞; everything else in the state reads max(component, lowest)
    [a = c]      [max(a, lowest) = c]
    finish of d  reads the component as it is
    finish of Σ  NaN where d = −∞ and F(x, d) at x = −∞ is NaN at some position: exp(−∞ − (−∞))

The last is asked of F itself, under each choice of its masks: at positions that these leave out, F may have no x. Where
F has a value there, as exp(w − d) = ∞ has, the finish of Σ reads d = −∞ as it is, and multiplies as it is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.reducer import EXTREMES, HIGHEST, LOWEST, PROD, SUM
from tvm_cascade.symbolic.functions import GuardedProduct
from tvm_cascade.symbolic.masks import Condition, indicator, masks_that_keep
from tvm_cascade.symbolic.separate import strip_rounding

MOST_MASKS = 6
"""Masks of an element of which every choice is tried; with more, it is taken to have a value under all of them."""

Bounds = Mapping[sp.Symbol, sp.Expr]
"""Extrema, each no further than the dtype's own lowest or highest number."""


def plain(cascade: Cascade) -> Cascade:
    """The cascade with the dtype's lowest or highest number as the init of every extremum."""
    return Cascade([replace(r, reducer=r.reducer.plain) for r in cascade.reductions], cascade.elements)


def from_their_starts(fold: Fold, cascade: Cascade, meaning: Mapping[sp.Symbol, sp.Expr]) -> Fold:
    """The fold of a cascade from that of its `plain` one; `meaning` is what `derive` is told."""
    starting = {r.result: r for r in cascade.reductions if r.reducer.infinite}
    if not starting:
        return fold
    read = set().union(*(fold.finish[result].free_symbols for result in starting))
    kept = {c.symbol: c for c in fold.components if c.symbol in read and c.reducer.ordered}
    bounds = {symbol: _bounded(symbol, component) for symbol, component in kept.items()}
    written = {symbol: form for symbol, form in meaning.items() if symbol in cascade.elements}
    tracked = {r.symbol: r.tracks.free_symbols & starting.keys() for r in fold.references}
    compared = {symbol: starting[next(iter(results))] for symbol, results in tracked.items() if results}
    steps: list[Component | Reference] = []
    for step in fold.steps:
        if isinstance(step, Reference):
            steps.append(replace(step, value=step.value.xreplace(bounds)))
        else:
            steps.append(_comparing(_from_infinity(step) if step.symbol in kept else _reading(step, bounds), compared))
    finish = dict(fold.finish)
    for reduction in cascade.reductions:
        result, reducer = reduction.result, reduction.reducer
        if reducer.infinite:
            finish[result] = _without_element(finish[result])
        elif reducer in (SUM, PROD) and reduction.element.free_symbols & starting.keys():
            finish[result] = _finished(reduction, starting, fold, bounds, steps, written)
        else:
            finish[result] = finish[result].xreplace(bounds)
    return Fold(cascade, tuple(steps), finish, fold.deferred)


def _bounded(symbol: sp.Symbol, started: Component | Reduction) -> sp.Expr:
    reducer = started.reducer.plain
    return reducer.combine(symbol, reducer.neutral)


def _from_infinity(component: Component) -> Component:
    """The component, where no element is −∞ rather than the lowest number."""
    lift, shift = (_without_element(e) for e in (component.lift, component.shift))
    return replace(component, reducer=component.reducer.from_infinity, lift=lift, shift=shift)


def _without_element(expression: sp.Expr) -> sp.Expr:
    """The expression with −∞ in place of the lowest number wherever it may have that value."""
    if expression in (LOWEST, HIGHEST):
        return EXTREMES[expression]
    if isinstance(expression, sp.Piecewise):
        return sp.Piecewise(*((_without_element(value), condition) for value, condition in expression.args))
    if isinstance(expression, (sp.Max, sp.Min)):
        return expression.func(*(_without_element(value) for value in expression.args))
    return expression


def _reading(component: Component, bounds: Bounds) -> Component:
    return replace(component, lift=component.lift.xreplace(bounds), shift=component.shift.xreplace(bounds))


def _comparing(component: Component, compared: Mapping[sp.Symbol, Reduction]) -> Component:
    """[a = c] as [max(a, lowest) = c], since c is no lower than that."""
    lift = component.lift
    for equation in lift.atoms(sp.Eq):
        for element, reference in (equation.args, equation.args[::-1]):
            if reference in compared:
                lift = lift.xreplace({equation: sp.Eq(_bounded(element, compared[reference]), reference)})
    return replace(component, lift=lift)


def _finished(
    reduction: Reduction,
    starting: Mapping[sp.Symbol, Reduction],
    fold: Fold,
    bounds: Bounds,
    steps: list[Component | Reference],
    written: Mapping[sp.Symbol, sp.Expr],
) -> sp.Expr:
    """The finish of a sum or product that reads extrema; what counts positions is added to the steps.

    Parameters
    ----------
    written : elements in terms of others.
    """
    finish, undefined = fold.finish[reduction.result], []
    for result in sorted(reduction.element.free_symbols & starting.keys(), key=str):
        start = starting[result]
        read = _beside_its_start(result, reduction.element, fold.cascade.elements)
        function, inner = (strip_rounding(r.element.xreplace(written)) for r in (reduction, start))
        where = _undefined(function, inner, start, read)
        infinite = _is_infinite(read, start)
        if where != 0:
            finish = finish.xreplace({**bounds, result: _bounded(result, start)})
            undefined.append(sp.And(infinite, _somewhere(reduction, where, steps)))
            continue
        product_as_such = finish.replace(GuardedProduct, lambda component, factor, *_: component * factor)
        if product_as_such != finish:
            kept = indicator(masks_that_keep(strip_rounding(reduction.element), fold.cascade.elements))
            at_start = sp.And(infinite, _somewhere(reduction, kept, steps))
            finish = sp.Piecewise((product_as_such, at_start), (finish, True))
    return sp.Piecewise((sp.nan, sp.Or(*undefined)), (finish, True)) if undefined else finish


def _beside_its_start(result: sp.Symbol, element: sp.Expr, elements: Collection[sp.Symbol]) -> sp.Expr:
    """What an element reads of an extremum: max(b, d) where the program starts it at some b of its data."""
    read = [e for e in element.atoms(sp.Max, sp.Min) if result in e.args and not e.has(*elements)]
    return max(read, key=sp.count_ops, default=result)


def _is_infinite(read: sp.Expr, start: Reduction) -> sp.Basic:
    """Whether an extremum is what it started at."""
    reducer = start.reducer.plain
    return read < reducer.neutral if reducer.identity < 0 else read > reducer.neutral


def _somewhere(reduction: Reduction, where: sp.Expr, steps: list[Component | Reference]) -> sp.Basic:
    """Whether there are positions of which `where` is 1."""
    return sp.true if where == 1 else _count(reduction, where, steps) > 0


def _undefined(function: sp.Expr, inner: sp.Expr, start: Reduction, read: sp.Expr) -> sp.Expr:
    """1 at positions at which an element is NaN where an extremum is what it started at, 0 at the others."""
    masks = sorted(function.atoms(Condition) | inner.atoms(Condition), key=str)
    if len(masks) > MOST_MASKS:
        return sp.S.Zero
    found = []
    for values in product((0, 1), repeat=len(masks)):
        chosen = dict(zip(masks, values, strict=True))
        if _is_nan(_at_infinity(function.subs(chosen), inner.subs(chosen), start, read)):
            found.append(chosen)
    return sp.S.One if len(found) == 2 ** len(masks) else sp.Add(*map(indicator, found))


def _at_infinity(function: sp.Expr, inner: sp.Expr, start: Reduction, read: sp.Expr) -> sp.Expr:
    """F where what the extremum is of, and so it itself, is infinite."""
    infinite, element = start.reducer.identity, sp.Dummy(real=True)
    limit = function if inner.is_number else function.subs(inner, element)
    return limit.xreplace({read: infinite, element: infinite, start.result: infinite})


def _is_nan(expression: sp.Basic) -> bool:
    """Whether NaN is all that an expression can be; of what a condition chooses it need not be."""
    decides = isinstance(expression, sp.Piecewise) or expression.is_Boolean
    return expression is sp.nan or (not decides and any(map(_is_nan, expression.args)))


def _count(reduction: Reduction, where: sp.Expr, steps: list[Component | Reference]) -> sp.Symbol:
    """The component that counts positions: one that is there already, or a new one."""
    known = (s for s in steps if isinstance(s, Component) and s.reducer == SUM and s.lift == where)
    if (same := next(known, None)) is not None:
        return same.symbol
    own = sum(isinstance(s, Component) and s.owner == reduction.result for s in steps)
    taken = {str(s.symbol) for s in steps}
    name = next(n for k in range(len(taken) + 1) if (n := f"{reduction.result}_{own + k}") not in taken)
    symbol = sp.Symbol(name, real=True)
    steps.append(Component(symbol, reduction.result, SUM, where, symbol))
    return symbol
