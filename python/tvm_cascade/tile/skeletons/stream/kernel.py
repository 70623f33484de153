"""Emits the stream kernel: a producer warp group issues TMA copies, consumer warp groups fold tiles.

    producer    for tile: wait until the stage is empty; copy B; copy each V
    consumer    scores = A @ B[last]ᵀ; fold
                for tile, from the last but one to the first:
                    start scores = A @ Bᵀ;  start accumulators += weights @ V of the tile before
                    wait for the scores; fold them while the accumulators are still under way
                    wait for the accumulators; shift them
                accumulators += weights @ V[first];  finish;  store

Source of the schedule: FlashAttention-3 (Shah et al., 2024): warp specialisation, and the overlap of a tile's products
with the exponentials of the next. Everything between the products comes from the tile program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from itertools import count
from typing import Any

from tvm import ir, sym, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import product
from tvm_cascade.tile.attention.operands.feed import Feed, StagedPart, arrivals_of, staged_parts, staged_tiles
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.tile_schedule import NOTHING, Item, LongestFirst, Scheduler, visited_tiles
from tvm_cascade.tile.emit import bind, in_register, kernel_extent, named, numbered, put, registers, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import RowParts
from tvm_cascade.tile.hopper.driver import Driver, Initialised
from tvm_cascade.tile.launch.dependent import Fetching, Launch
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, tile_schedule
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, WARPS, Order, Registers, Threads, Work


class StreamKernel(Driver):
    """Emits the kernel of a tile program.

    Attributes
    ----------
    finder : what takes tiles of rows, and finds the tiles that they visit; None where the host knows both.
    """

    finder: TileFinder | None = None

    def __init__(self, program: TileProgram, config: StreamConfig, launch: Launch) -> None:
        ahead = () if launch.ahead is None else launch.ahead.tensors
        super().__init__((*program.stream.program.params, *ahead), config.consumers)
        self.program, self.config, self.stream, self.ahead = program, config, program.stream, launch.ahead
        self.early = launch.ahead is not None or launch.early
        self.tiling = Tiling(program, config, self.buffers, launch.late)
        self.tiling.ask_of_tiles()

    def describe(self) -> None:
        config, stream, tiling = self.config, self.stream, self.tiling
        self.lefts = [tiling.copies(left, config.rows) for left in stream.lefts]
        self.rights = [tiling.copies(right, config.columns) for right in stream.rights]
        apart = [tiling.value_copies(product) for product in stream.products if product.tile is None]
        if stream.shares_tiles:
            self.rights += apart
        self.values = [] if stream.shares_tiles else apart
        along = self.program.rows_along.values()
        self.along = [RowParts(row, tiling.buffers[row.buffer], config.columns) for row in along]
        self.epilogue = self._epilogue()

    def _epilogue(self) -> Epilogue:
        return Epilogue(self.tiling)

    def place(self) -> None:
        stream, config = self.stream, self.config
        row_tiles = kernel_extent((stream.extent(stream.row) + (config.rows - 1)) // config.rows)
        places = kernel_extent(product(stream.extent(var) for var in stream.batch))
        self.order = self._order(row_tiles, places)
        self.place_threads(named("block", T.cta_id([self.order.grid])))
        if self.program.loads_bounds:
            self.tiling.lane = self.threads.lane
        if isinstance(self.order, LongestFirst):
            self.finder = TileFinder(self.tiling, self.threads, self.order)

    def _order(self, row_tiles: ir.Expr, places: ir.Expr) -> Order[Item]:
        """By what is known of the tiles of rows: their costs, or where to load what tells them."""
        if self.tiling.depend_on_data:
            sizes = row_tiles, places, self.config.blocks, self.config.threads
            return LongestFirst(self.name, *sizes, self.tiling.likely_tiles, self.tiling.places_together())
        shared_out = tile_schedule(self.config, self.program)
        items = None if shared_out is None else shared_out.items
        return Scheduler(row_tiles, places, self.config.blocks, self.program.uneven, items, self.name)

    @contextmanager
    def each_work(self) -> Iterator[Work]:
        """For every tile of rows that the block has, by whole warps."""
        if self.finder is not None:
            with self.finder.each_work() as work:
                yield work
            return
        with self.order.each(self.threads.block) as item:
            yield self.tiling.work(item, self.threads.lane)

    def allocate(self, pool: Any) -> None:
        config = self.config
        left_tiles = [
            staged_tiles(numbered("left_tiles", k), pool, config.left_stages, copies)
            for k, copies in enumerate(self.lefts)
        ]
        right_tiles = [
            staged_tiles(numbered("right_tiles", k), pool, config.stages, copies)
            for k, copies in enumerate(self.rights)
        ]
        value_tiles = [staged_tiles("value_tiles", pool, config.stages, copies) for copies in self.values]
        self.epilogue.allocate(pool, self.lefts[0].boxes)
        left_full = Barriers(pool, config.left_stages, 1)
        readers = config.consumers * config.family.arrivals
        left_empty = Barriers(pool, config.left_stages, readers if self.epilogue.own_staging else config.consumers)
        along = [staged_parts(copies.operand.buffer.name, pool, config.stages, copies) for copies in self.along]
        full = [Barriers(pool, config.stages, arrivals_of(copies)) for copies in (self.rights, self.values)]
        empty = [Barriers(pool, config.stages, readers) for _ in full]
        if self.finder is not None:
            self.finder.allocate(pool)
        right, value = (StagedPart(*pair) for pair in zip(full, empty, strict=True))
        self.left_feed = Feed(self.lefts, left_tiles, (StagedPart(left_full, left_empty),))
        self.right_feed = Feed([*self.rights, *self.along], [*right_tiles, *along], (right,))
        self.value_feed = Feed(self.values, value_tiles, (value,))

    @property
    def filled(self) -> list[Feed]:
        """The feeds of right operands that the producer fills."""
        return [self.right_feed, *([self.value_feed] if self.values else [])]

    def barriers(self) -> list[Initialised]:
        parts = [part for feed in (self.left_feed, self.right_feed, self.value_feed) for part in feed.parts]
        own: list[Initialised] = [*(part.full for part in parts), *(part.empty for part in parts)]
        return own if self.finder is None else [self.finder, *own]

    def registers(self) -> Registers:
        return self.config.shares(self.stream, finds=self.program.loads_bounds)

    def consume(self) -> None:
        finder = self.finder
        each_work = self.each_work if finder is None else partial(finder.each_work, self.threads.group - 1)
        feeds = self.left_feed, *self._read()
        Consumer(self.tiling, self.threads, *feeds, self.epilogue).run(each_work)

    def _read(self) -> tuple[Feed, Feed]:
        """The feeds of scores and of products; of tiles that both read, products are the last to do so."""
        right, further = self.right_feed, count(len(self.stream.scores))
        if not self.stream.shares_tiles:
            return right, self.value_feed
        own = [next(further) if product.tile is None else product.tile for product in self.stream.products]
        own += range(len(self.rights), len(right.tiles))
        values = Feed([right.copies[k] for k in own], [right.tiles[k] for k in own], right.parts)
        return replace(right, released=()), values

    def produce(self) -> None:
        """One thread copies, and a warp finds tiles; of operands in pages, warps for each feed."""
        if self.stream.paged:
            PagedProducer(self.tiling, self.threads, self.filled, self.left_feed).run(self.each_work)
            return
        with when(self.threads.warp == 0):
            if self.finder is not None:
                self._produce_rows(partial(when, self.threads.lane == 0))
            else:
                with when(T.cuda.elect_sync()):
                    self._produce_rows(nullcontext)
        if self.finder is not None:
            with when(self.threads.warp == 1):
                self.finder.find()

    def _produce_rows(self, leading: Callable[[], AbstractContextManager[None]]) -> None:
        """`leading` : around what one thread does, of a warp that asks for tiles, or of all that are here."""
        tiling = self.tiling
        for copies in (*self.lefts, *self.rights, *self.values):
            copies.prefetch()
        ring, left = self.right_feed.filling("produced"), self.left_feed.filling("produced_left")
        fetching = self._fetching()
        with self.each_work() as work:
            places = tiling.fixed_of(self.lefts, work)
            with leading():
                if self.config.left_stages == 1:  # which is still read: the next tile waits in the cache
                    for copies, fixed in zip(self.lefts, places, strict=True):
                        copies.fetch(work.first_row, fixed)
                self.left_feed.copy(left, work.first_row, places)
            left.advance()
            with tiling.visits(work, work.tiles) as tile:
                row = tile * self.config.columns
                with leading():
                    for feed in self.filled:
                        feed.copy(ring, row, tiling.fixed_of(feed.copies, work))
                ring.advance()
                if fetching is not None:
                    fetching.step()

    def _fetching(self) -> Fetching | None:
        """What fetches for a later kernel, a part with every tile of a block's first tile of rows."""
        ahead, visited = self.ahead, visited_tiles(self.program, self.config.rows, self.config.columns)
        grid = sym.Analyzer().simplify(self.order.grid)
        if ahead is None or visited is None or not isinstance(grid, ir.prim.IntImm):
            return None
        tensors = [self.tiling.buffers[tensor] for tensor in ahead.tensors]
        return Fetching(ahead, tensors, self.threads.block, int(grid), int(visited.min()))


