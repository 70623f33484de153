"""Routers as torch's users write them: eager programs, and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpus.programs.routing import ROOT_SOFTPLUS, SIGMOID, Router

Named = Mapping[str, Any]


def route(torch: Any, router: Router, best: int, named: Named) -> Any:
    """The output of `corpus.programs.routing.routed_by`."""
    scores = _scores(torch, router, _logits(torch, named))
    choice = scores + named["bias"] if router.biased else scores
    if router.groups > 1:
        choice = _of_best_groups(torch, router, choice)
    values, ids = choice.topk(best, -1)
    weights = scores.gather(-1, ids) if router.biased else values
    if router.renormalised:
        weights = weights / weights.sum(-1, keepdim=True)
    return torch.stack([weights, ids.to(weights.dtype)], 1)


def _logits(torch: Any, named: Named) -> Any:
    """In float32 at least: rounded to half precision, experts would be equal that are not."""
    if "logits" in named:
        return named["logits"].to(torch.promote_types(named["logits"].dtype, torch.float32))
    x, gate = named["x"], named["gate"]
    if x.element_size() > 2:
        return x @ gate
    return torch.mm(x, gate, out_dtype=torch.float32) if x.is_cuda else x.float() @ gate.float()


def _scores(torch: Any, router: Router, logits: Any) -> Any:
    if router.score == SIGMOID:
        return logits.sigmoid()
    if router.score == ROOT_SOFTPLUS:
        return torch.nn.functional.softplus(logits).sqrt()
    return logits.softmax(-1)


def _of_best_groups(torch: Any, router: Router, choice: Any) -> Any:
    by_group = choice.unflatten(-1, (router.groups, -1))
    chosen = by_group.topk(2, -1).values.sum(-1).topk(router.groups_kept, -1).indices
    kept = torch.zeros_like(by_group[..., 0], dtype=torch.bool).scatter_(-1, chosen, True)
    return by_group.masked_fill(~kept[..., None], float("-inf")).flatten(-2)
