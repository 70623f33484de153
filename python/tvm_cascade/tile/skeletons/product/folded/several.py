"""Several products of which a fold reads the elements at the same places: one after the other through one ring.

    producer    for tile: for product: for step along its k: wait until the stage is empty; copy its A; copy its B
    consumer    for tile: for product: for step along its k: sums += A @ Bᵀ
                          all but the last: the sums wait in shared memory
                fold: a thread reads back what it has left, and has the last product's sums in registers

So a tile is as wide as that of one product, however many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named
from tvm_cascade.tile.skeletons.product.consumer import Consumer
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.folded.config import LongConfig
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.work import WARP_GROUP, Threads


class WaitingSums:
    """The sums of all products but the last in shared memory, those of each register next to each other by threads."""

    def __init__(self, config: LongConfig, pool: Any) -> None:
        self.config = config
        shape = (config.products - 1, config.parts * config.tile.columns // 2, config.threads)
        self.memory = named("waiting_sums", pool.alloc(shape, "float32", align=16))

    def start(self, index: ir.Expr, threads: Threads) -> None:
        """A thread's own place; nobody else reads or writes it."""
        self.thread = bind("place_of_thread", index * WARP_GROUP + threads.warp * 32 + threads.lane)

    def keep(self, number: int, part: int, sums: Any) -> None:
        """Leaves the sums that a thread has of 64 rows of a product."""
        with T.unroll(self.config.tile.columns // 2) as k:
            T.buffer_store(self.memory, sums[k], [number, self._register(part, k), self.thread])

    def read(self, number: int, part: int, register: ir.Expr) -> ir.Expr:
        """One of them."""
        found: ir.Expr = self.memory[number, self._register(part, register), self.thread]
        return found

    def _register(self, part: int, register: ir.Expr) -> ir.Expr:
        return part * (self.config.tile.columns // 2) + register


class ConsumerOfSeveral(Consumer):
    """A consumer warp group of several products.

    Parameters
    ----------
    feeds : of all products, which share stages.
    waiting : where sums wait for those of the last.
    """

    def __init__(
        self, feeds: Sequence[ProductFeed], waiting: WaitingSums | None, threads: Threads, epilogue: Any,
        rank: ir.Expr | int,
    ) -> None:  # fmt: skip
        super().__init__(feeds[0], threads, epilogue, None, rank)
        self.waiting = waiting
        for feed in feeds[1:]:
            feed.follow(feeds[0])
        first = self.index * self.config.own_rows
        self.products = [(feed, feed.left.matrix(first), [right.matrix() for right in feed.rights]) for feed in feeds]

    def _sum_tile(self, tile: Tile) -> None:
        last = len(self.products) - 1
        for number, (feed, left, rights) in enumerate(self.products):
            self.feed, self.left, self.rights = feed, left, rights
            super()._sum_tile(tile)
            if self.waiting is not None and number < last:
                for part, (sums,) in enumerate(self.sums):
                    self.waiting.keep(number, part, sums)
