"""The S-TIR schedule of a function for GPUs, without tensor cores: fused loops and plain nests.

blockIdx.x for block of rows:
    for tile: every nest over all threads of the block; state in registers or shared memory
    finish

A fused loop that no block of threads has room for, and every nest outside of fused loops, is a kernel by itself.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from tvm_cascade.devices.device import Gpu
from tvm_cascade.schedule.cpu_tiling import loops_after_tiling, tile_rows
from tvm_cascade.schedule.gpu_alone import schedule_kernel_alone
from tvm_cascade.schedule.gpu_plan import KernelPlan, family_of, is_any, plan_kernel, readers_outside
from tvm_cascade.schedule.gpu_product import Rectangle, schedule_product, staged_loads, take_rectangle
from tvm_cascade.schedule.gpu_threads import Late, crosses, schedule_narrow
from tvm_cascade.schedule.gpu_vectors import VECTORS
from tvm_cascade.schedule.nest_schedule import Block, Loop
from tvm_cascade.schedule.nests import BlockPlan, plan_alone
from tvm_cascade.schedule.roles import FusedLoop, read_fused_loops
from tvm_cascade.transform.nest import GUARD

__all__ = ["schedule_gpu"]


def schedule_gpu(sch: s_tir.Schedule, gpu: Gpu) -> None:
    """Schedules a function for a CUDA GPU, in place; it may hold fused loops or none.

    Nests that could not be read, and those whose iterations depend on each other, are left alone:
    `gpu_serial.launch_serial` gives them to a thread afterwards.

    Parameters
    ----------
    sch : over a module whose "main" function came from the rewrite, or is a program of plain nests. It should own its
        module: TVM's Schedule may write into the very function that it was given.
    gpu : whose threads, registers and shared memory nests are cut for.
    """
    late = Late()
    func = sch.mod["main"]
    alone = {plan.name: (plan, 0) for plan in plan_alone(func)}
    for loop in read_fused_loops(func):
        plan = plan_kernel(func, loop, gpu)
        if plan is None:
            alone |= {nest.name: (nest, loop.outer) for nest in loop.blocks}
            continue
        for nest in (*loop.blocks, *plan.after):
            alone.pop(nest.name)
        _Kernel(sch, gpu, late, loop, plan).run()
    for nest, outer in alone.values():
        if nest.independent or nest.role in (GUARD, VECTORS):
            schedule_kernel_alone(sch, gpu, late, nest, outer)
    late.apply(sch)


class _Kernel:
    """One fused loop as one kernel."""

    def __init__(self, sch: s_tir.Schedule, gpu: Gpu, late: Late, loop: FusedLoop, plan: KernelPlan) -> None:
        self.sch, self.gpu, self.late, self.loop, self.plan = sch, gpu, late, loop, plan
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
            return tile_rows(self.sch, self.loop, self.plan.row, self.plan.rows).tasks
        outermost = self.sch.get_loops(self.sch.get_sblock(self.loop.blocks[0].name))[0]
        return outermost if self.loop.outer > 1 else self.sch.add_unit_loop(outermost)

    def _loops_inside(self, nest: BlockPlan) -> dict[int, Loop]:
        if self.plan.row is not None:
            return loops_after_tiling(self.sch, nest, self.loop, self.plan.row)
        return dict(zip(nest.own, self.sch.get_loops(self.sch.get_sblock(nest.name))[2:], strict=True))

    def _spread(self, nest: BlockPlan, loops: dict[int, Loop]) -> None:
        """Gives one nest's loops to the threads."""
        sch, threads, block = self.sch, self.plan.threads, self._block(nest)
        family = family_of(nest, self.loop)
        columns = [loops[a] for a in self.order.setdefault(family, _in_order(nest, family))]
        row = loops[self.plan.row] if self.plan.row is not None else None
        reduced = [loops[a] for a in nest.own if a in nest.reduce]
        if family not in self.plan.wide:
            once = not any(is_any(store.buffer, self.plan.in_registers) for store in nest.stores)
            schedule_narrow(sch, threads, self.late, block, row, columns, reduced, crosses(sch, nest, block), once)
            return
        rectangle = take_rectangle(sch, threads, self.late, row, columns, reduced, family in self.plan.summing)
        if reduced:
            self._sum(nest, block, rectangle, reduced)

    def _sum(self, nest: BlockPlan, block: Block, rectangle: Rectangle, reduced: list[Loop]) -> None:
        if len(nest.stores) > 1 or nest.binds:
            return
        in_registers = is_any(nest.stores[0].buffer, self.plan.in_registers)
        most = {a: nest.extents[a] for a in nest.own if isinstance(nest.extents[a], int)}
        most |= {a: self.plan.rows if a == self.plan.row else 1 for a in self.loop.rows}
        staged = staged_loads(nest, self.inside, self.room, most)
        self.room -= sum(size for _, size in staged)
        accesses = [access for access, _ in staged]
        schedule_product(
            self.sch, self.plan.threads, self.late, nest, block, rectangle, reduced, accesses, in_registers
        )

    def _place(self) -> None:
        """Registers or shared memory for everything that the kernel alone touches."""
        params = list(self.sch.mod["main"].params)
        for nest in self.nests:
            for position, store in enumerate(nest.stores):
                if not is_any(store.buffer, params):
                    in_registers = is_any(store.buffer, self.plan.in_registers)
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
