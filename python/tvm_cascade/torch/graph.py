"""An exported program as TVM's importer is shown it: its parameters and buffers are inputs, its mutations results.

TVM's importer copies buffers into the module as constants, and drops what a program writes to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.positions import with_positions
from tvm_cascade.torch.tensors import compact

STATE = (InputKind.PARAMETER, InputKind.BUFFER)
_WRITTEN = {OutputKind.BUFFER_MUTATION: InputKind.BUFFER, OutputKind.USER_INPUT_MUTATION: InputKind.USER_INPUT}


@dataclass(frozen=True)
class ImportedGraph:
    """What TVM's importer reads of an `ExportedProgram`, under the names that it reads it by.

    Attributes
    ----------
    graph_module : whose graph gives tensors alone.
    graph_signature : in which parameters and buffers are inputs; constants stay constants.
    constants : tensors that the program itself made, on the CPU, where TVM computes on constants.
    range_constraints : of symbolic extents.
    """

    graph_module: fx.GraphModule
    graph_signature: ExportGraphSignature
    constants: Mapping[str, torch.Tensor]
    range_constraints: Mapping[Any, Any]

    @property
    def graph(self) -> fx.Graph:
        return self.graph_module.graph

    @property
    def tensor_constants(self) -> Mapping[str, torch.Tensor]:
        return self.constants

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """None: they are inputs."""
        return iter(())

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """None: they are inputs."""
        return iter(())


Traced: TypeAlias = torch.export.ExportedProgram | ImportedGraph
"""What a module, or a captured graph, is before it is imported."""


@dataclass(frozen=True)
class Interface:
    """How a call of the imported function is made of a call of the model.

    Parameters and buffers are passed first, in the order of the program's, and then its arguments that are tensors.

    Attributes
    ----------
    constants : per leaf of the model's arguments, its value where it is a constant.
    mutated : per result of the imported function that is written back, from the first on, what it is written to: its
        number among parameters, buffers, and leaves of the arguments.
    outputs : per leaf of the model's result, the number of the function's result; None of a constant.
    returned : the values of those leaves.
    sizes : the numbers of the function's results that have as many rows as a leaf says, and no elements.
    """

    constants: tuple[object, ...]
    mutated: tuple[int, ...]
    outputs: tuple[int | None, ...]
    returned: tuple[object, ...]
    sizes: tuple[int, ...]

    def leaves(self, found: Sequence[torch.Tensor]) -> list[object]:
        """The leaves of the model's result, of the function's."""
        read = [len(one) if k in self.sizes else one for k, one in enumerate(found)]
        constants = zip(self.outputs, self.returned, strict=True)
        return [constant if k is None else read[k] for k, constant in constants]


def prepared(program: Traced, device: torch.device) -> tuple[ImportedGraph, Interface]:
    """A decomposed program for TVM's importer, and how it is called.

    Raises
    ------
    ModelError
        Where it takes or gives what no tensor is, gives a tensor on another device, or writes a parameter.
    """
    passed, bound, constants = list[InputSpec](), list[InputSpec](), list[object]()
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.CONSTANT_TENSOR:
            bound.append(spec)
            continue
        if spec.kind not in STATE:
            constants.append(getattr(spec.arg, "value", None))
        if isinstance(spec.arg, ConstantArgument):
            continue
        if not isinstance(spec.arg, TensorArgument):
            hint = "pass numbers as tensors, or as constants of the example"
            raise ModelError("tensors and constants", f"{spec.kind.name} {spec.arg}", f"input `{spec.arg.name}`", hint)
        passed.append(InputSpec(InputKind.USER_INPUT, TensorArgument(spec.arg.name), None))
    (mutated, outputs, returned), kept = _results(program, device)
    module = with_positions(_giving(program.graph_module, kept))
    sizes = tuple(k for k, node in enumerate(kept) if isinstance(node.meta["val"], torch.SymInt))
    known = {str(spec.target): compact(program.constants[str(spec.target)].cpu()) for spec in bound}
    shown = ImportedGraph(module, ExportGraphSignature([*passed, *bound], []), known, program.range_constraints)
    return shown, Interface(tuple(constants), mutated, outputs, returned, sizes)


def _giving(module: fx.GraphModule, results: Sequence[fx.Node]) -> fx.GraphModule:
    """A module with a copy of the graph that gives these results; of one that is a size, a tensor of that many rows."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.graph_copy(module.graph, copies)
    for node, copy in copies.items():
        copy.name = node.name  # also one that is a name of Python's, such as `input`
    some = next(node.meta["val"] for node in results if isinstance(node.meta["val"], torch.Tensor))
    given = list[fx.Node]()
    for node in results:
        given.append(copies[node])
        if isinstance(size := node.meta["val"], torch.SymInt):
            made = {"dtype": torch.bool, "device": some.device}
            given[-1] = graph.call_function(torch.ops.aten.full.default, ([copies[node], 0], False), made)
            given[-1].meta["val"] = some.new_zeros((size, 0), dtype=torch.bool)
    graph.output(tuple(given))
    return fx.GraphModule(module, graph)


