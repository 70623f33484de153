"""Programs with operators that are not converted: they run in PyTorch, and the parts between them are compiled."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from tvm.target import Target

from tvm_cascade.driver.bundle import Files
from tvm_cascade.errors import ModelError
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.devices import ModelDevice
from tvm_cascade.torch.graph import Interface, prepared
from tvm_cascade.torch.site import ConversionError

FEWEST_OPERATORS = 3
"""Of a part that is compiled, without views and elements of tuples: a call of one costs as much as one or two do."""


class Part(Protocol):
    """A part of a program, compiled when it is called first."""

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        """Its results."""

    @property
    def reports(self) -> list[Explanation]:
        """Of what it was compiled to."""


@dataclass(frozen=True)
class CutCode:
    """A program in parts, in place of `Code`.

    Attributes
    ----------
    graph : which calls the parts; its results are tensors alone.
    bound : per input of the graph, its value, if that is not passed.
    parts : of the graph.
    interface, target, device : as of `Code`.
    """

    graph: fx.GraphModule
    bound: tuple[Any, ...]
    parts: tuple[Part, ...]
    interface: Interface
    target: Target
    device: ModelDevice

    @property
    def report(self) -> Explanation:
        """Of the parts that were called."""
        reports = [report for part in self.parts for report in part.reports]
        joined = (sum((getattr(one, name) for one in reports), ()) for name in ("groups", "functions", "apart"))
        return Explanation(*joined)

    def function(self) -> Callable[..., Any]:
        """What takes and gives tensors of torch: state, then inputs; what is written to, then outputs."""

        def call(*passed: torch.Tensor) -> Sequence[torch.Tensor]:
            given = iter(passed)
            with torch.no_grad():
                return self.graph(*(next(given) if one is _PASSED else one for one in self.bound))

        return call

    def bundle(self) -> Files:
        """Nothing: PyTorch's part of it is no code of ours.

        Raises
        ------
        ModelError
            Always.
        """
        hint = "save its module, and optimize it again: compiled code is kept on disk"
        raise ModelError("a model that is compiled whole", "one that is cut", "a saved model", hint)


_PASSED = object()
"""The place of an input that is passed with each call."""


class _Convertible(OperatorSupportBase):
    """The nodes that may be in parts: tensors of operators that were not refused."""

    def __init__(self, refused: Sequence[Any]) -> None:
        self._refused = set(refused)

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        if node.op != "call_function" or node.target in self._refused:
            return False
        if node.target is operator.getitem:
            return self.is_node_supported(submodules, node.args[0])
        value = node.meta.get("val")
        return all(isinstance(one, torch.Tensor) for one in (value if isinstance(value, (tuple, list)) else (value,)))


class _Called(torch.nn.Module):
    """A part in a graph, which gives a tensor, or a tuple of several."""

    def __init__(self, part: Part, several: bool) -> None:
        super().__init__()
        self._part, self._several = part, several

    def forward(self, *arguments: Any) -> Any:
        found = self._part(*arguments)
        return tuple(found) if self._several else found[0]


def cut(
    program: torch.export.ExportedProgram,
    refusal: ConversionError,
    target: Target,
    device: ModelDevice,
    part: Callable[[fx.GraphModule], Part],
) -> CutCode:
    """A program that writes to nothing but its results, cut at operators that are refused.

    Parameters
    ----------
    part : makes one of a graph, whose results are a tuple.

    Raises
    ------
    ConversionError
        The refusal, where no part is worth it.
    ModelError
        Where the program takes or gives what no tensor is.
    """
    shown, interface = prepared(program, device.torch)
    partitioner = CapabilityBasedPartitioner(shown.graph_module, _Convertible(refusal.operators))
    found = [one for one in partitioner.propose_partitions() if sum(map(_computes, one.nodes)) >= FEWEST_OPERATORS]
    if not found:
        raise refusal
    graph, parts = partitioner.fuse_partitions(found), []
    for node in graph.graph.find_nodes(op="call_module"):
        inner = graph.get_submodule(node.target)
        (output,) = inner.graph.find_nodes(op="output")
        several = isinstance(output.args[0], (tuple, list))
        if not several:
            output.args = (output.args,)
            inner.recompile()
        parts.append(part(inner))
        setattr(graph, node.target, _Called(parts[-1], several))
    bound = tuple(_bound(spec, program) for spec in program.graph_signature.input_specs)
    return CutCode(graph, bound, tuple(parts), interface, target, device)


def _computes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and not any(argument.alias_info for argument in schema.arguments)


def _bound(spec: Any, program: torch.export.ExportedProgram) -> Any:
    if spec.kind is InputKind.CONSTANT_TENSOR:
        return program.constants[spec.target]
    return spec.arg.value if isinstance(spec.arg, ConstantArgument) else _PASSED
