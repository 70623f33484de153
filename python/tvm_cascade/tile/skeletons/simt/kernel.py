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

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import ceil_div
from tvm_cascade.tile.emit import bind, kernel_extent, named, put, registers, shared_pool, when
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.copies import Copies, Range, commit, wait
from tvm_cascade.tile.skeletons.simt.epilogue import Epilogue
from tvm_cascade.tile.skeletons.simt.place import Parameters, Place
from tvm_cascade.tile.skeletons.simt.shape import CoreProduct, Factor
from tvm_cascade.tile.skeletons.simt.shared import Fragment, Layout
from tvm_cascade.tile.skeletons.simt.slices import merged_slices
from tvm_cascade.tile.skeletons.simt.staged import StagedCopies, is_staged

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
        shape, config, pool = self.shape, self.config, shared_pool()
        self.memory = named("tiles", pool.alloc((config.shared_elements(shape),), shape.dtype, align=128))
        pool.commit()
        starts = 0, config.stages * self.layouts[0].elements
        part = self.place.slice * (config.depth // config.slices)
        self.fragments = [
            Fragment(name, layout, cut, self.memory, start, warp, lane, part, 1 + config.ahead)
            for name, layout, cut, start, warp, lane in zip(
                _SIDES, self.layouts, config.cuts, starts, self.place.warps, self.place.lanes, strict=True
            )
        ]
        self.copies = [
            self._copies(name, factor, layout, start, first)
            for name, factor, layout, start, first in zip(
                _SIDES, shape.operands, self.layouts, starts, self.place.firsts, strict=True
            )
        ]

    def _copies(self, name: str, factor: Factor, layout: Layout, start: int, first: ir.Expr) -> Copies:
        depth = self.shape.depth
        shares = self.config.shares(factor, layout, self.shape)
        part = Range.of(first, factor.line.extent, depth, layout)
        kind = StagedCopies if is_staged(factor, shares, self.shape.dtype) else Copies
        source = self.parameters.flat(factor.buffer)
        return kind(name, source, factor, shares, self.memory, start, part, self.place.thread)

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
                    if isinstance(copies, StagedCopies):
                        for piece in copies.pieces:
                            copies.read(piece, moved, step)
                            copies.store(piece, stage)
                    else:
                        copies.start(stage, moved, step)
            commit()
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
        wait(0)

    def _moved(self, step: ir.Expr) -> list[tuple[Copies, ir.Expr, ir.Expr]]:
        """Each operand's copies of a step, where its first is, and the step along the innermost sum."""
        rest, at = step, {}
        if self.shape.terms.outer:
            rest, step = step // self.inner_steps, bind("inner_step", step % self.inner_steps)
        for var in reversed(self.shape.terms.outer):
            extent = kernel_extent(self.shape.extent(var))
            at[var] = bind(var.name, rest % extent)
            rest = rest // extent
        operands = zip(self.copies, self.shape.operands, strict=True)
        return [(copies, copies.at_step(self.place.at(f.base, at), step), step) for copies, f in operands]

    def _await(self, stage: ir.Expr) -> None:
        """Waits for a stage, and reads the fragments of its first position."""
        wait(self.config.stages - 2)
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
                if not isinstance(copies, StagedCopies):
                    copies.start(filling, place, step)
        commit()
        pieces = [
            (first, last, copies, piece, place, step)
            for copies, place, step in moved
            if isinstance(copies, StagedCopies)
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
        if config.slices > 1:
            self.sums = merged_slices(self.memory, self.sums, config, self.place.thread, self.place.slice)
        Epilogue(self.shape, config, self.place, self.fragments, self.sums, rows).emit()
