"""Results that are views of an argument in PyTorch, and tensors of their own in compiled code: they are made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.site import origin


@dataclass(frozen=True)
class View:
    """A view of an argument, whose strides are those of the example.

    Attributes
    ----------
    argument : its position.
    size, stride, offset : of the view; the offset from the argument's own.
    """

    argument: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, arguments: Sequence[Any]) -> torch.Tensor:
        """The view of the argument given now."""
        base: torch.Tensor = arguments[self.argument]
        return base.as_strided(self.size, self.stride, base.storage_offset() + self.offset)


def views_of_arguments(program: torch.export.ExportedProgram) -> Mapping[int, View]:
    """The results of an exported program, not decomposed yet, that are views of its arguments, by position.

    Raises
    ------
    ModelError
        Where two results share memory that is no argument's: writing to one of them would change the other in PyTorch;
        where the layout of a view depends on sizes that change.
    """
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    positions = {node: k for k, node in enumerate(program.graph.find_nodes(op="placeholder"))}
    first = len(positions) - len(program.graph_signature.user_inputs)
    roots, views = dict[fx.Node, fx.Node](), dict[int, View]()
    for k, value in enumerate(output.args[0]):
        if not isinstance(value, fx.Node) or not isinstance(value.meta["val"], torch.Tensor):
            continue
        root = _viewed(value)
        if positions.get(root, -1) >= first:
            views[k] = _view(positions[root] - first, value.meta["val"], root.meta["val"])
        elif roots.setdefault(root, value) is not value:
            hint = "return a copy of it, .clone()"
            raise ModelError("results with memory of their own", f"`{value}`, a view of `{root}`", origin(value), hint)
    return views


def _view(argument: int, value: torch.Tensor, base: torch.Tensor) -> View:
    offset = value.storage_offset() - base.storage_offset()
    if any(isinstance(one, torch.SymInt) for one in (*value.shape, *value.stride(), offset)):
        raise ModelError("views of one layout", f"{[*value.shape]} of strides {[*value.stride()]}", "a result")
    return View(argument, tuple(map(int, value.shape)), tuple(map(int, value.stride())), int(offset))


def _viewed(node: fx.Node) -> fx.Node:
    """The node whose memory a node's value is a view of; itself, where it has its own."""
    schema = getattr(node.target, "_schema", None)
    first = schema.arguments[0] if schema is not None and schema.arguments else None
    if first is None or first.alias_info is None or not isinstance(node.args[0], fx.Node):
        return node
    return _viewed(node.args[0])
