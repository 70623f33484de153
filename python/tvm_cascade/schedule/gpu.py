"""The S-TIR schedule of a function for GPUs, without tensor cores: fused loops and plain nests.

blockIdx.x for block of rows:
    for tile: every nest over all threads of the block; state in registers or shared memory
    finish

A fused loop that no block of threads has room for, and every nest outside of fused loops, is a kernel by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import tvm
from tvm import ir, s_tir, tirx

from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.statements import read_nests, statements_of, with_root
from tvm_cascade.analysis.tir import Extent, product, within
from tvm_cascade.devices.device import Gpu
from tvm_cascade.schedule.gpu_alone import schedule_kernel_alone
from tvm_cascade.schedule.gpu_threads import GpuNest, Threads, staged_loads
from tvm_cascade.schedule.gpu_vectors import VECTORS
from tvm_cascade.schedule.nest_schedule import (
    Block,
    Deferred,
    Loop,
    loops_after_tiling,
    power_of_two_divisor,
    tile_rows,
)
from tvm_cascade.schedule.nests import BlockPlan, plan_alone
from tvm_cascade.schedule.roles import FusedLoop, read_fused_loops
from tvm_cascade.schedule.row_plan import contracted_row, reads_again
from tvm_cascade.transform.nest import GUARD, TILE_ROLES


def schedule_gpu(sch: s_tir.Schedule, gpu: Gpu) -> None:
    """Schedules a function for a CUDA GPU, in place; it may hold fused loops or none.

    Nests that could not be read, and those whose iterations depend on each other, are left alone:
    `launch_serial` gives them to a thread afterwards.

    Parameters
    ----------
    sch : over a module whose "main" function came from the rewrite, or is a program of plain nests. It should own its
        module: TVM's Schedule may write into the very function that it was given.
    gpu : whose threads, registers and shared memory nests are cut for.
    """
    deferred = Deferred()
    func = sch.mod["main"]
    alone = {plan.name: (plan, 0) for plan in plan_alone(func)}
    for loop in read_fused_loops(func):
        plan = plan_kernel(func, loop, gpu)
        if plan is None:
            alone |= {nest.name: (nest, loop.outer) for nest in loop.blocks}
            continue
        for nest in (*loop.blocks, *plan.after):
            alone.pop(nest.name)
        _Kernel(sch, gpu, deferred, loop, plan).run()
    for nest, outer in alone.values():
        if nest.independent or nest.role in (GUARD, VECTORS):
            schedule_kernel_alone(sch, gpu, deferred, nest, outer)
    deferred.apply(sch)


class _Kernel:
    """One fused loop as one kernel."""

    def __init__(self, sch: s_tir.Schedule, gpu: Gpu, deferred: Deferred, loop: FusedLoop, plan: KernelPlan) -> None:
        self.sch, self.gpu, self.deferred, self.loop, self.plan = sch, gpu, deferred, loop, plan
        self.room = gpu.static_shared_bytes - plan.shared
        self.nests = (*loop.blocks, *plan.after)
        self.inside = [store.buffer for nest in self.nests for store in nest.stores]
        self.order: dict[frozenset[int], tuple[int, ...]] = {}
        self.copies: list[tuple[BlockPlan, Block]] = []

    def run(self) -> None:
        sch = self.sch
        self._copy_out()
        copies = [plan for plan, _ in self.copies]
        self._place()
        tasks = self._take_rows()
        loops = [self._loops_inside(nest) for nest in self.loop.blocks]
        for nest in (*self.plan.after, *copies):
            block = self._block(nest)
            sch.reverse_compute_at(block, tasks, preserve_unit_loops=True)
            loops.append(dict(zip(nest.own, sch.get_loops(block)[1:], strict=True)))
        sch.bind(tasks, "blockIdx.x")
        for nest, own in zip((*self.nests, *copies), loops, strict=True):
            self._spread(nest, own)

    def _block(self, nest: BlockPlan) -> Block:
        """The block of a nest: TVM calls copies of buffers of one name alike."""
        return next((block for plan, block in self.copies if plan is nest), None) or self.sch.get_sblock(nest.name)

    def _copy_out(self) -> None:
        """What nests outside of the kernel read: they read copies, as threads exchange nothing in global memory."""
        for buffer, readers in readers_outside(self.sch.mod["main"], self.nests):
            index = next(k for k, region in enumerate(readers[0].reads) if region.source.same_as(buffer))
            handles = [self.sch.get_sblock(reader.name_hint) for reader in readers]
            block = self.sch.cache_read(handles[0], index, "global", handles)
            writer = next(nest for nest in self.nests for store in nest.stores if store.buffer.same_as(buffer))
            self.copies.append((_copy_plan(self.sch.get(block).name_hint, writer, buffer), block))

    def _take_rows(self) -> Loop:
        """The loop over blocks of rows, outside of everything."""
        if self.plan.row is not None:
            return tile_rows(self.sch, self.loop, self.plan.row, self.plan.rows)[0]
        outermost = self.sch.get_loops(self.sch.get_sblock(self.loop.blocks[0].name))[0]
        return outermost if self.loop.outer > 1 else self.sch.add_unit_loop(outermost)

    def _loops_inside(self, nest: BlockPlan) -> dict[int, Loop]:
        if self.plan.row is not None:
            return loops_after_tiling(self.sch, nest, self.loop, self.plan.row)
        return dict(zip(nest.own, self.sch.get_loops(self.sch.get_sblock(nest.name))[2:], strict=True))

    def _spread(self, plan: BlockPlan, loops: dict[int, Loop]) -> None:
        """Gives one nest's loops to the threads."""
        nest = GpuNest(self.sch, self.deferred, plan, self._block(plan), loops, self.plan.threads)
        family = family_of(plan, self.loop)
        columns = [loops[a] for a in self.order.setdefault(family, _in_order(plan, family))]
        row = loops[self.plan.row] if self.plan.row is not None else None
        if family not in self.plan.wide:
            nest.narrow(row, columns, not any(among(store.buffer, self.plan.in_registers) for store in plan.stores))
            return
        thread = nest.in_rectangles(row, columns, family in self.plan.summing)
        if plan.reduce and len(plan.stores) == 1 and not plan.binds:
            self._sum(nest, thread)

    def _sum(self, nest: GpuNest, thread: Loop) -> None:
        plan = nest.plan
        most = {a: plan.extents[a] for a in plan.own if isinstance(plan.extents[a], int)}
        most |= {a: self.plan.rows if a == self.plan.row else 1 for a in self.loop.rows}
        staged = staged_loads(plan, self.inside, self.room, most)
        self.room -= sum(size for _, size in staged)
        in_registers = among(plan.stores[0].buffer, self.plan.in_registers)
        nest.sum_rectangles(thread, [access for access, _ in staged], in_registers)

    def _place(self) -> None:
        """Registers or shared memory for everything that the kernel alone touches."""
        params = list(self.sch.mod["main"].params)
        for nest in self.nests:
            for position, store in enumerate(nest.stores):
                if not among(store.buffer, params):
                    in_registers = among(store.buffer, self.plan.in_registers)
                    self.sch.set_scope(
                        nest.name, self._write_index(nest, position), "local" if in_registers else "shared"
                    )

    def _write_index(self, nest: BlockPlan, position: int) -> int:
        name = nest.stores[position].buffer.name
        writes = self.sch.get(self.sch.get_sblock(nest.name)).writes
        return next(k for k, region in enumerate(writes) if region.source.name == name)


