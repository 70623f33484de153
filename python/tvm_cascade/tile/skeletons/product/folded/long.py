"""The epilogue of a product with long rows: sums are folded where they are, in registers, tile by tile of a stretch.

    first tile of a stretch     states of rows are empty
    every tile                  a thread folds the sums that it has of its rows
    last tile                   merge over the lanes of a row; leave the states; the last block to arrive at some rows
                                merges those of all their stretches, finishes and stores

Nothing of the rows' length goes to memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, product
from tvm_cascade.tile.emit import bind, in_register, kernel_extent, named, when
from tvm_cascade.tile.fragment import QUAD, ROWS, register_index
from tvm_cascade.tile.memory import Tensors
from tvm_cascade.tile.merge.combine import Alone
from tvm_cascade.tile.merge.grid import GridStates
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.store import Store
from tvm_cascade.tile.row.sweep import Point
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.consumer import PlainSumming, Steps, Summing
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue
from tvm_cascade.tile.skeletons.product.folded.config import LongConfig
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel, Roles
from tvm_cascade.tile.skeletons.product.raster import Raster, Tile
from tvm_cascade.tile.state import State
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads
from tvm_cascade.transform.printer import cast

AT_ONCE = 6
"""Stretches whose states a thread reads at once: as many loads are under way together."""


def long_kernel(shape: FoldedProduct, config: LongConfig) -> ProductKernel:
    further = len(shape.products) - 1
    waiting = WaitingSums(config, further) if further else None
    roles = Roles(
        lambda feeds, name: LongEpilogue(shape, config, feeds[0].buffers, name, waiting),
        PlainSumming if waiting is None else lambda steps: SummingOfSeveral(steps, waiting),
        order=lambda first, tile: Walk(first, tile, config.stretches),
    )
    return ProductKernel(shape.products, config.tile, roles)


class LongEpilogue(Epilogue):
    """Folds a tile into the states of its rows, which meet where rows are cut into stretches."""

    def __init__(
        self,
        shape: FoldedProduct,
        config: LongConfig,
        buffers: Mapping[tirx.Var, Any],
        name: str,
        waiting: WaitingSums | None,
    ) -> None:
        self.shape, self.program, self.config, self.waiting = shape, shape.row_program, config, waiting
        self.tensors, self.name = Tensors(buffers), "".join(c if c.isalnum() else "_" for c in name)

    def declare(self) -> None:
        self.tensors.flatten()

    def allocate(self, pool: Any, rank: ir.Expr | int) -> None:
        self.set = named("set_of_launch", pool.alloc((1,), "int32", align=16))
        self.flag = named("is_last_block", pool.alloc((1,), "int32", align=4))
        if self.waiting is not None:
            self.waiting.allocate(pool)

    def start(self, index: ir.Expr, threads: Threads) -> None:
        if self.waiting is not None:
            self.waiting.start(index, threads)
        self.states = [self.program.state(f"_of_{part}_{row}") for part in range(self.config.parts) for row in ROWS]
        self.leads = tirx.And(index == 0, threads.leads)
        self._sync = partial(threads.named.take("all consumers").sync, self.config.tile.computing)
        if self.config.stretches > 1:
            self.grid = self._grid()
            self.grid.start(self.leads)

    def emit(self, tile: WalkedTile, sums: Sequence[Sequence[Any]], index: ir.Expr, threads: Threads) -> None:
        lane = threads.lane
        own = bind("own_row", index * self.config.tile.own_rows + threads.warp * 16 + lane // QUAD)
        self.first = bind("lane_column", tile.first_column + lane % QUAD * 2)
        with when(tile.is_first):
            for state in self.states:
                state.clear()
        for state, part, row, place in self._rows(own):
            point = self._point(tile, place)
            fold = ChunkFold(self.program, state, point.values)
            fold.fold(self._chunk(part, sums[part][0], row, point))
        with when(tile.is_last):
            for state, _, _, place in self._rows(own):
                self._point(tile, place).merge(state, Lanes(lane, QUAD))
            self._meet(tile, own, index, threads)

    def _rows(self, first: ir.Expr) -> Iterator[tuple[State, int, int, ir.Expr]]:
        """Of each row of a thread: its state, its part of 64 rows, which of two it is there, and its place."""
        for number, state in enumerate(self.states):
            part, row = divmod(number, len(ROWS))
            yield state, part, row, first + part * GROUP_ROWS + row * 8

    def _point(self, tile: WalkedTile, own: ir.Expr) -> Point:
        line = self.shape.product.left.line
        row = bind("row", tirx.min(tile.first_row + own, kernel_extent(line.extent) - 1))
        return Point(self.program, self.tensors, {**line.places(row), **tile.batch})

    def _chunk(self, part: int, sums: Any, row: int, point: Point) -> Chunk:
        """The sums of a row that a thread has; those of all products but the last wait in shared memory."""
        program, steps = self.program, self.config.tile.columns // 8
        inside = self.shape.columns % self.config.tile.columns == 0
        end, tensors = kernel_extent(self.shape.columns), self.shape.tensors

        def column(k: Any) -> ir.Expr:
            return self.first + k // 2 * 8 + k % 2

        def read(expression: ir.Expr, k: Any) -> ir.Expr:
            def replace(load: ir.TensorLoad) -> ir.Expr:
                number = next((n for n, tensor in enumerate(tensors) if load.source.same_as(tensor)), None)
                if number is None:
                    return load
                register = register_index(k // 2, row, k % 2)
                if self.waiting is not None and number + 1 < len(tensors):
                    return cast(self.waiting.read(number, part, register), dtype_of(load))
                return cast(sums[register], dtype_of(load))

            found = tvm_ffi.structural_map(expression, (ir.TensorLoad, replace))
            position = column(k) if inside else tirx.min(column(k), end - 1)
            return computed_once(self.tensors.place(found, {**point.at, **program.row.axis.places(position)}))

        count = tirx.const(steps * 2, "int32")
        if not inside:
            left = [tirx.max(tirx.min((end - self.first - e + 7) // 8, steps), 0) for e in (0, 1)]
            count = bind("existing", left[0] + left[1])
        return Chunk(steps * 2, 2, read, None if inside else (lambda k: column(k) < end), count, None)

    def _meet(self, tile: WalkedTile, own: ir.Expr, index: ir.Expr, threads: Threads) -> None:
        """Leaves the states of a stretch; the last block to arrive merges those of all."""
        config, lane = self.config, threads.lane
        last = kernel_extent(self.shape.product.left.line.extent) - 1
        if config.stretches == 1:
            for state, _, _, place in self._rows(own):
                self._store(state, self._point(tile, place), QUAD, lane % QUAD, tile.first_row + place <= last)
            return
        self.grid.tell(self.leads, self.set, self._sync)
        first_row = bind("first_row_of_all", tile.row_tile * config.tile.rows)
        with when(tirx.EQ(lane % QUAD, 0)):
            for state, _, _, place in self._rows(first_row + own):
                self.grid.put(state, tile.stretch, place)
        with self.grid.last(tile.row_tile, self.leads, self.flag, self._sync, ends=False):
            self._merge_all(self.grid, tile, index, threads, last)

    def _grid(self) -> GridStates:
        tile, product_shape = self.config.tile, self.shape.product
        places, rows = product(product_shape.extent(v) for v in product_shape.batch), product_shape.left.line.extent
        assert isinstance(places, int) and isinstance(rows, int)
        down = tile.rows * tile.cluster
        items = places * -(-rows // down) * tile.cluster
        return GridStates(self.name, self.config.stretches, items * tile.rows, self.states[0].form)

    def _merge_all(self, states: GridStates, tile: WalkedTile, index: ir.Expr, threads: Threads, last: ir.Expr) -> None:
        config = self.config
        sharing, thread = config.sharing, bind("thread_of_all", index * WARP_GROUP + threads.warp * 32 + threads.lane)
        member = bind("member", thread % sharing)
        at_once = config.tile.computing // sharing
        with T.serial(-(-config.rows // at_once)) as turn:
            place = bind("merged_row", turn * at_once + thread // sharing)
            point = self._point(tile, place)
            state = self.program.state("_merged")
            state.clear()
            batch = min(AT_ONCE, -(-config.stretches // sharing))
            others = [self.program.state(f"_other_{k}") for k in range(batch)]
            with T.serial(-(-config.stretches // (sharing * batch))) as step:
                numbers = [bind("number", (step * batch + k) * sharing + member) for k in range(batch)]
                for other, number in zip(others, numbers, strict=True):
                    states.get(other, number, tile.row_tile * config.tile.rows + place)
                point.merge(state, Alone(), others)
            point.merge(state, Lanes(threads.lane, sharing))
            self._store(state, point, sharing, member, tile.first_row + place <= last)

    def _store(self, state: State, point: Point, sharing: int, member: ir.Expr, exists: ir.Expr) -> None:
        with when(exists):
            Store(point, sharing).emit(state, member)

    def drain(self, threads: Threads) -> None:
        if self.config.stretches > 1:
            self._sync()
            with when(self.leads):
                self.grid.release(self.grid.obtain())


@dataclass(frozen=True)
class WalkedTile(Tile):
    """A tile of a stretch."""

    stretch: ir.Expr
    row_tile: ir.Expr
    is_first: ir.Expr
    is_last: ir.Expr


class Walk(Raster):
    """Assigns stretches to the blocks of a launch; a block walks along neighbouring tiles of the same rows.

        rows       stretch 0: tiles 0 … 14     stretch 1: tiles 15 … 29    …

    Stretches are done as tiles of the product are, band by band of rows: those that are walked at the same time have
    columns in common.
    """

    def __init__(self, shape: MatrixProduct, config: ProductConfig, stretches: int) -> None:
        super().__init__(shape, config)
        self.columns, self.across = self.across, kernel_extent(stretches)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Tile]:
        with self.each_share(block) as share:
            row, across, batch = self.place(share)
            first_row, stretch = bind("first_row", row * self.config.rows), bind("stretch", across)
            place = share // (self.down * self.across)
            row_tile = bind("row_tile", place * (self.down * self.config.cluster) + row)
            start = bind("start", stretch * self.columns // self.across)
            count = bind("count", (stretch + 1) * self.columns // self.across - start)
            with T.serial(count) as step:
                column = bind("first_column", (start + step) * self.config.columns)
                yield WalkedTile(first_row, column, batch, stretch, row_tile, step == 0, step == count - 1)


class WaitingSums:
    """The sums of all products but the last in shared memory, those of each register next to each other by threads."""

    def __init__(self, config: LongConfig, further: int) -> None:
        self.config, self.further = config, further

    def allocate(self, pool: Any) -> None:
        config = self.config
        shape = (self.further, config.parts * config.tile.columns // 2, config.tile.computing)
        self.memory = named("waiting_sums", pool.alloc(shape, "float32", align=16))

    def start(self, index: ir.Expr, threads: Threads) -> None:
        self.thread = bind("place_of_thread", index * WARP_GROUP + threads.warp * 32 + threads.lane)

    def keep(self, number: int, part: int, sums: Any) -> None:
        with T.unroll(self.config.tile.columns // 2) as k:
            T.buffer_store(self.memory, sums[k], [number, self._register(part, k), self.thread])

    def read(self, number: int, part: int, register: ir.Expr) -> ir.Expr:
        found: ir.Expr = self.memory[number, self._register(part, register), self.thread]
        return found

    def _register(self, part: int, register: ir.Expr) -> ir.Expr:
        return part * (self.config.tile.columns // 2) + register


class SummingOfSeveral(Summing):
    """Sums of several products, one after the other through one ring.

        producer    for tile: for product: for step along its k: wait until the stage is empty; copy its A; copy its B
        consumer    for tile: for product: for step along its k: sums += A @ Bᵀ
                              all but the last: the sums wait in shared memory
                    fold: a thread reads back what it has left, and has the last product's sums in registers

    So a tile is as wide as that of one product, however many there are.
    """

    def __init__(self, steps: Steps, waiting: WaitingSums) -> None:
        super().__init__(steps)
        self.waiting = waiting
        for feed in steps.feeds[1:]:
            feed.follow(steps.feed)
        self.operands = [steps.matrices(feed) for feed in steps.feeds]

    def sum(self, tile: Tile) -> None:
        steps, last = self.steps, len(self.operands) - 1
        for number, (feed, (left, rights)) in enumerate(zip(steps.feeds, self.operands, strict=True)):
            steps.feed, steps.left, steps.rights = feed, left, rights
            steps.sum(steps.sums, steps.count)
            if number < last:
                for part, (sums,) in enumerate(steps.sums):
                    self.waiting.keep(number, part, sums)


# Parts of an expression that occur several times, computed once: expressions are printed as trees.
#
# A hash of 32 bits has its argument twice in each round, `h ^= h >> 16; h *= …`: as a tree, a few rounds are 10³ nodes
# (measured, of a kernel that draws samples: 2 MB of CUDA text, 16 s of compiling; 0.4 MB and 5 s so).


_KINDS = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Max, prim.Min, tirx.Cast, ir.Call)
"""What takes an instruction."""

_PLACES = ("int32", "int64")
"""Dtypes of indices, which unrolled loops make constants; registers are indexed by those alone."""

_MANY = 100
"""Nodes of an expression from which on it is worth while: compilers find the parts of smaller ones."""


def computed_once(value: ir.Expr) -> ir.Expr:
    """The expression, with registers in place of what occurs in it several times."""
    nodes: list[ir.Expr] = []
    tvm_ffi.structural_walk(value, (_KINDS, nodes.append))
    if len(nodes) < _MANY:
        return value
    counts = Counter(tvm_ffi.structural_hash(node) for node in nodes if dtype_of(node) not in _PLACES)
    known: dict[int, ir.Expr] = {}

    def once(node: ir.Expr) -> ir.Expr:
        key = tvm_ffi.structural_hash(node)
        if counts[key] < 2:
            return node
        if key not in known:
            known[key] = in_register("part", _inside(node))
        return known[key]

    def _inside(whole: ir.Expr) -> ir.Expr:
        found: ir.Expr = tvm_ffi.structural_map(
            whole, (_KINDS, lambda node: node if node.same_as(whole) else once(node)), order="pre"
        )
        return found

    mapped: ir.Expr = tvm_ffi.structural_map(value, (_KINDS, once), order="pre")
    return mapped
