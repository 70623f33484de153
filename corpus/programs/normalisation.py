"""Normalisation by a statistic of each token: by itself, before a GEMM, and in a normalised inner product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from corpus.programs.draws import folded
from corpus.programs.moments import centred, row_axes
from corpus.programs.product import gated, linear
from corpus.programs.program import (
    Axes,
    Builder,
    Element,
    Inputs,
    Precision,
    Program,
    Shape,
    output_stage,
    reduced,
    rows_of,
    stage,
)

EPSILON = 1e-5
_SUM_SUM_OFFSET = 10.0


def rms_norm(shape: Shape, precision: Precision) -> Program:
    """RMS normalisation of each row: x[row, l], gain[l] -> out[row, l]."""
    return _normalised(Inputs(precision), row_axes(shape), is_centred=False)


def layer_norm(shape: Shape, precision: Precision) -> Program:
    """Layer normalisation of each row: x[row, l], gain[l], bias[l] -> out[row, l]."""
    return _normalised(Inputs(precision), row_axes(shape), is_centred=True)


def rmsnorm_gemm(shape: Shape, precision: Precision) -> Program:
    """RMS normalisation, then a linear layer: x[token, k], gain[k], weight[k, column] -> out[token, column]."""
    return _linear(shape, precision, is_centred=False)


def layernorm_gemm(shape: Shape, precision: Precision) -> Program:
    """Layer normalisation, then a linear layer.

    x[token, k], gain[k], bias[k], weight[k, column] -> out[token, column].
    """
    return _linear(shape, precision, is_centred=True)


def _normalised(given: Inputs, axes: Axes, is_centred: bool) -> Program:
    out = output_stage(given.precision, axes, _scaled(given, axes, is_centred), "out")
    rows, length = axes.values()
    return given.program(out, flops=(8 if is_centred else 4) * rows * length)


def _linear(shape: Shape, precision: Precision, is_centred: bool) -> Program:
    tokens, hidden, columns = shape["tokens"], shape["hidden"], shape["columns"]
    axes, given = {"token": tokens, "k": hidden}, Inputs(precision)
    normalised = stage(axes, _scaled(given, axes, is_centred), "normalised")
    weight = given({"k": hidden, "column": columns}, "weight")
    of_products = {"token": tokens, "column": columns, "k": hidden}
    out = output_stage(precision, of_products, lambda i, n, k: normalised(i, k) * weight(k, n), "out", te.sum)
    return given.program(out, flops=(2 * columns + (8 if is_centred else 4)) * tokens * hidden)


def _scaled(given: Inputs, axes: Axes, is_centred: bool) -> Element:
    """Elements of a normalised input, with a gain for each column, and a bias where the mean is taken off."""
    *_, last = axes
    x, gain = given(axes, "x", folded()), given({last: axes[last]}, "gain")
    if not is_centred:
        inverse_rms = inverse_roots(given.precision, axes, x, "inverse_rms")
        return lambda i, c: x(i, c) * inverse_rms(i) * gain(c)
    bias, offset = given({last: axes[last]}, "bias"), centred(given.precision, axes, x)
    inverse_std = inverse_roots(given.precision, axes, offset, "inverse_std")
    return lambda i, c: offset(i, c) * inverse_std(i) * gain(c) + bias(c)


def sum_sum(shape: Shape, precision: Precision) -> Program:
    """Two sums of which the second reads the first: x1, x2 [row, l] -> out[row].

    square_sum = sum x1^2; out = sum x1 * x2 / sqrt(max(square_sum - 10, 1)).
    """
    axes, given = row_axes(shape), Inputs(precision)
    x1, x2 = given(axes, "x1", folded()), given(axes, "x2", folded())
    square_sum = _square_sum(axes, x1)
    offset, least = precision.constant(_SUM_SUM_OFFSET), precision.constant(1.0)
    divisor = stage(rows_of(axes), lambda i: te.sqrt(te.max(square_sum(i) - offset, least)), "divisor")
    out = output_stage(precision, axes, lambda i, k: x1(i, k) * x2(i, k) / divisor(i), "out", te.sum)
    return given.program(out, flops=5 * shape["rows"] * shape["length"])


def _square_sum(axes: Axes, x: Element) -> te.Tensor:
    return reduced(te.sum, axes, lambda *at: x(*at) * x(*at), "square_sum")


def inverse_roots(precision: Precision, axes: Axes, x: Element, name: str) -> te.Tensor:
    """1/√(mean + ε) of the squares along the last axis, a stage behind their sum."""
    square_sum, count = _square_sum(axes, x), precision.constant([*axes.values()][-1])

    def element(*at: Expr) -> Expr:
        return te.rsqrt(square_sum(*at) / count + precision.constant(EPSILON))

    return stage(rows_of(axes), element, name)


# Linear layers behind a normalisation, as models have them: what is normalised is rounded to the dtype of weights.


@dataclass(frozen=True)
class Normed:
    """A normalisation and what is multiplied behind it.

    Attributes
    ----------
    centred : the mean is taken off first (LayerNorm), and a bias is added after the gain.
    gain : there is one, and a bias where it is centred.
    gated : two products, of which silu of the first multiplies the second.
    """

    centred: bool = False
    gain: bool = True
    gated: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        return ("gate", "up") if self.gated else ("weight",)


def normed_of(form: Normed, shape: Shape, precision: Precision) -> Program:
    """x[token, k], gain[k], bias[k], weights [column, k] -> out[token, column]."""
    tokens, features, columns = shape["tokens"], shape["features"], shape["columns"]
    axes, given = {"token": tokens, "k": features}, Inputs(precision)
    x = given(axes, "x", folded())
    gain = given({"k": features}, "gain") if form.gain else None
    bias = given({"k": features}, "bias") if form.gain and form.centred else None
    own = centred(precision, axes, x) if form.centred else x
    scale = inverse_roots(precision, axes, own, "scale")

    def element(i: Expr, c: Expr) -> Expr:
        value = own(i, c) * scale(i)
        value = value if gain is None else value * gain(c)
        value = value if bias is None else value + bias(c)
        return value.astype(precision.storage)

    normalised = stage(axes, element, "normalised")
    of_products = {"token": tokens, "column": columns, "k": features}
    products = linear(given, lambda i, c: precision.widen(normalised(i, c)), of_products, form.weights)
    result = gated(products, "silu" if form.gated else "", precision)
    out = stage({"token": tokens, "column": columns}, result, "out")
    return given.program(out, flops=2 * tokens * features * columns * len(form.weights))


def normed(form: Normed) -> Builder:
    """The builder of a linear layer behind a normalisation."""
    return partial(normed_of, form)
