"""Emits the product kernel: a producer warp issues bulk tensor copies, consumer warp groups sum products of tiles.

    producer    for tile of the result: for step along k: wait until the stage is empty; copy A; copy B
    consumer    for tile of the result: for step along k: wait for the stage; sums += A @ Bᵀ
                                        map; store

Blocks are persistent: copies for the next tile run while one is stored. The blocks of a cluster have tiles in one
column, of which each copies a part of B for all of them. Source of the schedule: CUTLASS's warp-specialised persistent
kernels for Hopper (2023).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import branches, named, parameter, ptx, shared_pool, when
from tvm_cascade.tile.hopper.barrier import Ring, cluster_sync, fence_barriers
from tvm_cascade.tile.launch.dependent import let_others_start, wait_for_others
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.consumer import Consumer
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.operands import TileOperand
from tvm_cascade.tile.skeletons.product.partial import PartialSums
from tvm_cascade.tile.skeletons.product.promoted import PromotedConsumer
from tvm_cascade.tile.skeletons.product.raster import Raster, Tile
from tvm_cascade.tile.skeletons.product.scaled import ScaledConsumer
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct
from tvm_cascade.tile.work import GROUP_ROWS, Threads


class ProductKernel:
    """Emits the kernel of a product."""

    def __init__(self, shape: MatrixProduct, config: ProductConfig) -> None:
        self.shape, self.config = shape, config
        self.buffers: dict[tirx.Var, Any] = {}

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in self.shape.program.params:
                self.buffers[param] = parameter(param)
            self.feed = self._made_feed()
            self.epilogue: Any = self._outputs()
            T.device_entry()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1}):
                self._places()
                self._shared()
                self._roles()
        return builder.get()

    def _made_feed(self) -> ProductFeed:
        """The tiles that producers and consumers pass on."""
        return ProductFeed(self.shape, self.config, self.buffers)

    def _outputs(self) -> Any:
        """What consumers do with the sums of a tile."""
        return Epilogue(self.shape, self.config, self.buffers)

    def _raster(self) -> Raster:
        """The order of the tiles."""
        return Raster(self.shape, self.config)

    def _exchange(self, pool: Any) -> PartialSums | None:
        """The exchange of partial sums before that."""
        arrays = self.config.own_rows // GROUP_ROWS * len(self.feed.rights)
        return PartialSums(self.config, arrays, pool) if self.config.splits > 1 else None

    def _places(self) -> None:
        """Blocks, one a multiprocessor, and their threads."""
        config = self.config
        self.raster = self._raster()
        block = named("block", T.cta_id([self.raster.grid]))
        self.rank: ir.Expr | int = 0
        if config.blocks_together > 1:
            self.rank = named("rank", T.cta_id_in_cluster([config.blocks_together]))
        self.threads = Threads(
            block,
            named("group", T.warpgroup_id([config.consumers + 1])),
            named("warp", T.warp_id_in_wg([4])),
            named("lane", T.lane_id([32])),
            named("thread", T.thread_id([config.threads])),
        )

    @contextmanager
    def _each_tile(self) -> Iterator[Tile]:
        """What is written within is done for every tile that the block has."""
        neighbour = self.rank if self.config.cluster > 1 else 0
        with self.raster.each(self.threads.block, neighbour) as tile:
            yield tile

    def _shared(self) -> None:
        pool = shared_pool()
        self.feed.allocate(pool)
        self.epilogue.allocate(pool)
        self.partial = self._exchange(pool)
        pool.commit()
        with when(self.threads.thread == 0):
            self._initialise()
        ptx("fence.proxy.async.shared::cta")
        if self.config.blocks_together > 1:
            self._meet()
        else:
            T.evaluate(T.cuda.cta_sync())

    def _meet(self) -> None:
        """Waits until the barriers of all blocks of the cluster are there."""
        fence_barriers()
        cluster_sync()

    def _initialise(self) -> None:
        """Initialises all barriers; called by one thread."""
        self.feed.full.initialise()
        self.feed.empty.initialise()
        if self.partial is not None:
            self.partial.initialise()

    def _roles(self) -> None:
        few, many = self.config.registers(bool(self.feed.gathers))
        with branches(self.threads.group == 0) as (producer, consumer):
            with producer:
                ptx("setmaxnreg.dec.sync.aligned.u32", few)
                self._produce()
            with consumer:
                ptx("setmaxnreg.inc.sync.aligned.u32", many)
                if self.feed.begins_early:
                    wait_for_others()
                    with when(self.threads.leads):
                        let_others_start()
                self._consumer().run(self._each_tile)
        if self.config.cluster > 1:
            cluster_sync()

    def _consumer(self) -> Consumer:
        """A warp group that computes."""
        kind = ScaledConsumer if self.shape.scales else PromotedConsumer if self.config.promoted else Consumer
        return kind(self.feed, self.threads, self.epilogue, self.partial, self.rank)

    def _produce(self) -> None:
        """By one thread, or by the whole warp group where threads copy an operand."""
        feed = self.feed
        if feed.gathers:
            self._fill()
            return
        with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
            for copies in (*(operand.copies for operand in self._prefetched()), *self.epilogue.copies.values()):
                if copies is not None:
                    copies.prefetch()
            self._fill()

    def _fill(self) -> None:
        ring = self.feed.start()
        if self.feed.begins_early:
            self.feed.begin(self.raster.first(self.threads.block, 0), self.rank)
            wait_for_others()
        with self._each_tile() as tile:
            self._fill_tile(ring, tile)
        self.feed.finish()

    def _fill_tile(self, ring: Ring, tile: Tile) -> None:
        """Copies what the sums of a tile are made of."""
        first, count = self.feed.part(self.rank)
        with T.serial(count) as step:
            self.feed.fill(ring, tile, first + step, self.rank, self.threads)

    def _prefetched(self) -> list[TileOperand]:
        """The operands whose descriptors are fetched first."""
        return self.feed.operands
