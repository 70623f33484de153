"""Integers of a graph that depend on no argument, written as what they are: positions along an axis, or one number.

    positions[b, j]  of  cumsum, index, arange, …      →  arange(n), viewed along the axis and expanded
    sequence[b, i] == sequence[b, j],  all of one       →  full(1) == full(1)

Models compute masks of such tensors. As positions they are expressions, by which attention passes over tiles that are
masked whole; as tensors in memory each element of a mask would be read, and a mask be saved for the backward graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

_ATEN = torch.ops.aten

MOST_ELEMENTS = 1 << 20
"""Of a tensor that is computed to see what it is: masks of whole batches are larger, and made of smaller ones."""


def with_positions(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with such tensors made anew where others read them; changed in place."""
    known = dict[fx.Node, torch.Tensor]()
    for node in list(module.graph.nodes):
        value = _computed(node, known)
        if value is not None:
            known[node] = value
    steps = {node: _steps(value) for node, value in known.items()}
    kept = set[fx.Node]()  # results of the graph, and what is read and is neither positions nor one number
    for node in reversed(known):
        readers = [user for user in node.users if user.op != "output" and (user not in known or user in kept)]
        grows = steps[node]
        if any(user.op == "output" for user in node.users):
            kept.add(node)
        if readers and grows is not None:
            with module.graph.inserting_before(node.next):
                made = _made(module.graph, node, known[node], grows)
            for reader in readers:
                reader.replace_input_with(node, made)
        elif readers:
            kept.add(node)
    for node in reversed(known):
        if not node.users:
            module.graph.erase_node(node)
    module.recompile()
    return module


def computed_by_both(joint: fx.GraphModule) -> fx.GraphModule:
    """A forward and backward graph of which each computes by itself what no argument changes; in place.

    Else a mask that attention reads in both would be saved, as PyTorch takes it for a tensor in memory.
    """
    free = set[fx.Node]()
    for node in joint.graph.nodes:
        if _is_plain(node) and free.issuperset(node.all_input_nodes):
            free.add(node)
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
    return joint


def _is_plain(node: fx.Node) -> bool:
    """Whether it is an operator whose results its arguments alone tell."""
    plain = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    return plain and not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags


def _computed(node: fx.Node, known: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
    """The value of an operator of known tensors alone; None of others, and of what is no tensor of few integers."""
    shown = node.meta.get("val")
    if not _is_plain(node) or not isinstance(shown, torch.Tensor) or shown.is_floating_point():
        return None
    sizes = list(shown.shape)
    if not all(isinstance(size, int) for size in sizes) or shown.numel() > MOST_ELEMENTS or shown.is_complex():
        return None
    if not all(source in known for source in node.all_input_nodes):
        return None
    named = {name: value for name, value in node.kwargs.items() if name not in ("device", "pin_memory")}
    args, named = fx.node.map_arg((node.args, named), known.__getitem__)
    try:
        found = node.target(*args, **named)
    except Exception:  # an operator of one device alone, say
        return None
    return found if isinstance(found, torch.Tensor) and found.shape == shown.shape else None


def _steps(value: torch.Tensor) -> tuple[int, int] | None:
    """(axis, step) of a tensor that grows along one axis alone; (0, 0) of one number; None of others."""
    if not value.numel():
        return None
    start = value[(0,) * value.dim()]
    if bool((value == start).all()):
        return 0, 0
    if value.dtype == torch.bool:
        return None
    for axis, extent in enumerate(value.shape):
        along = value.select(axis, 1) - value.select(axis, 0) if extent > 1 else None
        if along is None or not bool((along == (step := int(along.flatten()[0]))).all()) or not step:
            continue
        shape = [extent if d == axis else 1 for d in range(value.dim())]
        places = start + step * torch.arange(extent, dtype=value.dtype).view(shape)
        return (axis, step) if bool((value == places).all()) else None
    return None


def _made(graph: fx.Graph, node: fx.Node, value: torch.Tensor, grows: tuple[int, int]) -> fx.Node:
    """Nodes that make a tensor as it was found to be."""
    shown, (axis, step) = node.meta["val"], grows
    kind: dict[str, Any] = {"dtype": value.dtype, "device": shown.device, "pin_memory": False}
    start = value[(0,) * value.dim()].item()
    with shown.fake_mode:
        if not step:
            return _call(graph, _ATEN.full.default, (list(value.shape), start), {**kind, "layout": torch.strided})
        made = _call(graph, _ATEN.arange.start_step, (start, start + step * value.shape[axis], step), kind)
        for d in (one for one in range(value.dim()) if one != axis):
            made = _call(graph, _ATEN.unsqueeze.default, (made, d), {})
        return _call(graph, _ATEN.expand.default, (made, list(value.shape)), {})


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...], named: dict[str, Any]) -> fx.Node:
    node = graph.create_node("call_function", target, args, named, name="known_positions")
    shown = fx.node.map_arg((args, named), lambda one: one.meta["val"])
    node.meta["val"] = target(*shown[0], **shown[1])
    return node
