"""Privatises scratch buffers: one that each iteration writes before reading becomes one per iteration.

for i: {t[j] = a;  m[0] = max t[j];  out[i] = m[0]}    →    for i: {t′[i, j] = a;  m′[i, 0] = max t′[i, j];  …}

That is the same where every read of t is of elements that an earlier block of the same iteration stored, and nothing
outside the loop reads t. Then no iteration reads what another one wrote, and the loop can be taken apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.index_sets import cover
from tvm_cascade.analysis.statements import (
    LoopNest,
    is_of_nests,
    is_serial,
    leaves_of,
    mentions,
    nests_in,
    replaced,
    runs_always,
    statements_of,
    uses_of,
)
from tvm_cascade.analysis.tir import (
    DATA_PARALLEL,
    REDUCTION,
    Extent,
    bound_by,
    domain_of,
    dtype_of,
    extent_of,
    in_buffers,
    reads_buffer,
    same,
    same_extent,
    substitute,
    uses,
    within,
)

Indices = list[ir.Expr]


@dataclass
class Scratch:
    """The scratch buffers of a function.

    Attributes
    ----------
    statements : of the root block.
    buffers : those that the function allocates, and those that were made of them.
    """

    statements: Sequence[tirx.Stmt]
    buffers: list[tirx.Var]

    def private(self, parts: Sequence[tirx.Stmt], loop: tirx.For, shared: Sequence[tirx.Var]) -> list[tirx.Stmt] | None:
        """The nests of a loop's body with one buffer per iteration; None where a shared buffer is no scratch."""
        if extent_of(loop.min) != 0 or not all(self._is_private(buffer, parts, loop) for buffer in shared):
            return None
        found, made = _expanded(parts, loop, shared)
        self.buffers += made
        return found

    def _is_private(self, buffer: tirx.Var, parts: Sequence[tirx.Stmt], loop: tirx.For) -> bool:
        """Whether no iteration of a loop, and nothing before or after it, reads what another of these stores."""
        if buffer not in {*self.buffers}:
            return False
        if any(mentions(one, buffer) and not is_of_nests(one) for one in self.statements):
            return False
        nests = [nest for one in self.statements for nest in nests_in(one)]
        own = [k for k, nest in enumerate(nests) if any(loop.same_as(other) for other in nest.loops)]
        inside = [nest for part in parts for nest in nests_in(part, (loop,))]
        around = (nests[: own[0]], nests[own[-1] + 1 :]) if own else (nests,)
        return _self_contained(inside, buffer, [loop.loop_var]) and all(
            _self_contained(one, buffer, []) for one in around
        )


def _self_contained(nests: Sequence[LoopNest], buffer: tirx.Var, fixed: list[tirx.Var]) -> bool:
    """Whether every read of a buffer is of elements that one of these blocks stored before, in the same iteration.

    Parameters
    ----------
    fixed : the variable of the loop whose iteration it is.
    """
    for position, nest in enumerate(nests):
        if not mentions(nest.realize, buffer):
            continue
        for indices in _reads_from_outside(nest, buffer, fixed):
            if not any(_covers(earlier, nest, buffer, indices) for earlier in nests[:position]):
                return False
    return True


def _reads_from_outside(nest: LoopNest, buffer: tirx.Var, fixed: list[tirx.Var]) -> list[Indices]:
    """Where a block reads a buffer, in loop variables, other than the element at which it has just started it.

    A reduction along the loop itself is started in one of its iterations alone.
    """
    loads, stores = uses_of(nest.realize)
    block, init = nest.block, nest.block.init
    reads = [list(at) for b, at in loads if b.same_as(buffer)]
    along = zip(block.iter_vars, nest.realize.iter_values, strict=True)
    anew = any(iv.iter_type == REDUCTION and uses(value, fixed) for iv, value in along)
    if init is None or anew or reads_buffer(init, buffer) or not runs_always(nest.realize):
        return reads
    starts = any(store.buffer.same_as(buffer) for store in within(init, tirx.BufferStore))
    started = [list(at) for b, at in stores if b.same_as(buffer)] if starts else []
    if not started or not all(same(at, started[0]) for at in started):
        return reads
    return [at for at in reads if not same(at, started[0])]


def _covers(writer: LoopNest, reader: LoopNest, buffer: tirx.Var, read: Indices) -> bool:
    """Whether an earlier block stores, without condition, all elements that are read.

    A loop over no positions stores nothing; it does so in all iterations, so that nobody ever stored anything.
    """
    block = writer.realize.block
    bound = bound_by(writer.realize)
    shared = sum(takewhile(bool, map(lambda a, b: a.same_as(b), writer.loops, reader.loops)))
    own, others = writer.loops[shared:], reader.loops[shared:]
    if not runs_always(writer.realize):
        return False
    outer = [loop.loop_var for loop in writer.loops[:shared]]
    if any(uses(loop.extent, outer) or extent_of(loop.min) != 0 for loop in (*own, *others)):
        return False
    for store in statements_of(block):
        if isinstance(store, tirx.BufferStore) and store.buffer.same_as(buffer):
            written = [substitute(index, bound) for index in store.indices]
            if cover(written, _extents(own), read, _extents(others), buffer.ty.shape):
                return True
    return False


