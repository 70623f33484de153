"""Emits a product for CUDA cores: a ring of stages of k in shared memory, a register tile per thread.

    for stage of k:
        wait for the stage; start the copies of a later one
        for k of the thread's slice of the stage:
            left, right = fragments of the thread's rows and columns
            sums += left ⊗ right
    add the sums of all slices; store maps of them

Source of the cut: register tiles of outer products, with warps of 8×4 threads whose reads of shared memory are
broadcast (Volkov and Demmel, 2008; Nath, Tomov and Dongarra, 2010).
"""

from __future__ import annotations

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import ceil_div
from tvm_cascade.tile.emit import bind, kernel_extent, named, put, registers, when
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.copies import Copies, Range, commit, wait
from tvm_cascade.tile.skeletons.simt.epilogue import Epilogue
from tvm_cascade.tile.skeletons.simt.place import Parameters, Place
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct, Factor
from tvm_cascade.tile.skeletons.simt.shared import Fragment
from tvm_cascade.tile.skeletons.simt.slices import merged_slices

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
            self.parameters = Parameters(self.shape)
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": self.config.resident}):
                self.place = Place(self.shape, self.config, self.parameters)
                self._shared()
                self._sum()
                self._store()
        return builder.get()

    def _shared(self) -> None:
        """Shared memory, what the thread reads of it, and what it copies to it."""
        shape, config, pool = self.shape, self.config, T.SMEMPool()
        self.memory = named("tiles", pool.alloc((config.shared_elements(shape),), shape.dtype, align=128))
        pool.commit()
        starts = 0, config.stages * self.layouts[0].elements
        part = self.place.slice * (config.depth // config.slices)
        self.fragments = [
            Fragment(name, layout, cut, self.memory, start, warp, lane, part)
            for name, layout, cut, start, warp, lane in zip(
                _SIDES, self.layouts, config.cuts, starts, self.place.warps, self.place.lanes, strict=True
            )
        ]
        self.copies = [
            Copies(
                name,
                self.parameters.flat(factor.buffer),
                factor,
                layout,
                self.memory,
                start,
                self._range(first, factor, cut.block),
                shape.depth,
                self.place.thread,
                config.threads,
            )
            for name, factor, layout, start, first, cut in zip(
                _SIDES, shape.operands, self.layouts, starts, self.place.firsts, config.cuts, strict=True
            )
        ]

    @staticmethod
    def _range(first: ir.Expr, factor: Factor, block: int) -> Range:
        extent = factor.line.extent
        return Range(first, kernel_extent(extent), isinstance(extent, int) and extent % block == 0)

    def _sum(self) -> None:
        config, shape = self.config, self.shape
        count, ahead = config.rows.own * config.columns.own, config.stages - 1
        self.sums = registers("sums", count, shape.dtype)
        with T.unroll(count) as k:
            put(self.sums, k, tirx.const(0, shape.dtype))
        self.inner_steps = kernel_extent(ceil_div(shape.depth, config.depth))
        steps = bind("steps", self.inner_steps * kernel_extent(shape.outer))
        for stage in range(ahead):
            with when(stage < steps):
                self._start(tirx.const(stage, "int32"), tirx.const(stage, "int32"))
                self._finish(tirx.const(stage, "int32"))
            commit()
        reading, filling = registers("reading", 1, "int32"), registers("filling", 1, "int32")
        put(reading, 0, T.int32(0))
        put(filling, 0, T.int32(ahead))
        with T.serial(steps) as step:
            wait(config.stages - 2)
            T.evaluate(T.cuda.cta_sync())
            with when(step + ahead < steps):
                self._start(filling[0], step + ahead)
            commit()
            self._multiply(reading[0])
            if any(copies.is_converted for copies in self.copies):
                with when(step + ahead < steps):
                    self._finish(filling[0])
            for stage in (reading, filling):
                put(stage, 0, tirx.Select(stage[0] == ahead, T.int32(0), stage[0] + 1))
        wait(0)

    def _start(self, stage: ir.Expr, step: ir.Expr) -> None:
        """Starts the copies of a step along k, and before that along the outer sums."""
        rest, at = step, {}
        if self.shape.terms.outer:
            rest, step = step // self.inner_steps, step % self.inner_steps
        for var in reversed(self.shape.terms.outer):
            extent = kernel_extent(self.shape.extent(var))
            at[var] = bind(var.name, rest % extent)
            rest = rest // extent
        for copies, factor in zip(self.copies, self.shape.operands, strict=True):
            copies.start(stage, self.place.at(factor.base, at), step)

    def _finish(self, stage: ir.Expr) -> None:
        for copies in self.copies:
            copies.finish(stage)

    def _multiply(self, stage: ir.Expr) -> None:
        """Adds the products of the thread's part of a stage.

        Columns one by one, rows forth and back: of two products that follow one another, one operand is the same, which
        the register file then need not give again. It gives two of 32 bits a clock, one of even and one of odd number.
        """
        rows, columns = self.config.rows.own, self.config.columns.own
        back_and_forth = columns > rows
        left, right = self.fragments
        for k in range(self.config.depth // self.config.slices):
            for fragment in self.fragments:
                fragment.load(stage, k)
            for j in range(columns):
                for i in reversed(range(rows)) if back_and_forth and j % 2 else range(rows):
                    at = i * columns + j
                    put(self.sums, at, self.sums[at] + left.registers[i] * right.registers[j])

    def _store(self) -> None:
        """Stores the thread's sums, or its rows of those of all slices."""
        config, rows = self.config, self.config.rows.own // self.config.slices
        if config.slices > 1:
            self.sums = merged_slices(self.memory, self.sums, config, self.place.thread, self.place.slice)
        Epilogue(self.shape, config, self.place, self.fragments, self.sums, rows).emit()
