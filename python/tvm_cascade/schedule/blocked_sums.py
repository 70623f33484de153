"""Long sums of products in blocks, which round less: a block is summed from zero and then added to those before it.

    for k in 3072: tile += a[k] · b[k]   ->   for 8 blocks:  part = 0;  for k in 384: part += a[k] · b[k];  tile += part

The error of a sum grows with the number of its terms (Higham, Accuracy and Stability, chapter 4), here with that of a
block and the number of blocks; libraries of matrix products sum as many at a time. A block of so many terms takes
some thousand cycles, and starting and adding a tile some ten. The first block needs no tile of zeros to be added to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import ir, s_tir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.statements import allocating, in_its_loops, loops_of, sequence
from tvm_cascade.analysis.tir import (
    REDUCTION,
    Extent,
    as_index,
    bound_by,
    dtype_of,
    extent_of,
    is_zero,
    same,
    substitute,
    uses,
)
from tvm_cascade.schedule.fetched_ahead import lines, panels_ahead
from tvm_cascade.tvm_faults.stack import STACK

BLOCK = 384
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
    """The function with its float32 sums in register tiles in blocks of terms; not scheduled any more."""
    made: list[tirx.Var] = []
    started: set[str] = set()

    def without_zeros(steps: tirx.SeqStmt) -> tirx.Stmt:
        pairs = [(zeros, _started_by(zeros, nest)) for zeros, nest in pairwise(steps.seq)]
        started.update(name for _, name in pairs if name)
        kept = [one for one in steps.seq if not any(name and one.same_as(zeros) for zeros, name in pairs)]
        if len(kept) > 1:
            return steps if len(kept) == len(steps.seq) else sequence(kept)
        return blocked(kept[0]) if isinstance(kept[0], tirx.For) else kept[0]

    def blocked(loop: tirx.For) -> tirx.Stmt:
        found = _sum(loop)
        if found is None or (cut := _cut(found)) is None:
            return loop
        return _in_blocks(found, *cut, made, found.around.block.name_hint in started)

    body = tvm_ffi.structural_map(func.body, [(tirx.SeqStmt, without_zeros), (tirx.For, blocked)], order="pre")
    return allocating(func.with_body(body), made) if made else func


def _started_by(zeros: tirx.Stmt, nest: tirx.Stmt) -> str | None:
    """The block of a sum in blocks that goes on from these zeros, in whose place the first of its blocks can stand."""
    start = in_its_loops(zeros)
    if not isinstance(start, s_tir.SBlockRealize) or not isinstance(start.block.body, tirx.BufferStore):
        return None
    name, place = start.block.name_hint, start.block.body
    goes_on = f"{name.removesuffix('_init')}_update"
    of_it = [one for one in _always(nest) if one.around.block.name_hint == goes_on]
    started = is_zero(place.value) and any(
        one.store.buffer.same_as(place.buffer) and _cut(one) is not None for one in of_it
    )
    return goes_on if started else None


def _always(nest: tirx.Stmt) -> Iterator[_Sum]:
    """The sums that a nest runs whatever its loops are at, which run from zero to known ends."""
    if isinstance(nest, tirx.SeqStmt):
        for step in nest.seq:
            yield from _always(step)
    elif isinstance(nest, tirx.For) and (found := _sum(nest)) is not None:
        yield found
    elif isinstance(nest, tirx.For) and is_zero(nest.min) and isinstance(nest.extent, prim.IntImm):
        yield from _always(nest.body)


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


def _in_blocks(found: _Sum, place: int, depth: Extent, made: list[tirx.Var], starts: bool) -> tirx.Stmt:
    """The nest with a block of the loop at a place, `depth` of its terms and those of loops inside, summed apart.

    Parameters
    ----------
    starts : the first block is where the sum starts; else all are added to what is there.
    """
    store, block, cut = found.store, found.around.block, found.reduced[place]
    parts = [_Part(found, first, count) for first, count in _on_the_stack(found.tile, store.buffer)]
    made += [part.buffer for part in parts]
    dtype, serial = dtype_of(cut.loop_var), tirx.ForKind.SERIAL
    outer, inner = (tirx.Var(f"{cut.loop_var.name}_{side}", dtype) for side in ("block", "term"))
    blocks = int(cut.extent) // depth if isinstance(depth, int) else 1
    split = {cut.loop_var: outer * as_index(depth, dtype) + inner if blocks > 1 else inner}
    inside = [(inner, as_index(depth, dtype), serial)]
    inside += [(loop.loop_var, loop.extent, loop.kind) for loop in found.reduced[place + 1 :]]
    terms = {var: substitute(value, split) for var, value in bound_by(found.around).items()}

    def summed(lanes: list[tirx.Var], own: tirx.Var, here: Bound) -> tirx.Stmt:
        update = tirx.BufferStore(own, tirx.BufferLoad(own, lanes) + store.value.b, lanes)
        values = [substitute(value, here) for value in terms.values()]
        inner_block = s_tir.SBlock(block.iter_vars, block.reads, block.writes, block.name_hint, update)
        return s_tir.SBlockRealize(values, substitute(found.around.predicate, here), inner_block)

    def stored(added: bool) -> list[tirx.Stmt]:
        def store_one(lanes: list[tirx.Var], own: tirx.Var, here: Bound) -> tirx.Stmt:
            at = [substitute(index, here) for index in there]
            part = tirx.BufferLoad(own, lanes)
            value = tirx.BufferLoad(store.buffer, at) + part if added else part
            return tirx.IfThenElse(
                substitute(found.around.predicate, here), tirx.BufferStore(store.buffer, value, at), None
            )

        return [part.tiled(store_one) for part in parts]

    there = [substitute(index, bound_by(found.around)) for index in store.indices]
    first = _is_first(block, terms, [var for var, _, _ in inside]) if starts else tirx.const(False, "bool")
    ahead = panels_ahead(store.value.b, terms, found.tile, inside[-1][0])
    steps = [
        *lines(store.buffer, there, found.tile, written=True),
        *(part.tiled(lambda lanes, own, _: tirx.BufferStore(own, tirx.const(0, "float32"), lanes)) for part in parts),
        _nested(inside, sequence([*ahead, *(part.tiled(summed) for part in parts)])),
        *_either(first, stored(added=False), stored(added=True)),
    ]
    outside = [(loop.loop_var, loop.extent, serial) for loop in found.reduced[:place]]
    outside += [(outer, tirx.const(blocks, dtype), serial)] if blocks > 1 else []
    return _nested(outside, tirx.SeqStmt(steps))


def _is_first(block: s_tir.SBlock, terms: Mapping[tirx.Var, ir.Expr], inside: Sequence[tirx.Var]) -> ir.Expr:
    """Whether no terms come before those of loops inside."""
    zero = {var: tirx.const(0, dtype_of(var)) for var in inside}
    reduced = [iv for iv in block.iter_vars if iv.iter_type == REDUCTION]
    begin = (tirx.EQ(substitute(terms[iv.var], zero), iv.dom.min) for iv in reduced)
    return sym.Analyzer().simplify(reduce(tirx.And, begin))


def _either(first: ir.Expr, one: list[tirx.Stmt], other: list[tirx.Stmt]) -> list[tirx.Stmt]:
    if isinstance(first, prim.IntImm):
        return one if int(first) else other
    return [tirx.IfThenElse(first, sequence(one), sequence(other))]


def _on_the_stack(tile: Sequence[tirx.For], buffer: tirx.Var) -> list[tuple[int, int]]:
    """Where parts of a tile begin along its outermost loop, and their steps: TVM has no more than so much on the stack.

    LLVM takes them into registers then, whatever else is done beside the sum.
    """
    count = int(tile[0].extent)
    size = math.prod(int(loop.extent) for loop in tile) * tvm.DataType(dtype_of(buffer)).itemsize
    steps = next(n for n in range(count, 0, -1) if count % n == 0 and (n * size < STACK * count or n == 1))
    return [(first, steps) for first in range(0, count, steps)]


Bound: TypeAlias = dict[tirx.Var, ir.Expr]
"""What loops of a tile are at a place of it."""


@dataclass(frozen=True)
class _Part:
    """Some steps of a tile's outermost loop, in registers of their own."""

    found: _Sum
    first: int
    count: int

    @cached_property
    def buffer(self) -> tirx.Var:
        extents = [self.count, *(extent_of(loop.extent) for loop in self.found.tile[1:])]
        name = f"{self.found.store.buffer.name}_part"
        return tirx.decl_buffer(extents, "float32", name=name, scope="local", layout=None)

    def tiled(self, statement: Callable[[list[tirx.Var], tirx.Var, Bound], tirx.Stmt]) -> tirx.Stmt:
        """A statement at each place: of the variables of the place, the registers, and what loops of the tile are."""
        tile = self.found.tile
        own = [tirx.Var(loop.loop_var.name, dtype_of(loop.loop_var)) for loop in tile]
        here: Bound = dict(zip((loop.loop_var for loop in tile), own, strict=True))
        if self.first:
            here[tile[0].loop_var] = own[0] + self.first
        extents = [tirx.const(self.count, dtype_of(own[0])), *(loop.extent for loop in tile[1:])]
        loops = [(var, extent, loop.kind) for var, extent, loop in zip(own, extents, tile, strict=True)]
        return _nested(loops, statement(own, self.buffer, here))


def _nested(loops: Sequence[tuple[tirx.Var, ir.Expr, int]], body: tirx.Stmt) -> tirx.Stmt:
    for var, extent, kind in reversed(loops):
        body = tirx.For(var, tirx.const(0, dtype_of(var)), extent, kind, body)
    return body
