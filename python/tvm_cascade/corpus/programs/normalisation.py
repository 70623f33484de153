"""Normalisation by a statistic of each token: before a GEMM, and in a normalised inner product."""

from __future__ import annotations

from tvm import te
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded, steady
from tvm_cascade.corpus.programs.moments import row_mean
from tvm_cascade.corpus.programs.program import (
    Argument,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
    stage,
)

EPSILON = 1e-5
_SUM_SUM_OFFSET = 10.0


def rms_norm(shape: Shape, precision: Precision) -> Program:
    """RMS normalisation of each row: x[row, l], gain[l] -> out[row, l]."""
    axes = {"row": shape["rows"], "l": shape["length"]}
    x = placeholder(axes, precision.storage, "x")
    gain = placeholder({"l": shape["length"]}, precision.storage, "gain")
    j = te.reduce_axis((0, shape["length"]), "l")
    rows = {"row": shape["rows"]}
    square_sum = stage(
        rows, lambda i: te.sum(precision.widen(x(i, j)) * precision.widen(x(i, j)), axis=j), "square_sum"
    )
    inverse_rms = stage(rows, lambda i: inverse_root(precision, square_sum(i), shape["length"]), "inverse_rms")
    out = output_stage(
        precision, axes, lambda i, c: precision.widen(x(i, c)) * inverse_rms(i) * precision.widen(gain(c)), "out"
    )
    arguments = (Argument(x, folded()), Argument(gain, steady))
    return Program(arguments, (out,), flops=4 * shape["rows"] * shape["length"])


def layer_norm(shape: Shape, precision: Precision) -> Program:
    """Layer normalisation of each row: x[row, l], gain[l], bias[l] -> out[row, l]."""
    axes, length = {"row": shape["rows"], "l": shape["length"]}, shape["length"]
    x = placeholder(axes, precision.storage, "x")
    gain, bias = (placeholder({"l": length}, precision.storage, name) for name in ("gain", "bias"))
    mean = row_mean(precision, axes, x, "mean")

    def squared_offset(i: Expr, k: Expr) -> Expr:
        offset = precision.widen(x(i, k)) - mean(i)
        return offset * offset

    k, rows = te.reduce_axis((0, length), "l"), {"row": shape["rows"]}
    square_sum = stage(rows, lambda i: te.sum(squared_offset(i, k), axis=k), "square_sum")
    inverse_std = stage(rows, lambda i: inverse_root(precision, square_sum(i), length), "inverse_std")

    def element(i: Expr, c: Expr) -> Expr:
        scaled = (precision.widen(x(i, c)) - mean(i)) * inverse_std(i)
        return scaled * precision.widen(gain(c)) + precision.widen(bias(c))

    out = output_stage(precision, axes, element, "out")
    arguments = (Argument(x, folded()), Argument(gain, steady), Argument(bias, steady))
    return Program(arguments, (out,), flops=8 * shape["rows"] * length)


def rmsnorm_gemm(shape: Shape, precision: Precision) -> Program:
    """RMS normalisation, then a linear layer: x[token, k], gain[k], weight[k, column] -> out[token, column]."""
    tokens, hidden = shape["tokens"], shape["hidden"]
    x, gain, weight = _operands(shape, precision)
    rows = {"token": tokens}

    def squared(i: Expr, k: Expr) -> Expr:
        value = precision.widen(x(i, k))
        return value * value

    k = te.reduce_axis((0, hidden), "k")
    square_sum = stage(rows, lambda i: te.sum(squared(i, k), axis=k), "square_sum")
    inverse_rms = stage(rows, lambda i: inverse_root(precision, square_sum(i), hidden), "inverse_rms")
    normalised = stage(
        {**rows, "k": hidden},
        lambda i, c: precision.widen(x(i, c)) * inverse_rms(i) * precision.widen(gain(c)),
        "normalised",
    )
    out = _linear(shape, precision, normalised, weight)
    flops = 2 * tokens * hidden * shape["columns"] + 4 * tokens * hidden
    return Program((Argument(x, folded()), Argument(gain, steady), Argument(weight, steady)), (out,), flops)


