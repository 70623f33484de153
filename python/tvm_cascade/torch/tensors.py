"""Tensors of torch as tensors of TVM, and back: shared by DLPack, copied only where compiled code could not read them.

Compiled code takes an alignment for granted without looking, and TVM's virtual machine compact strides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi

from tvm_cascade.driver.alignment import ON_GPUS


def is_compact(tensor: torch.Tensor) -> bool:
    """Whether compiled code reads a tensor where it lies."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return False
    alignment = tensor.element_size() if tensor.device.type == "cpu" else ON_GPUS
    return tensor.is_contiguous() and tensor.data_ptr() % alignment == 0


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that is contiguous and aligned where it is not."""
    tensor = tensor.detach()
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
    """A tensor of torch over the same memory."""
    return torch.from_dlpack(tensor)


def address(tensor: Any) -> int:
    """Where the memory starts that a tensor of torch or of TVM is in."""
    return int(tensor.untyped_storage().data_ptr() if isinstance(tensor, torch.Tensor) else tensor.data_ptr())


def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have an element in common; also where it takes too long to find out."""
    if any(tensor.layout is not torch.strided for tensor in (one, other)):
        return one is other
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() or not one.numel() or not other.numel():
        return False
    try:
        return np.shares_memory(_Addresses(one), _Addresses(other), max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _Addresses:
    """A tensor of any device as an array of NumPy, of which nothing but addresses may be read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.data_ptr(), False),
            "typestr": f"|V{size}",
            "shape": tuple(tensor.shape),
            "strides": tuple(size * stride for stride in tensor.stride()),
        }
