"""The consumer warp groups of the product skeleton: sums of products of tiles, one stage after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.skeletons.product.config import steps_of
from tvm_cascade.tile.skeletons.product.epilogue import Epilogue
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.partial import PartialSums
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.work import GROUP_ROWS, Threads


class Consumer:
    """Emits one consumer warp group.

    Attributes
    ----------
    index : its number among the consumers.
    sums : registers of its accumulators, for each 64 rows one array of each sum of products.
    """

    def __init__(
        self, feed: ProductFeed, threads: Threads, epilogue: Epilogue, partial: PartialSums | None, rank: ir.Expr | int
    ) -> None:  # fmt: skip
        self.partial, self.rank = partial, rank
        self.feed, self.threads, self.epilogue, self.config = feed, threads, epilogue, feed.config
        self.index = bind("consumer", threads.group - 1)
        parts = self.config.own_rows // GROUP_ROWS
        self.sums = [
            [registers(f"sums_{part}", self.config.columns // 2) for _ in feed.rights] for part in range(parts)
        ]
        self._prepare_left()
        self.rights = [right.matrix() for right in feed.rights]
        self.ring, self.read = Ring("filled", self.config.stages, 0), Ring("read", self.config.stages, 0)
        feed.address_blocks(threads)

    def _prepare_left(self) -> None:
        """Emits what reading the left operand takes: the descriptor of a consumer's rows."""
        self.left = self.feed.left.matrix(self.index * self.config.own_rows)

    def run(self, each_tile: Callable[[], AbstractContextManager[Tile]]) -> None:
        """Emits the loop over the block's tiles."""
        self.epilogue.start(self.index, self.threads)
        with each_tile() as tile:
            self._sum(tile)
            if self.partial is not None:
                arrays = [array for of_part in self.sums for array in of_part]
                self.partial.exchange(arrays, self.index, self.rank, self.feed.memory, self.threads)
                tile = dataclasses.replace(tile, first_column=tile.first_column + self.rank * self.config.share)
            self.epilogue.emit(tile, self.sums, self.index, self.threads)
        self.epilogue.drain(self.threads)
        if self.partial is not None:
            self.partial.leave()

    def _sum(self, tile: Tile) -> None:
        """The sums of a tile, which are 0 where there are no steps."""
        if isinstance(steps_of(self.feed.shape), int):
            self._sum_tile(tile)
            return
        for array in (array for of_part in self.sums for array in of_part):
            with T.unroll(self.config.columns // 2) as k:
                put(array, k, tirx.const(0.0, "float32"))
        with when(self.feed.steps > 0):
            self._sum_tile(tile)

    def _sum_tile(self, tile: Tile) -> None:
        """The sums of a tile; a stage is released once the products after those that read it are under way."""
        self._sum_steps(self.feed.part(self.rank)[1])

    def _sum_steps(self, count: ir.Expr) -> None:
        """The sums of so many steps, one at least."""
        self._step(first=True)
        with T.serial(count - 1):
            self._step(first=False)
            wgmma.wait(1)
            self._release()
        wgmma.wait(0)
        self._release()

    @property
    def summed(self) -> list[list[Any]]:
        """The registers that products are added to, for each 64 rows an array of each sum."""
        return self.sums

    def _step(self, first: bool) -> None:
        feed = self.feed
        feed.full.wait(self.ring.stage, self.ring.parity)
        wgmma.fence()
        for part, of_part in enumerate(self.summed):
            for sums, right, operand in zip(of_part, self.rights, feed.rights, strict=True):
                wgmma.multiply_shared(
                    sums, self.config.columns, self.left, right, feed.left.depth, feed.shape.dtypes,
                    feed.left.offset(self.ring.stage, part), operand.offset(self.ring.stage), add=not first,
                )  # fmt: skip
        wgmma.commit()
        self.ring.advance()

    def _release(self) -> None:
        self.feed.release(self.read.stage, self.threads)
        self.read.advance()
