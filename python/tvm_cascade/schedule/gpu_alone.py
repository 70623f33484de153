"""A single nest as a GPU kernel: register tiles for products, squares for transpositions, warps for row reductions.

Else a thread computes one element, or a vector of neighbours where `gpu_vectors` made one.
"""

from __future__ import annotations

import tvm
from tvm import s_tir

from tvm_cascade.analysis.tir import product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.schedule.gpu_threads import GpuNest, Threads, fused, staged_loads
from tvm_cascade.schedule.gpu_vectors import VECTORS
from tvm_cascade.schedule.nest_schedule import Deferred, Loop, read_index
from tvm_cascade.schedule.nests import Access, BlockPlan
from tvm_cascade.transform.nest import GUARD

_SIDE = 64
"""Rows and columns of a product that a block of threads computes."""

_SMALLEST_SIDE = 8
_LONG_FOLD = 1024
_MANY_RESULTS = 4096


def schedule_kernel_alone(sch: s_tir.Schedule, gpu: Gpu, deferred: Deferred, plan: BlockPlan, outer: int) -> None:
    """Makes a nest a kernel.

    Parameters
    ----------
    outer : loops that it shares with others; these run on the host.
    """
    block, warps = sch.get_sblock(plan.name), Threads(gpu.threads // gpu.warp, gpu.warp)
    loops = dict(zip(plan.own, sch.get_loops(block)[outer:], strict=True))
    nest = GpuNest(sch, deferred, plan, block, loops, warps)
    if plan.role != GUARD and (sides := _sides(plan)) is not None:
        _schedule_sides(nest, gpu, *sides)
        return
    if plan.role != VECTORS and (transposed := read_transposition(plan, gpu)) is not None:
        schedule_transposition(nest, outer, *transposed)
        return
    spatial, reduced = [loops[a] for a in plan.spatial], nest.reduced
    sch.reorder(*spatial, *reduced)
    if reduced and nest.crosses and not _prefers_elements(plan):
        folded = product(plan.extents[a] for a in plan.reduce)
        long = not isinstance(folded, int) or folded >= _LONG_FOLD or not spatial
        threads = Threads(1, gpu.threads) if long else warps
        whole = fused(sch, spatial) if spatial else sch.add_unit_loop(reduced[0])
        blocks, inside = sch.split(whole, [None, threads.down])
        _, lane = sch.split(fused(sch, reduced), [None, threads.across])
        sch.bind(blocks, "blockIdx.x")
        threads.bind(sch, inside, lane)
        return
    whole = fused(sch, spatial) if spatial else sch.add_unit_loop(reduced[0] if reduced else block)
    blocks, thread = sch.split(whole, [None, _threads(plan, gpu) if spatial else 1])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")


def _threads(plan: BlockPlan, gpu: Gpu) -> int:
    """Threads of a block, an element each; of few reductions fewer, so that all multiprocessors have some."""
    elements, threads = product(plan.extents[a] for a in plan.spatial), gpu.threads
    while plan.reduce and threads > gpu.warp and isinstance(elements, int) and elements < threads * gpu.processors:
        threads //= 2
    return threads


def _prefers_elements(plan: BlockPlan) -> bool:
    """Whether memory is contiguous along the results, rather than along the reduction, and they are many."""
    results = product(plan.extents[a] for a in plan.spatial)
    many = not isinstance(results, int) or results >= _MANY_RESULTS
    last = plan.last_axis()
    return many and last is not None and any(plan.step(access, last) == 1 for access in plan.loads)


def _sides(plan: BlockPlan) -> tuple[int, int] | None:
    """The axes of a product's rows and columns: each has an operand that the other does not move."""
    if not plan.is_static or len(plan.reduce) != 1 or len(plan.stores) != 1 or plan.binds:
        return None
    column = plan.last_axis()
    if column is None or column not in plan.spatial or _extent(plan, column) < _SMALLEST_SIDE:
        return None
    deep = [plan.axes_of(access) for access in plan.loads if plan.axes_of(access) & plan.reduce]
    rows = [
        axis
        for axis in plan.spatial
        if axis != column
        and _extent(plan, axis) >= _SMALLEST_SIDE
        and any(column in axes and axis not in axes for axes in deep)
        and any(axis in axes and column not in axes for axes in deep)
    ]
    return (max(rows, key=lambda axis: _extent(plan, axis)), column) if rows else None


def _extent(plan: BlockPlan, axis: int) -> int:
    extent = plan.extents[axis]
    assert isinstance(extent, int)
    return extent


def _schedule_sides(nest: GpuNest, gpu: Gpu, row: int, column: int) -> None:
    """A block of threads for every square of a product."""
    _, rows, columns = _in_squares(nest, row, column, _SIDE)
    thread = nest.in_rectangles(rows, [columns])
    staged = staged_loads(nest.plan, [], gpu.static_shared_bytes, {row: _SIDE, column: _SIDE})
    nest.sum_rectangles(thread, [access for access, _ in staged], in_registers=False)


def _in_squares(nest: GpuNest, row: int, column: int, side: int) -> tuple[Loop, Loop, Loop]:
    """A block of threads for every square of two axes; (the loop over blocks, rows of a square, its columns)."""
    sch = nest.sch
    others = [nest.loops[a] for a in nest.plan.spatial if a not in (row, column)]
    below, rows = sch.split(nest.loops[row], [None, side])
    right, columns = sch.split(nest.loops[column], [None, side])
    sch.reorder(*others, below, right, rows, columns, *nest.reduced)
    blocks = fused(sch, [*others, below, right])
    sch.bind(blocks, "blockIdx.x")
    return blocks, rows, columns


# A map that transposes as a GPU kernel: squares pass through shared memory, so that both sides are contiguous.
#
#     out[i, j] = f(x[j, i], …)   →   for each square of i, j:  shared[j, i] = x[j, i];  out[i, j] = f(shared[j, i], …)
#
# A warp reads neighbours of x and stores neighbours of out; rows in shared memory are a word longer than the square, so
# that neighbours of a column are in different banks.


_LINE = 128
"""Bytes of a square's side: of a cache line."""

_SIDES = (32, 64)
"""Elements of a square's side, at least and at most."""

_WORD = 4
"""Bytes of a bank."""


def read_transposition(plan: BlockPlan, gpu: Gpu) -> tuple[list[Access], int, int] | None:
    """What a map transposes; None where it does not, or its squares fit into no shared memory.

    Returns
    -------
    Loads that are contiguous along another axis than the output's last, that axis, and elements of a square's side.
    """
    last = plan.last_axis()
    if last is None or plan.reduce or plan.binds or not plan.is_static or len(plan.stores) != 1:
        return None
    found: dict[int, list[Access]] = {}
    for access in plan.loads:
        along = plan.step(access, last)
        down = [axis for axis in plan.spatial if axis != last and plan.step(access, axis) == 1]
        if along in (0, 1) or not down or along is None:
            continue
        if sum(access.buffer.same_as(other.buffer) for other in plan.loads) == 1:
            found.setdefault(down[0], []).append(access)
    if not found:
        return None
    across, loads = max(found.items(), key=lambda entry: len(entry[1]))
    side = min(max(_LINE // min(map(_itemsize, loads)), _SIDES[0]), _SIDES[1])
    bytes_ = sum(side * (side * _itemsize(access) + _WORD) for access in loads)
    fits = bytes_ <= gpu.static_shared_bytes and all(_extent(plan, axis) >= side for axis in (across, last))
    return (loads, across, side) if fits else None


def schedule_transposition(nest: GpuNest, outer: int, loads: list[Access], across: int, side: int) -> None:
    """A block of threads for every square; `outer` loops run on the host."""
    sch, plan, block, last = nest.sch, nest.plan, nest.block, nest.plan.last_axis()
    assert last is not None
    blocks, rows, columns = _in_squares(nest, across, last, side)
    nest.threads.spread(sch, block, [rows, columns])
    for access in loads:
        copy = sch.cache_read(block, read_index(sch, block, access.buffer), "shared", [block])
        sch.compute_at(copy, blocks, preserve_unit_loops=True)
        lanes = _WORD // _itemsize(access) if has_vectors(access) else 1
        *above, inner = sch.get_loops(copy)[outer + 1 :]
        if lanes > 1 and _extent(plan, across) % lanes == 0:
            inner, vector = sch.split(inner, [None, lanes])
            sch.vectorize(vector)
        nest.threads.spread(sch, copy, [*above, inner])
        sch.storage_align(copy, 0, -2, side, max(1, _WORD // _itemsize(access)))


def has_vectors(access: Access) -> bool:
    """Whether TVM's CUDA text has vectors of a buffer's dtype: for bool, one byte, it takes two (`ushort4`)."""
    return str(access.buffer.ty.dtype) != "bool"


def _itemsize(access: Access) -> int:
    return int(tvm.DataType(str(access.buffer.ty.dtype)).itemsize)
