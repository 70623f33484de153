"""Cells of a block's own on the stack of a CPU's thread.

TVM keeps a small buffer of scope "global" on the stack. One of scope "local", which is a GPU thread's registers, it
asks the runtime's workspace for each time that the block runs: about 30 ns each, once or more for every element.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.extent import extent_of, product
from tvm_cascade.analysis.tir import dtype_of

__all__ = ["cells_on_the_stack"]

MOST_BYTES = 1024
"""Of a buffer, below which TVM keeps it on the stack."""

Pairs = list[tuple[tirx.Var, tirx.Var]]


def cells_on_the_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with the small buffers of its inner blocks on the stack; the same object where there are none."""
    cells = _cells(func)
    if not cells:
        return func

    def of(buffer: tirx.Var) -> tirx.Var:
        return next((new for old, new in cells if old.same_as(buffer)), buffer)

    def read(access: ir.TensorLoad) -> ir.TensorLoad:
        new = of(access.source)
        return access if new.same_as(access.source) else tirx.BufferLoad(new, list(access.indices))

    def write(place: tirx.BufferStore) -> tirx.BufferStore:
        new = of(place.buffer)
        return place if new.same_as(place.buffer) else tirx.BufferStore(new, place.value, place.indices)

    def allocate(block: s_tir.SBlock) -> s_tir.SBlock:
        if not block.alloc_buffers:
            return block
        own = (block.name_hint, block.body, block.init, [of(buffer) for buffer in block.alloc_buffers])
        return s_tir.SBlock(block.iter_vars, block.reads, block.writes, *own, block.match_buffers, block.annotations)

    kinds = [(ir.TensorLoad, read), (tirx.BufferStore, write), (s_tir.SBlock, allocate)]
    return func.with_body(tvm_ffi.structural_map(func.body, kinds))


def _cells(func: tirx.PrimFunc) -> Pairs:
    """The small local buffers that inner blocks allocate, each with one on the stack."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    root = func.body.block if isinstance(func.body, s_tir.SBlockRealize) else None
    own = [buffer for block in blocks if not block.same_as(root) for buffer in block.alloc_buffers]
    return [
        (buffer, tirx.decl_buffer(list(buffer.ty.shape), dtype_of(buffer), name=buffer.name, layout=None))
        for buffer in own
        if buffer.scope() == "local" and _bytes(buffer) < MOST_BYTES
    ]


def _bytes(buffer: tirx.Var) -> int:
    """Of a buffer; as many as do not fit where that is not known."""
    elements = product(extent_of(extent) for extent in buffer.ty.shape)
    return elements * tvm.DataType(dtype_of(buffer)).itemsize if isinstance(elements, int) else MOST_BYTES
