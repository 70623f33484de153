"""A fold on arrays of one dtype, tile by tile like the fused loop, or at given references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Reducer
from tvm_cascade.steps.arithmetic import Arithmetic, Compiled
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import program_of
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.sampling import as_function

Array = NDArray[Any]
Values = dict[sp.Symbol, Any]


@dataclass(frozen=True)
class Columns:
    """Positions: a value for each of them, or one for all, by symbol."""

    values: Mapping[sp.Symbol, Array]
    count: int

    def __len__(self) -> int:
        return self.count

    def cut(self, start: int, stop: int) -> Columns:
        """Some of the positions."""
        return Columns({s: v[start:stop] if v.ndim else v for s, v in self.values.items()}, stop - start)


class Arrays(Arithmetic):
    """NumPy's numbers of one dtype, roundings of programs included; positions are `Columns`."""

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        super().__init__()
        self.dtype = dtype
        bounds = np.finfo(dtype)
        self.extremes = {LOWEST: bounds.min, HIGHEST: bounds.max}

    def compiled(self, expression: sp.Expr) -> Compiled:
        """An expression as a function."""
        plain, roundings = _with_roundings(expression)
        symbols = sorted(plain.free_symbols, key=str)
        return symbols, as_function(symbols, plain, [roundings, "numpy"])

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Any]) -> Any:
        """The value of an expression."""
        symbols, function = self.function(expression)
        with np.errstate(all="ignore"):
            found = function(*(self.extremes[s] if s in self.extremes else at[s] for s in symbols))
            return np.asarray(found).astype(self.dtype)

    def number(self, value: Any) -> Any:
        """A number of this arithmetic."""
        return self.dtype(value)

    def finite(self, value: Any) -> bool:
        """Whether a number is neither NaN nor infinite."""
        return bool(np.isfinite(value))

    def combine(self, reducer: Reducer, left: Any, right: Any) -> Any:
        """left ⊕ right."""
        return self.dtype(getattr(np, reducer.numpy)(left, right))

    def lifts(self, lift: sp.Expr, positions: Columns, scope: Values) -> Array:
        """A lift at every position."""
        return np.broadcast_to(self.value(lift, {**scope, **positions.values}), (len(positions),))

    def extended(self, positions: Columns, symbol: sp.Symbol, element: sp.Expr, scope: Values) -> Columns:
        """Positions with one more value each."""
        return Columns({**positions.values, symbol: self.lifts(element, positions, scope)}, len(positions))

    def total(self, reducer: Reducer, values: Iterable[Any]) -> Any:
        """⊕ of at least one value."""
        return self.dtype(getattr(np, reducer.numpy).reduce(np.asarray(values)))


class FoldOnData:
    """Evaluates a fold's step program in one dtype.

    Parameters
    ----------
    fold : what to run.
    dtype : of every value; `np.longdouble` for values to compare with.
    elements : each atom's value: of shape (length,) where it varies along the axis, else a number.
    length : positions on the cascade axis.
    """

    def __init__(self, fold: Fold, dtype: type[np.floating[Any]], elements: Mapping[sp.Symbol, Array], length: int):
        arithmetic = Arrays(dtype)
        values = {symbol: np.asarray(value).astype(dtype) for symbol, value in elements.items()}
        self.positions = Columns(values, length)
        known = {symbol: value for symbol, value in values.items() if not value.ndim}
        self.steps = NumericSteps(program_of(fold), arithmetic, {**known, LENGTH: arithmetic.number(length)})

    def run(self, tile: int) -> Values:
        """The state after all tiles of `tile` positions."""
        state = EMPTY
        for start in range(0, len(self.positions), tile):
            stop = min(start + tile, len(self.positions))
            state = self.steps.fold_in(state, self.positions.cut(start, stop))
        return state.values

    def at_references(self, references: Values) -> Values:
        """The components of all rows at given references, without any move."""
        at = {symbol: self.steps.arithmetic.number(value) for symbol, value in references.items()}
        return at | self.steps.over(self.steps.program.steps, self.positions, at)

    def finish(self, state: Values) -> Values:
        """The results of a state that has folded everything."""
        return self.steps.finish(State(len(self.positions), state))


def _with_roundings(expression: sp.Expr) -> tuple[sp.Expr, dict[str, Callable[[Array], Array]]]:
    """The expression with each rounding as a function of its own name, and those functions."""
    functions: dict[str, Callable[[Array], Array]] = {}

    def name(value: sp.Expr, dtype: sp.Symbol) -> sp.Expr:
        functions[f"round_{dtype}"] = lambda array: np.asarray(array).astype(str(dtype)).astype(array.dtype)
        return sp.Function(f"round_{dtype}")(value)

    return sp.sympify(expression).replace(Round, name), functions
