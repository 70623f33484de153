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
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, TupleReducer, first, second

EXTREMES = {LOWEST: -math.inf, HIGHEST: math.inf}
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
        return float(function(*(np.float64(EXTREMES.get(s, at.get(s))) for s in symbols)))


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


def merge(fold: Fold, left: State, right: State, length: int) -> State:
    """Both states at one reference, combined."""
    if left is None or right is None:
        return right if left is None else left
    merged: Numbers = {COUNT: left[COUNT] + right[COUNT]}
    moves: list[Reference] = []
    for step in fold.steps:
        if isinstance(step, Reference):
            merged[step.symbol] = _moved(step, {**merged, LENGTH: float(length)}, left[step.symbol])
            moves.append(step)
            continue
        if step.reducer.whole is not None:
            sides = [[side.get(part, 0.0) for part in step.parts] for side in (left, right)]
            merged[step.symbol] = combine(step.reducer.whole, *sides)[step.reducer.part]
            continue
        shifted = [_shifted(step, side, merged, moves, length) for side in (left, right)]
        merged[step.symbol] = REDUCE[step.reducer.name](*shifted)
    return merged


def combine(whole: TupleReducer, left: Sequence[float], right: Sequence[float]) -> list[float]:
    """left ∘ right, as the reducer writes it."""
    at = {first(k): v for k, v in enumerate(left)} | {second(k): v for k, v in enumerate(right)}
    return [value(expression, at) for expression in whole.combined]


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
    for block in cascade.blocks:
        block = tuple(sorted(block, key=lambda reduction: reduction.reducer.part))
        elements = [[value(r.element, {**row, **results, LENGTH: float(len(rows))}) for r in block] for row in rows]
        whole = block[0].reducer.whole
        if whole is None:
            total = [IDENTITY[block[0].reducer.name]]
            for (term,) in elements:
                total = [REDUCE[block[0].reducer.name](total[0], term)]
        elif whole.selection is None:
            total = elements[0]
            for element in elements[1:]:
                total = combine(whole, total, element)
        else:
            total = _best(elements, whole)
        results.update({r.result: number for r, number in zip(block, total, strict=True)})
    return results


def _best(elements: list[list[float]], whole: TupleReducer) -> list[float]:
    """The best rows by key and then by index, one after the other, as one long tuple."""
    chosen = whole.selection
    assert chosen is not None
    width = 2 + chosen.payloads
    rows = [element[:width] for element in elements]
    ranked: list[float] = []
    for _ in range(min(chosen.count, len(rows))):
        best = rows[0]
        for row in rows[1:]:
            better = row[0] > best[0] if chosen.largest else row[0] < best[0]
            sooner = row[1] < best[1] if chosen.lower else row[1] > best[1]
            best = row if better or (row[0] == best[0] and sooner) else best
        rows.remove(best)
        ranked += best
    return ranked + [EXTREMES.get(absent, absent) for absent in chosen.absent[len(ranked) :]]
