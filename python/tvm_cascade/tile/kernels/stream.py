"""The stream skeleton: a producer warp group copies tiles of the right operands; consumer warp groups fold them.

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
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.config import StreamConfig, dealt
from tvm_cascade.tile.emit import bind, branches, named, ptx, when, whole
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.kernels.consumer import Consumer
from tvm_cascade.tile.kernels.epilogue import Epilogue
from tvm_cascade.tile.kernels.scheduler import Item, Scheduler
from tvm_cascade.tile.kernels.work import Work
from tvm_cascade.tile.live import Rows, TileRange, live_tiles
from tvm_cascade.tile.operand import Operand
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.shape import Product


class StreamKernel:
    """Emits the kernel of a tile program."""

    def __init__(self, program: TileProgram, config: StreamConfig) -> None:
        self.program, self.config, self.stream = program, config, program.stream
        self.masks = program.element.masks
        length = self.stream.extent(self.stream.position)
        self.ragged = not (isinstance(length, int) and length % config.columns == 0)
        self.buffers: dict[tirx.Var, Any] = {}

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        self.name = name
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in self.stream.program.params:
                buffer = T.arg(param.name, T.Buffer(tuple(param.ty.shape), str(param.ty.dtype)))
                self.buffers[param] = buffer
            self._maps()
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1}):
                self._places()
                self._shared()
                self._roles()
        return builder.get()

    def _own(self, operand: Operand) -> Any:
        return next(own for param, own in self.buffers.items() if param.same_as(operand.buffer))

    def _maps(self) -> None:
        config, stream = self.config, self.stream
        self.left = TensorMap(stream.left, self._own(stream.left), config.rows)
        self.right = TensorMap(stream.right, self._own(stream.right), config.columns)
        self.values = [self._value_map(product) for product in stream.products]
        self.epilogue = Epilogue(self.program, config, self.buffers)

    def _value_map(self, product: Product) -> TensorMap:
        """Of a tile of positions of V, along its rows or along its columns."""
        own, positions = self._own(product.value), self.config.columns
        if product.is_transposed:
            return TensorMap(product.value, own, product.width, positions)
        return TensorMap(product.value, own, positions)

    def _places(self) -> None:
        """Blocks, one a multiprocessor, and their threads."""
        stream, config = self.stream, self.config
        row_tiles = whole((stream.extent(stream.row) + (config.rows - 1)) // config.rows)
        places = whole(product(stream.extent(var) for var in stream.batch))
        shared_out = dealt(config, self.program)
        items = None if shared_out is None else shared_out.items
        self.scheduler = Scheduler(row_tiles, places, config.blocks, self.program.uneven, items, self.name)
        self.block = named("block", T.cta_id([self.scheduler.grid]))
        self.group = named("group", T.warpgroup_id([config.consumers + 1]))
        self.warp = named("warp", T.warp_id_in_wg([4]))
        self.lane = named("lane", T.lane_id([32]))
        self.thread = named("thread", T.thread_id([config.threads]))

    @contextmanager
    def each_work(self) -> Iterator[Work]:
        """What is written within is done for every tile of rows that the block has."""
        with self.scheduler.each(self.block) as item:
            yield self._work(item)

    def _work(self, item: Item) -> Work:
        stream, config = self.stream, self.config
        first_row, rest = bind("first_row", item.row_tile * config.rows), item.place
        batch: dict[tirx.Var, ir.Expr] = {}
        for var in reversed(stream.batch):
            extent = whole(stream.extent(var))
            batch[var] = bind(var.name, rest % extent)
            rest = rest // extent
        tiles, visited = self.tile_count(), self.visited(batch, first_row, config.rows)
        first = bind("first_tile", tirx.max(tirx.min(visited.first, tiles - 1), 0))
        end = bind("end_tile", tirx.max(tirx.min(visited.end, tiles), first + 1))
        return Work(first_row, batch, TileRange(first, end))

    def visited(self, batch: dict[tirx.Var, ir.Expr], first_row: ir.Expr, count: int) -> TileRange:
        """The tiles that hold a live position of some rows."""
        slacks = tuple(self.placed(slack, batch) for slack in self.program.skip)
        rows = Rows(self.stream.row, first_row, count)
        return live_tiles(slacks, self.stream.position, rows, self.config.columns, self.tile_count())

    def _shared(self) -> None:
        config, pool = self.config, T.SMEMPool()
        self.left_tiles = self._tiles("left_tiles", pool, config.left_stages, self.left)
        self.right_tiles = self._tiles("right_tiles", pool, config.stages, self.right)
        self.value_tiles = [self._tiles("value_tiles", pool, config.stages, copies) for copies in self.values]
        self.epilogue.allocate(pool, self.left.boxes)
        self.left_full = Barriers(pool, config.left_stages, 1)
        self.left_empty = Barriers(pool, config.left_stages, config.consumers)
        self.right_full, self.value_full = Barriers(pool, config.stages, 1), Barriers(pool, config.stages, 1)
        consumers = config.consumers
        self.right_empty = Barriers(pool, config.stages, consumers)
        self.value_empty = Barriers(pool, config.stages, consumers)
        pool.commit()
        with when(self.thread == 0):
            for barriers in self._barriers():
                barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        T.evaluate(T.cuda.cta_sync())

    def _tiles(self, name: str, pool: Any, stages: int, copies: TensorMap) -> Any:
        """Shared memory for the tiles of an operand, [stage, box, row, column]."""
        shape = (stages, copies.boxes, copies.rows, copies.per_box)
        return named(name, pool.alloc(shape, copies.element, align=1024))

    def _barriers(self) -> list[Barriers]:
        filled = [self.left_full, self.right_full, self.value_full]
        return [*filled, self.left_empty, self.right_empty, self.value_empty]

    def _roles(self) -> None:
        with branches(self.group == 0) as (producer, consumer):
            with producer:
                ptx("setmaxnreg.dec.sync.aligned.u32", self.config.producer_registers)
                with when(self.warp == 0), when(T.cuda.elect_sync()):
                    self._produce()
            with consumer:
                ptx("setmaxnreg.inc.sync.aligned.u32", self.config.consumer_registers)
                Consumer(self).run()

    def tile_count(self) -> ir.Expr:
        """Tiles of the cascade axis."""
        return whole((self.stream.extent(self.stream.position) + (self.config.columns - 1)) // self.config.columns)

    def placed(self, expression: ir.Expr, batch: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        """An expression over the frame at a place in the batch."""
        return placed(expression, batch, self.buffers)

    def fixed(self, operand: Operand, batch: dict[tirx.Var, ir.Expr]) -> dict[int, ir.Expr]:
        """The places of the dimensions that a tile of an operand does not run along."""
        return {d: self.placed(operand.indices[d], batch) for d in operand.fixed}

    def _produce(self) -> None:
        for copies in (self.left, self.right, *self.values):
            copies.prefetch()
        ring, left = Ring("produced", self.config.stages, 1), Ring("produced_left", self.config.left_stages, 1)
        with self.each_work() as work:
            self._copy([(self.left, self.left_tiles)], self.left_full, self.left_empty, left, work.first_row, work)
            left.advance()
            with T.serial(work.tiles.end - work.tiles.first) as step:
                row = (work.tiles.end - 1 - step) * self.config.columns
                self._copy([(self.right, self.right_tiles)], self.right_full, self.right_empty, ring, row, work)
                if self.values:
                    pairs = list(zip(self.values, self.value_tiles, strict=True))
                    self._copy(pairs, self.value_full, self.value_empty, ring, row, work)
                ring.advance()

    def _copy(
        self,
        pairs: list[tuple[TensorMap, Any]],
        full: Barriers,
        empty: Barriers,
        ring: Ring,
        at: ir.Expr,
        work: Work,
    ) -> None:
        """Copies of the tile of each tensor from a row or position on into the next stage, as soon as that is empty."""
        empty.wait(ring.stage, ring.parity)
        full.announce(ring.stage, sum(copies.tile_bytes for copies, _ in pairs))
        for copies, tiles in pairs:
            fixed = self.fixed(copies.operand, work.batch)

            def target(box: int, tiles: Any = tiles) -> ir.Expr:
                return tiles.ptr_to([ring.stage, box, 0, 0])

            copies.load(target, at, fixed, full.pointer(ring.stage))
