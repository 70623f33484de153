"""Packs a buffer into panels: `panel` neighbours along one dimension become contiguous.

x[h, i, d]  ->  x[h, i // 16, d, i % 16]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim

from tvm_cascade.analysis.expression import call_name
from tvm_cascade.analysis.statements import allocating
from tvm_cascade.analysis.tir import Extent, bound_by, dtype_of, extent_of, loads_of, product, substitute, uses
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.nest_schedule import Block, Loop, Nest, known_divisor, power_of_two_divisor, read_index
from tvm_cascade.schedule.nests import Access

LINES_OF_A_SET, SET_BYTES = 8, 4096
"""Lines of a first-level cache whose addresses are equal modulo so many bytes: one more pushes another one out."""


def panel_layout(dim: int, extent: Extent, panel: int, before: int | None = None) -> Callable[..., list[Any]]:
    """The index map that moves a dimension last, in panels; unsplit where the panel does not divide it.

    Parameters
    ----------
    before : the dimension before which panels are counted; `dim` by default, of which it is none that follows.
    """

    def layout(*dims: Any) -> list[Any]:
        place = dim if before is None else before
        others = [*dims[:place]], [*dims[place:dim], *dims[dim + 1 :]]
        if _has_panels(extent, panel):
            return [*others[0], dims[dim] // panel, *others[1], dims[dim] % panel]
        return [*others[0], *others[1], dims[dim]]

    return layout


def _has_panels(extent: Extent, panel: int) -> bool:
    return extent % panel == 0 if isinstance(extent, int) else known_divisor(extent, panel) == panel


def can_be_laid_out(access: Access) -> bool:
    """Whether TVM lays out a copy of an operand: its indices have to be of one dtype."""
    return len({dtype_of(index) for index in access.indices}) <= 1


def pack_operand(nest: Nest, access: Access, dim: int, panel: int, at: Loop | None, before: int | None = None) -> Block:
    """Copies an operand into panels along one of its dimensions, under a loop or in a separate nest."""
    sch = nest.sch
    # For this block alone: others that read the operand look for it where it was.
    packed = sch.cache_read(nest.block, read_index(nest.sch, nest.block, access.buffer), "global", [nest.block])
    if at is not None:
        sch.compute_at(packed, at)
    lay_out(sch, packed, access.buffer, dim, panel, before)
    return packed


def panel_of(cpu: Cpu, dtype: str) -> int:
    """Elements of a panel of an operand: the lanes of a register tile of two vectors."""
    return 2 * cpu.lanes(dtype)


def schedule_panels(nest: Nest, copy: Block, dim: int, panel: int) -> None:
    """Schedules a copy into panels: those of its source in vectors, and in parallel where it is a nest by itself.

    Parameters
    ----------
    dim : of the source, along which panels run.
    """
    sch = nest.sch
    around = sch.get_loops(copy)[: -len(sch.get(copy).iter_vars)]  # of the loop that computes what is copied
    loops = sch.get_loops(copy)[len(around) :]
    extents = [extent_of(sch.get(loop).extent) for loop in loops]
    whole = product(extents[dim + 1 :])
    if dim == len(loops) - 1 or not isinstance(whole, int):
        outer, lane = _vector(nest, loops[dim], panel)
        order = [outer, *loops[:dim]] if _has_panels(extents[dim], panel) else loops[:dim]
        sch.reorder(*order, lane)
        nest.go_parallel([] if around else order)
        return
    # Lanes that lie apart: in squares, which are transposed in registers.
    size = min(power_of_two_divisor(int(extents[-1]), nest.cpu.lanes(nest.dtype)), known_divisor(extents[dim], panel))
    outer, lane = _vector(nest, loops[dim], size)
    beside, neighbour = sch.split(loops[-1], [None, size])
    sch.reorder(*loops[:dim], outer, *loops[dim + 1 : -1], beside, neighbour, lane)
    nest.deferred.unrolled.append(neighbour)
    nest.go_parallel([] if around else [*loops[:dim], outer])


def _vector(nest: Nest, loop: Loop, most: int) -> tuple[Loop, Loop]:
    """A loop cut into vectors of whole lanes, that cross no multiple of `most`."""
    width = power_of_two_divisor(most, known_divisor(extent_of(nest.sch.get(loop).extent), most))
    outer, lane = nest.sch.split(loop, [None, width])
    nest.deferred.vector += [lane] if width > 1 else []
    return outer, lane


def lines_at_hand(step: int) -> int:
    """Lines, so many bytes apart, that a first-level cache holds at once."""
    return LINES_OF_A_SET * (SET_BYTES // math.gcd(step, SET_BYTES))


def lay_out(
    sch: s_tir.Schedule, block: Block, buffer: tirx.Var, dim: int, panel: int, before: int | None = None
) -> None:
    """Lays out what a block writes, a buffer or a copy of it, in panels along a dimension."""
    sch.transform_layout(block, ("write", 0), panel_layout(dim, extent_of(buffer.ty.shape[dim]), panel, before))


# Transpositions in registers: a square of a copy is read in vectors, transposed by shuffles, and written in vectors.
#
#     for k in 16 (unrolled): for lane in 16 (vector): panel[k, lane] = x[lane, k]
#     ->  16 vectors x[r, 0:16]; blocks of 8, 4, 2 and 1 lanes of two of them change places; 16 vectors panel[k, 0:16]
#
# A vector whose lanes lie apart takes a load for each of them, and a shuffle takes two vectors: log2(16) · 16 shuffles
# stand for 256 loads.

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
    store = place.block.body
    if not isinstance(store, tirx.BufferStore) or (read := _read(store.value)) is None:
        return None
    if dtype_of(read) != "float32" or read.source.same_as(store.buffer):
        return None
    if uses(place.predicate, [loop.loop_var, lane.loop_var]):
        return None
    if not read.same_as(store.value) and uses(substitute(store.value.args[0], bound_by(place)), [loop.loop_var]):
        return None
    *_, last = (substitute(index, bound_by(place)) for index in read.indices)
    return place if uses(last, [loop.loop_var]) and not uses(last, [lane.loop_var]) else None


def _read(value: ir.Expr) -> ir.TensorLoad | None:
    """The load that a value is, everywhere or where a condition holds."""
    guarded = call_name(value) == "if_then_else" and not loads_of(value.args[2])
    read = value.args[1] if guarded else value
    return read if isinstance(read, ir.TensorLoad) else None


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
        cell = before[row]
        if written:
            there = [substitute(substitute(index, bound_by(place)), here) for index in store.indices]
            body = tirx.BufferStore(store.buffer, tirx.BufferLoad(cell, [lane]), there)
        else:
            body = tirx.BufferStore(cell, substitute(substitute(store.value, bound_by(place)), here), [lane])
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
