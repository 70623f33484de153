"""Routing to experts: a GEMM gives each token's logits, a map of them the scores, top-k the experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import te, tirx
from tvm.ir import Expr

from corpus.programs.draws import folded, ranked
from corpus.programs.program import Axes, Element, Inputs, Precision, Program, Shape, reduced, stage
from corpus.programs.softmax import softmax_stages
from tvm_cascade.te import topk


def routing(shape: Shape, precision: Precision) -> Program:
    """Router of a mixture of experts.

    x[token, hidden], gate[hidden, expert] -> expert_weights[token, topk] (a share of the softmax over all experts),
    expert_ids[token, topk] (int32), both in descending order of weight, equal weights in that of the experts. Of a
    shape without hidden, logits[token, expert] are the input.
    """
    given = Inputs(precision)
    logits, axes, flops = _logits(given, shape)
    probs = stage(axes, softmax_stages(precision, logits, axes).share, "probs")
    top_probs, top_ids = topk(probs, shape["topk"], name="top")
    kept = {"token": shape["tokens"], "rank": shape["topk"]}
    expert_weights = stage(kept, lambda i, r: top_probs(i, r).astype(precision.storage), "expert_weights")
    expert_ids = stage(kept, lambda i, r: top_ids(i, r), "expert_ids")
    return given.program(expert_weights, expert_ids, flops=flops)


def _logits(given: Inputs, shape: Shape, deviation: float = 1.0) -> tuple[Element, Axes, int]:
    """(x[token, hidden]·gate[hidden, expert], its axes, its operations); `deviation` of the gate.

    Where they are an input, the operations are those of their softmax.
    """
    tokens, experts = shape["tokens"], shape["experts"]
    axes = {"token": tokens, "expert": experts}
    if "hidden" not in shape:
        return given(axes, "logits", ranked), axes, 4 * tokens * experts
    hidden = shape["hidden"]
    x = given({"token": tokens, "k": hidden}, "x")
    gate = given({"k": hidden, "expert": experts}, "gate", folded(), deviation=deviation)
    logits = reduced(te.sum, {**axes, "k": hidden}, lambda i, e, k: x(i, k) * gate(k, e), "logits")
    return logits, axes, 2 * tokens * hidden * experts


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
    weights of the best experts, then their numbers, equal ones in the order of the experts. Logits as of `routing`.
    """
    tokens, best, given = shape["tokens"], shape["topk"], Inputs(precision)
    logits, axes, flops = _logits(given, shape, shape.get("hidden", 1) ** -0.5)
    choice = scores = _scores(router, logits, axes, precision)
    if router.biased:
        bias = given({"expert": shape["experts"]}, "bias", dtype=precision.accumulate, deviation=0.1)
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

    return given.program(stage({"token": tokens, "part": 2, "rank": best}, routed, "routed"), flops=flops)


def _scores(router: Router, logits: Element, axes: Axes, precision: Precision) -> te.Tensor:
    zero, one = precision.constant(0.0), precision.constant(1.0)
    maps: dict[str, Callable[[Expr], Expr]] = {
        SIGMOID: te.sigmoid,
        ROOT_SOFTPLUS: lambda z: te.sqrt(te.max(z, zero) + te.log(one + te.exp(-te.abs(z)))),
    }
    if router.score == SOFTMAX:
        return stage(axes, softmax_stages(precision, logits, axes).share, "scores")
    return stage(axes, lambda i, e: maps[router.score](logits(i, e)), "scores")


def _of_best_groups(router: Router, choice: te.Tensor, axes: Axes) -> te.Tensor:
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