def layernorm_gemm(shape: Shape, precision: Precision) -> Program:
    """Layer normalisation, then a linear layer.

    x[token, k], gain[k], bias[k], weight[k, column] -> out[token, column].
    """
    tokens, hidden = shape["tokens"], shape["hidden"]
    x, gain, weight = _operands(shape, precision)
    bias = placeholder({"k": hidden}, precision.storage, "bias")
    rows = {"token": tokens}
    mean = row_mean(precision, {**rows, "k": hidden}, x, "mean")

    def squared_offset(i: Expr, k: Expr) -> Expr:
        offset = precision.widen(x(i, k)) - mean(i)
        return offset * offset

    k = te.reduce_axis((0, hidden), "k")
    square_sum = stage(rows, lambda i: te.sum(squared_offset(i, k), axis=k), "square_sum")
    inverse_std = stage(rows, lambda i: inverse_root(precision, square_sum(i), hidden), "inverse_std")
    normalised = stage(
        {**rows, "k": hidden},
        lambda i, c: (
            (precision.widen(x(i, c)) - mean(i)) * inverse_std(i) * precision.widen(gain(c)) + precision.widen(bias(c))
        ),
        "normalised",
    )
    out = _linear(shape, precision, normalised, weight)
    flops = 2 * tokens * hidden * shape["columns"] + 8 * tokens * hidden
    arguments = (Argument(x, folded()), Argument(gain, steady), Argument(bias, steady), Argument(weight, steady))
    return Program(arguments, (out,), flops)


def sum_sum(shape: Shape, precision: Precision) -> Program:
    """Two sums of which the second reads the first: x1, x2 [row, l] -> out[row].

    square_sum = sum x1^2; out = sum x1 * x2 / sqrt(max(square_sum - 10, 1)).
    """
    axes = {"row": shape["rows"], "l": shape["length"]}
    x1, x2 = placeholder(axes, precision.storage, "x1"), placeholder(axes, precision.storage, "x2")
    rows = {"row": shape["rows"]}

    j = te.reduce_axis((0, shape["length"]), "l")
    square_sum = stage(
        rows, lambda i: te.sum(precision.widen(x1(i, j)) * precision.widen(x1(i, j)), axis=j), "square_sum"
    )
    offset, least = precision.constant(_SUM_SUM_OFFSET), precision.constant(1.0)
    divisor = stage(rows, lambda i: te.sqrt(te.max(square_sum(i) - offset, least)), "divisor")
    k = te.reduce_axis((0, shape["length"]), "l")
    out = output_stage(
        precision,
        rows,
        lambda i: te.sum(precision.widen(x1(i, k)) * precision.widen(x2(i, k)) / divisor(i), axis=k),
        "out",
    )
    arguments = (Argument(x1, folded()), Argument(x2, folded()))
    return Program(arguments, (out,), flops=5 * shape["rows"] * shape["length"])


def _operands(shape: Shape, precision: Precision) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    tokens, hidden, columns = shape["tokens"], shape["hidden"], shape["columns"]
    x = placeholder({"token": tokens, "k": hidden}, precision.storage, "x")
    gain = placeholder({"k": hidden}, precision.storage, "gain")
    weight = placeholder({"k": hidden, "column": columns}, precision.storage, "weight")
    return x, gain, weight


def inverse_root(precision: Precision, square_sum: Expr, count: int) -> Expr:
    """1/√(mean + ε) of a sum of squares."""
    return te.rsqrt(square_sum / precision.constant(count) + precision.constant(EPSILON))


def _linear(shape: Shape, precision: Precision, normalised: te.Tensor, weight: te.Tensor) -> te.Tensor:
    r = te.reduce_axis((0, shape["hidden"]), "k")
    return output_stage(
        precision,
        {"token": shape["tokens"], "column": shape["columns"]},
        lambda i, n: te.sum(normalised(i, r) * precision.widen(weight(r, n)), axis=r),
        "out",
    )
