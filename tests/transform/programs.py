"""Programs that are hard on a fold, one line each: what the workloads do not say."""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx
from tvm.ir import Expr

from ..analysis.programs import (
    LENGTH,
    ROWS,
    array,
    conjunction,
    disjunction,
    fold,
    maximum,
    minimum,
    number,
    product,
    program,
    softmax_stages,
    total,
)


def _after_maximum(*names: str) -> Callable[[Callable[..., Expr]], Callable[[], tirx.PrimFunc]]:
    """Programs m = max x; out = Σ element(x, m, further inputs)."""

    def of(element: Callable[..., Expr]) -> Callable[[], tirx.PrimFunc]:
        def build() -> tirx.PrimFunc:
            x, further = array("x"), [array(name) for name in names]
            m = fold("m", lambda i, j: x[i, j], maximum)
            out = fold("out", lambda i, j: element(x[i, j], m[i], *(a[i, j] for a in further)))
            return program(x, *further, out)

        return build

    return of


def _after_sum(*names: str, combine: Callable[..., Expr] = total) -> Callable[..., Callable[[], tirx.PrimFunc]]:
    """Programs s = Σ x; out = combine element(x, s, further inputs)."""

    def of(element: Callable[..., Expr]) -> Callable[[], tirx.PrimFunc]:
        def build() -> tirx.PrimFunc:
            x, further = array("x"), [array(name) for name in names]
            s = fold("s", lambda i, j: x[i, j])
            out = fold("out", lambda i, j: element(x[i, j], s[i], *(a[i, j] for a in further)), combine)
            return program(x, *further, out)

        return build

    return of


def _after_squares(combine: Callable[..., Expr]) -> Callable[..., Callable[[], tirx.PrimFunc]]:
    """Programs s = Σ x²; out = combine element(x, s)."""

    def of(element: Callable[..., Expr]) -> Callable[[], tirx.PrimFunc]:
        def build() -> tirx.PrimFunc:
            x = array("x")
            s = fold("s", lambda i, j: x[i, j] * x[i, j])
            return program(x, fold("out", lambda i, j: element(x[i, j], s[i]), combine))

        return build

    return of


def _mean(s: Expr) -> Expr:
    return s / number(LENGTH)


def softmax_times_values() -> tirx.PrimFunc:
    """x, v -> probs · v, with v one row for all."""
    x, v = array("x"), array("v", LENGTH, 5)
    row_max, row_sum = softmax_stages(x)
    return program(
        x, v, fold("out", lambda i, d, j: te.exp(x[i, j] - row_max[i]) / row_sum[i] * v[j, d], rows=(ROWS, 5))
    )


def softmax_weighted_variance() -> tirx.PrimFunc:
    """x, v -> the variance of v under the softmax of x."""
    x, v = array("x"), array("v")
    row_max, row_sum = softmax_stages(x)

    def p(i: Expr, j: Expr) -> Expr:
        return te.exp(x[i, j] - row_max[i]) / row_sum[i]

    mean = fold("mean", lambda i, j: p(i, j) * v[i, j])
    return program(x, v, fold("out", lambda i, j: p(i, j) * (v[i, j] - mean[i]) * (v[i, j] - mean[i])))


def entropy_of_probabilities() -> tirx.PrimFunc:
    """x -> Σ p · log p, with p the softmax of x written as a quotient."""
    x = array("x")
    row_max, row_sum = softmax_stages(x)

    def p(i: Expr, j: Expr) -> Expr:
        return te.exp(x[i, j] - row_max[i]) / row_sum[i]

    return program(x, fold("out", lambda i, j: p(i, j) * te.log(p(i, j))))


def affine_layer_norm_times_matrix() -> tirx.PrimFunc:
    """x, gain, bias, weight -> (layer norm with gain and bias) · weight."""
    x, gain, bias, weight = array("x"), array("gain", LENGTH), array("bias", LENGTH), array("weight", LENGTH, 6)
    s = fold("s", lambda i, j: x[i, j])
    square = fold("square", lambda i, j: (x[i, j] - _mean(s[i])) * (x[i, j] - _mean(s[i])))

    def element(i: Expr, n: Expr, j: Expr) -> Expr:
        scaled = (x[i, j] - _mean(s[i])) * te.rsqrt(square[i] / number(LENGTH) + number(1e-5))
        return (scaled * gain[j] + bias[j]) * weight[j, n]

    return program(x, gain, bias, weight, fold("out", element, rows=(ROWS, 6)))


def softmax_of_minimum() -> tirx.PrimFunc:
    """x -> Σ exp(min x − x)."""
    x = array("x")
    least = fold("least", lambda i, j: x[i, j], minimum)
    return program(x, fold("out", lambda i, j: te.exp(least[i] - x[i, j])))


