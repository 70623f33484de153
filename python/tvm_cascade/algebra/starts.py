"""Reductions initialised with ±∞: where no element is finite, the result is that infinity.

A fold is derived as if every extremum started at the dtype's own lowest or highest number. A row of −∞ then has finite
references, which what is met later may still move. For those d that start at −∞ four things change:

    component    starts at −∞; everything else in the state reads max(component, lowest)
    [a = c]      [max(a, lowest) = c]
    finish of d  reads the component as it is
    finish of Σ  NaN where d = −∞ and some position counts, as exp(−∞ − (−∞)) is

Where an element has a value beside d = −∞, as w/d has, NaN tells a guard that it is needed (`obligations.ends`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Cascade, Reduction
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.reducer import EXTREMES, HIGHEST, LOWEST, PROD, SUM
from tvm_cascade.symbolic.masks import indicator, masks_that_keep
from tvm_cascade.symbolic.separate import strip_rounding

Bounds = Mapping[sp.Symbol, sp.Expr]
"""Extrema, each no further than the dtype's own lowest or highest number."""


def plain(cascade: Cascade) -> Cascade:
    """The cascade with the dtype's lowest or highest number as the init of every extremum."""
    return Cascade([replace(r, reducer=r.reducer.plain) for r in cascade.reductions], cascade.elements)


def from_their_starts(fold: Fold, cascade: Cascade) -> Fold:
    """The fold of a cascade from that of its `plain` one."""
    starting = {r.result: r for r in cascade.reductions if r.reducer.infinite}
    if not starting:
        return fold
    read = set().union(*(fold.finish[result].free_symbols for result in starting))
    kept = {c.symbol: c for c in fold.components if c.symbol in read and c.reducer.ordered}
    bounds = {symbol: _bounded(symbol, component) for symbol, component in kept.items()}
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
            finish[result] = _finished(reduction, starting, finish[result], cascade.elements, bounds, steps)
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
    finish: sp.Expr,
    elements: Sequence[sp.Symbol],
    bounds: Bounds,
    steps: list[Component | Reference],
) -> sp.Expr:
    """The finish of a sum or product that reads extrema; what counts positions is added to the steps."""
    results = sorted(reduction.element.free_symbols & starting.keys(), key=str)
    read = [(_beside_its_start(result, reduction.element, elements), starting[result]) for result in results]
    terms = [term for term in sp.Add.make_args(strip_rounding(reduction.element)) if term.has(*results)]
    where = indicator(masks_that_keep(sp.Add(*terms), elements))
    infinite = sp.Or(*(_is_infinite(value, start) for value, start in read))
    met = sp.true if where == 1 else _count(reduction, where, steps) > 0
    finite = finish.xreplace({**bounds, **{result: _bounded(result, starting[result]) for result in results}})
    return sp.Piecewise((sp.nan, sp.And(infinite, met)), (finite, True))


def _beside_its_start(result: sp.Symbol, element: sp.Expr, elements: Collection[sp.Symbol]) -> sp.Expr:
    """What an element reads of an extremum: max(b, d) where the program starts it at some b of its data."""
    read = [e for e in element.atoms(sp.Max, sp.Min) if result in e.args and not e.has(*elements)]
    return max(read, key=sp.count_ops, default=result)


def _is_infinite(read: sp.Expr, start: Reduction) -> sp.Basic:
    """Whether an extremum is what it started at."""
    reducer = start.reducer.plain
    return read < reducer.neutral if reducer.identity < 0 else read > reducer.neutral


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