# Tiles of rows that blocks take when they are free: one warp takes them ahead of those that copy and fold, and finds
# the tiles that they visit where bounds are loaded for rows.
#
#     finder      while there is an item: read the bounds of its rows; wait until a slot is empty; write it there, and
#                 the tiles of every warp group; wait until all is copied; take the next item. At the end: there is none
#     others      wait until a slot is full; read it; release it
#
# Whoever needs them would else wait for memory before each tile of rows, while the tensor cores have nothing to do. An
# item that is taken sooner is a worse choice: with one item ahead, causal attention took 1.2 times as long (measured).


_SLOTS = 2
"""Items that a block has: the one that is folded, and the one that is copied."""

_RANGES = 2
"""Of a warp group: the tiles that hold a live position, and those that need no mask."""

_ITEM = 2
"""Numbers before those: of the tile of rows, `NOTHING` after the last, and of its place."""


class TileFinder:
    """Emits the warp that takes tiles of rows, and the loops of those that have them.

    Parameters
    ----------
    order : of the tiles of rows.
    """

    def __init__(self, tiling: Tiling, threads: Threads, order: LongestFirst) -> None:
        self.tiling, self.threads, self.order = tiling, threads, order
        self.groups = tiling.config.row_groups
        self.finds = tiling.program.loads_bounds

    def allocate(self, pool: Any) -> None:
        """Takes shared memory: for items and ranges, and barriers."""
        ranges = 2 * _RANGES * self.groups if self.finds else 0
        self.slots = pool.alloc((_SLOTS, _ITEM + ranges), "int32", align=16)
        self.full = Barriers(pool, _SLOTS, 1)
        self.empty = Barriers(pool, _SLOTS, WARPS * self.groups)
        self.copied = Barriers(pool, 1, 1)
        self.order.allocate(pool)

    def initialise(self) -> None:
        for barriers in (self.full, self.empty, self.copied):
            barriers.initialise()

    def find(self) -> None:
        ring, copied = Ring("found", _SLOTS, 1), Ring("copied", 1, 0)
        with self.order.each(self.threads.block) as item:
            found = [bound for one in self._ranges(item) for bound in (one.first, one.end)]
            self._post(ring, [item.row_tile, item.place, *found])
            self.copied.wait(0, copied.parity)
            copied.advance()
        self._post(ring, [T.int32(NOTHING)])

    def _ranges(self, item: Item) -> list[TileRange]:
        """Of each warp group."""
        first_row, batch = bind("first_row", item.row_tile * self.tiling.config.rows), self.tiling.batch(item.place)
        found = list[TileRange]()
        for group in range(self.groups if self.finds else 0):
            own = first_row + group * GROUP_ROWS
            nothing = TileRange(T.int32(0), T.int32(0))
            live = self.tiling.visited(batch, own, GROUP_ROWS)
            found += [live, self.tiling.whole(batch, own, GROUP_ROWS) or nothing]
        return found

    def _post(self, ring: Ring, numbers: Sequence[ir.Expr]) -> None:
        self.empty.wait(ring.stage, ring.parity)
        with when(self.threads.lane == 0):
            for place, number in enumerate(numbers):
                T.buffer_store(self.slots, number, [ring.stage, place])
            self.full.arrive(ring.stage)
        ring.advance()

    @contextmanager
    def each_work(self, group: ir.Expr | None = None) -> Iterator[Work]:
        """The block's items with their tiles, by whole warps.

        Parameters
        ----------
        group : the number of the consumer that reads them, by all of its warps; None for the warp that copies.
        """
        ring, row_tile = Ring("reading", _SLOTS, 0), registers("own_row_tile", 1, "int32")
        self._read(ring, row_tile)
        with T.While(row_tile[0] != NOTHING):
            item = Item(self.slots[ring.stage, 0], self.slots[ring.stage, 1])
            visited = self._hull(ring) if self.finds else None
            reads = visited is not None and group is not None
            own, whole = (self._range(ring, group, k) if reads else None for k in range(_RANGES))
            if visited is None:
                yield self.tiling.work(item, self.threads.lane)
            else:
                first_row = bind("first_row", item.row_tile * self.tiling.config.rows)
                yield Work(first_row, self.tiling.batch(item.place), visited, own=own, whole=whole)
            T.evaluate(T.cuda.warp_sync())
            with when(self.threads.lane == 0):
                done, stage = (self.copied, 0) if group is None else (self.empty, ring.stage)
                done.arrive(stage)
            ring.advance()
            self._read(ring, row_tile)

    def _read(self, ring: Ring, row_tile: Any) -> None:
        self.full.wait(ring.stage, ring.parity)
        put(row_tile, 0, self.slots[ring.stage, 0])

    def _hull(self, ring: Ring) -> TileRange:
        tiles, each = self.tiling.tile_count(), [_ITEM + 2 * _RANGES * group for group in range(self.groups)]
        least = reduce(tirx.min, [self.slots[ring.stage, place] for place in each])
        most = reduce(tirx.max, [self.slots[ring.stage, place + 1] for place in each])
        first = in_register("first_tile", tirx.max(tirx.min(least, tiles - 1), 0))
        return TileRange(first, in_register("end_tile", tirx.max(tirx.min(most, tiles), first + 1)))

    def _range(self, ring: Ring, group: ir.Expr, number: int) -> TileRange:
        place = _ITEM + 2 * (_RANGES * group + number)
        return TileRange(*(in_register("found_tile", self.slots[ring.stage, place + end]) for end in range(2)))
