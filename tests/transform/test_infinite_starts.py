"""Maxima that a program starts at −inf, and minima at +inf: every result has the class that it has unfused."""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import prim

INFINITE = {"max": float("-inf"), "min": float("inf")}


def from_infinity(func: tirx.PrimFunc, *names: str) -> tirx.PrimFunc:
    """The function with the extrema of those blocks, or of all, started at an infinity."""

    def start(block: s_tir.SBlock) -> s_tir.SBlock:
        store = block.init
        if not isinstance(store, tirx.BufferStore) or (names and block.name_hint not in names):
            return block
        bounds = {float(tirx.min_value("float32")): float("-inf"), float(tirx.max_value("float32")): float("inf")}
        value = bounds.get(float(store.value)) if isinstance(store.value, prim.FloatImm) else None
        if value is None:
            return block
        init = tirx.BufferStore(store.buffer, tirx.const(value, str(store.buffer.ty.dtype)), list(store.indices))
        fields = (block.iter_vars, block.reads, block.writes, block.name_hint, block.body, init)
        return s_tir.SBlock(*fields, block.alloc_buffers, block.match_buffers, dict(block.annotations))

    body = tvm_ffi.structural_map(func.body, (s_tir.SBlock, start))
    return func.with_body(body)
