"""The backend of `torch.compile`: graphs for inference; what it cannot take runs as PyTorch runs it, with a warning."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from tvm_cascade.errors import CascadeError, ModelError
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.code import Code
from tvm_cascade.torch.compilation import compiled, in_parts, runnable
from tvm_cascade.torch.cutting import CutCode
from tvm_cascade.torch.devices import device_of
from tvm_cascade.torch.exporting import ONE_AT_A_TIME, ExportError, exported
from tvm_cascade.torch.site import ConversionError, origin

MOST_KINDS = 8
"""Shapes and strides of its arguments for which one graph is compiled; for further ones it runs in PyTorch."""

Runnable = Callable[[Sequence[Any]], tuple[Any, ...]]


class FallbackWarning(UserWarning):
    """A graph, or operators of it, run as PyTorch runs them."""


def backend(graph: fx.GraphModule, example_inputs: Sequence[Any], **_: object) -> Callable[..., Any]:
    """Compile a graph that TorchDynamo captured.

    A graph is compiled at its first call, and again for other shapes where TorchDynamo made sizes its arguments.

    Parameters
    ----------
    graph : whose parameters are among its arguments.
    example_inputs : what they are like; not used, since the first call shows it.
    """
    return CapturedGraph(graph)


class CapturedGraph:
    """A graph of TorchDynamo, with a program for each kind of arguments that was seen.

    Parameters
    ----------
    is_part : of a graph that was cut; nobody writes to its results, which need be views of nothing.
    """

    def __init__(self, graph: fx.GraphModule, is_part: bool = False) -> None:
        self._graph, self._is_part = graph, is_part
        self._numbers = numbers_of(graph.graph)
        self._changing, self._sizes = changing_sizes(graph.graph)
        self._codes: list[Code | CutCode] = []
        self._refusal: ConversionError | None = None
        self._is_hopeless = False
        self._programs: dict[tuple[object, ...], Runnable | None] = {}
        self._told: set[str] = set()

    @classmethod
    def part(cls, graph: fx.GraphModule) -> CapturedGraph:
        """A part of a graph that was cut."""
        return cls(graph, is_part=True)

    @property
    def reports(self) -> list[Explanation]:
        return [code.report for code in self._codes]

    def __call__(self, *arguments: Any) -> Any:
        """The graph's results, a tuple."""
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments):
            self._warn("it is for inference, and gradients are asked for: call the model under torch.no_grad()")
            return self._graph(*arguments)
        program = self._program(arguments)
        return self._graph(*arguments) if program is None else program(arguments)

    def _program(self, arguments: Sequence[Any]) -> Runnable | None:
        kind = tuple(self._kind(k, one) for k, one in enumerate(arguments))
        if kind not in self._programs:
            with ONE_AT_A_TIME:
                if kind not in self._programs:
                    self._programs[kind] = self._compiled(arguments)
        return self._programs[kind]

    def _kind(self, place: int, argument: Any) -> object:
        """What a program is compiled for: a tensor's layout, dtype and device, but for sizes that change; a value."""
        if place in self._numbers:
            return argument.item()
        if not isinstance(argument, torch.Tensor):
            return None if self._changing and place in self._sizes else (type(argument), argument)
        axes = self._changing.get(place, ())
        strides = None if axes and argument.is_contiguous() else argument.stride()
        sizes = tuple(None if axis in axes else size for axis, size in enumerate(argument.shape))
        return sizes, strides, argument.dtype, argument.device

    def _compiled(self, arguments: Sequence[Any]) -> Runnable | None:
        """The program for such arguments; None where there is none, after a warning."""
        if self._is_hopeless:
            return None
        if len(self._programs) >= MOST_KINDS:
            hint = "tvm_cascade.optimize(…, dynamic=…) compiles one program for all shapes"
            self._warn(f"it was compiled for {MOST_KINDS} shapes of its arguments already; {hint}")
            return None
        try:
            return self._of_changing_sizes(arguments) if self._changing else self._of_these_sizes(arguments)
        except CascadeError as error:
            if self._changing and not getattr(error, "of_any_shape", False):
                self._changing = {}  # each shape has a program of its own, which says why there is none
                return self._program(arguments)
            of_any_shape = isinstance(error, ExportError) or getattr(error, "of_any_shape", False)
            # Shapes that fail alike do not fail for being what they are.
            self._is_hopeless = of_any_shape or _in_pytorch(_told(error)) in self._told
            self._warn(_told(error))
            return None

    def _of_these_sizes(self, arguments: Sequence[Any]) -> Runnable:
        program = exported(self._constant(arguments), tuple(arguments), {}, None)
        views = {} if self._is_part else views_of_arguments(program)
        return self._runnable(program, arguments, views, list)

    def _of_changing_sizes(self, arguments: Sequence[Any]) -> Runnable:
        graph, kept = with_sizes_read(self._constant(arguments), self._sizes)
        device = device_of(self._graph, tuple(arguments))

        def passed(arguments: Sequence[Any]) -> list[Any]:
            return [of_size(arguments[k], device) if k in self._sizes else arguments[k] for k in kept]

        given = passed(arguments)
        dynamic = [dict.fromkeys(self._changing.get(k, ()), torch.export.Dim.AUTO) or None for k in kept]
        program = exported(graph, tuple(given), {}, dynamic)
        inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
        inputs = inputs[-len(kept) :]  # behind constants
        known = [inputs[k].shape[axis] for k, place in enumerate(kept) for axis in self._changing.get(place, ())]
        views = {} if self._is_part else views_of_arguments(program)
        if any(isinstance(size, int) for size in known):
            raise ModelError("a graph for any size", "one for the sizes of this call", "torch.export")
        return self._runnable(program, given, views, passed)

    def _constant(self, arguments: Sequence[Any]) -> fx.GraphModule:
        return with_numbers(self._graph, {k: arguments[k].item() for k in self._numbers})

    def _runnable(
        self,
        program: torch.export.ExportedProgram,
        given: Sequence[Any],
        views: Mapping[int, View],
        passed: Callable[[Sequence[Any]], list[Any]],
    ) -> Runnable:
        """What calls the code of a program.

        Parameters
        ----------
        given : its arguments now.
        passed : its arguments, of those of the graph.
        """
        code = self._code(program, device_of(self._graph, tuple(given)))
        run = runnable(code, program, None)
        self._codes.append(code)

        def call(arguments: Sequence[Any]) -> tuple[Any, ...]:
            given = passed(arguments)
            if (shared := run.shared(given)) is not None:
                self._warn(f"it writes to one of {shared}")
                return tuple(self._graph(*arguments))
            return tuple(views[k].of(given) if k in views else result for k, result in enumerate(run(given)))

        return call

    def _code(self, program: torch.export.ExportedProgram, device: torch.device) -> Code | CutCode:
        """The program's code, in parts where operators are refused; those of any shape are asked about once."""
        if (refusal := self._refusal) is None:
            try:
                return compiled(program, "auto", device, by_name=False)
            except ConversionError as error:
                refusal = error
        parts = in_parts(program, refusal, "auto", device, CapturedGraph.part)
        self._refusal = refusal.alone() if refusal.of_any_shape else None
        self._tell(told_of_cut(refusal))
        return parts

    def _warn(self, told: str) -> None:
        self._tell(_in_pytorch(told))

    def _tell(self, told: str) -> None:
        if told not in self._told:
            self._told.add(told)
            warnings.warn(told, FallbackWarning, stacklevel=4)


def _in_pytorch(why: str) -> str:
    return f"a graph runs in PyTorch, not in tvm-cascade: {why}"


def told_of_cut(refusal: ConversionError) -> str:
    names = ", ".join(dict.fromkeys(map(str, refusal.operators)))
    return f"{names} run in PyTorch, and the parts of the graph between them in tvm-cascade: {_told(refusal)}"


def _told(error: CascadeError) -> str:
    """The error without its remedies, which are of `optimize`: that the graph runs in PyTorch is one."""
    return f"expected {error.expected}, found {error.found}" + (f", at {error.where}" if error.where else "")


# Results that are views of an argument in PyTorch, and tensors of their own in compiled code.


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
