"""From a lowered module to machine code, by the backend of its target."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim
from tvm.target import Target

from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.progress import tell
from tvm_cascade.errors import InputError


def generate(mod: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """TVM's code for a lowered module.

    Raises
    ------
    InputError
        Where TVM generates no code, and a buffer has more elements than its indices can count.
    """
    tell(f"generating code of {len(mod.functions)} functions")
    try:
        return backend_of(target).generate(mod, target)
    except Exception as error:
        for name, func in mod.functions_items():
            if large := _uncountable(func):
                sizes = ", ".join(f"`{buffer.name}` of {_elements(buffer)}" for buffer in large)
                hint = 'make extents of 64 bits: te.placeholder((tirx.IntImm("int64", n), …)), and reduce_axis alike'
                raise InputError(
                    "fewer than 2^31 elements, as indices are int32", sizes, name.name_hint, hint
                ) from error
        raise


def _uncountable(func: tirx.PrimFunc) -> list[ir.Var]:
    """The buffers of static shape that have more elements than an index of their dtype reaches."""
    buffers = [param for param in func.params if tirx.is_buffer_var(param)]
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, lambda block: buffers.extend(block.alloc_buffers)))
    return [buffer for buffer in buffers if _elements(buffer) >= 2**31]


def _elements(buffer: ir.Var) -> int:
    """How many elements there are, if extents are int32 and static; else 0."""
    extents = buffer.ty.shape
    counted = all(isinstance(extent, prim.IntImm) and extent.ty.dtype == "int32" for extent in extents)
    return math.prod(int(extent) for extent in extents) if counted else 0
