"""Quantisation of activations to float8, per token or per block of a token, then a GEMM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded, steady
from tvm_cascade.corpus.programs.program import (
    Argument,
    Builder,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
    stage,
)

_FLOAT8 = "float8_e4m3fn"
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
"""Of float8 numbers."""
# Keeps the scale of an all-zero token from being zero.
SMALLEST_ABSMAX = 1e-12


def quantised_gemm(shape: Shape, precision: Precision) -> Program:
    """GEMM of activations quantised per token, and weights that are float8 already.

    x[token, hidden], weight[hidden, column] (float8_e4m3fn) -> out[token, column], with the token's scale undone.
    """
    tokens, hidden, columns = shape["tokens"], shape["hidden"], shape["columns"]
    of_x = {"token": tokens, "k": hidden}
    x = placeholder(of_x, precision.storage, "x")
    weight = placeholder({"k": hidden, "column": columns}, _FLOAT8, "weight")

    k = te.reduce_axis((0, hidden), "k")
    absmax = stage({"token": tokens}, lambda i: te.max(te.abs(precision.widen(x(i, k))), axis=k), "absmax")
    floor, largest = precision.constant(SMALLEST_ABSMAX), precision.constant(LARGEST[_FLOAT8])
    scale = stage({"token": tokens}, lambda i: te.max(absmax(i), floor) / largest, "scale")
    quantised = stage(of_x, lambda i, c: (precision.widen(x(i, c)) / scale(i)).astype(_FLOAT8), "quantised")
    r = te.reduce_axis((0, hidden), "k")
    of_out = {"token": tokens, "column": columns}
    product = stage(
        of_out, lambda i, n: te.sum(precision.widen(quantised(i, r)) * precision.widen(weight(r, n)), axis=r), "product"
    )
    out = output_stage(precision, of_out, lambda i, n: product(i, n) * scale(i), "out")
    arguments = (Argument(x, folded()), Argument(weight, steady))
    return Program(arguments, (out,), flops=2 * tokens * hidden * columns)


BLOCK = 128
"""Positions of k, and columns of weights, that share a scale."""


@dataclass(frozen=True)
class Quantised:
    """How activations are quantised.

    Attributes
    ----------
    dtype : that they are rounded to; weights are float8_e4m3fn.
    blocks : each block of a token has a scale, and each square of weights; otherwise the token has one.
    """

    dtype: str = "float8_e4m3fn"
    blocks: bool = False


def quantised_of(form: Quantised, shape: Shape, precision: Precision) -> Program:
    """x[token, k], weight[column, k] as libraries want it -> out[token, column]."""
    return _by_block(form, shape, precision) if form.blocks else _by_token(form, shape, precision)


def quantised(form: Quantised) -> Builder:
    return partial(quantised_of, form)


def _scale(precision: Precision, form: Quantised, absmax: Expr) -> Expr:
    return te.max(absmax, precision.constant(SMALLEST_ABSMAX)) / precision.constant(LARGEST[form.dtype])


def _by_token(form: Quantised, shape: Shape, precision: Precision) -> Program:
    tokens, features, columns = shape["tokens"], shape["features"], shape["columns"]
    of_x, of_out = {"token": tokens, "k": features}, {"token": tokens, "column": columns}
    x = placeholder(of_x, precision.storage, "x")
    weight = placeholder({"column": columns, "k": features}, _FLOAT8, "weight")
    k, r = (te.reduce_axis((0, features), name) for name in "kr")
    absmax = stage({"token": tokens}, lambda i: te.max(te.abs(precision.widen(x(i, k))), axis=k), "absmax")
    scale = stage({"token": tokens}, lambda i: _scale(precision, form, absmax(i)), "scale")
    narrow = stage(of_x, lambda i, c: (precision.widen(x(i, c)) / scale(i)).astype(form.dtype), "quantised")
    product = stage(
        of_out, lambda i, n: te.sum(precision.widen(narrow(i, r)) * precision.widen(weight(n, r)), axis=r), "product"
    )
    out = output_stage(precision, of_out, lambda i, n: product(i, n) * scale(i), "out")
    return Program((Argument(x, folded()), Argument(weight, steady)), (out,), flops=2 * tokens * features * columns)


def _by_block(form: Quantised, shape: Shape, precision: Precision) -> Program:
    """The same with weight_scale[column // 128, k // 128] beside the weights."""
    tokens, features, across = shape["tokens"], shape["features"], shape["column_blocks"]
    columns, blocks = across * BLOCK, features // BLOCK
    x = placeholder({"token": tokens, "k": features}, precision.storage, "x")
    weight = placeholder({"column": columns, "k": features}, _FLOAT8, "weight")
    own = placeholder({"columns": across, "block": blocks}, "float32", "weight_scale")
    k, b, r = (te.reduce_axis((0, n), name) for n, name in ((BLOCK, "k"), (blocks, "b"), (BLOCK, "r")))
    of_scale, of_out = {"token": tokens, "block": blocks}, {"token": tokens, "column": columns}

    def element(i: Expr, block: Expr, c: Expr) -> Expr:
        return precision.widen(x(i, block * BLOCK + c))

    absmax = stage(of_scale, lambda i, j: te.max(te.abs(element(i, j, k)), axis=k), "absmax")
    scale = stage(of_scale, lambda i, j: _scale(precision, form, absmax(i, j)), "scale")
    narrow = stage(
        {**of_scale, "k": BLOCK}, lambda i, j, c: (element(i, j, c) / scale(i, j)).astype(form.dtype), "quantised"
    )

    def product(i: Expr, n: Expr) -> Expr:
        right = precision.widen(weight(n, b * BLOCK + r)) * own(n // BLOCK, b)
        return te.sum(precision.widen(narrow(i, b, r)) * scale(i, b) * right, axis=[b, r])

    summed = stage(of_out, product, "product")
    out = output_stage(precision, of_out, lambda i, n: summed(i, n), "out")
    arguments = Argument(x, folded()), Argument(weight, steady), Argument(own, steady)
    return Program(arguments, (out,), flops=2 * tokens * features * columns)
