"""TensorIR expressions evaluated over a whole grid of iteration points, in float64 or wider.

Every value is a scalar or an array that broadcasts to the grid: axis k belongs to iteration variable k and has
extent 1 where the value does not depend on it. Nothing is computed at more points than it varies over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tvm import ir
from tvm.ir import prim

from tvm_cascade.errors import OracleError

Array = NDArray[Any]

_erf = np.frompyfunc(math.erf, 1, 1)

_UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "erf": lambda x: np.asarray(_erf(x), dtype=np.float64),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "atan": np.arctan,
    "fabs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,  # TVM rounds halves to even
    "nearbyint": np.rint,
    "isnan": np.isnan,
    "likely": np.asarray,
}

_BINARY_CALLS: dict[str, Callable[[Array, Array], Array]] = {
    "pow": np.power,
    "fmod": np.fmod,
    "atan2": np.arctan2,
    "copysign": np.copysign,
}


def _divide(left: Array, right: Array) -> Array:
    """TensorIR's `Div`: towards zero for integers."""
    if np.issubdtype(np.result_type(left, right), np.floating):
        return np.divide(left, right)
    return np.floor_divide(left - np.fmod(left, right), right)


BINARY: dict[type, Callable[[Array, Array], Array]] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.Div: _divide,
    prim.Mod: np.fmod,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Min: np.minimum,
    prim.Max: np.maximum,
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.BitwiseAnd: np.bitwise_and,
    prim.BitwiseOr: np.bitwise_or,
    prim.BitwiseXor: np.bitwise_xor,
    prim.LShift: np.left_shift,
    prim.RShift: np.right_shift,
}

DROPPING: dict[type, Callable[[Array, Array], Array]] = {**BINARY, prim.Min: np.fmin, prim.Max: np.fmax}
"""The same, but that of a NaN and a number both extrema are the number."""


