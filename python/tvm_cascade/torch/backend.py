"""The backend of `torch.compile`: graphs for inference; what it cannot take runs as PyTorch runs it, with a warning."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tvm_cascade.errors import CascadeError
from tvm_cascade.torch.aliases import views_of_arguments
from tvm_cascade.torch.devices import device_of
from tvm_cascade.torch.exporting import ONE_AT_A_TIME, exported
from tvm_cascade.torch.optimization import compiled, runnable

MOST_KINDS = 8
"""Shapes and strides of its arguments for which one graph is compiled; for further ones it runs in PyTorch."""

Runnable = Callable[[Sequence[Any]], tuple[Any, ...]]


class FallbackWarning(UserWarning):
    """A graph runs as PyTorch runs it."""


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
    """A graph of TorchDynamo, with a program for each kind of arguments that was seen."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self._graph = graph
        self._numbers = _numbers(graph.graph)
        self._hopeless = False
        self._programs: dict[tuple[object, ...], Runnable | None] = {}
        self._told: set[str] = set()

    def __call__(self, *arguments: Any) -> Any:
        """The graph's results, a tuple."""
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in arguments):
            self._warn("it is for inference, and gradients are asked for: call the model under torch.no_grad()")
            return self._graph(*arguments)
        kind = tuple(one.item() if k in self._numbers else _kind(one) for k, one in enumerate(arguments))
        if kind not in self._programs:
            with ONE_AT_A_TIME:
                if kind not in self._programs:
                    self._programs[kind] = self._compiled(arguments)
        program = self._programs[kind]
        return self._graph(*arguments) if program is None else program(arguments)

    def _compiled(self, arguments: Sequence[Any]) -> Runnable | None:
        """The program for such arguments; None where there is none, after a warning."""
        if self._hopeless:
            return None
        if len(self._programs) >= MOST_KINDS:
            hint = "tvm_cascade.optimize(…, dynamic=…) compiles one program for all shapes"
            self._warn(f"it was compiled for {MOST_KINDS} shapes of its arguments already; {hint}")
            return None
        try:
            device = device_of(self._graph, tuple(arguments))
            graph = _with_numbers(self._graph, {k: arguments[k].item() for k in self._numbers})
            program = exported(graph, tuple(arguments), {}, None)
            views = views_of_arguments(program)
            run = runnable(compiled(program, "auto", device), program, None)
        except CascadeError as error:
            told = _told(error)
            self._hopeless = told in self._told  # shapes that fail alike do not fail for being what they are
            self._warn(told)
            return None

        def call(given: Sequence[Any]) -> tuple[Any, ...]:
            if (shared := run.shared(given)) is not None:
                self._warn(f"it writes to one of {shared}")
                return tuple(self._graph(*given))
            return tuple(views[k].of(given) if k in views else result for k, result in enumerate(run(given)))

        return call

    def _warn(self, told: str) -> None:
        if told not in self._told:
            self._told.add(told)
            warnings.warn(f"a graph runs in PyTorch, not in tvm-cascade: {told}", FallbackWarning, stacklevel=3)


def _numbers(graph: fx.Graph) -> frozenset[int]:
    """The positions of arguments that are numbers, which TorchDynamo passes as tensors where they may change."""
    inputs = enumerate(graph.find_nodes(op="placeholder"))
    return frozenset(k for k, node in inputs if node.users and all(user.target == "item" for user in node.users))


def _with_numbers(graph: fx.GraphModule, numbers: Mapping[int, float]) -> fx.GraphModule:
    """The graph with such arguments as constants."""
    found = copy.deepcopy(graph.graph)
    for k, node in enumerate(found.find_nodes(op="placeholder")):
        for user in [*node.users] if k in numbers else ():
            user.op, user.target, user.args = "call_function", type(numbers[k]), (numbers[k],)
    return fx.GraphModule(graph, found)


def _told(error: CascadeError) -> str:
    """The error without its remedies, which are of `optimize`: that the graph runs in PyTorch is one."""
    return f"expected {error.expected}, found {error.found}" + (f", at {error.where}" if error.where else "")


def _kind(argument: Any) -> object:
    """What a program is compiled for: a tensor's layout, dtype and device; any other value."""
    if isinstance(argument, torch.Tensor):
        return tuple(argument.shape), argument.stride(), argument.dtype, argument.device
    return type(argument), argument
