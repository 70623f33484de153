"""Quantisation of activations to float8, per token or per block of a token, then a GEMM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from corpus.programs.draws import folded, positive
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
from tvm_cascade.symbolic.rounding import FORMATS

_FLOAT8 = "float8_e4m3fn"
# Keeps the scale of an all-zero token from being zero.
SMALLEST_ABSMAX = 1e-12

BLOCK = 128
"""Positions of k, and columns of weights, that share a scale."""


@dataclass(frozen=True)
class Quantised:
    """How activations are quantised.

    Attributes
    ----------
    dtype : that they are rounded to; weights are float8_e4m3fn.
    blocks : each block of a token has a scale, and each square of weights; otherwise the token has one.
    columns : each column of weights has a scale too, where there are no blocks.
    """

    dtype: str = _FLOAT8
    blocks: bool = False
    columns: bool = False


def quantised_gemm(shape: Shape, precision: Precision) -> Program:
    """GEMM of activations quantised per token, and weights that are float8 already.

    x[token, hidden], weight[hidden, column] (float8_e4m3fn) -> out[token, column], with the token's scale undone.
    """
    return _by_token(Quantised(), {**shape, "features": shape["hidden"]}, precision, k_first=True)


def quantised_of(form: Quantised, shape: Shape, precision: Precision) -> Program:
    """x[token, k], weight[column, k] as libraries want it, weight_scale where there is one -> out[token, column]."""
    return _by_block(form, shape, precision) if form.blocks else _by_token(form, shape, precision)


def quantised(form: Quantised) -> Builder:
    return partial(quantised_of, form)


def _narrowed(precision: Precision, form: Quantised, axes: Axes, x: Element) -> tuple[te.Tensor, Element]:
    """(the scale of what is along the last of the axes, x by it in float8)."""
    absmax = reduced(te.max, axes, lambda *at: te.abs(x(*at)), "absmax")
    floor, largest = precision.constant(SMALLEST_ABSMAX), precision.constant(FORMATS[form.dtype].largest)
    scale = stage(rows_of(axes), lambda *at: te.max(absmax(*at), floor) / largest, "scale")
    narrow = stage(axes, lambda *at: (x(*at) / scale(*at[:-1])).astype(form.dtype), "quantised")
    return scale, lambda *at: precision.widen(narrow(*at))


def _by_token(form: Quantised, shape: Shape, precision: Precision, k_first: bool = False) -> Program:
    tokens, features, columns = shape["tokens"], shape["features"], shape["columns"]
    of_x, given = {"token": tokens, "k": features}, Inputs(precision)
    x = given(of_x, "x", folded())
    of_weight = {"k": features, "column": columns} if k_first else {"column": columns, "k": features}
    weight = given(of_weight, "weight", dtype=_FLOAT8)
    own = given({"column": columns}, "weight_scale", positive, "float32") if form.columns else None
    scale, narrow = _narrowed(precision, form, of_x, x)
    of_out = {"token": tokens, "column": columns}

    def element(i: Expr, n: Expr, k: Expr) -> Expr:
        return narrow(i, k) * weight(*((k, n) if k_first else (n, k)))

    product = reduced(te.sum, {**of_out, "k" if k_first else "r": features}, element, "product")

    def unscaled(i: Expr, n: Expr) -> Expr:
        by_token = product(i, n) * scale(i)
        return by_token if own is None else by_token * own(n)

    out = output_stage(precision, of_out, unscaled, "out")
    return given.program(out, flops=2 * tokens * features * columns)


def _by_block(form: Quantised, shape: Shape, precision: Precision) -> Program:
    """The same with weight_scale[column // 128, k // 128] beside the weights."""
    tokens, features, across = shape["tokens"], shape["features"], shape["column_blocks"]
    columns, blocks, given = across * BLOCK, features // BLOCK, Inputs(precision)
    x = given({"token": tokens, "k": features}, "x", folded())
    weight = given({"column": columns, "k": features}, "weight", dtype=_FLOAT8)
    own = given({"columns": across, "block": blocks}, "weight_scale", dtype="float32")
    b, r = (te.reduce_axis((0, n), name) for n, name in ((blocks, "b"), (BLOCK, "r")))
    of_blocks, of_out = {"token": tokens, "block": blocks, "k": BLOCK}, {"token": tokens, "column": columns}
    scale, narrow = _narrowed(precision, form, of_blocks, lambda i, block, c: x(i, block * BLOCK + c))

    def product(i: Expr, n: Expr) -> Expr:
        right = weight(n, b * BLOCK + r) * own(n // BLOCK, b)
        return te.sum(narrow(i, b, r) * scale(i, b) * right, axis=[b, r])

    summed = stage(of_out, product, "product")
    out = output_stage(precision, of_out, lambda i, n: summed(i, n), "out")
    return given.program(out, flops=2 * tokens * features * columns)