def is_float(dtype: str) -> bool:
    """Whether a TVM dtype name is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def accumulator_of(dtype: str) -> np.dtype[Any]:
    """The float in which programs add up values of a float dtype: float32 for narrower ones, else itself."""
    return np.dtype("float32") if ml_dtypes.finfo(dtype).bits < 32 else np.dtype(dtype)


FLOAT64: np.dtype[Any] = np.dtype(np.float64)
EXTENDED: np.dtype[Any] = np.dtype(np.longdouble)
"""The widest float of the machine: 64 bits of mantissa on x86; elsewhere it may be float64 itself."""


def storage_dtype(dtype: str, floats: np.dtype[Any] = FLOAT64) -> np.dtype[Any]:
    """The dtype in which values of `dtype` are stored: `floats` for every float, else itself.

    Raises
    ------
    TypeError
        When NumPy has no such scalar dtype (handles, vectors).
    """
    return floats if is_float(dtype) else np.dtype(dtype)


def round_to(value: Array, dtype: str) -> Array:
    """`value` rounded to the values that `dtype` can represent, as float64."""
    # Through float64: ml_dtypes do not know wider floats.
    return np.asarray(value, dtype=np.float64).astype(np.dtype(dtype)).astype(np.float64)


@dataclass(frozen=True)
class Grid:
    """A box of iteration points: variable k runs over `range(starts[k], stops[k])` along axis k."""

    variables: tuple[ir.Var, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in zip(self.starts, self.stops, strict=True))

    def axis(self, variable: ir.Expr) -> int | None:
        return next((k for k, known in enumerate(self.variables) if known.same_as(variable)), None)

    def with_range(self, axis: int, start: int, stop: int) -> Grid:
        """The same box, narrowed along one axis."""
        starts, stops = list(self.starts), list(self.stops)
        starts[axis], stops[axis] = start, stop
        return replace(self, starts=tuple(starts), stops=tuple(stops))

    def without(self, left_out: Mapping[ir.Var, range]) -> list[Grid]:
        """The box without a range of one variable, in parts; the full box where the variable is not its own."""
        for axis, variable in enumerate(self.variables):
            if variable in left_out:
                first, stop, hole = self.starts[axis], self.stops[axis], left_out[variable]
                spans = ((first, first + hole.start), (min(first + hole.stop, stop), stop))
                return [self.with_range(axis, *span) for span in spans]
        return [self]

    def points(self, axis: int) -> Array:
        """The values of a variable, along its own axis, in its own integer dtype."""
        values = np.arange(self.starts[axis], self.stops[axis], dtype=str(self.variables[axis].ty.dtype))
        return values.reshape([-1 if k == axis else 1 for k in range(len(self.variables))])

    def view(self, array: Array, indices: Sequence[ir.Expr]) -> Array | None:
        """`array[indices]` as a view on the grid, if each index is a constant or an iteration variable of its own.

        None otherwise, and where a variable leaves the array.
        """
        selection: list[int | slice] = []
        axes: list[int] = []
        for extent, index in zip(array.shape, indices, strict=True):
            if isinstance(index, prim.IntImm) and 0 <= int(index.value) < extent:
                selection.append(int(index.value))
                continue
            axis = self.axis(index)
            if axis is None or axis in axes or self.starts[axis] < 0 or self.stops[axis] > extent:
                return None
            selection.append(slice(self.starts[axis], self.stops[axis]))
            axes.append(axis)
        # The Ellipsis keeps a 0-d selection a view, so that it can be written through.
        selected = array[(*selection, ...)].transpose(sorted(range(len(axes)), key=axes.__getitem__))
        return selected[tuple(slice(None) if k in axes else None for k in range(len(self.variables)))]


class Evaluator:
    """Evaluates expressions of one block over one grid.

    Parameters
    ----------
    grid : the iteration points.
    buffers : the array behind each buffer variable, stored as `storage_dtype` says.
    rounding : whether a cast to a float dtype rounds to it.
    block : the block's name, for messages.
    floats : the dtype in which floats are stored.
    binary : what binary operations are.
    """

    def __init__(
        self,
        grid: Grid,
        buffers: Mapping[ir.Var, Array],
        rounding: bool,
        block: str,
        floats: np.dtype[Any] = FLOAT64,
        binary: Mapping[type, Callable[[Array, Array], Array]] = BINARY,
    ) -> None:
        self.grid, self._floats, self._binary = grid, floats, binary
        self._buffers, self._rounding, self._block = buffers, rounding, block
        self._lets: dict[ir.Var, Array] = {}
        self._active: Array | None = None  # the points at which the branch being evaluated is taken; None: all

    def bind(self, variable: ir.Var, value: Array) -> None:
        """Give a let-bound variable its value."""
        self._lets[variable] = value

    def __call__(self, expr: ir.Expr) -> Array:
        """The value of `expr`, broadcastable to the grid.

        Raises
        ------
        OracleError
            When the expression has no evaluation rule, or reads outside a buffer.
        """
        if (ufunc := self._binary.get(type(expr))) is not None:
            return ufunc(self(expr.a), self(expr.b))
        rule = _RULES.get(type(expr))
        if rule is None:
            raise self._unsupported(expr)
        return rule(self, expr)

    def _constant(self, expr: prim.IntImm | prim.FloatImm) -> Array:
        dtype = str(expr.ty.dtype)
        if is_float(dtype):  # a literal is data of the program, at its own precision
            return round_to(np.asarray(expr.value), dtype).astype(self._floats)
        return np.asarray(expr.value, dtype=dtype)

    def _variable(self, expr: ir.Var) -> Array:
        if expr in self._lets:
            return self._lets[expr]
        axis = self.grid.axis(expr)
        if axis is None:
            raise self._unsupported(expr)
        return self.grid.points(axis)

    def _load(self, expr: ir.TensorLoad) -> Array:
        if expr.source not in self._buffers:
            raise self._unsupported(expr)
        array = self._buffers[expr.source]
        view = self.grid.view(array, expr.indices)
        return array[self.positions(expr.source, expr.indices)] if view is None else view

    def positions(self, buffer: ir.Var, indices: Sequence[ir.Expr]) -> tuple[Array, ...]:
        """The index arrays of an access, clipped at points where the access is masked.

        Raises
        ------
        OracleError
            When an access that is made falls outside the buffer.
        """
        positions = []
        for extent, index in zip(self._buffers[buffer].shape, indices, strict=True):
            position = self(index)
            outside = (position < 0) | (position >= extent)
            if self._active is not None:
                outside = outside & self._active
            if outside.any():
                raise OracleError(
                    f"an index of `{buffer.name}` in [0, {extent})", f"`{index}` outside it", f"block `{self._block}`"
                )
            positions.append(np.clip(position, 0, extent - 1))
        return tuple(positions)

    def _cast(self, expr: prim.Cast) -> Array:
        value, dtype = np.asarray(self(expr.value)), str(expr.ty.dtype)
        if is_float(dtype):
            return round_to(value, dtype) if self._rounding else value.astype(self._floats)
        return value.astype(dtype)

    def _let(self, expr: prim.Let) -> Array:
        self.bind(expr.var, self(expr.value))
        return self(expr.body)

    def _not(self, expr: prim.Not) -> Array:
        return np.logical_not(self(expr.a))

    def _bitwise_not(self, expr: prim.BitwiseNot) -> Array:
        return np.invert(self(expr.a))

    def _and(self, expr: prim.And) -> Array:
        left = self(expr.a)
        return np.logical_and(left, self._where(left, expr.b))

    def _or(self, expr: prim.Or) -> Array:
        left = self(expr.a)
        return np.logical_or(left, self._where(np.logical_not(left), expr.b))

    def _choose(self, condition: ir.Expr, taken: ir.Expr, otherwise: ir.Expr) -> Array:
        chosen = np.asarray(self(condition), dtype=bool)
        if chosen.all() or not chosen.any():  # most elements of a row are none of its best few
            return self(taken if chosen.all() else otherwise)
        return np.where(chosen, self._where(chosen, taken), self._where(~chosen, otherwise))

    def _where(self, condition: Array, expr: ir.Expr) -> Array:
        """`expr`, which counts only where `condition` holds."""
        outer = self._active
        self._active = condition if outer is None else outer & condition
        try:
            return self(expr)
        finally:
            self._active = outer

    def _select(self, expr: prim.Select) -> Array:
        return self._choose(expr.condition, expr.true_value, expr.false_value)

    def _call(self, expr: ir.Call) -> Array:
        name = str(getattr(expr.op, "name", "")).rpartition(".")[2]
        if name == "if_then_else":
            return self._choose(*expr.args)
        if name in _UNARY:
            return _UNARY[name](self(expr.args[0]))
        if name in _BINARY_CALLS:
            return _BINARY_CALLS[name](self(expr.args[0]), self(expr.args[1]))
        raise self._unsupported(expr)

    def _unsupported(self, expr: ir.Expr) -> OracleError:
        return OracleError(
            "an expression that the oracle can evaluate",
            f"`{expr}` ({type(expr).__name__})",
            f"block `{self._block}`",
            "write it with arithmetic, comparisons, casts, selects, loads and the common functions of one variable",
        )


_RULES: dict[type, Callable[[Evaluator, Any], Array]] = {
    prim.IntImm: Evaluator._constant,
    prim.FloatImm: Evaluator._constant,
    prim.Cast: Evaluator._cast,
    prim.Let: Evaluator._let,
    prim.Not: Evaluator._not,
    prim.BitwiseNot: Evaluator._bitwise_not,
    prim.And: Evaluator._and,
    prim.Or: Evaluator._or,
    prim.Select: Evaluator._select,
    ir.Var: Evaluator._variable,
    ir.TensorLoad: Evaluator._load,
    ir.Call: Evaluator._call,
}
