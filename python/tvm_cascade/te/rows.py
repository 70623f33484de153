"""Softmax, norms, losses, moments and quantisation along one axis of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.analysis.tir import dtype_of, is_float
from tvm_cascade.errors import InputError
from tvm_cascade.symbolic.rounding import FORMATS
from tvm_cascade.transform.scope import accumulator_dtype

Element = Callable[..., Expr]
"""The value at the indices of an element, or of a row."""

LARGEST = {**{name: FORMATS[name].largest for name in ("float8_e4m3fn", "float8_e5m2")}, "int8": 127.0}
"""Of the dtypes that rows are quantised to."""

SMALLEST_SCALE = 1e-12
"""Of a row of zeros: a scale that one can divide by."""


class Rows:
    """A tensor along one of its axes: sums and maxima over it, and maps of its elements.

    Parameters
    ----------
    x : of any shape.
    axis : negative ones count from the last.
    name : the stages' names begin with it.
    """

    def __init__(self, x: te.Tensor, axis: int, name: str) -> None:
        if not isinstance(x, te.Tensor):
            raise InputError("a te.Tensor", type(x).__name__, f"tvm_cascade.te.{name}(x, …)")
        rank = len(x.shape)
        if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
            raise InputError(f"an axis of a tensor of {rank} dimensions", repr(axis), f"tvm_cascade.te.{name}(axis=…)")
        self.x, self.axis, self.name = x, axis % rank, name
        self.dtype = stored(x)
        self.accumulated = accumulated(self.dtype)
        self.length = x.shape[self.axis]
        self.shape = (*x.shape[: self.axis], *x.shape[self.axis + 1 :])

    def at(self, *indices: Expr) -> Expr:
        """An element, in the dtype of arithmetic."""
        return self.x(*indices).astype(self.accumulated)

    def row(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices of an element's row."""
        return (*indices[: self.axis], *indices[self.axis + 1 :])

    def number(self, value: float | Expr) -> Expr:
        """A constant, or an extent, in the dtype of arithmetic."""
        if isinstance(value, (int, float)):
            return tirx.const(float(value), self.accumulated)
        return self.number(int(value)) if isinstance(value, tirx.IntImm) else value.astype(self.accumulated)

    def over(self, by: Callable[..., Expr], element: Element, name: str) -> te.Tensor:
        """What reduces each row's elements, such as `te.sum`."""
        k = te.reduce_axis((0, self.length), "l")

        def reduced(*row: Expr) -> Expr:
            return by(element(*row[: self.axis], k.var, *row[self.axis :]), axis=k)

        return te.compute(self.shape, reduced, name=f"{self.name}_{name}")

    def of_rows(self, element: Element, name: str) -> te.Tensor:
        """A value for each row."""
        return te.compute(self.shape, element, name=f"{self.name}_{name}")

    def map(self, element: Element, name: str = "", dtype: str = "") -> te.Tensor:
        """A value for each element; a last one, without a name, is stored in the tensor's dtype or another."""

        def value(*at: Expr) -> Expr:
            return element(*at) if name else element(*at).astype(dtype or self.dtype)

        return te.compute(self.x.shape, value, name=f"{self.name}_{name}" if name else self.name)

    def mean(self, element: Element, name: str) -> te.Tensor:
        total = self.over(te.sum, element, f"{name}_sum")
        return self.of_rows(lambda *row: total(*row) / self.number(self.length), name)

    def softmax(self) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
        """The largest element of a row; exp of what each element is beyond it; their sum."""
        top = self.over(te.max, self.at, "max")
        weights = self.map(lambda *at: te.exp(self.at(*at) - top(*self.row(at))), "weights")
        return top, weights, self.over(te.sum, weights, "sum")

    def normed(self, element: Element, epsilon: float, gain: te.Tensor | None, bias: te.Tensor | None) -> te.Tensor:
        """element/√(mean of its squares + ε), times a gain and plus a bias for each position."""
        square = self.mean(lambda *at: element(*at) * element(*at), "square")
        scale = self.of_rows(lambda *row: te.rsqrt(square(*row) + self.number(epsilon)), "scale")

        def value(*at: Expr) -> Expr:
            found, k = element(*at) * scale(*self.row(at)), at[self.axis]
            found = found if gain is None else found * gain(k).astype(self.accumulated)
            return found if bias is None else found + bias(k).astype(self.accumulated)

        return self.map(value)


def stored(x: te.Tensor) -> str:
    """The dtype of a tensor's elements."""
    return dtype_of(x(*[0] * len(x.shape)))


