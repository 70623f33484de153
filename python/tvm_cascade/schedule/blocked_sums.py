"""Long sums of products in blocks, which round less: a block is summed from zero and then added to those before it.

    for k in 3072: tile += a[k] · b[k]   ->   for 6 blocks:  part = 0;  for k in 512: part += a[k] · b[k];  tile += part

The error of a sum grows with the number of its terms (Higham, Accuracy and Stability, chapter 4), here with that of a
block and the number of blocks; libraries of matrix products sum as many at a time. A block of so many terms takes
some thousand cycles, and starting and adding a tile some ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.statements import allocating, in_its_loops, loops_of
from tvm_cascade.analysis.tir import Extent, as_index, bound_by, dtype_of, extent_of, same, substitute, uses

BLOCK = 512
"""Terms that are summed one after the other, at most."""

_TILED = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)

LEAST = 64
"""Terms of a block at least: shorter ones, where nothing longer divides the sum, are not worth their tiles."""


@dataclass(frozen=True)
class _Sum:
    """`place += value` in a register tile.

    Attributes
    ----------
    reduced : the loops over terms, the outermost first.
    tile : the loops that are written out or run in lanes, inside.
    around : the block of `place += value`, and where it stands.
    """

    reduced: tuple[tirx.For, ...]
    tile: tuple[tirx.For, ...]
    around: s_tir.SBlockRealize

    @property
    def store(self) -> tirx.BufferStore:
        return self.around.block.body


def blocked_sums(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with its long float32 sums in register tiles in blocks; not scheduled any more."""
    made: list[tirx.Var] = []

    def blocked(loop: tirx.For) -> tirx.Stmt:
        found = _sum(loop)
        return loop if found is None or (cut := _cut(found)) is None else _in_blocks(found, *cut, made)

    body = tvm_ffi.structural_map(func.body, (tirx.For, blocked), order="pre")
    return allocating(func.with_body(body), made) if made else func


def _sum(loop: tirx.For) -> _Sum | None:
    """What a nest sums, where it is one sum in a register tile."""
    loops, nest = loops_of(loop), in_its_loops(loop)
    if not isinstance(nest, s_tir.SBlockRealize) or not isinstance(nest.block.body, tirx.BufferStore):
        return None
    store, value = nest.block.body, nest.block.body.value
    if nest.block.init is not None or not isinstance(value, prim.Add) or dtype_of(value) != "float32":
        return None
    if not same(value.a, tirx.BufferLoad(store.buffer, list(store.indices))):
        return None
    places = [substitute(index, bound_by(nest)) for index in store.indices]
    moving = [any(uses(place, [one.loop_var]) for place in places) for one in loops]
    first = moving.index(True) if True in moving else len(loops)
    reduced, tile = loops[:first], loops[first:]
    if not all(moving[first:]) or any(one.kind != tirx.ForKind.SERIAL for one in reduced):
        return None
    if uses(nest.predicate, [one.loop_var for one in reduced]):
        return None
    if any(one.kind not in _TILED or not isinstance(extent_of(one.extent), int) for one in tile):
        return None
    return _Sum(tuple(reduced), tuple(tile), nest) if reduced and tile else None


def _cut(found: _Sum) -> tuple[int, Extent] | None:
    """Which of its loops is cut, and how many of its terms are in a block; None where it stays as it is.

    A sum that goes on in memory is one of the blocks already, of which the last may be shorter.
    """
    terms = 1
    for place, loop in reversed(list(enumerate(found.reduced))):
        most = sym.Analyzer().const_int_bound(loop.extent).max_value
        if terms * most > BLOCK:
            sizes = range(1, most + 1) if isinstance(loop.extent, prim.IntImm) else ()
            fitting = (size for size in sizes if most % size == 0 and (size * terms <= BLOCK or size == 1))
            depth = max(fitting, default=0)
            return (place, depth) if LEAST <= depth * terms <= BLOCK else None
        terms *= most
    goes_on = found.store.buffer.scope() != "local"
    return (0, extent_of(found.reduced[0].extent)) if goes_on and terms >= LEAST else None


def _in_blocks(found: _Sum, place: int, depth: Extent, made: list[tirx.Var]) -> tirx.Stmt:
    """The nest with a block of the loop at a place, `depth` of its terms and those of loops inside, summed apart."""
    store, block = found.store, found.around.block
    extents = [extent_of(loop.extent) for loop in found.tile]
    part = tirx.decl_buffer(extents, "float32", name=f"{store.buffer.name}_part", scope="local", layout=None)
    made.append(part)

    def tiled(statement: Callable[[list[tirx.Var]], tirx.Stmt]) -> tirx.Stmt:
        own = [tirx.Var(loop.loop_var.name, dtype_of(loop.loop_var)) for loop in found.tile]
        return _nested(
            [(var, loop.extent, loop.kind) for var, loop in zip(own, found.tile, strict=True)], statement(own)
        )

    def added(own: list[tirx.Var]) -> tirx.Stmt:
        here = dict(zip((loop.loop_var for loop in found.tile), own, strict=True))
        at = [substitute(substitute(index, bound_by(found.around)), here) for index in store.indices]
        sum_of_both = tirx.BufferLoad(store.buffer, at) + tirx.BufferLoad(part, own)
        there = substitute(found.around.predicate, here)
        return tirx.IfThenElse(there, tirx.BufferStore(store.buffer, sum_of_both, at), None)

    lanes = [loop.loop_var for loop in found.tile]
    update = tirx.BufferStore(part, tirx.BufferLoad(part, lanes) + store.value.b, lanes)
    cut = found.reduced[place]
    dtype = dtype_of(cut.loop_var)
    outer, inner = (tirx.Var(f"{cut.loop_var.name}_{side}", dtype) for side in ("block", "term"))
    split = {cut.loop_var: outer * as_index(depth, dtype) + inner}
    summed = s_tir.SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, update)
    values = [substitute(value, split) for value in found.around.iter_values]
    serial = tirx.ForKind.SERIAL
    inside = [(inner, as_index(depth, dtype), serial)]
    inside += [(loop.loop_var, loop.extent, loop.kind) for loop in (*found.reduced[place + 1 :], *found.tile)]
    steps = [
        tiled(lambda own: tirx.BufferStore(part, tirx.const(0, "float32"), own)),
        _nested(inside, s_tir.SBlockRealize(values, found.around.predicate, summed)),
        tiled(added),
    ]
    outside = [(loop.loop_var, loop.extent, serial) for loop in found.reduced[:place]]
    blocks = tirx.const(int(cut.extent) // depth if isinstance(depth, int) else 1, dtype)
    return _nested([*outside, (outer, blocks, serial)], tirx.SeqStmt(steps))


def _nested(loops: Sequence[tuple[tirx.Var, ir.Expr, int]], body: tirx.Stmt) -> tirx.Stmt:
    for var, extent, kind in reversed(loops):
        body = tirx.For(var, tirx.const(0, dtype_of(var)), extent, kind, body)
    return body
