"""Routing to experts: a GEMM gives each token's logits, a map of them the scores, top-k the experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import te, tirx
from tvm.ir import Expr

from tvm_cascade.corpus.programs.draws import folded, steady
from tvm_cascade.corpus.programs.program import (
    Argument,
    Precision,
    Program,
    Shape,
    placeholder,
    stage,
)
from tvm_cascade.corpus.programs.softmax import softmax_stages
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


SOFTMAX, SIGMOID, ROOT_SOFTPLUS = "softmax", "sigmoid", "root softplus"
"""Scores of logits."""


@dataclass(frozen=True)
class Router:
    """How experts are chosen.

    Attributes
    ----------
    score : of the logits of a token.
    renormalised : weights are divided by their sum.
    biased : experts are chosen by scores with a bias for each, which is none of the weight.
    groups, groups_kept : experts are of the groups whose two best scores add up to most.
    """

    score: str = SOFTMAX
    renormalised: bool = False
    biased: bool = False
    groups: int = 1
    groups_kept: int = 1


def routed_by(router: Router, shape: Shape, precision: Precision) -> Program:
    """Router of a mixture of experts, with one output for both of its results.

    x[token, hidden], gate[hidden, expert], bias[expert] where there is one -> routed[token, 2, topk] (float32): the
    weights of the best experts, then their numbers, equal ones in the order of the experts.
    """
    tokens, hidden, experts, best = (shape[name] for name in ("tokens", "hidden", "experts", "topk"))
    x = placeholder({"token": tokens, "k": hidden}, precision.storage, "x")
    gate = placeholder({"k": hidden, "expert": experts}, precision.storage, "gate")
    arguments = [Argument(x, steady), Argument(gate, folded(), hidden**-0.5)]
    k, axes = te.reduce_axis((0, hidden), "k"), {"token": tokens, "expert": experts}
    logits = stage(axes, lambda i, e: te.sum(precision.widen(x(i, k)) * precision.widen(gate(k, e)), axis=k), "logits")
    scores = _scores(router, logits, axes, precision)
    choice = scores
    if router.biased:
        bias = placeholder({"expert": experts}, precision.accumulate, "bias")
        arguments.append(Argument(bias, steady, 0.1))
        choice = stage(axes, lambda i, e: scores(i, e) + bias(e), "choice")
    if router.groups > 1:
        choice = _of_best_groups(router, choice, axes)
    values, ids = topk(choice, best, name="top")

    def weight(i: Expr, r: Expr | int) -> Expr:
        return scores(i, ids(i, r)) if router.biased else values(i, r)

    total = stage({"token": tokens}, lambda i: sum((weight(i, r) for r in range(1, best)), weight(i, 0)), "total")

    def routed(i: Expr, part: Expr, r: Expr) -> Expr:
        own = weight(i, r) / total(i) if router.renormalised else weight(i, r)
        return tirx.Select(part.equal(0), own, precision.widen(ids(i, r)))

    out = stage({"token": tokens, "part": 2, "rank": best}, routed, "routed")
    return Program(tuple(arguments), (out,), flops=2 * tokens * hidden * experts)


def _scores(router: Router, logits: te.Tensor, axes: dict[str, int], precision: Precision) -> te.Tensor:
    if router.score == SOFTMAX:
        stages = softmax_stages(precision, logits, axes)
        return stage(axes, lambda i, e: stages.weights(i, e) / stages.row_sum(i), "scores")
    zero, one = precision.constant(0.0), precision.constant(1.0)
    maps: dict[str, Callable[[Expr], Expr]] = {
        SIGMOID: te.sigmoid,
        ROOT_SOFTPLUS: lambda z: te.sqrt(te.max(z, zero) + te.log(one + te.exp(-te.abs(z)))),
    }
    return stage(axes, lambda i, e: maps[router.score](logits(i, e)), "scores")


def _of_best_groups(router: Router, choice: te.Tensor, axes: dict[str, int]) -> te.Tensor:
    """The choice among the experts of the best groups; the lowest number for the others."""
    tokens, size, kept = axes["token"], axes["expert"] // router.groups, router.groups_kept
    cut = {"token": tokens, "group": router.groups, "member": size}
    by_group = stage(cut, lambda i, g, e: choice(i, g * size + e), "by_group")
    two, _ = topk(by_group, 2, name="two_best")
    groups = {"token": tokens, "group": router.groups}
    _, chosen = topk(stage(groups, lambda i, g: two(i, g, 0) + two(i, g, 1), "of_groups"), kept, name="top_groups")

    def among(i: Expr, e: Expr) -> Expr:
        inside = [chosen(i, r).equal(te.floordiv(e, size)) for r in range(kept)]
        return tirx.Select(tirx.any(*inside), choice(i, e), te.min_value("float32"))

    return stage(axes, among, "among")
