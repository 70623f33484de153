"""What compiled code takes for granted of a tensor's address: on CPUs, that its elements are aligned.

TVM takes each parameter for aligned to 64 bytes, without looking, and an aligned load of one that is not ends the
process. Arrays of NumPy are aligned to 16 bytes, slices to an element. Loads that allow for any address take the same
time where data are aligned. Kernels of GPUs read 16 bytes at a time, or by TMA, and need the alignment.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.analysis.opaque import Memory
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of

ON_GPUS = 64
"""Bytes that kernels of GPUs take tensors to be aligned to."""


def on_cpus(dtype: str) -> int:
    """Bytes that code for CPUs takes tensors of a dtype to be aligned to."""
    return max(1, tvm_ffi.dtype(dtype).itemsize)


def of_any_address(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with parameters of which no more is taken for granted than that whole elements are aligned.

    Buffers that are declared over their memory, or match a part of it, are no better aligned.
    """
    given = [param for param in func.params if tirx.is_buffer_var(param)]
    views = (name for name, owners in Memory(func.body).owners.items() if any(among(param, owners) for param in given))
    placed = {buffer: _of_elements(buffer) for buffer in (*given, *views) if tirx.is_buffer_var(buffer)}
    params = [placed.get(param, param) for param in func.params]
    body = tvm_ffi.structural_map(func.body, (ir.Var, lambda var: placed.get(var, var)))
    return tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)


def _of_elements(buffer: ir.Var) -> ir.Var:
    kind, dtype = buffer.ty, dtype_of(buffer)
    return tirx.decl_buffer(
        kind.shape,
        dtype,
        name=buffer.name,
        strides=kind.strides or None,
        elem_offset=kind.elem_offset,
        scope=kind.storage_scope,
        data_alignment=on_cpus(dtype),
        offset_factor=kind.offset_factor,
        layout=kind.layout,
    )