def _extents(loops: Sequence[tirx.For]) -> dict[tirx.Var, Extent]:
    return {loop.loop_var: extent_of(loop.extent) for loop in loops}


def _expanded(
    parts: Sequence[tirx.Stmt], loop: tirx.For, buffers: Sequence[tirx.Var]
) -> tuple[list[tirx.Stmt], list[tirx.Var]]:
    """The nests of a loop's body with one buffer per iteration, and those buffers."""
    made = [tirx.decl_buffer((loop.extent, *b.ty.shape), dtype_of(b), name=b.name, layout=None) for b in buffers]
    pairs = dict(zip(buffers, made, strict=True))

    def expand(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        block, values, iters = realize.block, list(realize.iter_values), list(realize.block.iter_vars)
        whole = next((iv for iv, v in zip(iters, values, strict=True) if _is_whole(iv, v, loop)), None)
        var = tirx.Var(f"v_{loop.loop_var.name}", loop.loop_var.ty) if whole is None else whole.var
        if whole is None:
            iters = [tirx.IterVar(domain_of(var, loop.extent), var, DATA_PARALLEL), *iters]
            values = [loop.loop_var, *values]
        body, init, predicate = (
            None if code is None else in_buffers(code, pairs, lambda _buffer, old: [loop.loop_var, *old])
            for code in (block.body, block.init, realize.predicate)
        )
        body, init = (None if code is None else substitute(code, {loop.loop_var: var}) for code in (body, init))
        return s_tir.SBlockRealize(values, predicate, replaced(block, body, init, iters))

    def touched(part: tirx.Stmt) -> bool:
        return any(mentions(part, buffer) for buffer in buffers)

    found = [tvm_ffi.structural_map(p, (s_tir.SBlockRealize, expand)) if touched(p) else p for p in parts]
    return found, made


def _is_whole(iterator: tirx.IterVar, value: ir.Expr, loop: tirx.For) -> bool:
    """Whether an iterator covers the loop's full domain."""
    extent = extent_of(iterator.dom.extent)
    spatial = iterator.iter_type == DATA_PARALLEL and extent_of(iterator.dom.min) == 0
    return spatial and loop.loop_var.same_as(value) and same_extent(extent, extent_of(loop.extent))


# Why a nest is not one block in loops: scheduled, a call, plain stores, or a loop-carried dependence.


def why_several(nest: tirx.Stmt) -> Reason:
    """Why a nest around anything else than one block cannot be read."""
    loops = within(nest, tirx.For)
    if calls := within(nest, tirx.Evaluate):
        return Reason("extern", f"{calls[0].value}"[:200])
    if not all(map(is_serial, loops)):
        return Reason("scheduled", "a loop is parallel, vectorised, unrolled, bound or annotated")
    if not is_of_nests(nest):
        return _other_statement(nest)
    for loop in loops:
        inside = [one.realize for one in nests_in(nest) if any(own.same_as(loop) for own in one.loops)]
        if buffers := carried(inside, loop.loop_var):
            names, shared = ", ".join(r.block.name_hint for r in inside), ", ".join(b.name for b in buffers)
            return Reason("carried", f"loop {loop.loop_var.name} over blocks {names}, which share {shared}")
    return Reason("opaque_block", "a loop holds several blocks")


def _other_statement(nest: tirx.Stmt) -> Reason:
    """The reason for a nest that holds a statement which is no loop and no block."""
    for _, one in leaves_of(nest):
        if isinstance(one, tirx.BufferStore):
            return Reason("tirx", f"a loop stores into {one.buffer.name} outside of any block")
        if not isinstance(one, s_tir.SBlockRealize):
            return Reason("opaque_block", f"a nest holds {type(one).__name__}")
    return Reason("opaque_block", "a block holds blocks, or matches or allocates buffers")


def carried(parts: Sequence[tirx.Stmt], loop: tirx.Var) -> list[tirx.Var]:
    """Buffers that carry values between iterations: one part writes what others access at another index."""
    used = [uses_of(part) for part in parts]
    found: dict[tirx.Var, None] = {}
    for (loads, stores), (other_loads, other_stores) in itertools.permutations(used, 2):
        for buffer, _ in stores:
            both = [*stores, *loads, *other_loads, *other_stores]
            touched = [at for b, at in (*other_loads, *other_stores) if b.same_as(buffer)]
            own = [at for b, at in both if b.same_as(buffer)]
            slab = any(all(at[k].same_as(loop) for at in own) for k in range(len(own[0])))
            if touched and not slab:
                found[buffer] = None
    return list(found)
