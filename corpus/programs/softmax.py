"""Row softmax programs, and the three softmax stages that attention and routing share."""

from __future__ import annotations

from typing import NamedTuple

from tvm import te
from tvm.ir import Expr

from corpus.programs.draws import class_indices, folded
from corpus.programs.moments import row_axes
from corpus.programs.program import (
    Axes,
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


class SoftmaxStages(NamedTuple):
    """The tensors of a safe softmax before its division; `row_max` and `row_sum` lack the last axis."""

    row_max: te.Tensor
    weights: te.Tensor
    row_sum: te.Tensor

    def share(self, *at: Expr) -> Expr:
        return self.weights(*at) / self.row_sum(*at[:-1])

    def log_sum(self, *at: Expr) -> Expr:
        """The logarithm of the sum of a row's exponentials."""
        return self.row_max(*at) + te.log(self.row_sum(*at))


def softmax_stages(precision: Precision, logits: Element, axes: Axes, suffix: str = "") -> SoftmaxStages:
    """Row maximum, exponentials and their sum over the last axis of `logits`.

    Parameters
    ----------
    axes : the axes of `logits`, the reduced one last.
    suffix : is appended to the stages' names.
    """
    row_max = reduced(te.max, axes, lambda *at: precision.widen(logits(*at)), f"row_max{suffix}")
    weights = stage(axes, lambda *at: te.exp(precision.widen(logits(*at)) - row_max(*at[:-1])), f"weights{suffix}")
    return SoftmaxStages(row_max, weights, reduced(te.sum, axes, weights, f"row_sum{suffix}"))


class _Rows:
    """Rows of logits, and the stages of their softmax."""

    def __init__(self, shape: Shape, precision: Precision, name: str = "x") -> None:
        self.precision, self.axes, self.given = precision, row_axes(shape), Inputs(precision)
        self.x = self.given(self.axes, name, folded())
        self.stages = softmax_stages(precision, self.x, self.axes)

    def program(self, element: Element, name: str = "out", flops: int = 4) -> Program:
        return self.of(output_stage(self.precision, rows_of(self.axes), element, name), flops=flops)

    def of(self, *outputs: te.Tensor, flops: int) -> Program:
        rows, length = self.axes.values()
        return self.given.program(*outputs, flops=flops * rows * length)


def softmax(shape: Shape, precision: Precision) -> Program:
    """Softmax of each row: x[row, l] -> out[row, l]."""
    rows = _Rows(shape, precision)
    return rows.of(output_stage(precision, rows.axes, rows.stages.share, "out"), flops=5)


def softmax_stats(shape: Shape, precision: Precision) -> Program:
    """The statistics of a softmax, both kept: x[row, l] -> row_max[row], row_sum[row], in the accumulation dtype."""
    rows = _Rows(shape, precision)
    return rows.of(rows.stages.row_max, rows.stages.row_sum, flops=4)


def logsumexp(shape: Shape, precision: Precision) -> Program:
    """Logarithm of the sum of exponentials: x[row, l] -> out[row]."""
    rows = _Rows(shape, precision)
    return rows.program(rows.stages.log_sum)


def cross_entropy(shape: Shape, precision: Precision) -> Program:
    """Loss of each row against the index of its class: logits[row, l], target[row] -> loss[row]."""
    rows = _Rows(shape, precision, "logits")
    target = rows.given.stored(rows_of(rows.axes), "target", class_indices(shape["length"]), "int64")
    return rows.program(lambda i: rows.stages.log_sum(i) - rows.x(i, target(i)), "loss")


def entropy(shape: Shape, precision: Precision) -> Program:
    """Entropy of each row's softmax: x[row, l] -> out[row] = -sum p log p."""
    rows = _Rows(shape, precision)
    log_probs = _log_probs(rows.x, rows.stages, rows.axes, "log_probs")

    def element(*at: Expr) -> Expr:
        return -te.exp(log_probs(*at)) * log_probs(*at)

    return rows.of(output_stage(precision, rows.axes, element, "out", te.sum), flops=8)


def kl_divergence(shape: Shape, precision: Precision) -> Program:
    """Divergence of two softmaxes of each row: p_logits, q_logits [row, l] -> out[row] = sum p (log p - log q)."""
    axes, given = row_axes(shape), Inputs(precision)
    p_logits, q_logits = (given(axes, f"{name}_logits", folded()) for name in "pq")
    log_p, log_q = (
        _log_probs(x, softmax_stages(precision, x, axes, f"_{name}"), axes, f"log_{name}")
        for x, name in ((p_logits, "p"), (q_logits, "q"))
    )

    def element(*at: Expr) -> Expr:
        return te.exp(log_p(*at)) * (log_p(*at) - log_q(*at))

    out = output_stage(precision, axes, element, "out", te.sum)
    return given.program(out, flops=16 * shape["rows"] * shape["length"])


def _log_probs(x: Element, stages: SoftmaxStages, axes: Axes, name: str) -> te.Tensor:
    return stage(axes, lambda i, j: x(i, j) - stages.row_max(i) - te.log(stages.row_sum(i)), name)
