"""Loop-carried dependence: whether the iterations of a nest may be reordered or run in parallel.

for i: B[i, 3] = A[i // 2] + B[i, 3]     independent: each i stores to an element of its own, and touches no other
for i: B[i // 2] = A[i]                  not: two of them store to one element
for i: B[i + 1] = B[i] · A[i]            not: each reads what another one stores
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.sym.iter_affine_map import IterMapLevel, detect_iter_map

from tvm_cascade.analysis.tir import DATA_PARALLEL, extent_of, loads_of, same, uses

_PLAIN = (tirx.BufferStore, tirx.SeqStmt, tirx.Bind, tirx.IfThenElse)
"""Statements that do nothing but what their stores say."""

_ADDRESSES = (tirx.BufferType, ir.PointerType)

_PURE = 1
"""The highest of TVM's kinds of effects of a call that leaves memory alone (`CallEffectKind.kPure`)."""


def independent(block: s_tir.SBlock) -> bool:
    """Whether the data-parallel iterations of a block are independent of one another.

    Every store goes to an element that no other iteration stores to, and what is stored is read at that element alone.
    The iterators of a reduction are left out: its accumulation keeps their order, or may change it by the reducer's
    laws.
    """
    if block.match_buffers or block.alloc_buffers or not _is_plain(block):
        return False
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(block.body, (tirx.BufferStore, stores.append), order="pre")
    parts = [block.body] if block.init is None else [block.body, block.init]
    touched = [(load.source, list(load.indices)) for part in parts for load in loads_of(part)]
    for part in parts:
        tvm_ffi.structural_walk(part, (tirx.BufferStore, lambda s: touched.append((s.buffer, list(s.indices)))))
    for store in stores:
        own = [at for buffer, at in touched if buffer.same_as(store.buffer)]
        if not all(same(at, list(store.indices)) for at in own):
            return False
    return all(_one_each(store.indices, block) for store in stores)


def _is_plain(block: s_tir.SBlock) -> bool:
    """Whether it consists of stores and of calls that read and write no memory."""
    statements: list[tirx.Stmt] = []
    calls: list[ir.Call] = []
    for part in (block.body, block.init):
        if part is not None:
            tvm_ffi.structural_walk(part, [(tirx.Stmt, statements.append), (ir.Call, calls.append)])
    return all(isinstance(s, _PLAIN) for s in statements) and all(_is_pure(call) for call in calls)


def _is_pure(call: ir.Call) -> bool:
    if not isinstance(call.op, ir.Op) or any(isinstance(e.ty, _ADDRESSES) for e in (call, *call.args)):
        return False
    kind = call.op.get_attr("TCallEffectKind")
    return kind is not None and int(kind) <= _PURE


def _one_each(indices: Sequence[ir.Expr], block: s_tir.SBlock) -> bool:
    """Whether different points of the block's data-parallel domain have different indices."""
    reduced = [iv.var for iv in block.iter_vars if iv.iter_type != DATA_PARALLEL]
    moving = [iv for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL and extent_of(iv.dom.extent) != 1]
    if any(uses(index, reduced) for index in indices):
        return False
    if all(any(index.same_as(iv.var) for index in indices) for iv in moving):
        return True
    domain = {iv.var: iv.dom for iv in block.iter_vars if iv.iter_type == DATA_PARALLEL}
    # A map that uses up every iterator whole, and none twice: what it gives, an arithmetic of its own can take back.
    return bool(detect_iter_map(list(indices), domain, True, IterMapLevel.Bijective, True, sym.Analyzer()).indices)
