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

from tvm import ir, sym, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.attention.longest_first import LongestFirst
from tvm_cascade.tile.attention.operands.feed import Feed, Feeds, arrivals_of, staged_tiles
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.scheduler import Scheduler
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.attention.tile_schedule import visited_tiles
from tvm_cascade.tile.emit import branches, kernel_extent, named, parameter, ptx, shared_pool, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.copy import ROW_WARPS, TensorMap
from tvm_cascade.tile.launch.ahead import Fetching
from tvm_cascade.tile.launch.dependent import let_others_start
from tvm_cascade.tile.operand import Operand
from tvm_cascade.tile.skeletons.stream.config import StreamConfig, tile_schedule
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.finder import TileFinder
from tvm_cascade.tile.skeletons.stream.producer import Filled, PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Threads, Work


class StreamKernel:
    """Emits the kernel of a tile program."""

    finder: TileFinder | None = None
    """What finds tiles by bounds that are loaded for each row."""

    rows_by_threads = True
    """Whether threads may copy rows of small pages."""

    row_warps = ROW_WARPS
    """Warps that copy the rows of a feed, then."""

    def __init__(self, program: TileProgram, config: StreamConfig) -> None:
        self.program, self.config, self.stream = program, config, program.stream
        self.tiling = Tiling(program, config, {})

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        self.name = name
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in (*self.stream.program.params, *(ahead.tensors if (ahead := self.program.ahead) else ())):
                self.tiling.buffers[param] = parameter(param)
            self._maps()
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": self.config.blocks_per_processor}):
                self._places()
                if self.program.ahead is not None or self.program.early:
                    let_others_start()
                self._shared()
                self._roles()
        return builder.get()

    def _maps(self) -> None:
        config, stream = self.config, self.stream
        self.left, self.right = self._map(stream.left, config.rows), self._map(stream.right, config.columns)
        self.values = [self._value_map(product) for product in stream.products]
        self.epilogue = self._epilogue()

    def _epilogue(self) -> Epilogue:
        return Epilogue(self.tiling)

    def _map(self, operand: Operand, rows: int, columns: int | None = None) -> TensorMap:
        own = self.tiling.own(operand.buffer)
        others, by_threads = list(self.tiling.buffers.values()), self.rows_by_threads
        return TensorMap(operand, own, rows, columns, None, by_threads, self.row_warps, others)

    def _value_map(self, product: Product) -> TensorMap:
        """Of a tile of positions of V, along its rows or along its columns."""
        positions = self.config.columns
        if product.is_transposed:
            return self._map(product.value, product.width, positions)
        return self._map(product.value, positions)

    def _places(self) -> None:
        """Blocks, one a multiprocessor, and their threads."""
        stream, config = self.stream, self.config
        row_tiles = kernel_extent((stream.extent(stream.row) + (config.rows - 1)) // config.rows)
        places = kernel_extent(product(stream.extent(var) for var in stream.batch))
        self.scheduler = self._scheduler(row_tiles, places)
        self.threads = Threads(
            named("block", T.cta_id([self.scheduler.grid])),
            named("group", T.warpgroup_id([config.consumers + 1])),
            named("warp", T.warp_id_in_wg([4])),
            named("lane", T.lane_id([32])),
            named("thread", T.thread_id([config.threads])),
        )
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
    def _each_work(self) -> Iterator[Work]:
        """What is written within is done for every tile of rows that the block has.

        Parameters
        ----------
        group : the number of the consumer whose threads do it; None for those that copy.
        """
        if self.finder is not None:
            with self.finder.each_work() as work:
                yield work
            return
        with self.scheduler.each(self.threads.block) as item:
            yield self.tiling.work(item)

    def _shared(self) -> None:
        config, pool = self.config, shared_pool()
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
        pool.commit()
        with when(self.threads.thread == 0):
            if self.finder is not None:
                self.finder.initialise()
            for barriers in (left_full, right_full, value_full, left_empty, right_empty, value_empty):
                barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        if self.finder is not None:
            self.finder.sort()
        T.evaluate(T.cuda.cta_sync())
        self.feeds = Feeds(
            Feed([self.left], [left_tiles], left_full, left_empty),
            Feed([self.right], [right_tiles], right_full, right_empty),
            Feed(self.values, value_tiles, value_full, value_empty),
        )

    def _roles(self) -> None:
        registers = self.config.register_shares(self.stream, finds=self.finder is not None)
        with branches(self.threads.group == 0) as (producer, consumer):
            with producer:
                ptx("setmaxnreg.dec.sync.aligned.u32", registers[0])
                self._produce()
            with consumer:
                ptx("setmaxnreg.inc.sync.aligned.u32", registers[1])
                self._consume()

    def _consume(self) -> None:
        finder = self.finder
        each_work = self._each_work if finder is None else partial(finder.each_work, self.threads.group - 1)
        Consumer(self.tiling, self.threads, self.feeds, self.epilogue).run(each_work)

    def _produce(self) -> None:
        if self.stream.paged:
            shared = [self.feeds.right, *([self.feeds.value] if self.values else [])]
            PagedProducer(self.tiling, self.threads, shared, self.feeds.left).run(self._each_work)
            return
        with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
            self._produce_rows()
        if self.finder is not None:
            with when(self.threads.warp == 1):
                self.finder.find()

    def _produce_rows(self) -> None:
        feeds = self.feeds
        for copies in (self.left, self.right, *self.values):
            copies.prefetch()
        ring, left = feeds.right.filling("produced"), feeds.left.filling("produced_left")
        fetching = self._fetching()
        with self._each_work() as work:
            feeds.left.copy(left, work.first_row, self._fixed(feeds.left, work))
            left.advance()
            with T.serial(work.tiles.end - work.tiles.first) as step:
                row = (work.tiles.end - 1 - step) * self.config.columns
                feeds.right.copy(ring, row, self._fixed(feeds.right, work))
                if self.values:
                    feeds.value.copy(ring, row, self._fixed(feeds.value, work))
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

    def _fixed(self, feed: Filled, work: Work) -> list[dict[int, ir.Expr]]:
        """Of each operand, the places of the dimensions that its tile does not run along."""
        return [self.tiling.fixed(copies.operand, work.batch) for copies in feed.copies]
