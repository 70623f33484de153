"""Gradients of row programs, from the program's inputs and its output's gradient.

The statistics of the forward program are computed again, and the sums of the gradient read them: cascades like others.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import class_indices, folded, steady
from tvm_cascade.corpus.programs.moments import row_mean
from tvm_cascade.corpus.programs.normalisation import inverse_root
from tvm_cascade.corpus.programs.program import (
    Argument,
    Axes,
    Precision,
    Program,
    Shape,
    output_stage,
    placeholder,
    stage,
)
from tvm_cascade.corpus.programs.softmax import softmax_stages


def softmax_gradient(shape: Shape, precision: Precision) -> Program:
    """Gradient of a softmax: x, d_out [row, l] -> d_x[row, l] = p·(d_out − Σ p·d_out)."""
    axes, rows = _axes(shape), {"row": shape["rows"]}
    x, d_out = placeholder(axes, precision.storage, "x"), placeholder(axes, precision.storage, "d_out")
    stages = softmax_stages(precision, x, axes)
    k = te.reduce_axis((0, shape["length"]), "l")

    def share(i: Expr) -> Expr:
        return te.sum(stages.weights(i, k) / stages.row_sum(i) * precision.widen(d_out(i, k)), axis=k)

    mean = stage(rows, share, "mean_gradient")

    def element(i: Expr, j: Expr) -> Expr:
        return stages.weights(i, j) / stages.row_sum(i) * (precision.widen(d_out(i, j)) - mean(i))

    d_x = output_stage(precision, axes, element, "d_x")
    return Program(_drawn(x, d_out), (d_x,), flops=10 * shape["rows"] * shape["length"])


def cross_entropy_gradient(shape: Shape, precision: Precision) -> Program:
    """Gradient of a loss against classes: logits[row, l], target[row], d_loss[row] -> d_logits[row, l].

    d_logits = d_loss·(p − 1 where l is the target).
    """
    axes, rows = _axes(shape), {"row": shape["rows"]}
    logits = placeholder(axes, precision.storage, "logits")
    target, d_loss = placeholder(rows, "int64", "target"), placeholder(rows, precision.storage, "d_loss")
    stages = softmax_stages(precision, logits, axes)
    one, zero = precision.constant(1.0), precision.constant(0.0)

    def element(i: Expr, j: Expr) -> Expr:
        hit = te.if_then_else(tirx.EQ(j.astype("int64"), target(i)), one, zero)
        return precision.widen(d_loss(i)) * (stages.weights(i, j) / stages.row_sum(i) - hit)

    d_logits = output_stage(precision, axes, element, "d_logits")
    indices = Argument(target, class_indices(shape["length"]))
    arguments = (Argument(logits, folded()), indices, Argument(d_loss, steady))
    return Program(arguments, (d_logits,), flops=6 * shape["rows"] * shape["length"])


def layer_norm_gradient(shape: Shape, precision: Precision) -> Program:
    """Gradient of layer normalisation: x[row, l], gain[l], d_out[row, l] -> d_x[row, l].

    With n = (x − mean)/std and h = gain·d_out less its mean: d_x = (h − n·mean(h·n))/std. As Σ n = 0, Σ h·n is that of
    gain·d_out, with fewer digits lost.
    """
    axes, length, rows = _axes(shape), shape["length"], {"row": shape["rows"]}
    x, d_out = placeholder(axes, precision.storage, "x"), placeholder(axes, precision.storage, "d_out")
    gain = placeholder({"l": length}, precision.storage, "gain")
    mean, count = row_mean(precision, axes, x, "mean"), precision.constant(length)

    def offset(i: Expr, j: Expr) -> Expr:
        return precision.widen(x(i, j)) - mean(i)

    def scaled(i: Expr, j: Expr) -> Expr:
        return precision.widen(gain(j)) * precision.widen(d_out(i, j))

    def total(name: str, term: Callable[[Expr, Expr], Expr], k: tirx.IterVar) -> te.Tensor:
        return stage(rows, lambda i: te.sum(term(i, k), axis=k), name)

    k, m, n = (te.reduce_axis((0, length), "l") for _ in range(3))
    squares = total("square_sum", lambda i, j: offset(i, j) * offset(i, j), k)
    inverse_std = stage(rows, lambda i: inverse_root(precision, squares(i), length), "inverse_std")
    of_gradient = total("gradient_sum", scaled, m)

    def centred(i: Expr, j: Expr) -> Expr:
        return scaled(i, j) - of_gradient(i) / count

    along = total("along_sum", lambda i, j: centred(i, j) * (offset(i, j) * inverse_std(i)), n)

    def element(i: Expr, j: Expr) -> Expr:
        normal = offset(i, j) * inverse_std(i)
        return (centred(i, j) - normal * (along(i) / count)) * inverse_std(i)

    d_x = output_stage(precision, axes, element, "d_x")
    arguments = (Argument(x, folded()), Argument(gain, steady), Argument(d_out, steady))
    return Program(arguments, (d_x,), flops=16 * shape["rows"] * length)


def _axes(shape: Shape) -> Axes:
    return {"row": shape["rows"], "l": shape["length"]}


def _drawn(x: te.Tensor, d_out: te.Tensor) -> tuple[Argument, ...]:
    return Argument(x, folded()), Argument(d_out, steady)