def _copy_plan(name: str, writer: BlockPlan, buffer: tirx.Var) -> BlockPlan:
    """The nest that copies a buffer, in the axes of the one that writes it: one loop for every dimension."""
    indices = next(store.indices for store in writer.stores if store.buffer.same_as(buffer))
    axes = [writer.axis_at(index) for index in indices]
    own = tuple(-1 - dim if axis is None else axis for dim, axis in enumerate(axes))  # segments are no axis of a nest
    extents = {axis: writer.extents.get(axis, 1) for axis in own}
    return BlockPlan(name, "finish", {}, own, extents, frozenset(), (), (), binds=False, independent=True)


def _in_order(nest: BlockPlan, family: frozenset[int]) -> tuple[int, ...]:
    return tuple(axis for axis in nest.own if axis in family)


# The plan of a fused loop as one GPU kernel: rows per block, thread shape, and the memory of every buffer.
#
# Rows go over threadIdx.y, in every nest alike. Nests over the same axes besides the rows are a *family*:
#
#     wide     its elements go over threadIdx.x, each at the same thread in all nests of the family
#     narrow   every thread along threadIdx.x computes all elements, or takes part in reducing each of them
#
# What only one wide family touches, and all that narrow ones write, is in registers; the rest is in shared memory.
# State is never there: TVM would put a barrier between its start and its update, within a condition on the thread.


CONTRACTED_ROWS = 64
"""Rows per block where a product reuses its other operand for all of them."""

SHORT_FOLD = 512
"""Positions per tile up to which a warp folds a row by itself; longer ones take the whole block."""

Family = frozenset[int]


@dataclass(frozen=True)
class KernelPlan:
    """How a fused loop is spread over a GPU.

    Attributes
    ----------
    row : the axis that is cut; None where the loop has no rows.
    rows : of a block.
    threads : their shape.
    wide : families with elements for all threads along threadIdx.x.
    summing : those among them with reductions that each thread runs by itself.
    in_registers : buffers that live there.
    shared : bytes of shared memory that the others take.
    after : nests that follow the loop within the kernel.
    """

    row: int | None
    rows: int
    threads: Threads
    wide: frozenset[Family]
    summing: frozenset[Family]
    after: tuple[BlockPlan, ...]
    in_registers: list[tirx.Var] = field(default_factory=list)
    shared: int = 0


