"""Programs with operators that are not converted: they run in PyTorch, and the parts between them are compiled."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
from torch.utils import _pytree as pytree
from tvm.target import Target

from tvm_cascade.driver.bundle import Files
from tvm_cascade.errors import ModelError
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.devices import ModelDevice
from tvm_cascade.torch.graph import Interface
from tvm_cascade.torch.views import computes

FEWEST_OPERATORS = 3
"""Of a part that is compiled, without views and elements of tuples: a call of one costs as much as one or two do."""


Part = Callable[..., Sequence[Any]]
"""A part of a graph: from its arguments to its results."""


@dataclass(frozen=True)
class CutCode:
    """A program in parts, in place of `Code`.

    Attributes
    ----------
    run : from the inputs of its graph to results that are tensors alone.
    inputs : of the graph.
    constants : of the program.
    reports : of its parts.
    interface, target, device : as of `Code`.
    """

    run: Callable[[Sequence[Any]], Sequence[torch.Tensor]]
    inputs: Sequence[InputSpec]
    constants: Mapping[str, Any]
    reports: Sequence[Explanation]
    interface: Interface
    target: Target
    device: ModelDevice

    @property
    def report(self) -> Explanation:
        joined = (sum((getattr(one, name) for one in self.reports), ()) for name in ("groups", "functions", "apart"))
        return Explanation(*joined)

    def function(self) -> Callable[..., Any]:
        """What takes and gives tensors of torch: state, then inputs; what is written to, then outputs."""

        def call(*passed: torch.Tensor) -> Sequence[torch.Tensor]:
            given = iter(passed)
            return self.run([self._known(spec) if _is_known(spec) else next(given) for spec in self.inputs])

        return call

    def _known(self, spec: InputSpec) -> Any:
        return spec.arg.value if isinstance(spec.arg, ConstantArgument) else self.constants[str(spec.target)]

    def bundle(self) -> Files:
        """Nothing: PyTorch's part of it is no code of ours.

        Raises
        ------
        ModelError
            Always.
        """
        hint = "save its module, and optimize it again: compiled code is kept on disk"
        raise ModelError("a model that is compiled whole", "one that is cut", "a saved model", hint)


def _is_known(spec: InputSpec) -> bool:
    """Whether an input of a graph is not passed with each call."""
    return spec.kind is InputKind.CONSTANT_TENSOR or isinstance(spec.arg, ConstantArgument)


class _Called(torch.nn.Module):
    """A part in a graph, which gives a tensor, or a tuple of several."""

    def __init__(self, part: Part, several: bool) -> None:
        super().__init__()
        self._part, self._several = part, several

    def forward(self, *arguments: Any) -> Any:
        found = self._part(*arguments)
        return tuple(found) if self._several else found[0]


def cut(
    module: fx.GraphModule, refused: Sequence[Any], part: Callable[[fx.GraphModule], Part]
) -> fx.GraphModule | None:
    """A graph that writes to nothing, cut at operators that are refused; None where no part is worth it.

    Parameters
    ----------
    part : makes one of a graph, whose results are a tuple.
    """
    found = [one for one in _parts(module.graph, set(refused)) if sum(map(computes, one)) >= FEWEST_OPERATORS]
    if not found:
        return None
    graph = fuse_by_partitions(module, [dict.fromkeys(one) for one in found])
    for node in graph.graph.find_nodes(op="call_module"):
        inner = graph.get_submodule(node.target)
        _with_functions(graph, node, inner)
        (output,) = inner.graph.find_nodes(op="output")
        several = isinstance(output.args[0], (tuple, list))
        if not several:
            output.args = (output.args,)
            inner.recompile()
        setattr(graph, node.target, _Called(part(inner), several))
    graph.recompile()
    return graph


def _parts(graph: fx.Graph, refused: Collection[Any]) -> list[list[fx.Node]]:
    """Nodes that run together: one part before the first operators that are refused, one behind them, and so on.

    Each node is in the first part that it can be in, where least is passed from part to part: gradients of weights are
    beside those of what they multiply. Views, and what is computed of inputs alone, are in the first part that reads
    them, as they are passed or computed at no cost.
    """
    first = dict[fx.Node, int]()
    for node in graph.nodes:
        runs = _runs_in_parts(node, refused)
        given = (first[one] + (runs and _is_refused(one, refused)) for one in node.all_input_nodes)
        first[node] = max(given, default=0)
    place, parts = dict[fx.Node, int](), dict[int, list[fx.Node]]()
    for node in reversed(graph.nodes):
        if not _runs_in_parts(node, refused):
            continue
        readers = [place.get(one, first[node]) for one in node.users]
        free = not computes(node) or all(one.op in ("placeholder", "get_attr") for one in node.all_input_nodes)
        place[node] = max(first[node], min(readers, default=0)) if free else first[node]
        parts.setdefault(place[node], []).append(node)
    return [parts[key][::-1] for key in sorted(parts)]


def _is_refused(node: fx.Node, refused: Collection[Any]) -> bool:
    return node.op not in ("placeholder", "get_attr") and not _runs_in_parts(node, refused)


def _runs_in_parts(node: fx.Node, refused: Collection[Any]) -> bool:
    """Whether a node may be in a part: it gives tensors alone, of an operator that was not refused."""
    if node.op != "call_function" or node.target in refused:
        return False
    if node.target is operator.getitem:
        return _runs_in_parts(node.args[0], refused)
    given = [one for one in pytree.tree_leaves(node.meta.get("val")) if one is not None]
    return bool(given) and all(isinstance(one, torch.Tensor) for one in given)


def _with_functions(graph: fx.GraphModule, call: fx.Node, part: fx.GraphModule) -> None:
    """Gives a part the functions that its operators are given, as its own and not as arguments."""
    kept = list[Any]()
    for given, parameter in zip(call.args, part.graph.find_nodes(op="placeholder"), strict=True):
        function = getattr(graph, given.target) if given.op == "get_attr" else None
        if not isinstance(function, fx.GraphModule):
            kept.append(given)
            continue
        part.add_submodule(given.target, function)
        with part.graph.inserting_before(parameter):
            parameter.replace_all_uses_with(part.graph.get_attr(given.target))
        part.graph.erase_node(parameter)
    call.args = tuple(kept)
    part.recompile()
