"""A model's parameters and buffers as tensors of TVM, which share their memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import tvm
from torch.fx.graph_module import _assign_attr

from tvm_cascade.errors import ModelError
from tvm_cascade.torch.graph import STATE, Traced
from tvm_cascade.torch.tensors import is_compact, to_tvm


class SharedTensor:
    """A parameter or buffer of the model, followed as it is written to, or replaced by one of its kind.

    Where compiled code cannot read its memory as it lies, there is a compact copy, which is made anew when the tensor
    was written to.

    Parameters
    ----------
    name : in the model.
    tensor : when the model was compiled.
    module : that has it; None of a tensor that nobody can replace.
    names : all that the module has for it: more than one of tied parameters.
    """

    def __init__(
        self,
        name: str,
        tensor: torch.Tensor,
        device: tvm.runtime.Device,
        module: torch.nn.Module | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.name, self.tensor, self._device = name, tensor, device
        self._module, self._paths = module, [one.split(".") for one in names]
        self._found: list[torch.Tensor | None] = [tensor for _ in names]
        self._kind = kind_of(tensor)
        self._place: object = None
        self._writes: int | None = None
        self._is_shared = False
        self._shared: Any = None

    def __call__(self) -> Any:
        """The tensor of TVM.

        Raises
        ------
        ModelError
            When the module has none of this shape, dtype and device any more.
        """
        tensor = self.current()
        place = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if self._is_shared and place == self._place:  # the usual call
            return self._shared
        writes = _writes_to_follow(tensor)
        if (place, writes) != (self._place, self._writes):
            if kind_of(tensor) != self._kind:
                raise self._changed(tensor)
            self._shared, self._place, self._writes = to_tvm(tensor, self._device), place, writes
            self._is_shared = writes is None and not tensor.is_complex()  # whose conjugate is in the same place
        return self._shared

    @property
    def names(self) -> list[str]:
        """All that the module has for it."""
        return [".".join(path) for path in self._paths]

    def current(self) -> torch.Tensor:
        """The tensor of torch that the module has now."""
        for path, before in zip(self._paths, self._found, strict=True):
            if _in_module(self._module, path) is not before:
                self._replace([_in_module(self._module, path) for path in self._paths])
                break
        return self.tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedTensor:
        """Of a copy of the module, so that both are one again where both are copied together."""
        module, tensor = copy.deepcopy((self._module, self.current()), memo)
        return SharedTensor(self.name, tensor, self._device, module, self.names)

    def _replace(self, found: list[torch.Tensor | None]) -> None:
        """Take what the module has now; tied parameters must be one tensor still."""
        for one in found:
            if one is None or kind_of(one) != self._kind:
                raise self._changed(one)
        if len({(one.data_ptr(), one.stride()) for one in found if one is not None}) > 1:
            names = ", ".join(f"`{'.'.join(path)}`" for path in self._paths)
            raise ModelError(f"one tensor as {names}", "several", "parameters of the model", _AGAIN)
        self._found, self.tensor = found, next(one for one in found if one is not None)

    def _changed(self, found: torch.Tensor | None) -> ModelError:
        told = "none" if found is None else told_kind(kind_of(found))
        return ModelError(
            f"`{self.name}`: {told_kind(self._kind)}", told, "parameters and buffers of the model", _AGAIN
        )


_AGAIN = "call tvm_cascade.optimize again: the module is another one than it was compiled from"


def _in_module(module: torch.nn.Module | None, path: Sequence[str]) -> torch.Tensor | None:
    """The parameter or buffer at a path of names, if there is one."""
    for name in path[:-1]:
        if module is None:
            return None
        module = module._modules.get(name)
    if module is None:
        return None
    found = module._parameters.get(path[-1])
    return module._buffers.get(path[-1]) if found is None else found


def kind_of(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device


def told_kind(kind: tuple[torch.Size, torch.dtype, torch.device]) -> str:
    shape, dtype, device = kind
    return f"{str(dtype).removeprefix('torch.')} {list(shape)} on {device}"


def _writes_to_follow(tensor: torch.Tensor) -> int | None:
    """The count of writes to a tensor that is copied; None of one that is shared."""
    if is_compact(tensor):
        return None
    return -1 if tensor.is_inference() else tensor._version  # nobody counts writes to tensors of inference mode


def shared_state(
    program: Traced, module: torch.nn.Module | None, device: tvm.runtime.Device
) -> dict[str, SharedTensor]:
    """The model's own parameters and buffers, by the names that the program has for them, in its order."""
    own = {} if module is None else {**_every(module.named_buffers), **_every(module.named_parameters)}
    same: dict[int, list[str]] = {}
    for name, tensor in own.items():
        same.setdefault(id(tensor), []).append(name)
    names = [str(spec.target) for spec in program.graph_signature.input_specs if spec.kind in STATE]
    return {name: SharedTensor(name, own[name], device, module, same[id(own[name])]) for name in names}


def _every(named: Callable[..., Iterator[tuple[str, torch.Tensor]]]) -> dict[str, torch.Tensor]:
    return dict(named(remove_duplicate=False))


def module_of(tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    """A module that has these parameters and buffers by these names, and does nothing."""
    root = torch.nn.Module()
    for name, tensor in tensors.items():
        _assign_attr(tensor, root, name)
    return root
