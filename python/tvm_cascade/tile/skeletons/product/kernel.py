"""Emits the product kernel: a producer warp issues bulk tensor copies, consumer warp groups sum products of tiles.

    producer    for tile of the result: for step along k: wait until the stage is empty; copy A; copy B
    consumer    for tile of the result: for step along k: wait for the stage; sums += A @ Bᵀ
                                        map; store

Blocks are persistent: copies for the next tile run while one is stored. The blocks of a cluster have tiles in one
column, of which each copies a part of B for all of them. Source of the schedule: CUTLASS's warp-specialised persistent
kernels for Hopper (2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import named, when
from tvm_cascade.tile.hopper.barrier import Ring, cluster_arrive, cluster_sync, cluster_wait, fence_barriers
from tvm_cascade.tile.hopper.driver import Driver, Initialised
from tvm_cascade.tile.launch.dependent import Launch, wait_for_others
from tvm_cascade.tile.product.matrix import MatrixProduct
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.consumer import PlainSumming, PromotedSumming, Steps, Summing
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue, MapEpilogue
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.raster import Raster, Tile, TileOrder
from tvm_cascade.tile.work import Registers

Feeds = Sequence[ProductFeed]


@dataclass(frozen=True)
class Roles:
    """What families of product kernels differ in.

    Attributes
    ----------
    epilogue : (feeds, name of the kernel) -> what consumers do with the sums of a tile.
    summing : steps along k -> how they sum it.
    left_shared : products read the left operand from shared memory.
    """

    epilogue: Callable[[Feeds, str], Epilogue]
    summing: Callable[[Steps], Summing]
    left_shared: bool = True
    order: Callable[[MatrixProduct, ProductConfig], TileOrder] = Raster


def product_kernel(shape: MatrixProduct, config: ProductConfig, launch: Launch) -> ProductKernel:
    summing = PromotedSumming if config.promoted else PlainSumming
    return ProductKernel([shape], config, Roles(lambda feeds, _: MapEpilogue(feeds[0]), summing), launch.given)


class ProductKernel(Driver):
    """Emits the kernel of a product; of several in the same tiles, one after the other through one ring."""

    order: TileOrder

    def __init__(self, shapes: Sequence[MatrixProduct], config: ProductConfig, own: Roles, given: bool = False) -> None:
        super().__init__(shapes[0].fold.program.params, config.consumers)
        self.shapes, self.config, self.own, self.given = shapes, config, own, given

    def describe(self) -> None:
        self.feeds = [ProductFeed(shape, self.config, self.buffers) for shape in self.shapes]
        self.feed, self.epilogue = self.feeds[0], self.own.epilogue(self.feeds, self.name)

    def place(self) -> None:
        together = self.config.blocks_together
        self.epilogue.declare()
        self.order = self.own.order(self.shapes[0], self.config)
        block = named("block", T.cta_id([self.order.grid]))
        self.rank: ir.Expr | int = named("rank", T.cta_id_in_cluster([together])) if together > 1 else 0
        self.order.rank = self.rank if self.config.cluster > 1 else 0
        self.place_threads(block)

    def allocate(self, pool: Any) -> None:
        self.feed.allocate(pool)
        for feed in self.feeds[1:]:
            feed.share(self.feed)
        self.epilogue.allocate(pool, self.rank)

    def barriers(self) -> list[Initialised]:
        return [self.feed.full, self.feed.empty, *self.epilogue.barriers()]

    def meet(self) -> None:
        """Waits until the barriers of all blocks of the cluster are there."""
        if self.config.blocks_together > 1:
            fence_barriers()
            if not self.epilogue.meets_late:
                cluster_sync()
                return
            cluster_arrive(relaxed=True)
        super().meet()

    def registers(self) -> Registers:
        return self.config.registers(bool(self.feed.gathers))

    @property
    def begins_early(self) -> bool:
        """Where it is given the right operands, and copies of their first tiles can come before all else."""
        return self.given and self.feed.may_begin

    def roles(self) -> None:
        """No block ends while others may copy to it."""
        super().roles()
        if self.config.cluster > 1:
            cluster_sync()

    def consume(self) -> None:
        """A warp group's loop over the block's tiles, whose sums are 0 where there are no steps."""
        steps = Steps(self.feeds, self.threads, self.rank, self.own.left_shared)
        summing, index = self.own.summing(steps), steps.index
        with summing.turns():
            self.epilogue.start(index, self.threads)
            with self.each_work() as tile:
                if self.feed.may_be_none:
                    steps.clear(steps.sums)
                with when(self.feed.any(tile)) if self.feed.may_be_none else nullcontext():
                    summing.sum(tile)
                self.epilogue.emit(tile, steps.sums, index, self.threads)
            self.epilogue.drain(self.threads)

    def produce(self) -> None:
        """By one thread, or by the whole warp group where threads copy an operand."""
        if self.feed.gathers:
            self._fill()
        else:
            with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
                operands = [operand.copies for feed in self.feeds for operand in feed.operands]
                for copies in (*operands, *self.epilogue.copies.values()):
                    if copies is not None:
                        copies.prefetch()
                self._fill()
        if self.epilogue.meets_late and self.config.splits > 1:
            cluster_wait()

    def _fill(self) -> None:
        ring = self.feed.start()
        if self.begins_early:
            self.feed.begin(self.order.first(self.threads.block), self.rank)
            wait_for_others()
        with self.each_work() as tile:
            for feed in self.feeds:
                self._fill_tile(feed, ring, tile)
        self.feed.finish(self.threads)

    def _fill_tile(self, feed: ProductFeed, ring: Ring, tile: Tile) -> None:
        first, count = feed.part(self.rank)
        with when(feed.any(tile)) if feed.may_be_none else nullcontext(), T.serial(count) as step:
            feed.fill(ring, tile, first + step, self.rank, self.threads)
