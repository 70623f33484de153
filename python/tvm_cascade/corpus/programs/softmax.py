"""Row softmax programs, and the three softmax stages that attention and routing share."""

from __future__ import annotations

from typing import NamedTuple

from tvm import te

from tvm_cascade.corpus.programs.draws import class_indices, folded
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


class SoftmaxStages(NamedTuple):
    """The tensors of a safe softmax before its division; `row_max` and `row_sum` lack the last axis."""

    row_max: te.Tensor
    weights: te.Tensor
    row_sum: te.Tensor


def softmax_stages(precision: Precision, logits: te.Tensor, axes: Axes, suffix: str = "") -> SoftmaxStages:
    """Row maximum, exponentials and their sum over the last axis of `logits`.

    Parameters
    ----------
    axes : the axes of `logits`, the reduced one last.
    suffix : is appended to the stages' names.
    """
    *spatial, reduced = axes
    rows = {name: axes[name] for name in spatial}
    j = te.reduce_axis((0, axes[reduced]), reduced)
    row_max = stage(rows, lambda *at: te.max(precision.widen(logits(*at, j)), axis=j), f"row_max{suffix}")
    weights = stage(axes, lambda *at: te.exp(precision.widen(logits(*at)) - row_max(*at[:-1])), f"weights{suffix}")
    k = te.reduce_axis((0, axes[reduced]), reduced)
    row_sum = stage(rows, lambda *at: te.sum(weights(*at, k), axis=k), f"row_sum{suffix}")
    return SoftmaxStages(row_max, weights, row_sum)


def softmax(shape: Shape, precision: Precision) -> Program:
    """Softmax of each row: x[row, l] -> out[row, l]."""
    axes, x = _logits(shape, precision, "x")
    stages = softmax_stages(precision, x, axes)
    out = output_stage(precision, axes, lambda i, j: stages.weights(i, j) / stages.row_sum(i), "out")
    return _row_program((x,), (out,), flops_per_element=5)


def softmax_stats(shape: Shape, precision: Precision) -> Program:
    """The statistics of a softmax, both kept: x[row, l] -> row_max[row], row_sum[row], in the accumulation dtype."""
    axes, x = _logits(shape, precision, "x")
    stages = softmax_stages(precision, x, axes)
    return _row_program((x,), (stages.row_max, stages.row_sum), flops_per_element=4)


def logsumexp(shape: Shape, precision: Precision) -> Program:
    """Logarithm of the sum of exponentials: x[row, l] -> out[row]."""
    axes, x = _logits(shape, precision, "x")
    stages = softmax_stages(precision, x, axes)
    rows = {"row": shape["rows"]}
    out = output_stage(precision, rows, lambda i: stages.row_max(i) + te.log(stages.row_sum(i)), "out")
    return _row_program((x,), (out,), flops_per_element=4)


def cross_entropy(shape: Shape, precision: Precision) -> Program:
    """Loss of each row against the index of its class: logits[row, l], target[row] -> loss[row]."""
    axes, x = _logits(shape, precision, "logits")
    rows = {"row": shape["rows"]}
    target = placeholder(rows, "int64", "target")
    stages = softmax_stages(precision, x, axes)
    loss = output_stage(
        precision,
        rows,
        lambda i: stages.row_max(i) + te.log(stages.row_sum(i)) - precision.widen(x(i, target(i))),
        "loss",
    )
    program = _row_program((x,), (loss,), flops_per_element=4)
    indices = Argument(target, class_indices(shape["length"]))
    return Program((*program.arguments, indices), program.outputs, program.flops)


def entropy(shape: Shape, precision: Precision) -> Program:
    """Entropy of each row's softmax: x[row, l] -> out[row] = -sum p log p."""
    axes, x = _logits(shape, precision, "x")
    stages = softmax_stages(precision, x, axes)
    log_probs = _log_probs(precision, x, stages, axes, "log_probs")
    j = te.reduce_axis((0, shape["length"]), "l")
    out = output_stage(
        precision, {"row": shape["rows"]}, lambda i: te.sum(-te.exp(log_probs(i, j)) * log_probs(i, j), axis=j), "out"
    )
    return _row_program((x,), (out,), flops_per_element=8)


def kl_divergence(shape: Shape, precision: Precision) -> Program:
    """Divergence of two softmaxes of each row: p_logits, q_logits [row, l] -> out[row] = sum p (log p - log q)."""
    axes, p_logits = _logits(shape, precision, "p_logits")
    _, q_logits = _logits(shape, precision, "q_logits")
    p_stages = softmax_stages(precision, p_logits, axes, "_p")
    q_stages = softmax_stages(precision, q_logits, axes, "_q")
    log_p = _log_probs(precision, p_logits, p_stages, axes, "log_p")
    log_q = _log_probs(precision, q_logits, q_stages, axes, "log_q")
    j = te.reduce_axis((0, shape["length"]), "l")
    out = output_stage(
        precision,
        {"row": shape["rows"]},
        lambda i: te.sum(te.exp(log_p(i, j)) * (log_p(i, j) - log_q(i, j)), axis=j),
        "out",
    )
    return _row_program((p_logits, q_logits), (out,), flops_per_element=8)


def _logits(shape: Shape, precision: Precision, name: str) -> tuple[Axes, te.Tensor]:
    axes = {"row": shape["rows"], "l": shape["length"]}
    return axes, placeholder(axes, precision.storage, name)


def _log_probs(precision: Precision, x: te.Tensor, stages: SoftmaxStages, axes: Axes, name: str) -> te.Tensor:
    return stage(axes, lambda i, j: precision.widen(x(i, j)) - stages.row_max(i) - te.log(stages.row_sum(i)), name)


def _row_program(rows: tuple[te.Tensor, ...], outputs: tuple[te.Tensor, ...], flops_per_element: int) -> Program:
    elements = sum(int(x.shape[0]) * int(x.shape[1]) for x in rows)
    return Program(tuple(Argument(x, folded()) for x in rows), outputs, flops_per_element * elements)
