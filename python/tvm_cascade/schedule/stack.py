"""Cells of a CPU's thread on its stack.

TVM keeps a small buffer of scope "global" on the stack. One of scope "local", which is a GPU thread's registers, it
asks the runtime's workspace for each time that it is needed: about 30 ns for each register tile, and for each row.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.tir import dtype_of

__all__ = ["cells_on_the_stack"]

Pairs = list[tuple[tirx.Var, tirx.Var]]


def cells_on_the_stack(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its local buffers on the stack, where they are small; the same object where there are none."""
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
    """The local buffers, each with one on the stack."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    return [
        (buffer, tirx.decl_buffer(list(buffer.ty.shape), dtype_of(buffer), name=buffer.name, layout=None))
        for block in blocks
        for buffer in block.alloc_buffers
        if buffer.scope() == "local"
    ]
