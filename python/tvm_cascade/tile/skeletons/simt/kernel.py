"""Emits a product for CUDA cores: a ring of stages of k in shared memory, a register tile per thread.

    for stage of k:
        start the copies of a later stage
        for k of the thread's slice of the stage:
            read the fragments of k
            sums += left fragment ⊗ right fragment
    add the sums of all slices; store maps of them

Source of the cut: register tiles of outer products, with warps of 8×4 threads whose reads of shared memory are
broadcast (Volkov and Demmel, 2008; Nath, Tomov and Dongarra, 2010).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import ceil_div, dtype_of
from tvm_cascade.tile.emit import bind, digits, kernel_extent, named, ptx, put, registers, shared_pool, when
from tvm_cascade.tile.fragment import TilePrinter
from tvm_cascade.tile.memory import VECTOR_BYTES, Tensors, itemsize
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.matrix import MatrixProduct, in_vectors
from tvm_cascade.tile.skeletons.simt.config import CoreConfig
from tvm_cascade.tile.skeletons.simt.tiles import Copies, Fragment
from tvm_cascade.transform.printer import cast

_SIDES = ("left", "right")


class CoreKernel:
    """Emits the kernel of a product."""

    def __init__(self, shape: MatrixProduct, config: CoreConfig) -> None:
        self.shape, self.config, self.layouts = shape, config, config.layouts(shape)

    def build(self, name: str) -> tirx.PrimFunc:
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            self.tensors = Tensors.declared(self.shape.fold.program.params)
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
        down = kernel_extent(ceil_div(shape.left.line.extent, config.rows.block))
        across = kernel_extent(ceil_div(shape.right.line.extent, config.columns.block))
        block = named("block", T.cta_id([down * across * kernel_extent(shape.extent(*shape.batch))]))
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
        shape, config, pool = self.shape, self.config, shared_pool()
        self.memory = named("tiles", pool.alloc((config.shared_elements(shape),), shape.dtype, align=128))
        pool.commit()
        starts = 0, config.stages * self.layouts[0].elements
        part = self.slice * (config.depth // config.slices)
        self.fragments = [
            Fragment(name, layout, cut, self.memory, start, warp, lane, part)
            for name, layout, cut, start, warp, lane in zip(
                _SIDES, self.layouts, config.cuts, starts, self.warps, self.lanes, strict=True
            )
        ]
        self.copies = []
        sides = zip(_SIDES, shape.sides, self.layouts, starts, self.firsts, strict=True)
        for name, side, layout, start, first in sides:
            source, shares = self.tensors.flat_of(side.load.source), config.shares(side, layout, shape)
            copies = Copies(name, source, side, shape.inner.extent, shares, first, self.memory, start, self.thread)
            self.copies.append(copies)

    def _sum(self) -> None:
        config, shape = self.config, self.shape
        count, ahead = config.rows.own * config.columns.own, config.stages - 1
        self.sums = registers("sums", count, shape.dtype)
        with T.unroll(count) as k:
            put(self.sums, k, tirx.const(0, shape.dtype))
        self.inner_steps = kernel_extent(ceil_div(shape.inner.extent, config.depth))
        steps = self.inner_steps * kernel_extent(shape.extent(*shape.outer))
        if shape.where is not None:
            steps = tirx.Select(self.tensors.place(shape.where, self.batch), steps, T.int32(0))
        steps = bind("steps", steps)
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
        with T.serial(steps) as step:
            following = bind("following_stage", tirx.Select(reading[0] == ahead, T.int32(0), reading[0] + 1))
            self._multiply(reading[0], filling[0], step + ahead, steps)
            put(filling, 0, reading[0])
            put(reading, 0, following)
        ptx("cp.async.wait_group", 0)

    def _moved(self, step: ir.Expr) -> list[tuple[Copies, ir.Expr, ir.Expr]]:
        """Each operand's copies of a step, where its first is, and the step along the innermost sum."""
        at, outer = self.batch, self.shape.outer
        if outer:
            number, step = step // self.inner_steps, bind("inner_step", step % self.inner_steps)
            at = {**at, **digits(number, outer, self.shape.extent)}
        operands = zip(self.copies, self.shape.sides, strict=True)
        return [(copies, copies.at_step(self.tensors.place(f.base, at), step), step) for copies, f in operands]

    def _multiply(self, stage: ir.Expr, filling: ir.Expr, later: ir.Expr, steps: ir.Expr) -> None:
        """Adds the products of the thread's part of a stage, while the stage of a later step is copied.

        Copies through registers have no condition, which would take the products apart: past the last step they bring
        that again, to where nobody reads.

        Columns one by one, rows forth and back: of two products that follow one another, one operand is the same, which
        the register file then need not give again. It gives two of 32 bits a clock, one of even and one of odd number.
        """
        rows, columns = self.config.rows.own, self.config.columns.own
        left, right = self.fragments
        count = self.config.depth // self.config.slices
        ptx("cp.async.wait_group", self.config.stages - 2)
        T.evaluate(T.cuda.cta_sync())
        self._load(stage, 0)
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
            if k:
                self._load(stage, k)
            for j in range(columns):
                for i in reversed(range(rows)) if columns > rows and j % 2 else range(rows):
                    at = i * columns + j
                    put(self.sums, at, self.sums[at] + left.registers[i] * right.registers[j])
            for _, last, copies, piece, _, _ in pieces:
                if last == k:
                    copies.store(piece, filling)

    def _load(self, stage: ir.Expr, k: int) -> None:
        for fragment in self.fragments:
            fragment.load(stage, k)

    def _store(self) -> None:
        shape, config, count = self.shape, self.config, self._together()
        rows, own, (left, right) = config.rows.own // config.slices, 0, self.fragments
        if config.slices > 1:
            self.sums, own = self._of_all_slices(), self.slice * rows
        for i in range(rows):
            row = bind("row", self.firsts[0] + left.index(own + i))
            with _inside(row, shape.left.line.extent, config.rows.block):
                for j in range(0, config.columns.own, count):
                    column = bind("column", self.firsts[1] + right.index(j))
                    with _inside(column, shape.right.line.extent, config.columns.block):
                        for output in shape.outputs:
                            self._store_output(output, i, j, row, column, count)

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

    def _together(self) -> int:
        layout, extent = self.fragments[1].layout, self.shape.right.line.extent
        whole = isinstance(extent, int) and extent % layout.vector == 0
        return layout.vector if whole else max(output.every for output in self.shape.outputs)

    def _store_output(self, output: Output, i: int, j: int, row: ir.Expr, column: ir.Expr, count: int) -> None:
        width = min(count, VECTOR_BYTES // itemsize(dtype_of(output.buffer)))
        own = self.tensors.own[output.buffer]
        if width == 1 or output.part or not in_vectors(output, self.shape.right.line, width):
            for e in range(0, count, output.every):
                with self._where(output, row, column + e):
                    value = self._value(output, i, j + e, row, column + e)
                    T.buffer_store(own, value, self._indices(output, row, column + e))
            return
        staged = registers(f"{output.buffer.name}_stored", count, dtype_of(output.buffer))
        for e in range(count):
            put(staged, e, self._value(output, i, j + e, row, column + e))
        for part in range(0, count, width):
            indices = self._indices(output, row, column + part)
            last = tirx.floordiv(indices[-1], width) * width
            source = tirx.Ramp(tirx.const(part, "int32"), tirx.const(1, "int32"), width)
            target = [*indices[:-1], tirx.Ramp(last, tirx.const(1, dtype_of(last)), width)]
            T.buffer_store(own, tirx.BufferLoad(staged, [source]), target)

    def _where(self, output: Output, row: ir.Expr, column: ir.Expr) -> Any:
        """Around what is stored for a row and a column, where the output may have no element for them."""
        conditions = [self._at(condition, row, column) for condition in output.part]
        return when(tirx.all(*conditions)) if conditions else nullcontext()

    def _at(self, expression: ir.Expr, row: ir.Expr, column: ir.Expr) -> ir.Expr:
        places = {**self.batch, **self.shape.left.line.places(row), **self.shape.right.line.places(column)}
        return self.tensors.place(expression, places)

    def _indices(self, output: Output, row: ir.Expr, column: ir.Expr) -> list[ir.Expr]:
        return [self._at(index, row, column) for index in output.indices]

    def _value(self, output: Output, i: int, j: int, row: ir.Expr, column: ir.Expr) -> ir.Expr:
        shape, (only,), first = self.shape, self.shape.sums, i * self.config.columns.own + j

        def finished(result: sp.Symbol, beyond: int) -> ir.Expr:
            return TilePrinter({only.state: self.sums[first + beyond]}, shape.dtype, {})(shape.finishes[result])

        return cast(self._at(shape.finished(output, finished), row, column), dtype_of(output.buffer))


def _inside(place: ir.Expr, extent: Any, block: int) -> Any:
    """Around what is stored at a row or a column of a tile."""
    whole = isinstance(extent, int) and extent % block == 0
    return nullcontext() if whole else when(place < kernel_extent(extent))
