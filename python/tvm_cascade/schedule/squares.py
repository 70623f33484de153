"""Transpositions in registers: a square of a copy is read in vectors, transposed by shuffles, and written in vectors.

    for k in 16 (unrolled): for lane in 16 (vector): panel[k, lane] = x[lane, k]
    ->  16 vectors x[r, 0:16]; blocks of 8, 4, 2 and 1 lanes of two of them change places; 16 vectors panel[k, 0:16]

A vector whose lanes lie apart takes a load for each of them, and a shuffle takes two vectors: log2(16) · 16 shuffles
stand for 256 loads.
"""

from __future__ import annotations

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.extent import extent_of
from tvm_cascade.analysis.tir import dtype_of, substitute, uses
from tvm_cascade.schedule.stack import allocating

__all__ = ["squares_in_registers"]

LEAST = 4
"""Lanes of a square at least."""


def squares_in_registers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The scheduled function with its copies of float32 squares through registers; not scheduled any more."""
    made: list[tirx.Var] = []

    def through(loop: tirx.For) -> tirx.Stmt:
        return loop if (place := _square(loop)) is None else _transposed(loop, place, made)

    body = tvm_ffi.structural_map(func.body, (tirx.For, through), order="pre")
    return allocating(func.with_body(body), made) if made else func


def _square(loop: tirx.For) -> s_tir.SBlockRealize | None:
    """The copy of a square whose lanes lie apart where they are read, but one vector next to the other; else None."""
    lane = loop.body
    if loop.kind != tirx.ForKind.UNROLLED or not isinstance(lane, tirx.For):
        return None
    place, size = lane.body, extent_of(lane.extent)
    if lane.kind != tirx.ForKind.VECTORIZED or extent_of(loop.extent) != size or not isinstance(size, int):
        return None
    if size < LEAST or not isinstance(place, s_tir.SBlockRealize) or place.block.init is not None:
        return None
    store, value = place.block.body, getattr(place.block.body, "value", None)
    if not isinstance(store, tirx.BufferStore) or not isinstance(value, ir.TensorLoad):
        return None
    if dtype_of(value) != "float32" or value.source.same_as(store.buffer):
        return None
    if uses(place.predicate, [loop.loop_var, lane.loop_var]):
        return None
    *_, last = (substitute(index, _bound(place)) for index in value.indices)
    return place if uses(last, [loop.loop_var]) and not uses(last, [lane.loop_var]) else None


def _bound(place: s_tir.SBlockRealize) -> dict[tirx.Var, ir.Expr]:
    """The values of a block's variables."""
    return {axis.var: value for axis, value in zip(place.block.iter_vars, place.iter_values, strict=True)}


def _transposed(loop: tirx.For, place: s_tir.SBlockRealize, made: list[tirx.Var]) -> tirx.Stmt:
    size, store, steps = int(loop.extent), place.block.body, list[tirx.Stmt]()
    # Registers of one square, those of a step beside those of the step before.
    before, after = (
        [tirx.decl_buffer([size], "float32", name="row", scope="local", layout=None) for _ in range(size)]
        for _ in range(2)
    )
    made += before + after

    def moved(row: int, across: tirx.Var, along: tirx.Var, written: bool) -> tirx.Stmt:
        """A row of the square, from memory or to it: a loop over vectors is at a number, that over lanes runs."""
        lane = tirx.Var(along.name, dtype_of(along))
        here = {across: tirx.const(row, dtype_of(across)), along: lane}
        indices = store.indices if written else store.value.indices
        there = [substitute(substitute(index, _bound(place)), here) for index in indices]
        cell = before[row]
        body = (
            tirx.BufferStore(store.buffer, tirx.BufferLoad(cell, [lane]), there)
            if written
            else tirx.BufferStore(cell, tirx.BufferLoad(store.value.source, there), [lane])
        )
        return tirx.For(lane, tirx.const(0, dtype_of(lane)), loop.extent, tirx.ForKind.VECTORIZED, body)

    steps += [moved(row, loop.body.loop_var, loop.loop_var, written=False) for row in range(size)]
    whole = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), size)
    block = size // 2
    while block:
        for row in range(size):
            # Of two rows, one behind the other: the lanes whose place has the bit of the block, or those without it.
            pair = [tirx.BufferLoad(before[one], [whole]) for one in (row & ~block, row | block)]
            taken = row & block
            lanes = [(j & ~block | taken) + (size if j & block else 0) for j in range(size)]
            value = prim.Shuffle(pair, [tirx.const(lane, "int32") for lane in lanes])
            steps.append(tirx.BufferStore(after[row], value, [whole]))
        before, after, block = after, before, block // 2
    steps += [moved(row, loop.loop_var, loop.body.loop_var, written=True) for row in range(size)]
    return tirx.IfThenElse(place.predicate, tirx.SeqStmt(steps), None)
