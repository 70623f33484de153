"""A compiled model: called as the module was, with torch tensors, which are shared and not copied."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tvm_cascade.errors import ModelError
from tvm_cascade.report.explanation import Explanation
from tvm_cascade.torch.calls import as_in_example, parts_of, told_apart, with_caches_filled
from tvm_cascade.torch.devices import ModelDevice
from tvm_cascade.torch.graph import Interface
from tvm_cascade.torch.leaves import Leaf, check, check_constant, check_positions
from tvm_cascade.torch.site import told
from tvm_cascade.torch.state import SharedTensor
from tvm_cascade.torch.tensors import overlap, to_torch, to_tvm


class Program:
    """A function of the virtual machine, called with the tensors of the model's leaves.

    Parameters
    ----------
    function : `main` of the virtual machine.
    interface : what it takes and gives.
    leaves : what was promised of the arguments.
    ranges : of symbolic extents.
    state : the model's parameters and buffers.
    device : that it runs on.
    """

    def __init__(
        self,
        function: Any,
        interface: Interface,
        leaves: Sequence[Leaf | None],
        ranges: dict[str, tuple[int, int | None]],
        state: dict[str, SharedTensor],
        device: ModelDevice,
    ) -> None:
        self._function, self._interface = function, interface
        self._leaves, self._ranges, self._state = leaves, ranges, state
        self._device = device
        self._lock = threading.Lock()  # TVM's virtual machine runs one call at a time

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        """The leaves of the result; what the model writes to is written to."""
        with self._lock:
            return self._called(arguments)

    def shared(self, arguments: Sequence[Any]) -> str | None:
        """Which two tensors share memory, of which one is written to: PyTorch would see the write in the other."""
        if not self._interface.mutated:
            return None
        tensors: dict[str | int, Any] = {name: one.tensor for name, one in self._state.items()}
        tensors |= {k: one for k, one in enumerate(arguments) if isinstance(one, torch.Tensor)}
        for written in self._interface.mutated:
            for other, tensor in tensors.items():
                if other != written and overlap(tensors[written], tensor):
                    return f"{self._told(written)} and {self._told(other)}, which share memory"
        return None

    def _told(self, place: str | int) -> str:
        leaf = self._leaves[place] if isinstance(place, int) else None
        return f"`{place if leaf is None else leaf.name}`"

    def _called(self, arguments: Sequence[Any]) -> list[Any]:
        interface, sizes = self._interface, dict[str, int]()
        if len(arguments) != len(self._leaves):
            raise ModelError(f"{len(self._leaves)} arguments", str(len(arguments)), "call of the model")
        passed = [self._state[name]() for name in interface.state]
        for position, (leaf, argument) in enumerate(zip(self._leaves, arguments, strict=True)):
            if leaf is None:
                check_constant(f"argument {position} of the model", interface.constants[position], argument)
                continue
            checked = check(leaf, argument, self._device.torch, self._ranges, sizes)
            check_positions(leaf, checked)
            passed.append(to_tvm(checked, self._device.tvm))
        if (shared := self.shared(arguments)) is not None:
            hint = "pass a copy of one of them, .clone()"
            raise ModelError("tensors that share no memory where one is written to", shared, "call of the model", hint)
        try:
            with self._device.current():
                results = self._function(*passed)
        except Exception as error:
            raise ModelError("a call that runs", told(error), "the virtual machine of TVM") from error
        found = [to_torch(result) for result in results]
        for target, result in zip(interface.mutated, found, strict=False):
            written = self._state[target].tensor if isinstance(target, str) else arguments[target]
            with torch.no_grad():
                written.copy_(result)
        constants = iter(interface.returned)
        return [constant if k is None else found[k] for k, constant in zip(interface.outputs, constants, strict=True)]


class OptimizedModel:
    """What `tvm_cascade.optimize` returns.

    Attributes
    ----------
    report : every reduction of the model, with verdict and kernel.
    target : what it was compiled for.
    """

    def __init__(
        self, module: torch.nn.Module, program: Program, call_spec: Any, target: Any, report: Explanation
    ) -> None:
        self._name, self._signature = type(module).__name__, inspect.signature(module.forward)
        self._program, self._spec = program, call_spec
        self.target, self.report = target, report

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result for these arguments, which have the structure of the example's.

        Arguments may be given by position or by name, as the module takes them.

        Raises
        ------
        ModelError
            When an argument is not what the model was compiled for: its dtype, device or shape, or the value of a
            constant.
        """
        wanted = self._spec.in_spec
        leaves, spec = pytree.tree_flatten((args, _ordered(kwargs, wanted)))
        if spec != wanted:
            leaves, spec = pytree.tree_flatten(as_in_example(self._signature, wanted, args, kwargs))
        if spec != wanted:
            hint = (
                "call it with arguments as those of the example, or call tvm_cascade.optimize with an example as these"
            )
            expected, found = told_apart(wanted, spec)
            raise ModelError(f"arguments as {expected}", found, f"call of {self._name}", hint)
        return with_caches_filled((args, kwargs), pytree.tree_unflatten(self._program(leaves), self._spec.out_spec))

    def __repr__(self) -> str:
        return f"<OptimizedModel of {self._name} for {self.target.kind.name}; its .report says what was fused>"


def _ordered(kwargs: dict[str, Any], spec: Any) -> dict[str, Any]:
    """The keyword arguments in the order of the example's."""
    names = parts_of(spec)[1].context
    known = {name: kwargs[name] for name in names or () if name in kwargs}
    return {**known, **{name: value for name, value in kwargs.items() if name not in known}}
