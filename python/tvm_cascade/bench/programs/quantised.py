"""Per-token quantisation to float8, then a GEMM."""

from __future__ import annotations

from tvm import te

from tvm_cascade.bench.programs.draws import folded, steady
from tvm_cascade.bench.programs.program import Argument, Precision, Program, Shape, output_stage, placeholder, stage

_FLOAT8 = "float8_e4m3fn"
_FLOAT8_MAX = 448.0
# Keeps the scale of an all-zero token from being zero.
_SMALLEST_ABSMAX = 1e-12


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
    floor, largest = precision.constant(_SMALLEST_ABSMAX), precision.constant(_FLOAT8_MAX)
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
