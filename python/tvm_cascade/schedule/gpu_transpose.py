"""A map that transposes as a GPU kernel: squares pass through shared memory, so that both sides are contiguous.

    out[i, j] = f(x[j, i], …)   →   for each square of i and j:  shared[j, i] = x[j, i];  out[i, j] = f(shared[j, i], …)

A warp reads neighbours of x and stores neighbours of out; rows in shared memory are a word longer than the square, so
that neighbours of a column are in different banks.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import s_tir

from tvm_cascade.devices.device import Gpu
from tvm_cascade.schedule.gpu_threads import Threads, fused
from tvm_cascade.schedule.nest_schedule import Block
from tvm_cascade.schedule.nests import Access, BlockPlan

_LINE = 128
"""Bytes of a square's side: of a cache line."""

_SIDES = (32, 64)
"""Elements of a square's side, at least and at most."""

_WORD = 4
"""Bytes of a bank."""


@dataclass(frozen=True)
class Transposition:
    """What a map reads across.

    Attributes
    ----------
    loads : that are contiguous along `across`, and not along the output's last axis.
    across : the axis along which they are.
    side : elements of a square.
    """

    loads: tuple[Access, ...]
    across: int
    side: int


def read_transposition(plan: BlockPlan, gpu: Gpu) -> Transposition | None:
    """What a map transposes; None where it does not, or its squares fit into no shared memory."""
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
    return Transposition(tuple(loads), across, side) if fits else None


def schedule_transposition(
    sch: s_tir.Schedule, gpu: Gpu, plan: BlockPlan, block: Block, outer: int, found: Transposition
) -> None:
    """A block of threads for every square; `outer` loops run on the host."""
    loops = dict(zip(plan.own, sch.get_loops(block)[outer:], strict=True))
    threads = Threads(gpu.threads // gpu.warp, gpu.warp)
    last = plan.last_axis()
    assert last is not None
    others = [loops[axis] for axis in plan.spatial if axis not in (last, found.across)]
    below, rows = sch.split(loops[found.across], [None, found.side])
    right, columns = sch.split(loops[last], [None, found.side])
    sch.reorder(*others, below, right, rows, columns)
    blocks = fused(sch, [*others, below, right])
    sch.bind(blocks, "blockIdx.x")
    threads.spread(sch, block, [rows, columns])
    for access in found.loads:
        reads = sch.get(block).reads
        index = next(k for k, region in enumerate(reads) if region.source.same_as(access.buffer))
        copy = sch.cache_read(block, index, "shared", [block])
        sch.compute_at(copy, blocks, preserve_unit_loops=True)
        lanes = _WORD // _itemsize(access) if has_vectors(access) else 1
        *above, inner = sch.get_loops(copy)[outer + 1 :]
        if lanes > 1 and _extent(plan, found.across) % lanes == 0:
            inner, vector = sch.split(inner, [None, lanes])
            sch.vectorize(vector)
        threads.spread(sch, copy, [*above, inner])
        sch.storage_align(copy, 0, -2, found.side, max(1, _WORD // _itemsize(access)))


def has_vectors(access: Access) -> bool:
    """Whether TVM's CUDA text has vectors of a buffer's dtype: for bool, one byte, it takes two (`ushort4`)."""
    return str(access.buffer.ty.dtype) != "bool"


def _itemsize(access: Access) -> int:
    return int(tvm.DataType(str(access.buffer.ty.dtype)).itemsize)


def _extent(plan: BlockPlan, axis: int) -> int:
    extent = plan.extents[axis]
    assert isinstance(extent, int)
    return extent
