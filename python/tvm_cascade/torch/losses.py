"""Gradients of losses over classes, in a form of which no tensor of all classes has to be stored.

d[i, c] = −w[i] at c = target[i], else 0      a select of positions, as it is written at one position of each row
Σ_c d[i, c]                                    what is written: no sum over classes
a checkpoint's Σ_c exp(x[i, c])                saved, as one number a row; x itself is computed again
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils.checkpoint import CheckpointPolicy

_ATEN = torch.ops.aten

_FEW = 64
"""Elements that are reduced to one, at least, where results are saved that a checkpoint would compute again."""


def nll_loss_backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignored: int,
    total_weight: Tensor,
) -> Tensor:
    """aten.nll_loss_backward, written at the targets alone; torch's rule multiplies what is written by the gradient."""
    classes = min(x.dim() - 1, 1)
    own = gradient / total_weight if reduction == 1 else gradient
    target = (target.reshape(()) if x.dim() == 1 else target).unsqueeze(classes)
    known = target != ignored
    target = torch.where(known, target, 0)
    own = own.unsqueeze(classes) if 0 < own.dim() < x.dim() else own
    if weight is not None:
        own = own * weight[target]
    written = torch.where(known, -own, 0).to(x.dtype)
    return torch.zeros_like(x).scatter(classes, target, written)


def sums_of_written(joint: fx.GraphModule) -> fx.GraphModule:
    """The graph in which a sum over an axis of zeros that one element is written to is that element; in place."""
    for node in joint.graph.find_nodes(op="call_function", target=_ATEN.sum.dim_IntList):
        source = _without_casts(node.args[0])
        if source.target != _ATEN.scatter.src or len(node.args) < 3 or not node.args[2]:
            continue
        start, dim, index, written = source.args
        shown, found = source.meta["val"], node.meta["val"]
        dims = [d % shown.dim() for d in node.args[1]]
        if dims == [dim % shown.dim()] and index.meta["val"].shape[dim] == 1 and _is_zero(start):
            with joint.graph.inserting_before(node), shown.fake_mode:
                made = joint.graph.call_function(_ATEN._to_copy.default, (written,), {"dtype": found.dtype})
                made.meta["val"] = _ATEN._to_copy.default(written.meta["val"], dtype=found.dtype)
            node.replace_all_uses_with(made)
            joint.graph.erase_node(node)
    joint.recompile()
    return joint


def _without_casts(node: fx.Node) -> fx.Node:
    while node.target == _ATEN._to_copy.default:
        node = node.args[0]
    return node


def _is_zero(node: fx.Node) -> bool:
    return node.target in (_ATEN.full.default, _ATEN.full_like.default) and node.args[1] == 0


def rows_saved(joint: fx.GraphModule) -> fx.GraphModule:
    """The graph of which checkpoints save results of long rows: they are few, and each needs all of a row; in place."""
    for node in joint.graph.nodes:
        if node.meta.get("recompute") in (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE):
            reduced = max(map(_elements, node.all_input_nodes), default=0)
            if 0 < _FEW * _elements(node) <= reduced:
                node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return joint


def _elements(node: fx.Node) -> int:
    shown: Any = node.meta.get("val")
    sizes = list(shown.shape) if isinstance(shown, Tensor) else []
    return math.prod(sizes) if sizes and all(isinstance(size, int) for size in sizes) else 0