_Results = tuple[tuple[int, ...], tuple[int | None, ...], tuple[object, ...]]


def _results(program: Traced, device: torch.device) -> tuple[_Results, list[fx.Node]]:
    """(mutated, outputs, returned) of `Interface`, and the results that are tensors."""
    (output,) = program.graph.find_nodes(op="output")
    kinds = [spec for spec in program.graph_signature.input_specs if spec.kind is not InputKind.CONSTANT_TENSOR]
    places = [(one.kind, one.arg.name if one.kind is InputKind.USER_INPUT else one.target) for one in kinds]
    mutated, outputs, returned = list[int](), list[int | None](), list[object]()
    kept = list[fx.Node]()
    for value, spec in zip(output.args[0], program.graph_signature.output_specs, strict=True):
        if spec.kind in _WRITTEN:
            mutated.append(places.index((_WRITTEN[spec.kind], spec.target)))
        elif spec.kind is not OutputKind.USER_OUTPUT:
            hint = "call it under torch.no_grad(), without losses and gradients"
            raise ModelError("results that are tensors", f"{spec.kind.name} `{spec.target}`", "the model's graph", hint)
        elif not isinstance(value, fx.Node):
            outputs.append(None)
            returned.append(value)
            continue
        elif isinstance(value.meta["val"], torch.SymInt):
            outputs.append(len(kept))
            returned.append(None)
        elif not isinstance(value.meta["val"], torch.Tensor):
            hint = "return tensors, and read sizes off their shapes"
            raise ModelError("results that are tensors", f"the number {value.meta['val']}", f"result `{value}`", hint)
        elif value.meta["val"].is_complex():
            hint = "return torch.view_as_real of it"
            raise ModelError("results that are real", str(value.meta["val"].dtype), f"result `{value}`", hint)
        elif (found := value.meta["val"].device) != device:
            hint = "return it where the model is, and move it outside"
            raise ModelError(f"results on {device}", f"one on {found}", f"result `{value}`", hint)
        else:
            outputs.append(len(kept))
            returned.append(None)
        kept.append(value)
    if not any(isinstance(node.meta["val"], torch.Tensor) for node in kept):
        raise ModelError("a model that gives a tensor", "one that gives none", "the model's graph")
    return (tuple(mutated), tuple(outputs), tuple(returned)), kept


# Graphs that AOTAutograd, or a cut, makes: of operators of ATen on fake tensors.


