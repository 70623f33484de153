"""A model's parameters and buffers as tensors of TVM, which share their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import tvm

from tvm_cascade.torch.tensors import compact, to_tvm


class SharedTensor:
    """A parameter or buffer of the model, followed as training code or `load_state_dict` changes it.

    Where compiled code cannot read its memory as it lies, there is a compact copy, which is made anew when the tensor
    was written to.
    """

    def __init__(self, tensor: torch.Tensor, device: tvm.runtime.Device) -> None:
        self.tensor, self._device = tensor, device
        self._seen: tuple[int, int | None] | None = None
        self._shared: Any = None

    def __call__(self) -> Any:
        """The tensor of TVM."""
        tensor = self.tensor
        seen = (tensor.data_ptr(), None if self._in_place else _version(tensor))
        if seen != self._seen:
            self._in_place = compact(tensor).data_ptr() == tensor.data_ptr()
            self._shared = to_tvm(tensor, self._device)
            self._seen = (tensor.data_ptr(), None if self._in_place else _version(tensor))
        return self._shared

    _in_place = False


def _version(tensor: torch.Tensor) -> int | None:
    """Counts writes; tensors made under inference mode have no count."""
    return None if tensor.is_inference() else tensor._version


def shared_state(
    program: torch.export.ExportedProgram,
    module: torch.nn.Module | None,
    names: Sequence[str],
    device: tvm.runtime.Device,
) -> dict[str, SharedTensor]:
    """The model's own parameters and buffers, by the names that the program has for them."""
    own: dict[str, torch.Tensor] = {**program.constants, **program.state_dict}
    if module is not None:
        own |= dict(module.named_buffers(remove_duplicate=False))
        own |= dict(module.named_parameters(remove_duplicate=False))
    return {name: SharedTensor(own[name], device) for name in names}
