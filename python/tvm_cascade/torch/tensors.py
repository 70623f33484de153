"""Tensors of torch as tensors of TVM, and back: shared by DLPack, copied only where compiled code could not read them.

Compiled code takes an alignment for granted without looking, and TVM's virtual machine compact strides.
"""

from __future__ import annotations

from typing import Any

import torch
import tvm
import tvm_ffi

from tvm_cascade.driver.arguments import ON_GPUS, memory_of
from tvm_cascade.driver.arguments import overlap as overlapping

_MOST_WORK = 10_000
"""Of NumPy, to find out whether strided tensors overlap."""


def is_compact(tensor: torch.Tensor) -> bool:
    """Whether compiled code reads a tensor where it lies."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return False
    alignment = tensor.element_size() if tensor.device.type == "cpu" else ON_GPUS
    return tensor.is_contiguous() and tensor.data_ptr() % alignment == 0


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that is contiguous and aligned where it is not."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    if is_compact(tensor):
        return tensor
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    return dense.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def to_tvm(tensor: torch.Tensor, device: tvm.runtime.Device) -> Any:
    """A tensor of TVM over the same memory, or over that of a compact copy."""
    if not tensor.numel():  # strides and address of nothing are whatever torch likes
        return tvm.runtime.empty(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), device)
    return tvm_ffi.from_dlpack(compact(tensor))


def to_torch(tensor: Any) -> torch.Tensor:
    """A tensor of torch over the same memory; all runs on one stream, so that PyTorch is given none to wait for."""
    return torch.utils.dlpack.from_dlpack(tensor.__dlpack__())


def address(tensor: Any) -> int:
    """Where the memory starts that a tensor of torch or of TVM is in."""
    return int(tensor.untyped_storage().data_ptr() if isinstance(tensor, torch.Tensor) else tensor.data_ptr())


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have an element in common; also where it takes too long to find out."""
    if any(tensor.layout is not torch.strided for tensor in (one, other)):
        return one is other
    first, second = (memory_of(tensor, tensor.element_size()) for tensor in (one, other))
    return overlapping(first, second, _MOST_WORK)