@dataclass(frozen=True)
class Passed:
    """What the code of a captured graph is given of the graph's arguments.

    Attributes
    ----------
    places : of the arguments that it takes.
    sizes : of those that are sizes, for which tensors of as many rows, without elements, are passed.
    device : of these.
    """

    places: tuple[int, ...]
    sizes: frozenset[int]
    device: torch.device

    def of(self, arguments: Sequence[Any]) -> list[Any]:
        return [self._sized(arguments[k]) if k in self.sizes else arguments[k] for k in self.places]

    def _sized(self, size: int) -> torch.Tensor:
        return torch.empty((size, 0), dtype=torch.bool, device=self.device)


def captured(module: fx.GraphModule, device: torch.device) -> tuple[ImportedGraph, Passed]:
    """A graph as the program that `torch.export` could have made of it, and what that takes of its arguments.

    Sizes that are arguments are read off tensors that have them, or off one that is made for it.

    Parameters
    ----------
    device : that its tensors are on.
    """
    graph, copies, specs = fx.Graph(), dict[fx.Node, fx.Node](), list[InputSpec]()
    known = dict[str, torch.Tensor]()
    for node in module.graph.find_nodes(op="get_attr"):
        if isinstance(getattr(module, node.target), fx.GraphModule):
            continue  # a function that an operator is given
        if str(node.target) not in known:
            known[str(node.target)] = constant = getattr(module, node.target)
            first = graph.placeholder(node.name)
            first.meta = {"val": node.meta.get("val", constant)}
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.target))
        copies[node] = next(one for one in graph.nodes if one.op == "placeholder" and one.name == specs[-1].arg.name)
    inputs = [(k, node) for k, node in enumerate(module.graph.find_nodes(op="placeholder")) if node.users]
    holders = _holders_of_sizes(inputs)
    passed = [(k, node) for k, node in inputs if node not in holders]
    for _, node in passed:
        copies[node] = graph.node_copy(node)
        specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
    sizes = {k: node for k, node in inputs if not _is_tensor(node)}
    for node in sizes.values():
        holder, axis = holders.get(node, (node, 0))
        if holder is node:
            copies[node].meta["val"] = _some(inputs).new_empty((node.meta["val"], 0), dtype=torch.bool)
        copies[node] = graph.call_function(torch.ops.aten.sym_size.int, (copies[holder], axis))
        copies[node].meta["val"] = node.meta["val"]
    output = graph.graph_copy(module.graph, copies)
    graph.output(output)
    given = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(""), None) for _ in output]
    shown = ImportedGraph(fx.GraphModule(module, graph), ExportGraphSignature(specs, given), known, _ranges(inputs))
    places = tuple(k for k, _ in passed)
    return shown, Passed(places, frozenset(places) & frozenset(sizes), device)


_Inputs = Sequence[tuple[int, fx.Node]]


def _some(inputs: _Inputs) -> torch.Tensor:
    return next(node.meta["val"] for _, node in inputs if isinstance(node.meta["val"], torch.Tensor))


def _holders_of_sizes(inputs: _Inputs) -> dict[fx.Node, tuple[fx.Node, int]]:
    """Of inputs that are sizes, a tensor among the inputs that has it and along which axis, where there is one."""
    tensors = [(node, [str(one) for one in node.meta["val"].shape]) for _, node in inputs if _is_tensor(node)]
    found = dict[fx.Node, tuple[fx.Node, int]]()
    for _, node in inputs:
        if isinstance(size := node.meta["val"], torch.SymInt):
            having = [(one, shape.index(str(size))) for one, shape in tensors if str(size) in shape]
            found |= {node: having[0]} if having else {}
    return found


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta["val"], torch.Tensor)


def _ranges(inputs: _Inputs) -> dict[Any, Any]:
    """The ranges of the symbols of the inputs' sizes."""
    sizes = [one for _, node in inputs if _is_tensor(node) for one in node.meta["val"].shape]
    symbolic = [one.node for one in sizes if isinstance(one, torch.SymInt)]
    return {
        symbol: node.shape_env.var_to_range[symbol]
        for node in symbolic
        for symbol in sorted(node.expr.free_symbols, key=str)
    }
