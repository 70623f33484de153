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


@dataclass(frozen=True)
class GpuNest:
    """A block under schedule.

    Attributes
    ----------
    loops : its own by axis.
    threads : of the block of threads that runs it.
    """

    sch: s_tir.Schedule
    deferred: Deferred
    plan: BlockPlan
    block: Block
    loops: dict[int, Loop]
    threads: Threads

    @property
    def reduced(self) -> list[Loop]:
        return [self.loops[a] for a in self.plan.own if a in self.plan.reduce]

    @property
    def crosses(self) -> bool:
        """Whether TVM reduces this nest across threads, and rightly: one buffer, and a reducer that it knows."""
        plan, init = self.plan, self.sch.get(self.block).init
        if not plan.reduce or len(plan.stores) != 1 or plan.binds or init is None:
            return False
        reduction = split_reduction(plan.stores[0])
        if reduction is None or not reduction[0].across_threads or plan.dtype not in _CROSSING_DTYPES:
            return False
        return same(init.value, identity_of(reduction[0], plan.dtype))

    def narrow(self, row: Loop | None, columns: Sequence[Loop], once: bool) -> None:
        """Few results of a row: every thread along threadIdx.x has them all, and a part of the work of reducing.

        Parameters
        ----------
        once : the results go to global memory, so that one thread stores them.
        """
        sch, threads, reduced, crossing = self.sch, self.threads, self.reduced, self.crosses
        rows = [row] if row is not None else []
        sch.reorder(*rows, *columns, *reduced)
        if crossing:
            _, lane = sch.split(fused(sch, reduced), [None, threads.across])
            threads.bind(sch, None, lane)
        elif once:
            _, lane = sch.split(sch.add_unit_loop(reduced[0] if reduced else self.block), [None, threads.across])
            threads.bind(sch, None, lane)
        if row is not None:
            down, own = sch.split(row, [threads.down, None])
            threads.bind(sch, down, None)
            columns = [own, *columns]
        if crossing:
            self.deferred.crossed += columns
        else:
            self.deferred.unrolled += columns

    def in_rectangles(self, row: Loop | None, columns: Sequence[Loop], together: bool = True) -> Loop:
        """Cuts rows × columns into one rectangle a thread. Afterwards: threads, reduction, rectangle.

        Parameters
        ----------
        together : columns of a thread are neighbours, as those of an array in registers have to be; otherwise they are
            apart, so that neighbours in memory belong to neighbouring threads.

        Returns
        -------
        The innermost loop over threads.
        """
        sch, threads, reduced = self.sch, self.threads, self.reduced
        rows = [row] if row is not None else []
        sch.reorder(*rows, *columns, *reduced)
        if together:
            across, column = sch.split(fused(sch, columns), [threads.across, None])
        else:
            column, across = sch.split(fused(sch, columns), [None, threads.across])
        down, *own = sch.split(row, [threads.down, None]) if row is not None else (None,)
        sch.reorder(*([down] if own else []), across, *reduced, *own, column)
        threads.bind(sch, down, across)
        self.deferred.unrolled += [*own, column]
        return across

    # Contractions on CUDA cores: each thread accumulates a register tile.
    #
    # for k, chunk by chunk:                           (chunks of operands that threads share go to shared memory first)
    # for row, column of the thread's rectangle:   result += left[row, k] * right[k, column]

    def sum_rectangles(self, thread: Loop, staged: Sequence[Access], in_registers: bool) -> None:
        """Sums the rectangle of each thread.

        Parameters
        ----------
        thread : the innermost loop over threads.
        staged : loads of global memory that go through shared memory, chunk by chunk.
        in_registers : the result stays in registers anyway.
        """
        sch, chunks = self.sch, fused(self.sch, self.reduced)
        if staged:
            chunks, _ = sch.split(chunks, [None, chunk_of(self.plan)])
        for access in staged:
            self._stage(access, chunks)
        if not in_registers:
            copy = sch.cache_write(self.block, 0, "local")
            sch.reverse_compute_at(copy, thread)
        self.deferred.decomposed.append((self.block, chunks))

    def _stage(self, access: Access, chunks: Loop) -> None:
        """Brings a chunk of an operand to shared memory, by all threads together."""
        sch, plan = self.sch, self.plan
        copy = sch.cache_read(self.block, read_index(sch, self.block, access.buffer), "shared", [self.block])
        sch.compute_at(copy, chunks, preserve_unit_loops=True)
        self.threads.spread(sch, copy, sch.get_loops(copy)[-len(access.indices) :])
        if len(access.indices) > 1 and plan.axis_at(access.indices[-1]) in plan.reduce:
            sch.storage_align(copy, 0, -2, chunk_of(plan), 1)  # neighbours in other banks


_CHUNK = 16
_SMALLEST_CHUNK = 4


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