def accumulated(dtype: str) -> str:
    """The dtype of arithmetic on elements of a dtype: float32 of narrower floats and of integers."""
    return accumulator_dtype(dtype) if is_float(dtype) else "float32"


def softmax(x: te.Tensor, axis: int = -1, name: str = "softmax") -> te.Tensor:
    """exp(x)/Σ exp(x) along an axis, of x's shape and dtype; x: of any shape, a float."""
    rows = Rows(x, axis, name)
    _, weights, total = rows.softmax()
    return rows.map(lambda *at: weights(*at) / total(*rows.row(at)))


def log_softmax(x: te.Tensor, axis: int = -1, name: str = "log_softmax") -> te.Tensor:
    """x − log Σ exp(x) along an axis, of x's shape and dtype."""
    rows = Rows(x, axis, name)
    top, _, total = rows.softmax()
    return rows.map(lambda *at: rows.at(*at) - top(*rows.row(at)) - te.log(total(*rows.row(at))))


def logsumexp(x: te.Tensor, axis: int = -1, name: str = "logsumexp") -> te.Tensor:
    """log Σ exp(x) along an axis: x's shape without it, float32 (float64 of float64)."""
    rows = Rows(x, axis, name)
    top, _, total = rows.softmax()
    return rows.of_rows(lambda *row: top(*row) + te.log(total(*row)), "result")


def cross_entropy(logits: te.Tensor, target: te.Tensor, name: str = "cross_entropy") -> te.Tensor:
    """log Σ exp(logits) − logits[target] along the last axis.

    logits: (…, classes); target: (…,) integers, of which each must be a class; the result: (…,) float32.
    """
    rows = Rows(logits, -1, name)
    top, _, total = rows.softmax()
    return rows.of_rows(lambda *row: top(*row) + te.log(total(*row)) - rows.at(*row, target(*row)), "result")


def moments(x: te.Tensor, axis: int = -1, name: str = "moments") -> tuple[te.Tensor, te.Tensor]:
    """Mean and variance (Σ(x − mean)²/n) along an axis: x's shape without it, float32 (float64 of float64)."""
    rows = Rows(x, axis, name)
    mean = rows.mean(rows.at, "mean")
    return mean, rows.mean(
        lambda *at: (rows.at(*at) - mean(*rows.row(at))) * (rows.at(*at) - mean(*rows.row(at))), "variance"
    )


def layer_norm(
    x: te.Tensor,
    gain: te.Tensor | None = None,
    bias: te.Tensor | None = None,
    epsilon: float = 1e-5,
    axis: int = -1,
    name: str = "layer_norm",
) -> te.Tensor:
    """(x − mean)/√(variance + ε)·gain + bias along an axis; gain, bias: (length of the axis,)."""
    rows = Rows(x, axis, name)
    mean = rows.mean(rows.at, "mean")
    centred = rows.map(lambda *at: rows.at(*at) - mean(*rows.row(at)), "centred")
    return rows.normed(centred, epsilon, gain, bias)


def rms_norm(
    x: te.Tensor, gain: te.Tensor | None = None, epsilon: float = 1e-6, axis: int = -1, name: str = "rms_norm"
) -> te.Tensor:
    """x/√(mean of x² + ε)·gain along an axis; gain: (length of the axis,)."""
    rows = Rows(x, axis, name)
    return rows.normed(rows.at, epsilon, gain, None)


def quantise(
    x: te.Tensor, dtype: str = "float8_e4m3fn", axis: int = -1, name: str = "quantise"
) -> tuple[te.Tensor, te.Tensor]:
    """Codes of a narrow dtype, and a scale for each row, whose product is about x.

    Parameters
    ----------
    dtype : of the codes: float8_e4m3fn, float8_e5m2 or int8, whose largest number is that of the row's largest |x|.

    Returns
    -------
    codes, scales : x's shape; and that without the axis, float32.

    Raises
    ------
    InputError
        When the dtype is none of these.
    """
    if dtype not in LARGEST:
        raise InputError(f"a dtype among {', '.join(LARGEST)}", repr(dtype), "tvm_cascade.te.quantise(dtype=…)")
    rows = Rows(x, axis, name)
    largest = rows.over(te.max, lambda *at: te.abs(rows.at(*at)), "largest")

    def scale(*row: Expr) -> Expr:
        return te.max(largest(*row) / rows.number(LARGEST[dtype]), rows.number(SMALLEST_SCALE))

    scales = rows.of_rows(scale, "scales")

    def code(*at: Expr) -> Expr:
        value = rows.at(*at) / scales(*rows.row(at))
        return value if is_float(dtype) else te.round(value)

    return rows.map(code, dtype=dtype), scales
