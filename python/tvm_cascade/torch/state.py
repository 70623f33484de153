"""A model's parameters and buffers as tensors of TVM, which share their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import tvm

from tvm_cascade.torch.tensors import is_compact, to_tvm


class SharedTensor:
    """A parameter or buffer of the model, followed as training code or `load_state_dict` changes it.

    Where compiled code cannot read its memory as it lies, there is a compact copy, which is made anew when the tensor
    was written to.
    """

    def __init__(self, tensor: torch.Tensor, device: tvm.runtime.Device) -> None:
        self.tensor, self._device = tensor, device
        self._seen: object = None
        self._shared: Any = None

    def __call__(self) -> Any:
        """The tensor of TVM."""
        tensor = self.tensor
        seen = tensor.data_ptr(), tensor.stride(), tensor.dtype, _writes_to_follow(tensor)
        if seen != self._seen:
            self._shared, self._seen = to_tvm(tensor, self._device), seen
        return self._shared


def _writes_to_follow(tensor: torch.Tensor) -> int | None:
    """The count of writes to a tensor that is copied; None of one that is shared."""
    if is_compact(tensor):
        return None
    return -1 if tensor.is_inference() else tensor._version  # nobody counts writes to tensors of inference mode


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
