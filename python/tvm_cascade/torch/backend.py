"""The backend of `torch.compile`: graphs of AOTAutograd, those of gradients too; what it cannot take PyTorch runs.

AOTAutograd gives graphs of ATen's operators that write to nothing: one of a model for inference; of one that is
trained a forward graph, whose results are those of the model and what is saved, and the backward graph that reads it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._functorch import config as functorch_config
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.compile_utils import fx_graph_cse
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from tvm_cascade.errors import CascadeError
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.compilation import compiled, runnable
from tvm_cascade.torch.cutting import cut
from tvm_cascade.torch.devices import device_of
from tvm_cascade.torch.exporting import ONE_AT_A_TIME, retraced
from tvm_cascade.torch.flex import with_lists_alone
from tvm_cascade.torch.graph import captured
from tvm_cascade.torch.importer import OF_GRADIENTS, table, whole
from tvm_cascade.torch.losses import rows_saved, sums_of_written
from tvm_cascade.torch.positions import computed_by_both, with_positions
from tvm_cascade.torch.site import ConversionError, told
from tvm_cascade.torch.tensors import overlap
from tvm_cascade.torch.views import split
from tvm_cascade.torch.whole_attention import attention_whole

MOST_KINDS = 8
"""Shapes and strides of its arguments for which one graph is compiled; for further ones it runs in PyTorch."""

Runnable = Callable[..., Sequence[Any]]


class FallbackWarning(UserWarning):
    """A graph, or operators of it, run as PyTorch runs them."""


@dataclass
class Account:
    """What became of a graph.

    Attributes
    ----------
    reports : of what was compiled.
    told : of what was not, each warning once.
    """

    reports: list[Explanation] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def tell(self, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            warnings.warn(text, FallbackWarning, stacklevel=4)


def backend(graph: fx.GraphModule, example_inputs: Sequence[Any], **_: object) -> Callable[..., Any]:
    """Compile a graph that TorchDynamo captured, with its gradient where one is asked for.

    Parameters
    ----------
    graph : whose parameters are among its arguments.
    example_inputs : fake tensors, and sizes; those that change are symbolic.
    """
    account = Account()
    tensors = [one for one in example_inputs if isinstance(one, torch.Tensor)]
    of_gradients = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)

    def made(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        with ONE_AT_A_TIME, unset_fake_temporarily():
            return make_boxed_func(compiled_graph(module, account))

    through = aot_autograd(
        fw_compiler=made,
        bw_compiler=made,
        inference_compiler=made,
        decompositions={**table(), **OF_GRADIENTS} if of_gradients else dict(table()),
        partition_fn=_parts,
    )
    try:
        with attention_whole() if of_gradients else whole():
            run = through(graph, example_inputs)
    except TorchDynamoException:  # by which it starts again
        raise
    except Exception as error:
        account.tell(f"{_ALONE}: {_told(error)}")
        return graph.forward
    written = _written(example_inputs)
    return _Guarded(graph, run, written, shared(example_inputs, written), account) if written else run


def _parts(joint: fx.GraphModule, *given: Any, **named: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """A forward graph and a backward one; what no argument changes is computed by each, and so are views."""
    joint.graph = fx_graph_cse(joint.graph)
    with unset_fake_temporarily():
        joint = computed_by_both(rows_saved(sums_of_written(with_positions(joint))))
    with functorch_config.patch(cse=False, recompute_views=True):
        parts: tuple[fx.GraphModule, fx.GraphModule] = min_cut_rematerialization_partition(joint, *given, **named)
    return parts


def _written(example_inputs: Sequence[Any]) -> Sequence[int]:
    """Which arguments the graph that AOTAutograd took last writes to; all, where it did not take them one by one."""
    context = TracingContext.try_get()
    known = None if context is None else context.fw_metadata
    places = range(len(example_inputs))
    if known is None or not known.mutated_inp_runtime_indices:
        return places if known is None else ()
    return places if len(known.input_info) != len(example_inputs) else known.mutated_inp_runtime_indices


def shared(arguments: Sequence[Any], written: Sequence[int]) -> set[tuple[int, int]]:
    """The pairs of arguments that have memory in common, of which one is written to."""
    tensors = [(k, one) for k, one in enumerate(arguments) if isinstance(one, torch.Tensor)]
    pairs = [(k, other, arguments[k], one) for k in written for other, one in tensors if other != k]
    return {(k, other) for k, other, one, another in pairs if isinstance(one, torch.Tensor) and overlap(one, another)}


@dataclass(frozen=True)
class _Guarded:
    """A graph that writes to arguments: PyTorch runs it where they share memory otherwise than those of the example.

    Neither TorchDynamo nor AOTAutograd looks whether they do.
    """

    graph: fx.GraphModule
    run: Callable[..., Any]
    written: Sequence[int]
    known: set[tuple[int, int]]
    account: Account

    def __call__(self, *arguments: Any) -> Any:
        if shared(arguments, self.written) <= self.known:
            return self.run(*arguments)
        self.account.tell(f"{_ALONE}: it writes to an argument that shares memory with another one")
        return self.graph(*arguments)


def compiled_graph(module: fx.GraphModule, account: Account) -> Runnable:
    """What gives the results of a graph: code of ours, or PyTorch where there is none, after a warning.

    Parameters
    ----------
    module : a graph of ATen's operators that writes to nothing; its results are a tuple.
    """
    parts = split(with_lists_alone(module))
    if parts.core is None:
        return module.forward
    run = _compiled(parts.core, account)

    def call(*arguments: Any) -> tuple[Any, ...]:
        return parts.results(arguments, run(parts.arguments(arguments)))

    return call


Run = Callable[[Sequence[Any]], Sequence[torch.Tensor]]


def _compiled(module: fx.GraphModule, account: Account) -> Run:
    """A graph that computes all its results, from its arguments to them."""
    inputs = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    try:
        device = device_of(None, [one for one in inputs if isinstance(one, torch.Tensor)])
        shown, passed = captured(module, device)
        code = compiled(shown, "auto", device, by_name=False)
        run = runnable(code, shown, None, keeps_apart=True)
    except Exception as error:
        if _changes(inputs) and not getattr(error, "of_any_shape", False):
            return _OfEachSize(module, account)
        return in_pytorch(module, error, account)
    account.reports.append(code.report)

    def call(arguments: Sequence[Any]) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            return run(passed.of(arguments))

    return call


@dataclass(frozen=True)
class _InPyTorch:
    """A graph, or one that calls compiled parts, as PyTorch runs it."""

    module: fx.GraphModule

    def __call__(self, arguments: Sequence[Any]) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            results: Sequence[torch.Tensor] = self.module.forward(*arguments)
            return results


def in_pytorch(module: fx.GraphModule, error: Exception, account: Account) -> _InPyTorch:
    """The graph in PyTorch; where operators are refused, with compiled parts between them."""
    if isinstance(error, ConversionError):
        parts = cut(module, error.operators, partial(compiled_graph, account=account))
        if parts is not None:
            names = ", ".join(dict.fromkeys(map(str, error.operators)))
            account.tell(
                f"{names} run in PyTorch, and the parts of the graph between them in tvm-cascade: {_told(error)}"
            )
            return _InPyTorch(parts)
    account.tell(f"{_ALONE}: {_told(error)}")
    return _InPyTorch(module)


_ALONE = "a graph runs in PyTorch, not in tvm-cascade"


def _changes(inputs: Sequence[Any]) -> bool:
    """Whether sizes of some inputs may change."""
    sizes = [one.shape if isinstance(one, torch.Tensor) else [one] for one in inputs]
    return any(isinstance(size, torch.SymInt) for shape in sizes for size in shape)


class _OfEachSize:
    """A graph that cannot be compiled for any size: a program for each kind of arguments that was seen."""

    def __init__(self, module: fx.GraphModule, account: Account) -> None:
        self._account, self._module = account, module
        self._programs: dict[tuple[object, ...], Run] = {}
        self._is_hopeless = False

    def __call__(self, arguments: Sequence[Any]) -> Sequence[torch.Tensor]:
        kind = tuple((*one.shape, *one.stride()) if isinstance(one, torch.Tensor) else one for one in arguments)
        if kind not in self._programs:
            with ONE_AT_A_TIME:
                self._programs[kind] = self._program(arguments)
        return self._programs[kind](arguments)

    def _program(self, arguments: Sequence[Any]) -> Run:
        if self._is_hopeless:
            return _InPyTorch(self._module)
        if len(self._programs) >= MOST_KINDS:
            hint = "tvm_cascade.optimize(…, dynamic=…) compiles one program for all shapes"
            self._account.tell(f"{_ALONE}: it was compiled for {MOST_KINDS} shapes of its arguments already; {hint}")
            return _InPyTorch(self._module)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        inputs = [mode.from_tensor(one) if isinstance(one, torch.Tensor) else one for one in arguments]
        told = len(self._account.told)
        with whole():
            found = _compiled(retraced(self._module, inputs, table()), self._account)
        # Shapes that fail alike do not fail for being what they are.
        self._is_hopeless = isinstance(found, _InPyTorch) and len(self._account.told) == told
        return found


def _told(error: Exception) -> str:
    """The error without its remedies, which are of `optimize`: that the graph runs in PyTorch is one."""
    if not isinstance(error, CascadeError):
        return told(error)
    return f"expected {error.expected}, found {error.found}" + (f", at {error.where}" if error.where else "")
