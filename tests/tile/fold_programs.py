"""Folds along rows of memory that `row_programs` has none of: other layouts, reducers, losses and comparisons."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx, topi
from tvm.ir import Expr

from tvm_cascade.te import topk

from ..analysis.programs import (
    array,
    conjunction,
    each,
    fold,
    maximum,
    minimum,
    number,
    product,
    program,
    softmax_stages,
    total,
)
from .row_programs import Build

EPSILON = 1e-5


def wide(value: Expr) -> Expr:
    """In the dtype of sums."""
    return value.astype("float32")


def covariance(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x, y -> mean of (x − x̄)·(y − ȳ)."""
    x, y = array("x", rows, length, dtype=dtype), array("y", rows, length, dtype=dtype)
    n = number(length)
    of_x = fold("of_x", lambda i, j: wide(x[i, j]), total, length, (rows,))
    of_y = fold("of_y", lambda i, j: wide(y[i, j]), total, length, (rows,))
    both = fold(
        "both", lambda i, j: (wide(x[i, j]) - of_x[i] / n) * (wide(y[i, j]) - of_y[i] / n), total, length, (rows,)
    )
    return program(x, y, each("out", lambda i: both[i] / n, rows))


def instance_norm(dtype: str = "float32", rows: int = 2, length: int = 12) -> tirx.PrimFunc:
    """x[n, c, h, w] -> normalised over h and w."""
    shape = (rows, 3, length, length)
    return _normalised(dtype, shape, lambda n, c, h, w: (n, c), shape[:2], lambda at, p: (*at, *p))


def channels_last_norm(dtype: str = "float32", rows: int = 2, length: int = 12) -> tirx.PrimFunc:
    """x[n, h, w, c] -> normalised over h and w: neighbours on the axis are channels apart."""
    shape = (rows, length, length, 3)
    return _normalised(dtype, shape, lambda n, h, w, c: (n, c), (rows, 3), lambda at, p: (at[0], *p, at[1]))


def _normalised(
    dtype: str,
    shape: tuple[int, ...],
    row_of: Callable[..., tuple[Expr, ...]],
    rows: tuple[int, ...],
    place: Callable[..., tuple[Expr, ...]],
) -> tirx.PrimFunc:
    """x -> (x − mean) / sqrt(variance + ε) over two loops of a shape of four."""
    x = array("x", *shape, dtype=dtype)
    sizes = shape[1:-1] if rows[-1] == shape[-1] else shape[2:]
    count = number(sizes[0] * sizes[1])

    def reduced(name: str, term: Callable[[tuple[Expr, ...], Expr], Expr]) -> te.Tensor:
        loops = [te.reduce_axis((0, n), f"{name}_{k}") for k, n in enumerate(sizes)]
        return te.compute(rows, lambda *at: te.sum(term(at, wide(x(*place(at, loops)))), axis=loops), name=name)

    sums = reduced("sums", lambda at, v: v)
    squares = reduced("squares", lambda at, v: (v - sums(*at) / count) * (v - sums(*at) / count))

    def element(*point: Expr) -> Expr:
        at = row_of(*point)
        return ((wide(x(*point)) - sums(*at) / count) * te.rsqrt(squares(*at) / count + number(EPSILON))).astype(dtype)

    return program(x, each("out", element, *shape))


