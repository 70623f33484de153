"""Programs over columns of memory: neighbours on the cascade axis lie apart, rows are neighbours."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx, topi
from tvm.ir import Expr

from ..analysis.programs import array, each, fold, maximum, number, program, total
from .fold_programs import EPSILON, channels_last_norm, wide
from .gradient_programs import norm_parameters_gradient
from .row_programs import Build, columns


def variance(dtype: str = "float32", rows: int = 40, length: int = 70) -> tirx.PrimFunc:
    """x[l, c] -> the mean and the variance over l."""
    x, n = array("x", length, rows, dtype=dtype), number(length)
    sums = fold("sums", lambda c, j: wide(x[j, c]), total, length, (rows,))

    def square(c: Expr, j: Expr) -> Expr:
        return (wide(x[j, c]) - sums[c] / n) * (wide(x[j, c]) - sums[c] / n)

    squares = fold("squares", square, total, length, (rows,))
    return program(x, each("mean", lambda c: sums[c] / n, rows), each("variance", lambda c: squares[c] / n, rows))


def softmax(dtype: str = "float32", rows: int = 40, length: int | Expr = 70, batch: int = 2) -> tirx.PrimFunc:
    """x[b, l, c] -> its softmax over l, in x's dtype."""
    x = array("x", batch, length, rows, dtype=dtype)
    top = fold("top", lambda b, c, j: wide(x[b, j, c]), maximum, length, (batch, rows))
    mass = fold("mass", lambda b, c, j: te.exp(wide(x[b, j, c]) - top[b, c]), total, length, (batch, rows))

    def element(b: Expr, j: Expr, c: Expr) -> Expr:
        return (te.exp(wide(x[b, j, c]) - top[b, c]) / mass[b, c]).astype(dtype)

    return program(x, each("out", element, batch, length, rows))


def batch_norm(dtype: str = "float32", rows: int = 24, length: int = 6, batch: int = 2) -> tirx.PrimFunc:
    """x[n, h, w, c], gain, bias -> normalised over n, h and w, and the mean."""
    shape = (batch, length, length, rows)
    x, gain, bias = array("x", *shape, dtype=dtype), array("gain", rows), array("bias", rows)
    count = number(batch * length * length)

    def reduced(name: str, term: Callable[[Expr, Expr], Expr]) -> te.Tensor:
        loops = [te.reduce_axis((0, n), f"{name}_{k}") for k, n in enumerate(shape[:-1])]
        return te.compute((rows,), lambda c: te.sum(term(c, wide(x(*loops, c))), axis=loops), name=name)

    sums = reduced("sums", lambda c, v: v)
    squares = reduced("squares", lambda c, v: (v - sums[c] / count) * (v - sums[c] / count))

    def element(n: Expr, h: Expr, w: Expr, c: Expr) -> Expr:
        scale = te.rsqrt(squares[c] / count + number(EPSILON))
        return ((wide(x[n, h, w, c]) - sums[c] / count) * scale * gain[c] + bias[c]).astype(dtype)

    return program(x, gain, bias, each("out", element, *shape), each("mean", lambda c: sums[c] / count, rows))


def argmax(dtype: str = "float32", rows: int = 40, length: int = 70) -> tirx.PrimFunc:
    """x[l, c] -> where each column is largest."""
    x = array("x", length, rows, dtype=dtype)
    return program(x, topi.argmax(x, axis=0))


def masked_sum_exp(dtype: str = "float32", rows: int = 40, length: int = 70) -> tirx.PrimFunc:
    """x[l, c], keep[l] -> log Σ exp over the positions that a mask keeps."""
    x, keep = array("x", length, rows, dtype=dtype), array("keep", length, dtype="bool")

    def score(c: Expr, j: Expr) -> Expr:
        return tirx.if_then_else(keep[j], wide(x[j, c]), tirx.const(float("-inf"), "float32"))

    top = fold("top", score, maximum, length, (rows,))
    mass = fold("mass", lambda c, j: te.exp(score(c, j) - top[c]), total, length, (rows,))
    return program(x, keep, each("out", lambda c: top[c] + te.log(mass[c]), rows))


def slope(dtype: str = "float32", rows: int = 40, length: int = 70) -> tirx.PrimFunc:
    """A regression that nobody has named: w, x, y -> Σ exp(−|w|)·(x − x̄)·(y − ȳ), with w[l], x[l, c] and y[l]."""
    w, x, y = array("w", length, dtype=dtype), array("x", length, rows, dtype=dtype), array("y", length, dtype=dtype)

    def weight(j: Expr) -> Expr:
        return te.exp(number(-1) * te.abs(wide(w[j])))

    mass = fold("mass", lambda c, j: weight(j), total, length, (rows,))
    of_x = fold("of_x", lambda c, j: weight(j) * wide(x[j, c]), total, length, (rows,))
    of_y = fold("of_y", lambda c, j: weight(j) * wide(y[j]), total, length, (rows,))

    def both(c: Expr, j: Expr) -> Expr:
        return weight(j) * (wide(x[j, c]) - of_x[c] / mass[c]) * (wide(y[j]) - of_y[c] / mass[c])

    return program(w, x, y, fold("slope", both, total, length, (rows,)))


def gain_gradient(dtype: str = "float32", rows: int = 40, length: int = 70) -> tirx.PrimFunc:
    """The gradients of a norm's gain and bias: sums over its rows."""
    return norm_parameters_gradient(dtype, length, rows)


def channels_last(dtype: str = "float32", rows: int = 2, length: int = 12) -> tirx.PrimFunc:
    """Instance norm of three channels, the last dimension."""
    return channels_last_norm(dtype, rows, length)


COLUMNS: dict[str, Build] = {
    "sums": columns,
    "variance": variance,
    "softmax": softmax,
    "batch_norm": batch_norm,
    "argmax": argmax,
    "slope": slope,
    "masked_sum_exp": masked_sum_exp,
    "gain_gradient": gain_gradient,
    "channels_last": channels_last,
}
