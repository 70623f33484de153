"""Routing to experts: a GEMM gives each token's logits, their softmax the weights, top-k the experts."""

from __future__ import annotations

from tvm import te

from tvm_cascade.bench.programs.draws import folded, steady
from tvm_cascade.bench.programs.program import Argument, Precision, Program, Shape, placeholder, stage
from tvm_cascade.bench.programs.softmax import softmax_stages
from tvm_cascade.te import topk


def routing(shape: Shape, precision: Precision) -> Program:
    """Router of a mixture of experts.

    x[token, hidden], gate[hidden, expert] -> expert_weights[token, topk] (a share of the softmax over all experts),
    expert_ids[token, topk] (int32), both in descending order of weight, equal weights in that of the experts.
    """
    tokens, hidden, experts = shape["tokens"], shape["hidden"], shape["experts"]
    x = placeholder({"token": tokens, "k": hidden}, precision.storage, "x")
    gate = placeholder({"k": hidden, "expert": experts}, precision.storage, "gate")
    axes = {"token": tokens, "expert": experts}

    k = te.reduce_axis((0, hidden), "k")
    logits = stage(axes, lambda i, e: te.sum(precision.widen(x(i, k)) * precision.widen(gate(k, e)), axis=k), "logits")
    stages = softmax_stages(precision, logits, axes)
    probs = stage(axes, lambda i, e: stages.weights(i, e) / stages.row_sum(i), "probs")
    top_probs, top_ids = topk(probs, shape["topk"], name="top")
    kept = {"token": tokens, "rank": shape["topk"]}
    expert_weights = stage(kept, lambda i, r: top_probs(i, r).astype(precision.storage), "expert_weights")
    expert_ids = stage(kept, lambda i, r: top_ids(i, r), "expert_ids")
    arguments = (Argument(x, steady), Argument(gate, folded()))
    return Program(arguments, (expert_weights, expert_ids), flops=2 * tokens * hidden * experts)
