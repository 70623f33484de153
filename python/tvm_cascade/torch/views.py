"""Results of a graph that are views: PyTorch makes them, of arguments and of what compiled code gives.

    x, w  ->  x·wᵀ, its rows one behind the other, wᵀ
      core     x, w            ->  x·wᵀ
      views    x, w, and that  ->  that, that.view(-1), w.t()

So nothing is copied, and what is written to a view is written to its base, as in PyTorch. Nor is what has its axes in
another order in memory, as attention's result has and what is saved of it for the gradient: compiled code takes and
gives it in the order of its memory, and turns it where it reads or stores elements anyway.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from tvm_cascade.torch.site import hinted

_ATEN, _CONTIGUOUS = torch.ops.aten, {"memory_format": torch.contiguous_format}


Order: TypeAlias = tuple[int, ...] | None


@dataclass(frozen=True)
class Split:
    """A graph in two.

    Attributes
    ----------
    core : from the inputs to the bases, each with its axes as they are in memory; None where all results are views of
        inputs.
    given, orders : per input of the core, and per base, its axes from the one of the largest stride to that of the
        smallest, as PyTorch lays it out; None of one that is contiguous.
    views : from the inputs and the bases to the results.
    """

    core: fx.GraphModule | None
    given: tuple[Order, ...]
    orders: tuple[Order, ...]
    views: fx.GraphModule

    def arguments(self, arguments: Sequence[Any]) -> list[Any]:
        """Those of the core."""
        return [_in_order(one, order) for one, order in zip(arguments, self.given, strict=True)]

    def results(self, arguments: Sequence[Any], bases: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        turned = (_in_order(one, _back(order)) for one, order in zip(bases, self.orders, strict=True))
        results: tuple[Any, ...] = self.views.forward(*arguments, *turned)
        return results


def split(module: fx.GraphModule) -> Split:
    """A graph, whose results are a tuple, without its last views.

    A view that leaves elements out is computed, where nothing else among the results shares memory with it.
    """
    (output,) = module.graph.find_nodes(op="output")
    found = [one for one in output.args[0] if isinstance(one, fx.Node)]
    shared = Counter(map(_base, dict.fromkeys(found)))
    computed = {one for one in found if _is_part(one) and shared[_base(one)] == 1}
    bases = list(dict.fromkeys(base for one in found for base in _bases(one, computed)))
    inputs = module.graph.find_nodes(op="placeholder")
    given, orders = (tuple(_order(one.meta.get("val")) for one in nodes) for nodes in (inputs, bases))
    core = _core(module, dict(zip(inputs, given, strict=True)), dict(zip(bases, orders, strict=True)))
    return Split(core if bases else None, given, orders, _views(module, bases))


def _core(module: fx.GraphModule, given: dict[fx.Node, Order], bases: dict[fx.Node, Order]) -> fx.GraphModule:
    graph = fx.Graph()

    def permuted(node: fx.Node, order: Order, like: fx.Node) -> fx.Node:
        if order is None:
            return node
        turned = graph.call_function(_ATEN.permute.default, (node, list(order)))
        turned.meta = _meta(like, node.meta["val"].permute(order))
        return turned

    copies = dict[fx.Node, fx.Node]()
    for node, order in given.items():
        own = graph.node_copy(node)
        own.meta = _meta(node, _in_order(node.meta.get("val"), order))
        copies[node] = permuted(own, _back(order), node)
    graph.graph_copy(module.graph, copies)
    results = []
    for base, order in bases.items():
        stored = permuted(copies[base], order, base)
        if order is not None:
            value, stored = stored.meta["val"], graph.call_function(_ATEN.clone.default, (stored,), _CONTIGUOUS)
            stored.meta = _meta(base, value.clone(**_CONTIGUOUS))
        results.append(stored)
    graph.output(tuple(results))
    graph.eliminate_dead_code()
    return fx.GraphModule(module, graph)


def _meta(like: fx.Node, value: Any) -> dict[str, Any]:
    """What is known of a node, but for its value."""
    return {**{key: one for key, one in like.meta.items() if key != "tensor_meta"}, "val": value}


def _views(module: fx.GraphModule, bases: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    copies = {node: graph.node_copy(node) for node in module.graph.find_nodes(op="placeholder")}
    copies |= {base: graph.placeholder(f"base_{k}") for k, base in enumerate(bases)}
    graph.output(graph.graph_copy(module.graph, copies))
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    return fx.GraphModule(module, graph)


def _bases(node: fx.Node, computed: set[fx.Node]) -> Iterator[fx.Node]:
    """The tensors that have to be computed for views to give a node."""
    if node.op != "call_function":
        return
    if node in computed or not (_viewed(node) or _is_size(node)):
        yield node
        return
    for operand in node.all_input_nodes:
        yield from _bases(operand, computed)


def _viewed(node: fx.Node) -> fx.Node | None:
    """The node that a node is a view of, if it is one."""
    if node.target is operator.getitem:
        return _viewed(node.args[0])
    schema = getattr(node.target, "_schema", None)
    first = schema.arguments[0] if schema is not None and schema.arguments else None
    is_view = first is not None and first.alias_info is not None and not first.alias_info.is_write
    return node.args[0] if is_view and isinstance(node.args[0], fx.Node) else None


def _base(node: fx.Node) -> fx.Node:
    """The node whose memory a node's value is in."""
    viewed = _viewed(node)
    return node if viewed is None else _base(viewed)


def _is_part(node: fx.Node) -> bool:
    """Whether a node is a view of what is computed, without some of its elements."""
    base = _base(node)
    if node is base or base.op != "call_function":
        return False
    return hinted(node.meta["val"].numel()) < hinted(base.meta["val"].numel())


def _is_size(node: fx.Node) -> bool:
    """Whether a node is a number that is made of sizes."""
    return not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def _order(value: Any) -> Order:
    """The axes of a tensor by their strides; None of one that is contiguous that way, or leaves memory out."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    strides, sizes = [*map(hinted, value.stride())], [*map(hinted, value.shape)]
    axes = [axis for axis, size in enumerate(sizes) if size != 1]
    order = sorted(axes, key=lambda axis: -strides[axis])
    compact = [math.prod(sizes[other] for other in order[k + 1 :]) for k in range(len(order))]
    alone = [axis for axis in range(value.dim()) if axis not in axes]
    return None if order == axes or [strides[axis] for axis in order] != compact else (*order, *alone)


def _in_order(value: Any, order: Order) -> Any:
    return value if order is None else value.permute(order)


def _back(order: Order) -> Order:
    return None if order is None else tuple(sorted(range(len(order)), key=order.__getitem__))


def computes(node: fx.Node) -> bool:
    """Whether an operator gives other elements than it is given."""
    return node.op == "call_function" and hasattr(node.target, "_schema") and _viewed(node) is None
