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

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tvm import ir, sym
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.attention.operands.feed import Feed, StagedPart, arrivals_of, staged_tiles
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.scheduler import LongestFirst, Scheduler
from tvm_cascade.tile.attention.tile_schedule import visited_tiles
from tvm_cascade.tile.emit import kernel_extent, named, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.driver import Driver, Initialised
from tvm_cascade.tile.launch.ahead import Fetching
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, tile_schedule
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.finder import TileFinder
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Registers, Work


class StreamKernel(Driver):
    """Emits the kernel of a tile program.

    Attributes
    ----------
    finder : what finds tiles by bounds that are loaded for each row; None where they are known otherwise.
    """

    finder: TileFinder | None = None

    def __init__(self, program: TileProgram, config: StreamConfig) -> None:
        ahead = () if program.ahead is None else program.ahead.tensors
        super().__init__((*program.stream.program.params, *ahead), config.consumers)
        self.program, self.config, self.stream = program, config, program.stream
        self.early = program.ahead is not None or program.early
        self.tiling = Tiling(program, config, self.buffers)

    def describe(self) -> None:
        """Tensor maps of the operands and of what bulk copies store."""
        config, stream, tiling = self.config, self.stream, self.tiling
        self.left, self.right = tiling.copies(stream.left, config.rows), tiling.copies(stream.right, config.columns)
        self.values = [tiling.value_copies(product) for product in stream.products]
        self.epilogue = self._epilogue()

    def _epilogue(self) -> Epilogue:
        return Epilogue(self.tiling)

    def place(self) -> None:
        """Blocks, one a multiprocessor, and their threads."""
        stream, config = self.stream, self.config
        row_tiles = kernel_extent((stream.extent(stream.row) + (config.rows - 1)) // config.rows)
        places = kernel_extent(product(stream.extent(var) for var in stream.batch))
        self.scheduler = self._scheduler(row_tiles, places)
        self.place_threads(named("block", T.cta_id([self.scheduler.grid])))
        if self.tiling.loads_bounds:
            self.tiling.lane = self.threads.lane
        if isinstance(self.scheduler, LongestFirst):
            self.finder = TileFinder(self.tiling, self.threads, self.scheduler)

    def _scheduler(self, row_tiles: ir.Expr, places: ir.Expr) -> Scheduler | LongestFirst:
        """By what is known of the tiles of rows: their costs, or where to load what bounds them."""
        if self.tiling.loads_bounds and not self.stream.paged:
            return LongestFirst(row_tiles, places, self.config.blocks, self.config.threads)
        shared_out = tile_schedule(self.config, self.program)
        items = None if shared_out is None else shared_out.items
        return Scheduler(row_tiles, places, self.config.blocks, self.program.uneven, items, self.name)

    @contextmanager
    def each_work(self) -> Iterator[Work]:
        """What is written within is done for every tile of rows that the block has, by those that copy."""
        if self.finder is not None:
            with self.finder.each_work() as work:
                yield work
            return
        with self.scheduler.each(self.threads.block) as item:
            yield self.tiling.work(item)

    def allocate(self, pool: Any) -> None:
        """Tiles, then barriers."""
        config = self.config
        left_tiles = staged_tiles("left_tiles", pool, config.left_stages, self.left)
        right_tiles = staged_tiles("right_tiles", pool, config.stages, self.right)
        value_tiles = [staged_tiles("value_tiles", pool, config.stages, copies) for copies in self.values]
        self.epilogue.allocate(pool, self.left.boxes)
        left_full = Barriers(pool, config.left_stages, 1)
        left_empty = Barriers(pool, config.left_stages, config.consumers)
        right_full, value_full = (
            Barriers(pool, config.stages, arrivals_of(copies)) for copies in ([self.right], self.values)
        )
        right_empty, value_empty = (Barriers(pool, config.stages, config.consumers) for _ in range(2))
        if self.finder is not None:
            self.finder.allocate(pool)
        self.left_feed = Feed([self.left], [left_tiles], (StagedPart(left_full, left_empty),))
        self.right_feed = Feed([self.right], [right_tiles], (StagedPart(right_full, right_empty),))
        self.value_feed = Feed(self.values, value_tiles, (StagedPart(value_full, value_empty),))

    def barriers(self) -> list[Initialised]:
        """Those of the finder, and of all feeds."""
        parts = [part for feed in (self.left_feed, self.right_feed, self.value_feed) for part in feed.parts]
        own: list[Initialised] = [*(part.full for part in parts), *(part.empty for part in parts)]
        return own if self.finder is None else [self.finder, *own]

    def meet(self) -> None:
        """All threads wait for each other, once they have sorted tiles of rows."""
        if self.finder is not None:
            self.finder.sort()
        super().meet()

    def registers(self) -> Registers:
        """See `StreamConfig.shares`."""
        return self.config.shares(self.stream, finds=self.finder is not None)

    def consume(self) -> None:
        """See `Consumer`."""
        finder = self.finder
        each_work = self.each_work if finder is None else partial(finder.each_work, self.threads.group - 1)
        feeds = self.left_feed.whole, self.right_feed.whole, self.value_feed.whole
        Consumer(self.tiling, self.threads, *feeds, self.epilogue).run(each_work)

    def produce(self) -> None:
        """One thread copies, and a warp finds tiles; of operands in pages, warps for each feed."""
        if self.stream.paged:
            shared = [self.right_feed, *([self.value_feed] if self.values else [])]
            PagedProducer(self.tiling, self.threads, shared, self.left_feed).run(self.each_work)
            return
        with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
            self._produce_rows()
        if self.finder is not None:
            with when(self.threads.warp == 1):
                self.finder.find()

    def _produce_rows(self) -> None:
        tiling = self.tiling
        for copies in (self.left, self.right, *self.values):
            copies.prefetch()
        ring, left = self.right_feed.filling("produced"), self.left_feed.filling("produced_left")
        fetching = self._fetching()
        with self.each_work() as work:
            self.left_feed.copy(left, work.first_row, tiling.fixed_of([self.left], work))
            left.advance()
            with T.serial(work.tiles.end - work.tiles.first) as step:
                row = (work.tiles.end - 1 - step) * self.config.columns
                self.right_feed.copy(ring, row, tiling.fixed_of([self.right], work))
                if self.values:
                    self.value_feed.copy(ring, row, tiling.fixed_of(self.values, work))
                ring.advance()
                if fetching is not None:
                    fetching.step()

    def _fetching(self) -> Fetching | None:
        """What fetches for a later kernel, a part with every tile of a block's first tile of rows."""
        ahead, visited = self.program.ahead, visited_tiles(self.program, self.config.rows, self.config.columns)
        grid = sym.Analyzer().simplify(self.scheduler.grid)
        if ahead is None or visited is None or not isinstance(grid, ir.prim.IntImm):
            return None
        tensors = [self.tiling.own(tensor) for tensor in ahead.tensors]
        return Fetching(ahead, tensors, self.threads.block, int(grid), int(visited.min()))
