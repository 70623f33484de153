"""Binds loops to the threads of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import s_tir, tirx

from tvm_cascade.analysis.reducers import identity_of, split_reduction
from tvm_cascade.analysis.tir import product, same
from tvm_cascade.schedule.nest_schedule import Block, Deferred, Loop, power_of_two_divisor, read_index
from tvm_cascade.schedule.nests import Access, BlockPlan

_CROSSING_DTYPES = frozenset({"float32", "float64", "int32", "int64"})


@dataclass(frozen=True)
class Threads:
    """A block of `down` × `across` threads; neighbours along `across` are neighbours in a warp."""

    down: int
    across: int

    def bind(self, sch: s_tir.Schedule, down: Loop | None, across: Loop | None) -> None:
        """Gives two loops to the threads; a dimension of one thread needs no loop."""
        if down is not None and self.down > 1:
            sch.bind(down, "threadIdx.y")
        if across is not None and self.across > 1:
            sch.bind(across, "threadIdx.x")

    def spread(self, sch: s_tir.Schedule, block: Block, loops: Sequence[Loop]) -> None:
        """Gives adjacent loops to all threads, one element each and then the next ones."""
        whole = fused(sch, loops) if loops else sch.add_unit_loop(block)
        _, down, across = sch.split(whole, [None, self.down, self.across])
        self.bind(sch, down, across)


def fused(sch: s_tir.Schedule, loops: Sequence[Loop]) -> Loop:
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def crosses(sch: s_tir.Schedule, plan: BlockPlan, block: Block) -> bool:
    """Whether TVM reduces this nest across threads, and rightly: one buffer, and a reducer that it knows."""
    init = sch.get(block).init
    if not plan.reduce or len(plan.stores) != 1 or plan.binds or init is None:
        return False
    reduction = split_reduction(plan.stores[0])
    dtype = str(plan.stores[0].buffer.ty.dtype)
    if reduction is None or not reduction[0].across_threads or dtype not in _CROSSING_DTYPES:
        return False
    return same(init.value, identity_of(reduction[0], dtype))


def schedule_narrow(
    sch: s_tir.Schedule,
    threads: Threads,
    deferred: Deferred,
    block: Block,
    row: Loop | None,
    columns: Sequence[Loop],
    reduced: Sequence[Loop],
    crossing: bool,
    once: bool,
) -> None:
    """Few results of a row: every thread along threadIdx.x has them all.

    Parameters
    ----------
    crossing : the threads share the work of reducing; otherwise each does all of it.
    once : the results go to global memory, so that one thread stores them.
    """
    rows = [row] if row is not None else []
    sch.reorder(*rows, *columns, *reduced)
    if crossing:
        _, lane = sch.split(fused(sch, reduced), [None, threads.across])
        threads.bind(sch, None, lane)
    elif once:
        _, lane = sch.split(sch.add_unit_loop(reduced[0] if reduced else block), [None, threads.across])
        threads.bind(sch, None, lane)
    if row is not None:
        down, own = sch.split(row, [threads.down, None])
        threads.bind(sch, down, None)
        columns = [own, *columns]
    if crossing:
        deferred.crossed += columns
    else:
        deferred.unrolled += columns


# Contractions on CUDA cores: each thread accumulates a register tile.
#
# for k, chunk by chunk:                           (chunks of operands that threads share go to shared memory first)
# for row, column of the thread's rectangle:   result += left[row, k] * right[k, column]


_CHUNK = 16
_SMALLEST_CHUNK = 4


@dataclass(frozen=True)
class Rectangle:
    """A nest's loops once each thread has its rectangle.

    Attributes
    ----------
    thread : the innermost loop over threads.
    inner : the loops over the rectangle, inside it.
    """

    thread: Loop
    inner: tuple[Loop, ...]


def take_rectangle(
    sch: s_tir.Schedule,
    threads: Threads,
    deferred: Deferred,
    row: Loop | None,
    columns: Sequence[Loop],
    reduced: Sequence[Loop],
    together: bool = True,
) -> Rectangle:
    """Cuts rows × columns into one rectangle a thread. Afterwards: threads, reduction, rectangle.

    Parameters
    ----------
    together : columns of a thread are neighbours, as those of an array in registers have to be; otherwise they are
        apart, so that neighbours in memory belong to neighbouring threads.
    """
    rows = [row] if row is not None else []
    sch.reorder(*rows, *columns, *reduced)
    if together:
        across, column = sch.split(fused(sch, columns), [threads.across, None])
    else:
        column, across = sch.split(fused(sch, columns), [None, threads.across])
    if row is None:
        sch.reorder(across, *reduced, column)
        threads.bind(sch, None, across)
        deferred.unrolled.append(column)
        return Rectangle(across, (column,))
    down, own = sch.split(row, [threads.down, None])
    sch.reorder(down, across, *reduced, own, column)
    threads.bind(sch, down, across)
    deferred.unrolled += [own, column]
    return Rectangle(across, (own, column))


def schedule_product(
    sch: s_tir.Schedule,
    threads: Threads,
    deferred: Deferred,
    plan: BlockPlan,
    block: Block,
    rectangle: Rectangle,
    reduced: Sequence[Loop],
    staged: Sequence[Access],
    in_registers: bool,
) -> None:
    """Sums the rectangles of a nest.

    Parameters
    ----------
    staged : loads of global memory that go through shared memory, chunk by chunk.
    in_registers : the result stays in registers anyway.
    """
    inner = fused(sch, reduced)
    chunks = inner
    if staged:
        chunks, inner = sch.split(inner, [None, chunk_of(plan)])
    for access in staged:
        _stage(sch, threads, plan, block, access, chunks)
    if not in_registers:
        copy = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(copy, rectangle.thread)
    deferred.decomposed.append((block, chunks))


def chunk_of(plan: BlockPlan) -> int:
    """Positions of the reduction per staged chunk."""
    extents = [plan.extents[a] for a in plan.own if a in plan.reduce]
    whole = product(extents)
    return power_of_two_divisor(whole, _CHUNK) if isinstance(whole, int) else 1


def staged_loads(
    plan: BlockPlan, inside: Sequence[tirx.Var], room: int, most: dict[int, int]
) -> list[tuple[Access, int]]:
    """Loads of global memory that many threads repeat and that fit into shared memory by chunks, with their bytes.

    Parameters
    ----------
    inside : buffers of the kernel itself.
    room : bytes of shared memory that are left.
    most : positions of each axis that a block works on.
    """
    found: list[tuple[Access, int]] = []
    if not plan.is_static or len(plan.reduce) != 1 or chunk_of(plan) < _SMALLEST_CHUNK:
        return found
    for access in plan.loads:
        if any(access.buffer.same_as(b) for b in inside) or any(access.buffer.same_as(o.buffer) for o, _ in found):
            continue
        if sum(access.buffer.same_as(other.buffer) for other in plan.loads) > 1:
            continue
        steps = {axis: plan.step(access, axis) for axis in plan.own}
        if any(step is None for step in steps.values()):
            continue
        axes = [axis for axis, step in steps.items() if step != 0]
        if not plan.reduce <= set(axes) or set(plan.spatial) <= set(axes):
            continue
        size = chunk_of(plan) + 1
        for axis in axes:
            size *= most.get(axis, 1) if axis not in plan.reduce else 1
        size *= tvm.DataType(str(access.buffer.ty.dtype)).itemsize
        if size <= room:
            room -= size
            found.append((access, size))
    return found


def _stage(sch: s_tir.Schedule, threads: Threads, plan: BlockPlan, block: Block, access: Access, chunks: Loop) -> None:
    """Brings a chunk of an operand to shared memory, by all threads together."""
    copy = sch.cache_read(block, read_index(sch, block, access.buffer), "shared", [block])
    depth = len(sch.get_loops(block)[: _depth(sch, block, chunks)])
    sch.compute_at(copy, chunks, preserve_unit_loops=True)
    threads.spread(sch, copy, sch.get_loops(copy)[depth:])
    reduced = next(iter(plan.reduce))
    if len(access.indices) > 1 and plan.axis_at(access.indices[-1]) == reduced:
        sch.storage_align(copy, 0, -2, chunk_of(plan), 1)  # neighbours in other banks


def _depth(sch: s_tir.Schedule, block: Block, loop: Loop) -> int:
    """Loops down to one of a block's, itself included."""
    target = sch.get(loop)
    return next(k for k, other in enumerate(sch.get_loops(block), 1) if sch.get(other).same_as(target))
