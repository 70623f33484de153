"""A fold run on numbers of one dtype, tile by tile, as the fused loop runs it; and held at given references at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Round
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.gauge import LAZY_DISTANCE, Move
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST
from tvm_cascade.algebra.sampling import as_function

Array = NDArray[Any]
Values = dict[sp.Symbol, Any]

_REDUCERS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.minimum,
    "or": np.maximum,
}


class FoldOnData:
    """Evaluates a fold's formulas in one dtype.

    Parameters
    ----------
    fold : what to run.
    dtype : of every value; `np.longdouble` for values to compare with.
    elements : each atom's value: of shape (length,) where it varies along the axis, else a number.
    length : positions on the cascade axis.
    """

    def __init__(self, fold: Fold, dtype: type[np.floating[Any]], elements: Mapping[sp.Symbol, Array], length: int):
        self.fold, self.dtype, self.length = fold, dtype, length
        self.elements = {symbol: np.asarray(value).astype(dtype) for symbol, value in elements.items()}
        self._compiled: dict[sp.Expr, tuple[list[sp.Symbol], Callable[..., Any]]] = {}

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Any]) -> Any:
        """An expression where its symbols have the given values; n and N are of the dtype too."""
        if expression not in self._compiled:
            plain, roundings = _with_roundings(expression)
            symbols = sorted(plain.free_symbols, key=str)
            self._compiled[expression] = symbols, as_function(symbols, plain, [roundings, "numpy"])
        symbols, function = self._compiled[expression]
        bounds = np.finfo(self.dtype)
        known = {LENGTH: self.dtype(self.length), LOWEST: bounds.min, HIGHEST: bounds.max, **at}
        with np.errstate(all="ignore"):
            return np.asarray(function(*(known[s] for s in symbols))).astype(self.dtype)

    def run(self, tile: int) -> Values:
        """The state after all tiles of `tile` positions."""
        state: Values = {}
        for start in range(0, self.length, tile):
            state = self._tile(state, start, min(start + tile, self.length))
        return state

    def _tile(self, before: Values, start: int, stop: int) -> Values:
        rows = {s: v[start:stop] if v.ndim else v for s, v in self.elements.items()}
        state: Values = {}
        moves: Values = {}
        for step in self.fold.steps:
            if isinstance(step, Reference):
                new = self._moved(step, {**rows, **state, COUNT: self.dtype(stop)}, before)
                moves |= {step.moved: new, step.step: new - before.get(step.symbol, new)}
                state[step.symbol] = new
            else:
                partial = self._over(step, {**rows, **state}, stop - start)
                if before:
                    scope = {**rows, **before, **moves, COUNT: self.dtype(start)}
                    partial = _REDUCERS[step.reducer.name](self.value(step.shift, scope), partial)
                state[step.symbol] = partial
        return state

    def _moved(self, reference: Reference, scope: Values, before: Values) -> Any:
        value = self.value(reference.value, scope)
        usable = np.isfinite(value) and not (reference.scale and value == 0)
        held = before.get(reference.symbol)
        if usable and reference.move is Move.LAZY and held is not None and abs(value - held) <= LAZY_DISTANCE:
            return held
        return value if usable or not reference.guarded else before.get(reference.symbol, self.dtype(reference.scale))

    def _over(self, component: Component, scope: Values, count: int) -> Any:
        lifts = np.broadcast_to(self.value(component.lift, scope), (count,))
        return _REDUCERS[component.reducer.name].reduce(lifts, dtype=self.dtype)

    def held(self, references: Values) -> Values:
        """The components of all rows at given references, without any move."""
        at = {symbol: np.asarray(value).astype(self.dtype) for symbol, value in references.items()}
        return at | {c.symbol: self._over(c, {**self.elements, **at}, self.length) for c in self.fold.components}

    def finish(self, state: Values) -> Values:
        """The results of a state that has folded everything."""
        results: Values = {}
        for result, expression in self.fold.finish.items():
            results[result] = self.value(
                expression, {**self.elements, **state, **results, COUNT: self.dtype(self.length)}
            )
        return results


def _with_roundings(expression: sp.Expr) -> tuple[sp.Expr, dict[str, Callable[[Array], Array]]]:
    """The expression with each rounding as a function of its own name, and those functions."""
    functions: dict[str, Callable[[Array], Array]] = {}

    def name(value: sp.Expr, dtype: sp.Symbol) -> sp.Expr:
        functions[f"round_{dtype}"] = lambda array: np.asarray(array).astype(str(dtype)).astype(array.dtype)
        return sp.Function(f"round_{dtype}")(value)

    return sp.sympify(expression).replace(Round, name), functions
