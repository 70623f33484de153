"""A single nest as a GPU kernel: register tiles for products, squares for transpositions, warps for row reductions.

Else a thread computes one element, or a vector of neighbours where `gpu_vectors` made one.
"""

from __future__ import annotations

from tvm import s_tir

from tvm_cascade.analysis.extent import product
from tvm_cascade.devices.device import Gpu
from tvm_cascade.schedule.gpu_product import schedule_product, staged_loads, take_rectangle
from tvm_cascade.schedule.gpu_threads import Late, Threads, crosses, fused
from tvm_cascade.schedule.gpu_transpose import read_transposition, schedule_transposition
from tvm_cascade.schedule.gpu_vectors import VECTORS
from tvm_cascade.schedule.nest_schedule import Block, Loop
from tvm_cascade.schedule.nests import BlockPlan
from tvm_cascade.transform.nest import GUARD

_SIDE = 64
"""Rows and columns of a product that a block of threads computes."""

_SMALLEST_SIDE = 8
_LONG_FOLD = 1024
_MANY_RESULTS = 4096


def schedule_kernel_alone(sch: s_tir.Schedule, gpu: Gpu, late: Late, plan: BlockPlan, outer: int) -> None:
    """Makes a nest a kernel.

    Parameters
    ----------
    outer : loops that it shares with others; these run on the host.
    """
    block = sch.get_sblock(plan.name)
    loops = dict(zip(plan.own, sch.get_loops(block)[outer:], strict=True))
    sides = None if plan.role == GUARD else _sides(plan)
    if sides is not None:
        _schedule_sides(sch, gpu, late, plan, block, loops, *sides)
        return
    transposed = None if plan.role == VECTORS else read_transposition(plan, gpu)
    if transposed is not None:
        schedule_transposition(sch, gpu, plan, block, outer, transposed)
        return
    spatial = [loops[a] for a in plan.spatial]
    reduced = [loops[a] for a in plan.own if a in plan.reduce]
    sch.reorder(*spatial, *reduced)
    if reduced and crosses(sch, plan, block) and not _prefers_elements(plan):
        folded = product(plan.extents[a] for a in plan.reduce)
        long = not isinstance(folded, int) or folded >= _LONG_FOLD or not spatial
        threads = Threads(1, gpu.threads) if long else Threads(gpu.threads // gpu.warp, gpu.warp)
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


def _schedule_sides(
    sch: s_tir.Schedule,
    gpu: Gpu,
    late: Late,
    plan: BlockPlan,
    block: Block,
    loops: dict[int, Loop],
    row: int,
    column: int,
) -> None:
    """A block of threads for every square of a product."""
    threads = Threads(gpu.threads // gpu.warp, gpu.warp)
    others = [loops[a] for a in plan.spatial if a not in (row, column)]
    reduced = [loops[a] for a in plan.own if a in plan.reduce]
    below, rows = sch.split(loops[row], [None, _SIDE])
    right, columns = sch.split(loops[column], [None, _SIDE])
    sch.reorder(*others, below, right, rows, columns, *reduced)
    sch.bind(fused(sch, [*others, below, right]), "blockIdx.x")
    rectangle = take_rectangle(sch, threads, late, rows, [columns], reduced)
    most = {row: _SIDE, column: _SIDE}
    staged = [access for access, _ in staged_loads(plan, [], gpu.static_shared_bytes, most)]
    schedule_product(sch, threads, late, plan, block, rectangle, reduced, staged, in_registers=False)