def smoothed_cross_entropy(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """logits, target -> −0.9·log p[target] − 0.1·mean of log p."""
    x, target = array("x", rows, length, dtype=dtype), array("target", rows, dtype="int64")
    logits = each("logits", lambda i, j: wide(x[i, j]), rows, length)
    top, mass = softmax_stages(logits, length, rows)
    log_probs = each("log_probs", lambda i, j: logits[i, j] - top[i] - te.log(mass[i]), rows, length)
    every = fold("every", lambda i, j: log_probs[i, j], total, length, (rows,))

    def loss(i: Expr) -> Expr:
        return -(number(0.9) * log_probs[i, target[i]] + number(0.1) * every[i] / number(length))

    return program(x, target, each("loss", loss, rows))


def cosine(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x, y -> Σ x·y / sqrt(Σ x² · Σ y²), its sums read by a later one."""
    x, y = array("x", rows, length, dtype=dtype), array("y", rows, length, dtype=dtype)
    of_x = fold("of_x", lambda i, j: wide(x[i, j]) * wide(x[i, j]), total, length, (rows,))
    of_y = fold("of_y", lambda i, j: wide(y[i, j]) * wide(y[i, j]), total, length, (rows,))

    def term(i: Expr, j: Expr) -> Expr:
        return wide(x[i, j]) * te.rsqrt(of_x[i] + number(EPSILON)) * wide(y[i, j]) * te.rsqrt(of_y[i] + number(EPSILON))

    return program(x, y, fold("out", term, total, length, (rows,)))


def routed(dtype: str = "float32", rows: int = 3, length: int = 100) -> tirx.PrimFunc:
    """x -> the three largest probabilities and where they are."""
    x = array("x", rows, length, dtype=dtype)
    logits = each("logits", lambda i, j: wide(x[i, j]), rows, length)
    top, mass = softmax_stages(logits, length, rows)
    probs = each("probs", lambda i, j: te.exp(logits[i, j] - top[i]) / mass[i], rows, length)
    return program(x, *topk(probs, 3))


def deviations(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x -> the largest and the smallest of x − mean, and the largest |x − mean|."""
    x = array("x", rows, length, dtype=dtype)
    sums = fold("sums", lambda i, j: wide(x[i, j]), total, length, (rows,))

    def offset(i: Expr, j: Expr) -> Expr:
        return wide(x[i, j]) - sums[i] / number(length)

    reductions = (
        fold("highest", offset, maximum, length, (rows,)),
        fold("lowest", offset, minimum, length, (rows,)),
        fold("farthest", lambda i, j: te.abs(offset(i, j)), maximum, length, (rows,)),
    )
    return program(x, *reductions)


def product_of_ratios(dtype: str = "float32", rows: int = 5, length: int = 32) -> tirx.PrimFunc:
    """x -> Π of x_l / max |x|."""
    x = array("x", rows, length, dtype=dtype)
    largest = fold("largest", lambda i, j: te.abs(wide(x[i, j])), maximum, length, (rows,))
    return program(x, fold("ratios", lambda i, j: wide(x[i, j]) / largest[i], product, length, (rows,)))


def where_least(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x -> where x − max is least."""
    x = array("x", rows, length, dtype=dtype)
    top = fold("top", lambda i, j: x[i, j], maximum, length, (rows,))
    shifted = each("shifted", lambda i, j: x[i, j] - top[i], rows, length)
    return program(x, topi.argmin(shifted, axis=1))


def argmax(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x -> where each row is largest, by a reduction that reads no other."""
    x = array("x", rows, length, dtype=dtype)
    return program(x, topi.argmax(x, axis=1))


def masked_moments(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x, mask -> Σ m·(x − mean)² over what the mask keeps, as weights."""
    x, keep = array("x", rows, length, dtype=dtype), array("keep", rows, length, dtype="bool")

    def kept(i: Expr, j: Expr, value: Expr) -> Expr:
        return tirx.if_then_else(keep[i, j], value, number(0))

    many = fold("many", lambda i, j: kept(i, j, number(1)), total, length, (rows,))
    sums = fold("sums", lambda i, j: kept(i, j, wide(x[i, j])), total, length, (rows,))

    def square(i: Expr, j: Expr) -> Expr:
        offset = wide(x[i, j]) - sums[i] / te.max(many[i], number(1))
        return kept(i, j, offset * offset)

    return program(x, keep, sums, fold("squares", square, total, length, (rows,)))


def residues(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x, y -> Σ (y − slope·x − intercept)² of the line that fits each row."""
    x, y = array("x", rows, length, dtype=dtype), array("y", rows, length, dtype=dtype)
    x_sum = fold("x_sum", lambda i, j: wide(x[i, j]), total, length, (rows,))
    y_sum = fold("y_sum", lambda i, j: wide(y[i, j]), total, length, (rows,))

    def about(a: te.Tensor, a_sum: te.Tensor, i: Expr, j: Expr) -> Expr:
        return wide(a[i, j]) - a_sum[i] / number(length)

    square = fold("square", lambda i, j: te.power(about(x, x_sum, i, j), number(2)), total, length, (rows,))
    mixed = fold("mixed", lambda i, j: about(x, x_sum, i, j) * about(y, y_sum, i, j), total, length, (rows,))
    slope = each("slope", lambda i: mixed[i] / square[i], rows)
    intercept = each("intercept", lambda i: (y_sum[i] - slope[i] * x_sum[i]) / number(length), rows)

    def residue(i: Expr, j: Expr) -> Expr:
        return te.power(wide(y[i, j]) - slope[i] * wide(x[i, j]) - intercept[i], number(2))

    return program(x, y, fold("out", residue, total, length, (rows,)))


def truths(dtype: str = "float32", rows: int = 5, length: int = 256) -> tirx.PrimFunc:
    """x, keep -> whether all that the mask keeps are below the largest, and all of the mask as bytes."""
    x, keep = array("x", rows, length, dtype=dtype), array("keep", rows, length, dtype="bool")
    top = fold("top", lambda i, j: x[i, j], maximum, length, (rows,))
    every = fold("every", lambda i, j: keep[i, j], conjunction, length, (rows,))
    out = each("out", lambda i, j: tirx.Or(keep[i, j], x[i, j] < top[i]), rows, length)
    return program(x, keep, every, out)


FOLDS: dict[str, Build] = {
    "covariance": covariance,
    "instance_norm": instance_norm,
    "smoothed_cross_entropy": smoothed_cross_entropy,
    "cosine": cosine,
    "routed": routed,
    "deviations": deviations,
    "product_of_ratios": product_of_ratios,
    "where_least": where_least,
    "argmax": argmax,
    "masked_moments": masked_moments,
    "residues": residues,
    "truths": truths,
}
