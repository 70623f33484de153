"""Why a nest is not one block in loops: scheduled, a call, plain stores, or a loop-carried dependence."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tvm_ffi
from tvm import s_tir, tirx

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.scratch import leaves_of
from tvm_cascade.analysis.statements import is_serial, uses_of


def why_several(nest: tirx.Stmt) -> Reason:
    """Why a nest around anything else than one block cannot be read."""
    loops: list[tirx.For] = []
    calls: list[tirx.Evaluate] = []
    tvm_ffi.structural_walk(nest, [(tirx.For, loops.append), (tirx.Evaluate, calls.append)])
    if calls:
        return Reason("extern", f"{calls[0].value}"[:200])
    if not all(map(is_serial, loops)):
        return Reason("scheduled", "a loop is parallel, vectorised, unrolled, bound or annotated")
    leaves = leaves_of(nest)
    if leaves is None:
        return _other_statement(nest)
    for loop in loops:
        inside = [leaf.realize for leaf in leaves if any(own.same_as(loop) for own in leaf.loops)]
        if buffers := carried(inside, loop.loop_var):
            names, shared = ", ".join(r.block.name_hint for r in inside), ", ".join(b.name for b in buffers)
            return Reason("carried", f"loop {loop.loop_var.name} over blocks {names}, which share {shared}")
    return Reason("opaque_block", "a loop holds several blocks")


def _other_statement(nest: tirx.Stmt) -> Reason:
    """The reason for a nest that holds a statement which is no loop and no block."""
    pending = [nest]
    while pending:
        one = pending.pop(0)
        if isinstance(one, tirx.BufferStore):
            return Reason("tirx", f"a loop stores into {one.buffer.name} outside of any block")
        if isinstance(one, tirx.For):
            pending.append(one.body)
        elif isinstance(one, tirx.SeqStmt):
            pending += list(one.seq)
        elif not isinstance(one, s_tir.SBlockRealize):
            return Reason("opaque_block", f"a nest holds {type(one).__name__}")
    return Reason("opaque_block", "a block holds blocks, or matches or allocates buffers")


def carried(parts: Sequence[tirx.Stmt], loop: tirx.Var) -> list[tirx.Var]:
    """Buffers that carry values between iterations: one part writes what others access at another index."""
    used = [uses_of(part) for part in parts]
    found: list[tirx.Var] = []
    for (loads, stores), (other_loads, other_stores) in itertools.permutations(used, 2):
        for buffer, _ in stores:
            both = [*stores, *loads, *other_loads, *other_stores]
            touched = [at for b, at in (*other_loads, *other_stores) if b.same_as(buffer)]
            own = [at for b, at in both if b.same_as(buffer)]
            slab = any(all(at[k].same_as(loop) for at in own) for k in range(len(own[0])))
            if touched and not slab and not any(buffer.same_as(known) for known in found):
                found.append(buffer)
    return found
