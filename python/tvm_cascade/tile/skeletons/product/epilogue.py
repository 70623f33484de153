"""The epilogue of a product kernel: maps of the sums, and stores, box by box while earlier boxes are on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, branches, kernel_extent, ptx, put, when
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, DTYPE, NEIGHBOURS, QUAD, ROWS, TilePrinter, placed
from tvm_cascade.tile.hopper.barrier import cluster_arrive, in_block
from tvm_cascade.tile.hopper.copy import BOX_BYTES, CHUNK, TensorMap
from tvm_cascade.tile.hopper.driver import Initialised
from tvm_cascade.tile.hopper.stores import BOX_COLUMNS, CHUNK_COLUMNS, BulkStores, MatrixStore, store_pair
from tvm_cascade.tile.merge.cluster import COPY, PartsOfSums
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import STORED_BYTES
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES, ProductConfig
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.raster import Tile, ends_with
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads


class Epilogue:
    """What consumers do with the sums of a tile.

    Attributes
    ----------
    meets_late : blocks of a cluster wait for each other before they send sums, not before they copy operands.
    """

    copies: Mapping[tirx.Var, TensorMap] = MappingProxyType({})
    meets_late = False

    def declare(self) -> None:
        """Declares what a thread keeps from the start on."""

    def allocate(self, pool: Any, rank: ir.Expr | int) -> None:
        """Shared memory, of a block of that rank in its cluster."""

    def barriers(self) -> list[Initialised]:
        """What one thread initialises."""
        return []

    def start(self, index: ir.Expr, threads: Threads) -> None:
        """Emits what a consumer does before its first tile."""

    def emit(self, tile: Any, sums: Sequence[Sequence[Any]], index: ir.Expr, threads: Threads) -> None:
        """Emits what becomes of a tile.

        Parameters
        ----------
        sums : for each 64 rows the registers of each sum of products.
        """
        raise NotImplementedError

    def drain(self, threads: Threads) -> None:
        """Emits what a consumer does after its last tile."""


class MapEpilogue(Epilogue):
    """Stores maps of the sums.

    Parameters
    ----------
    finished : (result, row of the thread's two, sums of its state at an element) -> its value, by formulas of sums by
        default.
    allocate_own : takes shared memory of whoever finishes results.
    """

    def __init__(
        self,
        feed: ProductFeed,
        finished: Callable[[sp.Symbol, int, Mapping[sp.Symbol, ir.Expr]], ir.Expr] | None = None,
        allocate_own: Callable[[Any], None] | None = None,
    ) -> None:
        self.feed, self.shape, self.config, self.buffers = feed, feed.shape, feed.config, feed.buffers
        self.finished, self.allocate_own = finished or self._of_sums, allocate_own
        self.copies = {
            buffer: TensorMap(operand, self.buffers[buffer], GROUP_ROWS, BOX_BYTES // operand.size)
            for buffer, operand in self.shape.tiled.items()
            if self.config.stores_boxes(operand)
        }
        self.by_rows = {one for one, operand in self.shape.by_rows.items() if self.config.stores_boxes(operand)}

    def allocate(self, pool: Any, rank: ir.Expr | int) -> None:
        """Shared memory for boxes that are on their way, [consumer, box, row, two bytes], and for partial sums."""
        if self.allocate_own is not None:
            self.allocate_own(pool)
        if self.copies or self.by_rows:
            shape = (self.config.consumers, self.config.staged, GROUP_ROWS, BOX_BYTES // STORED_BYTES)
            self.staging = pool.alloc(shape, "uint16", align=1024)
        arrays = self.config.own_rows // GROUP_ROWS * len(self.feed.rights)
        self.rank, self.partial = rank, PartialSums(self.config, arrays, pool) if self.config.splits > 1 else None

    def barriers(self) -> list[Initialised]:
        return [] if self.partial is None else [self.partial]

    @property
    def boxes(self) -> int:
        boxes = [copies.per_box for copies in self.copies.values()] + [BOX_COLUMNS] * len(self.by_rows)
        across = sum(-(-self.config.share // columns) for columns in boxes)
        return across * self.config.own_rows // GROUP_ROWS

    def emit(self, tile: Tile, sums: Sequence[Sequence[Any]], index: ir.Expr, threads: Threads) -> None:
        """Stores every output, of the block's columns where blocks of a cluster have parts of the sums."""
        if self.partial is not None:
            arrays = [array for of_part in sums for array in of_part]
            self.partial.exchange(arrays, index, self.rank, self.feed.memory, threads)
            tile = replace(tile, first_column=tile.first_column + self.rank * self.config.share)
        self.tile, self.index, self.threads, self.stored = tile, index, threads, 0
        self.stores, lane = BulkStores(threads, self.config.consumers, index, threads.leads), threads.lane
        self.lane_column = bind("lane_column", lane % 4 * 2)
        for part, registers_of in enumerate(sums):
            self.sums = registers_of
            self.first_row = bind("first_own_row", tile.first_row + index * self.config.own_rows + part * GROUP_ROWS)
            upper = bind("row", self.first_row + threads.warp * 16 + lane // 4)
            self.rows = (upper, upper + 8)
            self.inside = tuple(bind("inside_row", self.shape.left.line.inside(row)) for row in self.rows)
            for output in self.shape.outputs:
                if output.buffer in self.copies:
                    self._store_tile(output)
                elif output.buffer in self.by_rows:
                    self._store_rows(output)
                else:
                    self._store_elements(output)

    def drain(self, threads: Threads) -> None:
        with when(threads.leads):
            ptx("cp.async.bulk.wait_group", 0)
        if self.partial is not None:
            self.partial.leave()

    @staticmethod
    def within(place: ir.Expr, extent: Any) -> ir.Expr:
        """A place, or the last one where it is past the end: what is computed there is not stored."""
        return tirx.min(place, kernel_extent(extent) - 1)

    def _value(self, output: Output, row: int, column: ir.Expr, index: ir.Expr) -> ir.Expr:
        def finished(result: sp.Symbol, beyond: int) -> ir.Expr:
            states = zip(self.shape.sums, self.sums, strict=True)
            return self.finished(result, row, {one.state: sums[index + beyond] for one, sums in states})

        value = self.shape.finished(output, finished)
        return placed(value, self._places(self.inside[row], self._column(column)), self.buffers)

    def _of_sums(self, result: sp.Symbol, _: int, symbols: Mapping[sp.Symbol, ir.Expr]) -> ir.Expr:
        return TilePrinter(symbols, DTYPE, {})(self.shape.finishes[result])

    def _column(self, column: ir.Expr) -> ir.Expr:
        right, columns = self.shape.right, self.config.columns
        extent = right.line.extent
        whole = isinstance(extent, int) and (extent % columns == 0 or ends_with(right, columns))
        return column if whole else self.within(column, extent)

    def _places(self, row: ir.Expr, column: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        left, right = self.shape.left.line, self.shape.right.line
        return {**self.tile.batch, **left.places(row), **right.places(column)}

    def _store_elements(self, output: Output) -> None:
        """Every thread stores its own elements: pairs where the output has neighbours in even places."""
        columns = kernel_extent(self.shape.right.line.extent)
        paired = output.buffer in self.shape.paired
        for r in ROWS:
            row = self.rows[r]
            with when(self.shape.left.line.holds(row)), T.unroll(self.config.share // 8) as j:
                first = bind("stored_column", self.tile.first_column + j * 8 + self.lane_column)
                if paired:
                    with when(self._has(output, row, first, columns)):
                        target = self.buffers[output.buffer].ptr_to(self._indices(output, row, first))
                        pair = [self._value(output, r, first + e, j * 4 + 2 * r + e) for e in NEIGHBOURS]
                        store_pair(target, pair, dtype_of(output.buffer), "stored_pair")
                    continue
                for e in NEIGHBOURS[:: output.every]:
                    with when(self._has(output, row, first + e, columns)):
                        value = self._value(output, r, first + e, j * 4 + 2 * r + e)
                        T.buffer_store(self.buffers[output.buffer], value, self._indices(output, row, first + e))

    def _has(self, output: Output, row: ir.Expr, column: ir.Expr, columns: Any) -> ir.Expr:
        """Whether the output has an element for a row, which is inside, and a column."""
        places = self._places(row, column)
        return tirx.all(column < columns, *(placed(condition, places, self.buffers) for condition in output.part))

    def _indices(self, output: Output, row: ir.Expr, column: ir.Expr) -> list[ir.Expr]:
        return [placed(index, self._places(row, column), self.buffers) for index in output.indices]

    def _store_rows(self, output: Output) -> None:
        """Through shared memory, then by each warp its own sixteen rows, whose elements neighbouring lanes store."""
        warp, lane = self.threads.warp, self.threads.lane
        own, columns = self.buffers[output.buffer], kernel_extent(self.shape.right.line.extent)
        for slot, first in self._boxes_of(BOX_COLUMNS):
            self._leave_matrices(output, slot, first)
            T.evaluate(T.cuda.warp_sync())
            with T.unroll(16 * BOX_COLUMNS // WARP) as turn:
                row, at = warp * 16 + turn * WARP // BOX_COLUMNS, turn * WARP % BOX_COLUMNS + lane
                whole_row, column = self.first_row + row, self.tile.first_column + first + at
                there = self.shape.left.line.holds(whole_row)
                with when(tirx.And(there, self._has(output, whole_row, column, columns))):
                    swizzled = (at // CHUNK_COLUMNS ^ row % 8) * CHUNK_COLUMNS + at % CHUNK_COLUMNS
                    bits = self.staging[self.index, slot, row, swizzled]
                    indices = self._indices(output, whole_row, column)
                    T.buffer_store(own, tirx.reinterpret(dtype_of(output.buffer), bits), indices)
            with when(self.threads.leads):  # a group of no copies, as slots are counted by groups
                ptx("cp.async.bulk.commit_group")

    def _store_tile(self, output: Output) -> None:
        """Through shared memory, then by a bulk copy of each box that has elements of the output."""
        copies = self.copies[output.buffer]
        columns, width = copies.per_box, copies.operand.width
        for slot, first in self._boxes_of(columns):
            column = self.tile.first_column + first + output.shifted[1][-1]
            if not output.part:
                self._store_box(output, slot, first, column)
                continue
            with branches(tirx.all(column + columns > 0, column < width)) as (some, none):
                with some:
                    self._store_box(output, slot, first, column)
                with none, when(self.threads.leads):  # a group of no copies, as slots are counted by groups
                    ptx("cp.async.bulk.commit_group")

    def _store_box(self, output: Output, slot: int, first: int, column: ir.Expr) -> None:
        """A box of the tile's columns from `first` on, to a column of the output, by way of a slot."""
        copies = self.copies[output.buffer]
        places = {**self.tile.batch, **self.shape.left.line.corner(self.first_row)}
        fixed = {d: placed(copies.operand.indices[d], places, self.buffers) for d in copies.operand.fixed}

        if copies.size == STORED_BYTES:
            self._leave_matrices(output, slot, first)
        else:
            self._leave_pairs(output, slot, first, copies.per_box)
        with self.stores.copies():
            copies.store(self.staging.ptr_to([self.index, slot, 0, 0]), self.first_row, column, fixed)

    def _leave_matrices(self, output: Output, slot: int, first: int) -> None:
        """Leaves a box of two bytes an element in shared memory, swizzled as bulk copies read it."""

        def place(_: int, chunk: ir.Expr) -> ir.Expr:
            return self.staging.ptr_to([self.index, slot, self.stored_row, chunk * CHUNK_COLUMNS])

        matrices = MatrixStore(dtype_of(output.buffer), self.threads.lane)
        matrices.columns(first + BOX_COLUMNS, partial(self._element, output), place, first)

    def _leave_pairs(self, output: Output, slot: int, first: int, columns: int) -> None:
        """Leaves a box of float32 in shared memory, two elements at once, swizzled as bulk copies read it."""
        lane, per_pair = self.threads.lane, 2 * SUM_BYTES
        for j in range(columns // COLUMNS_PER_STEP):
            for r in ROWS:
                row = self.threads.warp * 16 + lane // QUAD + 8 * r
                chunk = (j * COLUMNS_PER_STEP * SUM_BYTES + lane % QUAD * per_pair) // CHUNK
                place = (chunk ^ (lane // QUAD)) * CHUNK + lane % 2 * per_pair
                target = self.staging.ptr_to([self.index, slot, row, place // STORED_BYTES])
                pair = [self._element(output, first // COLUMNS_PER_STEP + j, r, e) for e in NEIGHBOURS]
                ptx("st.shared.v2.f32", target, *pair)

    def _boxes_of(self, columns: int) -> Iterator[tuple[int, int]]:
        """Boxes of so many columns that cover the block's: a free slot for each, and the first of its columns."""
        self.stored_row = bind("stored_row", self.threads.warp * 16 + self.threads.lane % 16)
        for box in range(-(-self.config.share // columns)):
            # The last two overlap in an odd tile.
            yield self._free_slot(), min(box * columns, self.config.share - columns)

    def _free_slot(self) -> int:
        staged, number = self.config.staged, self.stored
        self.stored += 1
        in_turn = number >= staged or self.boxes % staged == 0
        self.stores.reuse(staged - 1 if in_turn else 0)
        return number % staged

    def _element(self, output: Output, j: int, row: int, e: int) -> ir.Expr:
        column = self.tile.first_column + j * 8 + self.lane_column + e
        return self._value(output, row, column, tirx.const(j * 4 + 2 * row + e, "int32"))


# Partial sums over parts of k, one part for each block of a cluster.


_VECTOR = 4
"""Sums that a thread stores at once."""


class PartialSums(PartsOfSums):
    """The exchange of partial sums."""

    def __init__(self, config: ProductConfig, arrays: int, pool: Any) -> None:
        self.config = config
        self.vectors = arrays * config.columns // 2 // config.splits // _VECTOR
        shape = (config.splits, config.consumers, self.vectors, WARP_GROUP, _VECTOR)
        self.bytes = self.vectors * WARP_GROUP * _VECTOR * SUM_BYTES  # that a consumer sends to each block
        super().__init__(pool, "partial_sums", shape, config.splits, self.bytes * config.consumers)

    def exchange(
        self, sums: Sequence[Any], consumer: ir.Expr, rank: ir.Expr, memory: ir.Expr, threads: Threads
    ) -> None:
        """Adds up the sums of the block's own share, which are then the first registers of each array.

        Parameters
        ----------
        memory : a pointer to shared memory that is free once all operands of a tile have been read.
        """
        config = self.config
        thread = bind("thread_of_consumer", threads.warp * 32 + threads.lane)
        share = config.columns // 2 // config.splits
        threads.named.take("all consumers").sync(config.computing)  # all have read their operands
        for owner in range(config.splits):
            for part, array in enumerate(sums):
                for k in range(0, share, _VECTOR):
                    vector = (part * share + k) // _VECTOR
                    place = ((owner * config.consumers + consumer) * self.vectors + vector) * WARP_GROUP + thread
                    self.keep(memory, rank == owner, place, *(array[owner * share + k + e] for e in range(_VECTOR)))
        ptx("fence.proxy.async.shared::cta")
        own = threads.named.take("a consumer's own", config.consumers)
        own.sync(WARP_GROUP, own.first + consumer)  # all its sums are in shared memory
        with when(threads.leads):
            self._send(consumer, rank, memory)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)
        for part, array in enumerate(sums):
            for k in range(share):
                at = consumer, (part * share + k) // _VECTOR, thread, k % _VECTOR
                total = self.parts[(0, *at)]
                for split in range(1, config.splits):
                    total = total + self.parts[(split, *at)]
                put(array, k, total)

    def _send(self, consumer: ir.Expr, rank: ir.Expr, memory: ir.Expr) -> None:
        """Starts the copies to every other block, from the next one on, so that not all send to one."""
        config = self.config
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.parts.ptr_to([rank, consumer, 0, 0, 0])
        for turn in range(1, config.splits):
            owner = bind("owner", (rank + turn) % config.splits)
            place = source + T.cast((owner * config.consumers + consumer) * self.bytes, "uint32")
            barrier = self.arrived.of_block(owner)
            ptx(COPY, in_block(target, owner), place, T.uint32(self.bytes), barrier)
