"""Where a fold loses digits: each part alone in the program's dtype, everything else exact.

For rows of the program, the fold is run tile by tile in the program's dtype. Then, with exact values at the very
references that this run ended at:

    a component   its value from the run, the others exact, finished exactly
    a reference   all components exact at the run's references, finished exactly
    finish        all components exact, finished in the program's dtype

What each makes of the result, less the exact result, is its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import sympy as sp
from numpy.typing import NDArray
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Reducer
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.errors import OracleError
from tvm_cascade.evaluate.expression import Evaluator, Grid
from tvm_cascade.steps.arithmetic import Arithmetic, Compiled
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import program_of
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.sampling import as_function

Array = NDArray[Any]

_ROWS = 8
_ACCUMULATED_IN = {"float64": np.float64}
_EXACT = np.longdouble


@dataclass(frozen=True)
class Loss:
    """The error that one part of a fold contributes to a result.

    Attributes
    ----------
    result : the result's buffer.
    part : a component or reference of the fold, as `explain` shows it, or "finish".
    error : |result with this part alone in the program's dtype − exact result|, over the exact result's size.
    """

    result: str
    part: str
    error: float

    def __str__(self) -> str:
        return f"{self.part} loses {self.error:.1e} of {self.result}"


def losses(group: Group, buffers: Mapping[ir.Var, Array], tile: int, near: Mapping[str, Sequence[int]]) -> list[Loss]:
    """Losses of a group's results, the largest first; none where the data are not finite, or tuples are folded.

    Parameters
    ----------
    buffers : every buffer of the unfused program, in float64.
    tile : positions that the fused loop folds at a time.
    near : by result buffer, the index at which it is furthest off; rows without one are sampled.
    """
    if any(member.stage.is_part for member in group.members):
        return []
    worst: dict[tuple[str, str], Loss] = {}
    for point in _points(group, near):
        try:
            found = _at_row(group, _elements(group, buffers, point), tile)
        except OracleError:
            return []
        for loss in found:
            key = (loss.result, loss.part)
            worst[key] = max(worst.get(key, loss), loss, key=lambda known: known.error)
    return sorted(worst.values(), key=lambda loss: -loss.error)


def _points(group: Group, near: Mapping[str, Sequence[int]]) -> Iterator[dict[tirx.Var, int]]:
    """Rows to look at, as values of the frame's variables."""
    rows = [v for v in group.frame.extents if not any(v.same_as(a) for a in group.frame.axis)]
    for member in group.members:
        if index := near.get(member.stage.buffer.name):
            named = [(dim, int(at)) for dim, at in zip(member.dims, index, strict=True) if isinstance(dim, ir.Var)]
            yield {v: next((at for dim, at in named if dim.same_as(v)), 0) for v in rows}
    if not near:
        for step in range(_ROWS):
            yield {v: step * (group.frame.extents[v] - 1) // max(_ROWS - 1, 1) for v in rows}


def _elements(group: Group, buffers: Mapping[ir.Var, Array], point: Mapping[tirx.Var, int]) -> dict[sp.Symbol, Array]:
    """Each atom's value along the axis of one row."""
    variables = (*point, *group.frame.axis)
    starts = (*point.values(), *(0 for _ in group.frame.axis))
    stops = (*(at + 1 for at in point.values()), *(group.frame.extents[a] for a in group.frame.axis))
    evaluator = Evaluator(Grid(variables, starts, stops), buffers, False, "elements")
    shape = tuple(group.frame.extents[a] for a in group.frame.axis)
    found = {}
    for atom in group.atoms.atoms.values():
        value = np.asarray(evaluator(atom.expression), dtype=np.float64)
        spread = np.broadcast_to(value.reshape(value.shape[len(point) :] if value.ndim else ()), shape)
        found[atom.symbol] = spread.ravel() if atom.varies else spread.ravel()[0]
    return found


def _at_row(group: Group, elements: Mapping[sp.Symbol, Array], tile: int) -> list[Loss]:
    dtype = _dtype(group)
    rounded = {symbol: np.asarray(value).astype(dtype) for symbol, value in elements.items()}
    length = group.frame.length
    low, exact = (FoldOnData(group.fold, kind, rounded, length) for kind in (dtype, _EXACT))
    ran = low.run(tile)
    references = {r.symbol: ran[r.symbol] for r in group.fold.references}
    state = exact.at_references(references)
    truth = exact.finish(exact.run(tile))
    if not all(np.isfinite(value) for value in (*truth.values(), *ran.values())):
        return []
    parts: dict[str, Values] = {str(r): exact.finish(state) for r in references}
    for component in group.fold.components:
        parts[str(component.symbol)] = exact.finish({**state, component.symbol: _EXACT(ran[component.symbol])})
    parts["finish"] = low.finish({symbol: dtype(value) for symbol, value in state.items()})
    found = []
    for member in group.members:
        for part, results in parts.items():
            size = abs(truth[member.result]) or _EXACT(1)
            error = float(abs(results[member.result] - truth[member.result]) / size)
            found.append(Loss(member.stage.buffer.name, part, error))
    return found


def _dtype(group: Group) -> type[np.floating[Any]]:
    """float64 where a result is, else float32, in which narrower ones are accumulated."""
    widest = max((dtype_of(m.stage.buffer) for m in group.members), key=lambda name: ml_dtypes.finfo(name).bits)
    return _ACCUMULATED_IN.get(widest, np.float32)


Values = dict[sp.Symbol, Any]


@dataclass(frozen=True)
class Columns:
    """Positions: a value for each of them, or one for all, by symbol."""

    values: Mapping[sp.Symbol, Array]
    count: int

    def __len__(self) -> int:
        return self.count

    def cut(self, start: int, stop: int) -> Columns:
        return Columns({s: v[start:stop] if v.ndim else v for s, v in self.values.items()}, stop - start)


@lru_cache(maxsize=512)
def _of_arrays(expression: sp.Expr) -> Compiled:
    plain, roundings = _with_roundings(sp.sympify(expression))
    symbols = sorted(plain.free_symbols, key=str)
    return symbols, as_function(symbols, plain, [roundings, "numpy"])


class Arrays(Arithmetic):
    """NumPy's numbers of one dtype, roundings of programs included; positions are `Columns`."""

    def __init__(self, dtype: type[np.floating[Any]]) -> None:
        self.dtype = dtype
        bounds = np.finfo(dtype)
        self.extremes = {LOWEST: bounds.min, HIGHEST: bounds.max}

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, Any]) -> Any:
        symbols, function = _of_arrays(expression)
        with np.errstate(all="ignore"):
            found = function(*(self.extremes[s] if s in self.extremes else at[s] for s in symbols))
            return np.asarray(found).astype(self.dtype)

    def number(self, value: Any) -> Any:
        return self.dtype(value)

    def finite(self, value: Any) -> bool:
        return bool(np.isfinite(value))

    def combine(self, reducer: Reducer, left: Any, right: Any) -> Any:
        return self.dtype(getattr(np, reducer.numpy)(left, right))

    def lifts(self, lift: sp.Expr, positions: Columns, scope: Values) -> Array:
        return np.broadcast_to(self.value(lift, {**scope, **positions.values}), (len(positions),))

    def extended(self, positions: Columns, symbol: sp.Symbol, element: sp.Expr, scope: Values) -> Columns:
        return Columns({**positions.values, symbol: self.lifts(element, positions, scope)}, len(positions))

    def total(self, reducer: Reducer, values: Iterable[Any]) -> Any:
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
