"""Emits the stream kernel of few rows: blocks share the concatenation of all rows' cascade axes in equal parts.

producer    for piece, for tile: wait until the stage is empty; copy B; copy each V
consumer    for piece: load A into registers; fold its tiles as the stream kernel does
the whole axis: finish; store
a part of it: leave the state; the last to arrive merges all parts in order; finish; store
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import product
from tvm_cascade.analysis.tir import loads_of, uses
from tvm_cascade.tile.emit import bind, branches, in_register, kernel_extent, named, ptx, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.feed import Feed, staged_tiles
from tvm_cascade.tile.hopper.paged import Lanes, PagedProducer
from tvm_cascade.tile.live import Rows, TileRange, live_tiles
from tvm_cascade.tile.pieces import Cut, Piece
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig
from tvm_cascade.tile.skeletons.stream.pieces.consumer import PiecesConsumer
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Meeting
from tvm_cascade.tile.work import Threads, Work


class PiecesKernel(StreamKernel):
    """Emits the kernel of a tile program with few rows."""

    config: PiecesConfig

    def __init__(self, program: TileProgram, config: PiecesConfig) -> None:
        super().__init__(program, config)

    def _maps(self) -> None:
        self.right = self._map(self.stream.right, self.config.columns)
        self.values = [self._value_map(product) for product in self.stream.products]
        self.meeting = Meeting(self.tiling, self.name)

    def _places(self) -> None:
        stream, config = self.stream, self.config
        self.row_tiles = kernel_extent((stream.extent(stream.row) + (config.rows - 1)) // config.rows)
        places = kernel_extent(product(stream.extent(var) for var in stream.batch))
        visited = self._visited()
        tiles = tirx.max(visited.end - visited.first, 1)
        cut = Cut(self.row_tiles * places * self.spread, tiles, config.blocks)
        self.threads = Threads(
            named("block", T.cta_id([cut.grid])),
            named("group", T.warpgroup_id([config.consumers + 1])),
            named("warp", T.warp_id_in_wg([4])),
            named("lane", T.lane_id([32])),
            named("thread", T.thread_id([config.threads])),
        )
        self.cut = cut
        self.first_visited = visited.first

    def _visited(self) -> TileRange:
        """The tiles of the axis that hold a live position of any row, at any place."""
        stream = self.stream
        every = [s for s in self.program.skip if not uses(s, list(stream.batch)) and not loads_of(s)]
        rows = Rows(stream.row, tirx.const(0, "int32"), int(stream.extent(stream.row)))
        tiles = self.tiling.tile_count()
        live = live_tiles(tuple(every), stream.position, rows, self.config.columns, tiles)
        first = tirx.max(tirx.min(live.first, tiles - 1), 0)
        return TileRange(first, tirx.max(tirx.min(live.end, tiles), first + 1))

    @property
    def spread(self) -> int:
        """Items of each tile of rows, one after the other."""
        return 1

    @contextmanager
    def _each_piece(self) -> Iterator[tuple[Piece, Work]]:
        """What is written within is done for every piece that the block has."""
        visited = in_register("first_visited", self.first_visited)
        with self.cut.each(self.threads.block) as piece:
            number = piece.item // self.spread
            row_tile, place = number % self.row_tiles, number // self.row_tiles
            first_row = bind("first_row", row_tile * self.config.rows)
            batch = self.tiling.batch(place)
            first = bind("first_tile", visited + piece.first)
            yield piece, Work(first_row, batch, TileRange(first, bind("end_tile", visited + piece.end)))

    def _shared(self) -> None:
        config, pool = self.config, T.SMEMPool()
        right_tiles = staged_tiles("right_tiles", pool, config.stages, self.right)
        value_tiles = [staged_tiles("value_tiles", pool, config.stages, copies) for copies in self.values]
        self.meeting.allocate(pool)
        right_full, value_full = Barriers(pool, config.stages, 1), Barriers(pool, config.stages, 1)
        right_empty, value_empty = (Barriers(pool, config.stages, config.consumers) for _ in range(2))
        pool.commit()
        with when(self.threads.thread == 0):
            for barriers in (right_full, value_full, right_empty, value_empty):
                barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        T.evaluate(T.cuda.cta_sync())
        self.right_feed = Feed([self.right], [right_tiles], right_full, right_empty)
        self.value_feed = Feed(self.values, value_tiles, value_full, value_empty)

    def _roles(self) -> None:
        with branches(self.threads.group == 0) as (producer, consumer):
            with producer:
                if self.config.has_register_shares:
                    ptx("setmaxnreg.dec.sync.aligned.u32", self.config.producer_registers)
                self._produce()
            with consumer:
                if self.config.has_register_shares:
                    ptx("setmaxnreg.inc.sync.aligned.u32", self.config.consumer_registers)
                self._consume()

    def _consume(self) -> None:
        PiecesConsumer(self.tiling, self.threads, self.right_feed, self.value_feed, self.meeting).run(self._each_piece)

    def _produce_paged(self) -> None:
        """All lanes of a warp issue copies, of the pages whose numbers each has read."""
        with when(self.threads.warp == 0):
            feeds = (self.right_feed, *([self.value_feed] if self.values else []))
            self._produce_tiles(PagedProducer([m for feed in feeds for m in feed.copies], Lanes(self.threads.lane)))

    def _produce_tiles(self, paged: PagedProducer) -> None:
        columns, ring = self.config.columns, self.right_feed.filling("produced")
        with self._each_piece() as (_, work):
            number, live = self._numbers(work), partial(self._live_pages, work)
            paged.look_up((work.tiles.end - 1) * columns, live, number)
            with T.serial(work.tiles.end - work.tiles.first) as step:
                row = bind("first_position", (work.tiles.end - 1 - step) * columns)
                for feed in (self.right_feed, *([self.value_feed] if self.values else [])):
                    feed.copy_paged(ring, row, self._fixed(feed, work), paged)
                ring.advance()
                paged.look_up(tirx.max(row - columns, 0), live, number)

    def _produce_rows(self) -> None:
        for copies in (self.right, *self.values):
            copies.prefetch()
        ring = self.right_feed.filling("produced")
        with self._each_piece() as (_, work), T.serial(work.tiles.end - work.tiles.first) as step:
            row = (work.tiles.end - 1 - step) * self.config.columns
            self.right_feed.copy(ring, row, self._fixed(self.right_feed, work))
            if self.values:
                self.value_feed.copy(ring, row, self._fixed(self.value_feed, work))
            ring.advance()
