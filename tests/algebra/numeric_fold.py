"""A fold run on plain float64 numbers, written from the definition of a fold and from nothing else.

States are dictionaries from symbols to numbers; None is the empty state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Cascade, Round
from tvm_cascade.algebra.fold import Component, Fold, Reference

Numbers = dict[sp.Symbol, float]
State = Numbers | None

REDUCE: dict[str, Callable[[float, float], float]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": max,
    "min": min,
    "and": min,
    "or": max,
}
IDENTITY = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "and": 1.0, "or": 0.0}


@cache
def _compiled(expression: sp.Expr) -> tuple[tuple[sp.Symbol, ...], Callable[..., float]]:
    bare = expression.replace(Round, lambda value, _dtype: value)
    symbols = tuple(sorted(bare.free_symbols, key=str))
    return symbols, sp.lambdify(symbols, bare, "numpy")


def value(expression: sp.Expr, at: Numbers) -> float:
    """The expression's value in float64, infinities and NaN included."""
    symbols, function = _compiled(sp.sympify(expression))
    with np.errstate(all="ignore"):
        return float(function(*(np.float64(at[s]) for s in symbols)))


def lift(fold: Fold, element: Numbers, length: int) -> State:
    """The state of one position."""
    state: Numbers = {}
    for step in fold.steps:
        scope = {**element, **state, COUNT: 1.0, LENGTH: float(length)}
        if isinstance(step, Reference):
            state[step.symbol] = _moved(step, scope, 0.0)
        else:
            state[step.symbol] = value(step.lift, scope)
    return {**state, COUNT: 1.0}


def merge(fold: Fold, first: State, second: State, length: int) -> State:
    """Both states at one reference, combined."""
    if first is None or second is None:
        return second if first is None else first
    merged: Numbers = {COUNT: first[COUNT] + second[COUNT]}
    moves: list[Reference] = []
    for step in fold.steps:
        if isinstance(step, Reference):
            merged[step.symbol] = _moved(step, {**merged, LENGTH: float(length)}, first[step.symbol])
            moves.append(step)
            continue
        sides = [_shifted(step, side, merged, moves, length) for side in (first, second)]
        merged[step.symbol] = REDUCE[step.reducer.name](*sides)
    return merged


def _shifted(component: Component, state: Numbers, merged: Numbers, moves: list[Reference], length: int) -> float:
    moved = {r.moved: merged[r.symbol] for r in moves}
    steps = {r.step: merged[r.symbol] - state[r.symbol] for r in moves}
    return value(component.shift, {**state, **moved, **steps, LENGTH: float(length)})


def _moved(reference: Reference, scope: Numbers, stay: float) -> float:
    found = value(reference.value, scope)
    return found if math.isfinite(found) or not reference.guarded else stay


def finish(fold: Fold, state: Numbers, length: int) -> Numbers:
    """The results of a state that has folded everything."""
    results: Numbers = {}
    for result, expression in fold.finish.items():
        results[result] = value(expression, {**state, **results, LENGTH: float(length)})
    return results


def fold_split(fold: Fold, rows: Sequence[Numbers], cuts: Sequence[int]) -> Numbers:
    """The results with the axis cut into segments, each folded in order and then merged in order."""
    bounds = [0, *cuts, len(rows)]
    total: State = None
    for start, stop in pairwise(bounds):
        part: State = None
        for row in rows[start:stop]:
            part = merge(fold, part, lift(fold, row, len(rows)), len(rows))
        total = merge(fold, total, part, len(rows))
    assert total is not None
    return finish(fold, total, len(rows))


def definition(cascade: Cascade, rows: Sequence[Numbers]) -> Numbers:
    """The results as the cascade is written: one pass over the rows for each reduction."""
    results: Numbers = {}
    for reduction in cascade.reductions:
        total = IDENTITY[reduction.reducer.name]
        for row in rows:
            term = value(reduction.element, {**row, **results, LENGTH: float(len(rows))})
            total = REDUCE[reduction.reducer.name](total, term)
        results[reduction.result] = total
    return results