def product_of_ratios() -> tirx.PrimFunc:
    """x -> Π x / max x."""
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    return program(x, fold("out", lambda i, j: x[i, j] / m[i], product))


def sum_where_any_holds() -> tirx.PrimFunc:
    """x -> Σ x where some x is above 2, else 0."""
    x = array("x")
    some = fold("some", lambda i, j: x[i, j] > number(2), disjunction)
    return program(x, fold("out", lambda i, j: x[i, j] * some[i].astype("float32")))


def least_where_all_hold() -> tirx.PrimFunc:
    """x -> min (x − 3) where every x is below 2, else 0."""
    x = array("x")
    every = fold("every", lambda i, j: x[i, j] < number(2), conjunction)
    return program(x, fold("out", lambda i, j: (x[i, j] - number(3)) * every[i].astype("float32"), minimum))


def root_of_a_sum() -> tirx.PrimFunc:
    """x, w -> Σ w / sqrt(Σ x + 10⁴), whose sum has no known sign."""
    x, w = array("x"), array("w")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, w, fold("out", lambda i, j: w[i, j] / te.sqrt(s[i] + number(1e4))))


def covariance_matrix() -> tirx.PrimFunc:
    """x -> the sums of its rows, and those of products of what is left of two rows without their means."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    out = fold("out", lambda i, k, j: (x[i, j] - _mean(s[i])) * (x[k, j] - _mean(s[k])), rows=(ROWS, ROWS))
    return program(x, s, out)


def overlap_of_softmaxes() -> tirx.PrimFunc:
    """x -> Σ pᵢ·pₖ for the softmaxes of every two rows."""
    x = array("x")
    m = fold("m", lambda i, j: x[i, j], maximum)
    out = fold("out", lambda i, k, j: te.exp(x[i, j] - m[i]) * te.exp(x[k, j] - m[k]), rows=(ROWS, ROWS))
    return program(x, out)


PROGRAMS: dict[str, Callable[[], tirx.PrimFunc]] = {
    "covariance_matrix": covariance_matrix,
    "overlap_of_softmaxes": overlap_of_softmaxes,
    "softmax_times_values": softmax_times_values,
    "softmax_weighted_variance": softmax_weighted_variance,
    "entropy_of_probabilities": entropy_of_probabilities,
    "affine_layer_norm_times_matrix": affine_layer_norm_times_matrix,
    "softmax_of_minimum": softmax_of_minimum,
    "root_of_a_sum": root_of_a_sum,
    "softmax_in_base_two": _after_maximum()(lambda x, m: tirx.exp2((x - m) * number(1.4426950408889634))),
    "softmax_at_scale_two": _after_maximum()(lambda x, m: te.exp((x - m) * number(2))),
    "softmax_at_scale_eighth": _after_maximum()(lambda x, m: te.exp((x - m) * number(0.125))),
    "exponential_and_addend": _after_maximum("w")(lambda x, m, w: te.exp(x - m) + w),
    "second_moment_of_logits": _after_maximum()(lambda x, m: te.exp(x - m) * (x - m) * (x - m)),
    "exponential_about_the_mean": _after_sum()(lambda x, s: te.exp(x - _mean(s))),
    "fourth_power": _after_sum()(lambda x, s: te.power(x - _mean(s), number(4))),
    "cosine": _after_sum()(lambda x, s: te.cos(x - s)),
    "largest_deviation": _after_sum(combine=maximum)(lambda x, s: te.abs(x - _mean(s))),
    "largest_multiple": _after_sum(combine=maximum)(lambda x, s: x * s),
    "powers_of_a_result": _after_sum()(lambda x, s: x * s + s * s),
    "sum_where_any_holds": sum_where_any_holds,
    "least_where_all_hold": least_where_all_hold,
    "largest_of_negative_multiples": _after_squares(combine=maximum)(lambda x, s: number(0) - x * s),
    "smallest_over_a_root": _after_squares(combine=minimum)(lambda x, s: x / te.sqrt(s + number(1e-3))),
    "largest_excess": _after_sum(combine=maximum)(lambda x, s: te.max(x - _mean(s), number(0))),
    "smallest_in_a_range": _after_sum(combine=minimum)(
        lambda x, s: te.min(te.max(x - _mean(s), number(-1)), number(1)) * number(2)
    ),
    "largest_tangent": _after_squares(combine=maximum)(lambda x, s: te.tanh(x * te.rsqrt(s + number(1e-3)))),
    "normalised_by_the_largest": _after_maximum("w")(lambda x, m, w: (x - m) * w),
}
