"""Programs whose maxima start at −inf, and minima at +inf, of those that start at the dtype's own numbers."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import dtype_of


def from_infinity(func: tirx.PrimFunc, *names: str) -> tirx.PrimFunc:
    """The function with the extrema of the blocks of those names, or of all, started at an infinity."""

    def start(block: s_tir.SBlock) -> s_tir.SBlock:
        store = block.init
        if not isinstance(store, tirx.BufferStore) or (names and block.name_hint not in names):
            return block
        infinite = _infinity(store.value)
        if infinite is None:
            return block
        init = tirx.BufferStore(store.buffer, infinite, list(store.indices))
        fields = (block.iter_vars, block.reads, block.writes, block.name_hint, block.body, init)
        return s_tir.SBlock(*fields, block.alloc_buffers, block.match_buffers, dict(block.annotations))

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, start)))


def _infinity(start: tirx.Expr) -> tirx.Expr | None:
    """The infinity beyond a dtype's lowest or highest number."""
    dtype = dtype_of(start)
    if not isinstance(start, prim.FloatImm) or abs(float(start)) != float(tirx.max_value(dtype)):
        return None
    return tirx.const(math.copysign(math.inf, float(start)), dtype)
