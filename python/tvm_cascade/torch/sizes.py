"""Numbers and sizes among the arguments of a graph that TorchDynamo captured.

Compiled programs take tensors alone: numbers are constants of a program, and a size is read off a tensor that has it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import fx


def numbers_of(graph: fx.Graph) -> frozenset[int]:
    """The positions of arguments that are numbers, which TorchDynamo passes as tensors where they may change."""
    inputs = enumerate(graph.find_nodes(op="placeholder"))
    return frozenset(k for k, node in inputs if node.users and all(user.target == "item" for user in node.users))


def with_numbers(graph: fx.GraphModule, numbers: Mapping[int, float]) -> fx.GraphModule:
    """The graph with such arguments as constants."""
    if not numbers:
        return graph
    found = copy.deepcopy(graph.graph)
    for k, node in enumerate(found.find_nodes(op="placeholder")):
        for user in [*node.users] if k in numbers else ():
            user.op, user.target, user.args = "call_function", type(numbers[k]), (numbers[k],)
    return fx.GraphModule(graph, found)


def changing_sizes(graph: fx.Graph) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, int]]]:
    """Which axes of arguments have sizes that may change; and of arguments that are such sizes, of which axis of which.

    A size that no tensor has is read off one that is made for it, in its place (`of_size`).
    TorchDynamo has symbols for sizes where it found that they change, or was told to.
    """
    inputs = graph.find_nodes(op="placeholder")
    examples = [node.meta.get("example_value", node.meta.get("val")) for node in inputs]
    tensors = {k: one for k, one in enumerate(examples) if isinstance(one, torch.Tensor)}
    shapes = {k: [str(size) for size in one.shape] for k, one in tensors.items()}
    axes = {k: tuple(d for d, size in enumerate(one.shape) if _changes(size)) for k, one in tensors.items()}
    sizes = dict[int, tuple[int, int]]()
    for k, one in enumerate(examples):
        if isinstance(one, torch.SymInt):
            found = [(place, shape.index(str(one))) for place, shape in shapes.items() if str(one) in shape]
            sizes[k] = found[0] if found else (k, 0)
            axes |= {} if found else {k: (0,)}
    return {k: one for k, one in axes.items() if one}, sizes


def _changes(size: Any) -> bool:
    """Whether it is a symbol, and not one that the graph showed to be a number, as by a constant of that length."""
    return isinstance(size, torch.SymInt) and not size.node.expr.is_number


def with_sizes_read(
    graph: fx.GraphModule, sizes: Mapping[int, tuple[int, int]]
) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """The graph with sizes read off the tensors that have them, and the places of the arguments that it still takes."""
    found = copy.deepcopy(graph.graph)
    inputs = found.find_nodes(op="placeholder")
    for one, following in pairwise(inputs):
        one.append(following)  # before whatever uses sizes
    for k, (place, axis) in sizes.items():
        with found.inserting_after(inputs[-1]):
            size = found.call_method("size", (inputs[place], axis))
        inputs[k].replace_all_uses_with(size, lambda user, size=size: user is not size)
    elsewhere = {k for k, (place, _) in sizes.items() if place != k}
    for k in elsewhere:
        found.erase_node(inputs[k])
    return fx.GraphModule(graph, found), tuple(k for k in range(len(inputs)) if k not in elsewhere)


def of_size(size: int, device: torch.device) -> torch.Tensor:
    """A tensor of that many rows, without elements."""
    return torch.empty((size, 0), dtype=torch.bool, device=device)
