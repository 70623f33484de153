"""Bytes that a function allocates besides its parameters, after TVM's own compaction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim


@dataclass(frozen=True)
class Temporary:
    """One allocated buffer.

    Attributes
    ----------
    name, shape, dtype : of the buffer, in elements, as it is allocated for one pass through its enclosing loops.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * tvm.DataType(self.dtype).itemsize


def temporaries(func: tirx.PrimFunc) -> list[Temporary]:
    """The buffers that an S-TIR function allocates, each compacted to what is live inside its enclosing loops."""
    lower = tvm.transform.Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
        ]
    )
    lowered = lower(tvm.IRModule({"main": func}))["main"]
    found: list[Temporary] = []

    def note(block: s_tir.SBlock) -> None:
        for buffer in block.alloc_buffers:
            shape = tuple(int(extent) if isinstance(extent, prim.IntImm) else 1 for extent in buffer.ty.shape)
            found.append(Temporary(buffer.name, shape, str(buffer.ty.dtype)))

    tvm_ffi.structural_walk(lowered.body, (s_tir.SBlock, note), order="pre")
    return found


def temporary_bytes(func: tirx.PrimFunc) -> int:
    """Bytes of all temporaries of a function."""
    return sum(temporary.bytes for temporary in temporaries(func))
