"""Emits a product for CUDA cores: a ring of stages of k in shared memory, a register tile per thread.

    for stage of k:
        start the copies of a later stage
        for k of the thread's slice of the stage:
            read the fragments of the next k, from the next stage once that is there
            sums += left fragment ⊗ right fragment
    add the sums of all slices; store maps of them

Source of the cut: register tiles of outer products, with warps of 8×4 threads whose reads of shared memory are
broadcast (Volkov and Demmel, 2008; Nath, Tomov and Dongarra, 2010).
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import ceil_div
from tvm_cascade.tile.emit import bind, digits, kernel_extent, named, ptx, put, registers, shared_pool, when
from tvm_cascade.tile.memory import Tensors
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.epilogue import Epilogue
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct
from tvm_cascade.tile.skeletons.simt.tiles import Copies, Fragment

_SIDES = ("left", "right")


class CoreKernel:
    """Emits the kernel of a product."""

    def __init__(self, shape: CoreProduct, config: CoreConfig) -> None:
        self.shape, self.config, self.layouts = shape, config, config.layouts(shape)

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            self.tensors = Tensors.declared(self.shape.terms.program.params)
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": self.config.resident}):
                self._places()
                self._shared()
                self._sum()
                self._store()
        return builder.get()

    def _places(self) -> None:
        """The thread's block, its tile of the result and its place in the batch; and the thread's part of that."""
        shape, config = self.shape, self.config
        down = kernel_extent(ceil_div(shape.rows, config.rows.block))
        across = kernel_extent(ceil_div(shape.columns, config.columns.block))
        block = named("block", T.cta_id([down * across * kernel_extent(shape.places)]))
        self.thread = named("thread", T.thread_id([config.threads]))
        tile, rest = bind("tile", block % (down * across)), block // (down * across)
        self.firsts = (
            bind("first_row", tile // across * config.rows.block),
            bind("first_column", tile % across * config.columns.block),
        )
        self.batch = digits(rest, shape.batch, self.shape.extent)
        warp, lane = bind("warp", self.thread // WARP), bind("lane", self.thread % WARP)
        inside = warp % (config.rows.warps * config.columns.warps)
        self.slice = bind("slice", warp // (config.rows.warps * config.columns.warps))
        self.warps = (
            bind("row_warp", inside // config.columns.warps),
            bind("column_warp", inside % config.columns.warps),
        )
        eight, four = lane // 2 % 8, lane % 2 + lane // 16 * 2  # so that half a warp reads eight vectors of either side
        lanes = (eight, four) if config.rows.lanes == 8 else (four, eight)
        self.lanes = bind("row_lane", lanes[0]), bind("column_lane", lanes[1])

    def _shared(self) -> None:
        """Shared memory, what the thread reads of it, and what it copies to it."""
        shape, config, pool = self.shape, self.config, shared_pool()
        self.memory = named("tiles", pool.alloc((config.shared_elements(shape),), shape.dtype, align=128))
        pool.commit()
        starts = 0, config.stages * self.layouts[0].elements
        part = self.slice * (config.depth // config.slices)
        self.fragments = [
            Fragment(name, layout, cut, self.memory, start, warp, lane, part, 1 + config.ahead)
            for name, layout, cut, start, warp, lane in zip(
                _SIDES, self.layouts, config.cuts, starts, self.warps, self.lanes, strict=True
            )
        ]
        self.copies = []
        sides = zip(_SIDES, shape.operands, self.layouts, starts, self.firsts, strict=True)
        for name, factor, layout, start, first in sides:
            source, shares = self.tensors.flat_of(factor.buffer), config.shares(factor, layout, shape)
            copies = Copies(name, source, factor, shape.depth, shares, first, self.memory, start, self.thread)
            self.copies.append(copies)

    def _sum(self) -> None:
        config, shape = self.config, self.shape
        count, ahead = config.rows.own * config.columns.own, config.stages - 1
        self.sums = registers("sums", count, shape.dtype)
        with T.unroll(count) as k:
            put(self.sums, k, tirx.const(0, shape.dtype))
        self.inner_steps = kernel_extent(ceil_div(shape.depth, config.depth))
        steps = bind("steps", self.inner_steps * kernel_extent(shape.outer))
        for number in range(ahead):
            stage = tirx.const(number, "int32")
            with when(stage < steps):
                for copies, moved, step in self._moved(stage):
                    copies.start(stage, moved, step)
                    for piece in copies.pieces:
                        copies.read(piece, moved, step)
                        copies.store(piece, stage)
            ptx("cp.async.commit_group")
        reading, filling = registers("reading", 1, "int32"), registers("filling", 1, "int32")
        put(reading, 0, T.int32(0))
        put(filling, 0, T.int32(ahead))
        if config.ahead:
            self._await(reading[0])
        with T.serial(steps) as step:
            following = bind("following_stage", tirx.Select(reading[0] == ahead, T.int32(0), reading[0] + 1))
            self._multiply((reading[0], following), filling[0], step + ahead, steps)
            put(filling, 0, reading[0])
            put(reading, 0, following)
        ptx("cp.async.wait_group", 0)

    def _moved(self, step: ir.Expr) -> list[tuple[Copies, ir.Expr, ir.Expr]]:
        """Each operand's copies of a step, where its first is, and the step along the innermost sum."""
        at, outer = self.batch, self.shape.terms.outer
        if outer:
            number, step = step // self.inner_steps, bind("inner_step", step % self.inner_steps)
            at = {**at, **digits(number, outer, self.shape.extent)}
        operands = zip(self.copies, self.shape.operands, strict=True)
        return [(copies, copies.at_step(self.tensors.place(f.base, at), step), step) for copies, f in operands]

    def _await(self, stage: ir.Expr) -> None:
        """Waits for a stage, and reads the fragments of its first position."""
        ptx("cp.async.wait_group", self.config.stages - 2)
        T.evaluate(T.cuda.cta_sync())
        self._load(stage, 0)

    def _load(self, stage: ir.Expr, k: int) -> None:
        for fragment in self.fragments:
            fragment.load(stage, k)

    def _multiply(self, stages: tuple[ir.Expr, ir.Expr], filling: ir.Expr, later: ir.Expr, steps: ir.Expr) -> None:
        """Adds the products of the thread's part of a stage, while the stage of a later step is copied.

        Copies through registers have no condition, which would take the products apart: past the last step they bring
        that again, to where nobody reads.

        Columns one by one, rows forth and back: of two products that follow one another, one operand is the same, which
        the register file then need not give again. It gives two of 32 bits a clock, one of even and one of odd number.
        """
        rows, columns = self.config.rows.own, self.config.columns.own
        left, right = self.fragments
        count = self.config.depth // self.config.slices
        if not self.config.ahead:
            self._await(stages[0])
        moved = self._moved(bind("copied_step", tirx.min(later, steps - 1)))
        with when(later < steps):
            for copies, place, step in moved:
                copies.start(filling, place, step)
        ptx("cp.async.commit_group")
        pieces = [
            (first, last, copies, piece, place, step)
            for copies, place, step in moved
            for first, last, piece in copies.places(count)
        ]
        for k in range(count):
            for first, _, copies, piece, place, step in pieces:
                if first == k:
                    copies.read(piece, place, step)
            if not self.config.ahead and k:
                self._load(stages[0], k)
            elif self.config.ahead and k + 1 == count:
                self._await(stages[1])
            elif self.config.ahead:
                self._load(stages[0], k + 1)
            for j in range(columns):
                for i in reversed(range(rows)) if columns > rows and j % 2 else range(rows):
                    at = i * columns + j
                    put(self.sums, at, self.sums[at] + left.of(k)[i] * right.of(k)[j])
            for _, last, copies, piece, _, _ in pieces:
                if last == k:
                    copies.store(piece, filling)

    def _store(self) -> None:
        """Stores the thread's sums, or its rows of those of all slices."""
        config, rows = self.config, self.config.rows.own // self.config.slices
        sums = self.sums if config.slices == 1 else self._of_all_slices()
        own = self.slice * rows if config.slices > 1 else 0
        Epilogue(self.shape, config, self.tensors, self.batch, self.firsts, self.fragments).emit(sums, rows, own)

    def _of_all_slices(self) -> Any:
        """Registers with the whole sums of a part of the thread's rows, of which every slice has another.

        Slices are summed in their order, through the shared memory that no copy writes any more.
        """
        config, memory = self.config, self.memory
        count, threads = config.rows.own * config.columns.own, config.slice_threads
        inside = self.thread % threads
        T.evaluate(T.cuda.cta_sync())
        with T.unroll(count) as k:
            put(memory, (self.slice * count + k) * threads + inside, self.sums[k])
        T.evaluate(T.cuda.cta_sync())
        part = count // config.slices
        whole = registers("whole", part, self.shape.dtype)
        with T.unroll(part) as k:
            put(whole, k, tirx.const(0, self.shape.dtype))
            with T.unroll(config.slices) as other:
                put(whole, k, whole[k] + memory[(other * count + self.slice * part + k) * threads + inside])
        return whole
