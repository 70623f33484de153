"""The head of a language model: a GEMM gives each token's logits, of which a loss or another statistic is asked for."""

from __future__ import annotations

from functools import partial

from tvm import te

from tvm_cascade.bench.programs.draws import class_indices, folded, steady
from tvm_cascade.bench.programs.program import (
    Argument,
    Builder,
    Precision,
    Program,
    Shape,
    placeholder,
    stage,
)
from tvm_cascade.bench.programs.softmax import softmax_stages

CROSS_ENTROPY, LOG_SUM_EXP = "cross_entropy", "log_sum_exp"
"""What is computed of the logits of a token: −log p[target], and log Σ exp, of which z-losses and p are made."""


def head_of(asked: str, shape: Shape, precision: Precision) -> Program:
    """Statistics of logits, of which none is an output; of normal data, a temperature of √hidden makes them normal.

    x[token, hidden], w[class, hidden] and, for a loss, target[token] -> out[token], in the accumulation dtype.
    """
    tokens, hidden, classes = shape["tokens"], shape["hidden"], shape["classes"]
    x = placeholder({"token": tokens, "k": hidden}, precision.storage, "x")
    w = placeholder({"class": classes, "k": hidden}, precision.storage, "w")
    axes, rows = {"token": tokens, "class": classes}, {"token": tokens}
    k = te.reduce_axis((0, hidden), "k")
    sums = stage(axes, lambda i, c: te.sum(precision.widen(x(i, k)) * precision.widen(w(c, k)), axis=k), "sums")
    logits = stage(axes, lambda i, c: sums(i, c) * precision.constant(hidden**-0.5), "logits")
    stages = softmax_stages(precision, logits, axes)
    arguments = [Argument(x, steady), Argument(w, folded(0))]
    if asked == CROSS_ENTROPY:
        target = placeholder(rows, "int64", "target")
        arguments.append(Argument(target, class_indices(classes)))
        out = stage(rows, lambda i: stages.row_max(i) + te.log(stages.row_sum(i)) - logits(i, target(i)), "out")
    else:
        out = stage(rows, lambda i: stages.row_max(i) + te.log(stages.row_sum(i)), "out")
    return Program(tuple(arguments), (out,), flops=2 * tokens * hidden * classes)


def head(asked: str) -> Builder:
    """The builder of a head."""
    return partial(head_of, asked)
