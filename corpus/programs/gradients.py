"""Gradients of row programs, from the program's inputs and its output's gradient.

The statistics of the forward program are computed again, and the sums of the gradient read them: cascades like others.
"""

from __future__ import annotations

from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.draws import class_indices, folded, steady
from corpus.programs.moments import centred, row_axes
from corpus.programs.normalisation import inverse_roots
from corpus.programs.program import Inputs, Precision, Program, Shape, output_stage, reduced, rows_of
from corpus.programs.softmax import softmax_stages


def softmax_gradient(shape: Shape, precision: Precision) -> Program:
    """Gradient of a softmax: x, d_out [row, l] -> d_x[row, l] = p·(d_out − Σ p·d_out)."""
    axes, given = row_axes(shape), Inputs(precision)
    x, d_out = given(axes, "x", folded()), given(axes, "d_out")
    stages = softmax_stages(precision, x, axes)
    mean = reduced(te.sum, axes, lambda *at: stages.share(*at) * d_out(*at), "mean_gradient")
    d_x = output_stage(precision, axes, lambda i, j: stages.share(i, j) * (d_out(i, j) - mean(i)), "d_x")
    return given.program(d_x, flops=10 * shape["rows"] * shape["length"])


def cross_entropy_gradient(shape: Shape, precision: Precision) -> Program:
    """Gradient of a loss against classes: logits[row, l], target[row], d_loss[row] -> d_logits[row, l].

    d_logits = d_loss·(p − 1 where l is the target).
    """
    axes, given = row_axes(shape), Inputs(precision)
    logits = given(axes, "logits", folded())
    target = given.stored(rows_of(axes), "target", class_indices(shape["length"]), "int64")
    d_loss, stages = given(rows_of(axes), "d_loss", steady), softmax_stages(precision, logits, axes)
    one, zero = precision.constant(1.0), precision.constant(0.0)

    def element(i: Expr, j: Expr) -> Expr:
        hit = te.if_then_else(tirx.EQ(j.astype("int64"), target(i)), one, zero)
        return d_loss(i) * (stages.share(i, j) - hit)

    d_logits = output_stage(precision, axes, element, "d_logits")
    return given.program(d_logits, flops=6 * shape["rows"] * shape["length"])


def layer_norm_gradient(shape: Shape, precision: Precision) -> Program:
    """Gradient of layer normalisation: x[row, l], gain[l], d_out[row, l] -> d_x[row, l].

    With n = (x − mean)/std and h = gain·d_out less its mean: d_x = (h − n·mean(h·n))/std. As Σ n = 0, Σ h·n is that of
    gain·d_out, with fewer digits lost.
    """
    axes, given = row_axes(shape), Inputs(precision)
    x, gain, d_out = given(axes, "x", folded()), given({"l": axes["l"]}, "gain"), given(axes, "d_out")
    offset, count = centred(precision, axes, x), precision.constant(axes["l"])
    inverse_std = inverse_roots(precision, axes, offset, "inverse_std")

    def scaled(i: Expr, j: Expr) -> Expr:
        return gain(j) * d_out(i, j)

    of_gradient = reduced(te.sum, axes, scaled, "gradient_sum")

    def less_its_mean(i: Expr, j: Expr) -> Expr:
        return scaled(i, j) - of_gradient(i) / count

    def normal(i: Expr, j: Expr) -> Expr:
        return offset(i, j) * inverse_std(i)

    along = reduced(te.sum, axes, lambda *at: less_its_mean(*at) * normal(*at), "along_sum")

    def element(i: Expr, j: Expr) -> Expr:
        return (less_its_mean(i, j) - normal(i, j) * (along(i) / count)) * inverse_std(i)

    d_x = output_stage(precision, axes, element, "d_x")
    return given.program(d_x, flops=16 * shape["rows"] * shape["length"])