def family_of(plan: BlockPlan, loop: FusedLoop) -> Family:
    """The axes of a nest's result besides the rows."""
    return frozenset(plan.spatial) - frozenset(loop.rows)


def plan_kernel(func: tirx.PrimFunc, loop: FusedLoop, gpu: Gpu) -> KernelPlan | None:
    """The plan for a loop; None where it has no place on one block of threads: it then runs nest by nest."""
    params = list(func.params)
    if any(among(store.buffer, params) for plan in loop.blocks for store in plan.stores):
        return None  # threads exchange nothing through global memory
    if not all(isinstance(plan.extents[a], int) for plan in loop.blocks for a in family_of(plan, loop)):
        return None
    after = _following(loop, params)
    rows = _most_rows(loop, gpu)
    while True:
        plan = _with_rows(loop, gpu, rows, after, params)
        if plan.shared <= gpu.static_shared_bytes and _registers(plan, loop) <= gpu.accumulators:
            return plan if _state_is_in_registers(plan, loop) else None
        if rows == 1:
            return None
        rows //= 2


def readers_outside(func: tirx.PrimFunc, nests: tuple[BlockPlan, ...]) -> list[tuple[tirx.Var, list[s_tir.SBlock]]]:
    """Buffers of these nests that others read as well, with the blocks that do; the caller's are left out."""
    own = {nest.name for nest in nests}
    outside = [n.block for n in read_nests(func) if n.block.name_hint not in own]
    found: list[tuple[tirx.Var, list[s_tir.SBlock]]] = []
    for buffer in (store.buffer for nest in nests for store in nest.stores):
        readers = [b for b in outside if any(region.source.same_as(buffer) for region in b.reads)]
        if readers and not among(buffer, list(func.params)):
            found.append((buffer, readers))
    return found


def _following(loop: FusedLoop, params: list[tirx.Var]) -> tuple[BlockPlan, ...]:
    """Nests after the loop that read nothing that other threads have just written to global memory."""
    kept: list[BlockPlan] = []
    outside: list[tirx.Var] = []
    for plan in loop.after:
        static = plan.role != GUARD and all(isinstance(plan.extents[a], int) for a in family_of(plan, loop))
        known = family_of(plan, loop) in {family_of(p, loop) for p in loop.blocks}
        if static and known and not any(among(access.buffer, outside) for access in plan.loads):
            kept.append(plan)
            outside += [s.buffer for s in plan.stores if among(s.buffer, params)]
        else:
            outside += [s.buffer for s in plan.stores]
    return tuple(kept)


