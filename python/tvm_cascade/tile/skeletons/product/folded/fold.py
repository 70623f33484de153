"""The epilogue of a folded product: the rows of a tile are folded from shared memory, as the row skeleton folds rows.

leave the sums in shared memory        over a cluster, each block has some rows of them
for row of the block: fold its positions; merge over the threads of the row; finish; store
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, in_register, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import ROWS, register_index
from tvm_cascade.tile.hopper.barrier import cluster_arrive, cluster_wait, in_block
from tvm_cascade.tile.hopper.driver import Initialised
from tvm_cascade.tile.memory import Tensors, copy_vector
from tvm_cascade.tile.merge.cluster import COPY, PartsOfSums
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.row.elements import Vectors
from tvm_cascade.tile.row.linear import Access
from tvm_cascade.tile.row.segment import Segment
from tvm_cascade.tile.row.store import PositionOutputs, Store
from tvm_cascade.tile.row.sweep import Point, Sweep
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES
from tvm_cascade.tile.skeletons.product.consumer import PlainSumming
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.folded.config import FoldedConfig
from tvm_cascade.tile.skeletons.product.folded.selection import RowSelection, Selecting, selection_of
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel, Roles
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.state import State
from tvm_cascade.tile.work import GROUP_ROWS, WARPS, Threads


class _Vectors(Vectors):
    """Registers of a thread's current vectors; those of the product are read from its sums."""

    def __init__(self, of: _Sweep, streams: tuple[Access, ...], count: int) -> None:
        super().__init__(of.tensors, of.row.along, streams, of.config.vector, count)
        self.tensor, self.sums, self.start = of.tensor, of.sums, of.start

    def _copy(self, stream: Access, vectors: Any, k: ir.Expr, start: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> None:
        if stream.buffer.same_as(self.tensor):
            self.sums.read(vectors, k * self.vector, self.start + start, self.vector)
        else:
            super()._copy(stream, vectors, k, start, at)


class _Sweep(Sweep):
    """Emits the passes of one thread over a row of sums."""

    def __init__(self, tensor: tirx.Var, sums: RowSums, start: ir.Expr, *row: Any) -> None:
        self.tensor, self.sums, self.start = tensor, sums, start
        super().__init__(*row)

    def registers_for(self, streams: tuple[Access, ...], count: int) -> Vectors:
        return _Vectors(self, streams, count)

    def anywhere(self, expression: ir.Expr, position: ir.Expr) -> ir.Expr:
        return self.with_sums(self.tensors.place(expression, {**self.at, **self.row.axis.places(position)}))

    def with_sums(self, value: ir.Expr) -> ir.Expr:
        def pick(load: ir.TensorLoad) -> ir.Expr:
            if not load.source.same_as(self.tensor):
                return load
            # An element that is not there has a negative index.
            position = in_register("picked", tirx.max(load.indices[-1], 0))
            return self.sums.at(self.start + position)

        return tvm_ffi.structural_map(value, (ir.TensorLoad, pick))

    def select(self, selection: RowSelection, state: State, lanes: Lanes) -> None:
        """Selects among what the thread has in registers since `fold`, a single chunk."""

        def one(start: ir.Expr, guarded: bool, first: bool | None) -> None:
            existing = self.existing(start, guarded)
            chunk, vector = self.chunk(start, guarded, True, existing, lambda index: index), self.config.vector

            def position(k: Any) -> ir.Expr:
                return self.position(start, k // vector) + k % vector

            Selecting(selection, self.row_values, lanes, chunk, position, self.anywhere).emit(state)

        self.each_chunk(one)


class _Store(Store):
    """Emits the stores of a row of sums, which may pick elements of it."""

    def __init__(self, sweep: _Sweep, point: Point) -> None:
        super().__init__(point, sweep.config.sharing)
        self.sweep = sweep

    def _placed(self, value: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> ir.Expr:
        return self.sweep.with_sums(super()._placed(value, at))


def rows_kernel(shape: FoldedProduct, config: FoldedConfig) -> ProductKernel:
    roles = Roles(lambda feeds, _: RowEpilogue(shape, config, feeds[0]), PlainSumming)
    return ProductKernel([shape.product], config.tile, roles)


class RowEpilogue(Epilogue):
    """Folds whole rows of a tile; parts of k are added up there."""

    meets_late = True

    def __init__(self, shape: FoldedProduct, config: FoldedConfig, feed: ProductFeed) -> None:
        whole = config.row(shape).chunk >= shape.columns
        self.selection = selection_of(shape.row_program, shape.columns) if whole else None
        self.program = shape.row_program if self.selection is None else self.selection.rest
        self.shape, self.config, self.feed = shape, config, feed
        self.tensors = Tensors(feed.buffers)

    def declare(self) -> None:
        self.tensors.flatten()

    def allocate(self, pool: Any, rank: ir.Expr | int) -> None:
        self.rank, self.sums = rank, RowSums(self.config, pool)

    def barriers(self) -> list[Initialised]:
        return [self.sums]

    def emit(self, tile: Tile, sums: Sequence[Sequence[Any]], index: ir.Expr, threads: Threads) -> None:
        ((own,),) = sums
        self.sums.fill(own, index, self.rank, self.feed.memory, threads)
        config = self.config
        thread = bind("thread_of_all", index * 128 + threads.warp * 32 + threads.lane)
        first = bind("first_of_block", tile.first_row + self.rank * config.rows)
        member, count = bind("member", thread % config.sharing), bind("rows_there", self._rows_there(first))
        with T.serial(-(-config.rows // config.rows_at_once)) as turn, when(turn * config.rows_at_once < count):
            own_row = bind("row_of_block", turn * config.rows_at_once + thread // config.sharing)
            # Threads without a row go along with the last one: all lanes of a warp take part in its shuffles.
            self._fold(bind("row_at_hand", tirx.min(own_row, count - 1)), own_row < count, first, tile, member, threads)

    def _rows_there(self, first: ir.Expr) -> ir.Expr:
        config = self.config
        count = tirx.min(config.rows, kernel_extent(self.shape.product.left.line.extent) - first)
        if config.rows * config.tile.splits > config.tile.rows:
            count = tirx.min(count, config.tile.rows - self.rank * config.rows)
        return count

    def _fold(
        self, own_row: ir.Expr, exists: ir.Expr, first: ir.Expr, tile: Tile, member: ir.Expr, threads: Threads
    ) -> None:
        config, product, program = self.config, self.shape.product, self.program
        row, batch = bind("row", first + own_row), tile.batch
        point = Point(program, self.tensors, {**product.left.line.places(row), **batch})
        segment, start = Segment.whole(self.shape.columns), bind("row_start", own_row * config.pitch)
        row_of_sums = self.shape.tensors[0], self.sums, start
        sweep = _Sweep(*row_of_sums, config.row(self.shape), point, segment, member)
        state = program.state()
        state.clear()
        sweep.fold(state)
        lanes = Lanes(threads.lane, config.sharing)
        point.merge(state, lanes)
        if self.selection is not None:
            sweep.select(self.selection, state, lanes)
        with when(exists):
            store = _Store(sweep, point)
            store.emit(state, member)
            if program.row.position_outputs:
                PositionOutputs(sweep, store.results).emit()

    def drain(self, threads: Threads) -> None:
        self.sums.leave()


# Sums of a tile in shared memory, row after row; over parts of k, each block of a cluster has a share of the rows.


class RowSums(PartsOfSums):
    """The sums of a tile as rows in shared memory, those of a row next to each other, `pitch` apart from the next."""

    def __init__(self, config: FoldedConfig, pool: Any) -> None:
        self.config, self.share, splits = config, config.rows * config.pitch, config.tile.splits
        super().__init__(pool, "sums_of_rows", (splits * self.share,), splits, self.share * SUM_BYTES)

    def fill(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Leaves the sums of all consumers in `parts`: for the block's own rows, one part of k after the other.

        Parameters
        ----------
        memory : a pointer to shared memory that is free once all operands of a tile have been read.
        """
        sync = partial(threads.named.take("all consumers").sync, self.config.tile.computing)
        if self.blocks == 1:
            self._leave(sums, consumer, rank, self.parts.ptr_to([0]), threads)
            sync()
            return
        sync()
        self._leave(sums, consumer, rank, memory, threads)
        ptx("fence.proxy.async.shared::cta")
        cluster_wait()
        sync()
        with when(tirx.And(consumer == 0, threads.lane == 0)):
            self._send(rank, memory, threads)
        self.arrived.wait(0, 0)
        cluster_arrive(relaxed=True)

    def read(self, target: Any, to: ir.Expr, start: ir.Expr, width: int) -> None:
        """target[to:to + width] = the sums from a place of the block's rows on, all parts of k added up."""
        parts = [target, *(registers("part", width) for _ in range(1, self.config.tile.splits))]
        for split, part in enumerate(parts):
            copy_vector(
                part, to if split == 0 else tirx.const(0, "int32"), self.parts, start + split * self.share, width
            )
        for e in range(width):
            total = target[to + e]
            for part in parts[1:]:
                total = total + part[e]
            put(target, to + e, total)

    def at(self, place: ir.Expr) -> ir.Expr:
        total = self.parts[place]
        for split in range(1, self.config.tile.splits):
            total = total + self.parts[place + split * self.share]
        return total

    def _leave(self, sums: Any, consumer: ir.Expr, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Rows of the block's own share in `parts`, at the place that they have among all; the others in `memory`."""
        pitch = self.config.pitch
        first = bind("own_row", consumer * GROUP_ROWS + threads.warp * 16 + threads.lane // 4)
        for row in ROWS:
            start = bind("row_pairs", ((first + 8 * row) * pitch + threads.lane % 4 * 2) // 2)
            own = bind("is_own", (first + 8 * row) // self.config.rows == rank)
            with T.unroll(self.config.tile.columns // 8) as j:
                self.keep(memory, own, start + j * 4, *(sums[register_index(j, row, e)] for e in (0, 1)))

    def _send(self, rank: ir.Expr | int, memory: ir.Expr, threads: Threads) -> None:
        """Starts the copies to every other block, from the next one on, so that not all send to one; warps in turn."""
        splits, size = self.config.tile.splits, self.size
        source = bind("sums_address", T.cuda.cvta_generic_to_shared(memory))
        target = self.parts.ptr_to([rank * self.share])
        for first in range(1, splits, WARPS):
            turn = bind("turn", first + threads.warp)
            with when(turn < splits):
                owner = bind("owner", (rank + turn) % splits)
                place = source + T.cast(owner * size, "uint32")
                ptx(COPY, in_block(target, owner), place, T.uint32(size), self.arrived.of_block(owner))