def _most_rows(loop: FusedLoop, gpu: Gpu) -> int:
    """Rows per block, a power of two; one that divides them where there is no product to make up for idle threads."""
    if not loop.rows:
        return 1
    row = contracted_row(loop)
    extent = loop.blocks[0].extents[row]
    if not isinstance(extent, int):
        return 1  # TVM gives arrays of a guarded number of rows no constant size
    if any(family_of(plan, loop) and reads_again(plan, row) for plan in loop.blocks):
        rows = _padded(extent, gpu.threads // gpu.warp)
    else:
        most = gpu.threads // gpu.warp if _longest(loop) <= SHORT_FOLD else 1
        rows = power_of_two_divisor(extent, most)
    total = product(loop.blocks[0].extents[a] for a in loop.rows)
    while rows > gpu.threads // gpu.warp and isinstance(total, int) and total < gpu.processors * rows:
        rows //= 2
    return rows


def _padded(extent: int, warps: int) -> int:
    """Rows per block, where it is worth while to leave some of the last block's idle.

    Each of these is then a warp's: threads of one warp, and those that wait for each other, are idle together.
    """
    rows = CONTRACTED_ROWS
    while rows >= warps and -(-extent // rows) * rows * 4 > extent * 5:
        rows //= 2
    return rows if rows >= warps else power_of_two_divisor(extent, warps)


def _longest(loop: FusedLoop) -> int:
    """Positions that the longest reduction of a tile runs over."""
    return max(_number(product(plan.extents[a] for a in plan.reduce)) for plan in loop.blocks)


def _number(extent: Extent) -> int:
    """An extent, or one that is long, where it is not known."""
    return extent if isinstance(extent, int) else SHORT_FOLD + 1


def _with_rows(
    loop: FusedLoop, gpu: Gpu, rows: int, after: tuple[BlockPlan, ...], params: list[tirx.Var]
) -> KernelPlan:
    down = min(rows, gpu.threads // gpu.warp)
    work = max(_longest(loop), *(_elements(family_of(p, loop), loop) for p in loop.blocks))
    across = gpu.warp
    while across * 2 <= min(gpu.threads // down, work):
        across *= 2
    families = {family_of(plan, loop) for plan in loop.blocks}
    wide = frozenset(family for family in families if _elements(family, loop) * 2 >= across)
    sums = [plan for plan in loop.blocks if plan.reduce and family_of(plan, loop) in wide]
    summing = frozenset(family_of(plan, loop) for plan in sums)
    row = contracted_row(loop) if loop.rows else None
    plan = KernelPlan(row, rows, Threads(down, across), wide, summing, after)
    own = [s.buffer for nest in (*loop.blocks, *after) for s in nest.stores if not among(s.buffer, params)]
    in_registers = [buffer for buffer in own if _can_hold(buffer, plan, loop)]
    shared = sum(_bytes(buffer, plan, loop) for buffer in own if not among(buffer, in_registers))
    return replace(plan, in_registers=in_registers, shared=shared)


def _elements(family: Family, loop: FusedLoop) -> int:
    """Of one row; the family's extents are numbers."""
    plan = next(plan for plan in loop.blocks if family_of(plan, loop) == family)
    return _number(product(plan.extents[a] for a in family))


def _can_hold(buffer: tirx.Var, plan: KernelPlan, loop: FusedLoop) -> bool:
    """Whether each thread finds in its own registers what it reads of a buffer."""
    writer = _writer(buffer, plan, loop)
    family = family_of(writer, loop)
    if family not in plan.wide:
        return True
    if family not in plan.summing:
        return False
    for nest in (*loop.blocks, *plan.after):
        places = [access.indices for access in nest.loads if access.buffer.same_as(buffer)]
        if places and family_of(nest, loop) != family:
            return False
        if any(not family <= {nest.axis_at(index) for index in indices} for indices in places):
            return False
    return True


def _writer(buffer: tirx.Var, plan: KernelPlan, loop: FusedLoop) -> BlockPlan:
    return next(p for p in (*loop.blocks, *plan.after) for s in p.stores if s.buffer.same_as(buffer))


def _state_is_in_registers(plan: KernelPlan, loop: FusedLoop) -> bool:
    states = [store.buffer for nest in loop.blocks if nest.role not in TILE_ROLES for store in nest.stores]
    return all(among(buffer, plan.in_registers) for buffer in states)


def _bytes(buffer: tirx.Var, plan: KernelPlan, loop: FusedLoop) -> int:
    elements = _elements(family_of(_writer(buffer, plan, loop), loop), loop) * plan.rows
    return elements * tvm.DataType(str(buffer.ty.dtype)).itemsize


def _registers(plan: KernelPlan, loop: FusedLoop) -> int:
    """Of a thread, for the arrays that it holds, and for one more result of each family while that is summed."""
    own, total = plan.rows // plan.threads.down, 0
    for family in (*plan.summing, *(family_of(_writer(b, plan, loop), loop) for b in plan.in_registers)):
        each = own * _elements(family, loop)
        each = -(-each // plan.threads.across) if family in plan.wide else each
        total += each if each > own else 0  # scalars of a row come and go
    return total


# Nests that may not run in parallel, on a GPU: one thread runs each serially.
#
# nest   ->   for blockIdx.x in 1: for threadIdx.x in 1: nest
#
# TVM's Schedule refuses to bind a loop around a block that it cannot classify, so this is a rewrite of the function.


def launch_serial(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with each nest that no thread is bound in as a kernel of one.

    It is the very one that came in where there is no such nest, or anything but nests in its root block.
    """
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    nests = statements_of(func)
    if not all(isinstance(nest, (tirx.For, s_tir.SBlockRealize)) for nest in nests):
        return func
    launched = [nest if _is_bound(nest) else _launched(nest) for nest in nests]
    if all(new is old for new, old in zip(launched, nests, strict=True)):
        return func
    return with_root(func, launched)


def _is_bound(nest: tirx.Stmt) -> bool:
    launches = any(note.attr_key == "thread_extent" for note in within(nest, tirx.AttrStmt))  # as TVM's sorting says it
    return launches or any(loop.thread_binding is not None for loop in within(nest, tirx.For))


def _launched(nest: tirx.Stmt) -> tirx.Stmt:
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    for thread in ("threadIdx.x", "blockIdx.x"):
        bound = tirx.IterVar(ir.Range(zero, one), tirx.Var(thread, "int32"), tirx.IterVar.ThreadIndex, thread)
        nest = tirx.For(tirx.Var("one", "int32"), zero, one, tirx.ForKind.THREAD_BINDING, nest, bound)
    return nest
