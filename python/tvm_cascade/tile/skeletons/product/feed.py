"""The feed of a product kernel: a ring of tiles of both operands, shared by the blocks of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import Extent, product
from tvm_cascade.tile.emit import bind, digits, kernel_extent, put, registers, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.product.matrix import MatrixProduct, Side
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.gather import Landing
from tvm_cascade.tile.skeletons.product.operands import TileOperand, inner_tiles
from tvm_cascade.tile.skeletons.product.raster import Tile
from tvm_cascade.tile.work import WARP_GROUP, Threads


class ProductFeed:
    """Tiles of both operands that are copied, waited for and released together.

    Attributes
    ----------
    left : the left operand.
    rights : those on the right.
    full, empty : a barrier for each stage; a stage is empty when all blocks that it is copied to have read it.
    """

    def __init__(self, shape: MatrixProduct, config: ProductConfig, buffers: Mapping[tirx.Var, Any]) -> None:
        self.shape, self.config, self.buffers = shape, config, buffers
        self.landing: Landing | None = None
        self.copied: Any = None

        def operand(side: Side, extent: Extent, length: int, shares: int) -> TileOperand:
            own = buffers[side.operand.buffer]
            return TileOperand(side, shape.inner, own, extent, length, shares, buffers)

        self.left = operand(shape.left, shape.left.line.extent, config.rows, 1)
        self.rights = [operand(side, side.line.extent, config.columns, config.cluster) for side in shape.rights]

    def allocate(self, pool: Any) -> None:
        """Shared memory of tiles and barriers."""
        config = self.config
        self.left.allocate("left_tiles", pool, config.stages)
        for right in self.rights:
            right.allocate("right_tiles", pool, config.stages)
        self.full = Barriers(pool, config.stages, 1 + (WARP_GROUP if self.gathers else 0))
        self.empty = Barriers(pool, config.stages, config.consumers * config.cluster * config.family.arrivals)

    def share(self, first: ProductFeed) -> None:
        """Uses the stages of the feed of another product, in turns with it."""
        self.full, self.empty = first.full, first.empty
        for own, other in zip(self.operands, first.operands, strict=True):
            own.share(other)

    @property
    def memory(self) -> ir.Expr:
        """A pointer to the tiles of the right operands, which are in one piece."""
        return self.rights[0].tiles.ptr_to([0, 0, 0, 0])

    @property
    def operands(self) -> list[TileOperand]:
        """All of them."""
        return [self.left, *self.rights]

    @property
    def gathers(self) -> list[TileOperand]:
        """The operands that the threads of the producer's warp group copy."""
        return [operand for operand in self.operands if operand.copies is None]

    @property
    def inner(self) -> ir.Expr:
        """Tiles along the inner line."""
        return inner_tiles(self.shape.inner.extent, self.left.depth)

    @property
    def steps(self) -> ir.Expr:
        """Tiles of both operands for one tile of the result."""
        return self.inner * kernel_extent(product(self.shape.extent(var) for var in self.shape.outer))

    def part(self, rank: ir.Expr | int) -> tuple[ir.Expr, ir.Expr]:
        """The first of the steps that a block does, and how many.

        Parameters
        ----------
        rank : of the block in its cluster.
        """
        if self.config.splits == 1:
            return tirx.const(0, "int32"), self.steps
        first = bind("first_step", rank * self.steps // self.config.splits)
        return first, bind("own_steps", (rank + 1) * self.steps // self.config.splits - first)

    @property
    def may_begin(self) -> bool:
        """Whether the first tiles on the right can be copied before the kernel waits for those before it."""
        return not self.gathers and not self.shape.outer and self.config.cluster == 1

    def begin(self, tile: Tile, rank: ir.Expr | int) -> None:
        """Copies the tiles on the right of a block's first steps, as many as there are stages."""
        first, count = self.part(rank)
        self.copied = registers("copied_early", 1, "int32")
        put(self.copied, 0, tirx.min(count, self.config.stages))
        with T.serial(self.copied[0]) as stage:
            self.full.announce(stage, self._expected())
            deep = (first + stage) * self.left.depth
            for right in self.rights:
                right.copy(stage, tile.first_column, deep, tile.batch, rank, self.full.pointer(stage))

    def _expected(self) -> Any:
        """Bytes of a stage that bulk copies bring."""
        expected = [operand.expected for operand in self.operands]
        return sum(expected[1:], expected[0])

    def fill(self, ring: Ring, tile: Tile, step: ir.Expr, rank: ir.Expr | int, threads: Threads) -> None:
        """Copies the tiles of a step into the next stage, once that is empty: by one thread, or by the warp group."""
        places = {**tile.batch, **digits(step // self.inner, self.shape.outer, self.shape.extent)}
        deep = step % self.inner * self.left.depth if self.shape.outer else step * self.left.depth
        self.empty.wait(ring.stage, ring.parity)
        firsts = (tile.first_row, *(tile.first_column for _ in self.rights))
        barrier = self.full.pointer(ring.stage)

        def copy(operands: Sequence[TileOperand], firsts: Sequence[ir.Expr]) -> None:
            for operand, first in zip(operands, firsts, strict=True):
                operand.copy(ring.stage, first, deep, places, rank, barrier)

        with when(threads.leads) if self.gathers else nullcontext():
            if self.copied is None:
                self.full.announce(ring.stage, self._expected())
                copy(self.operands, firsts)
            else:
                with when(self.copied[0] <= 0):
                    self.full.announce(ring.stage, self._expected())
                    copy(self.rights, firsts[1:])
                copy([self.left], firsts[:1])
                put(self.copied, 0, self.copied[0] - 1)
        for operand, first in zip(self.operands, firsts, strict=True):
            if operand.gather is not None:
                operand.gather.copy(ring.stage, first, deep, places, threads.thread)
        if self.landing is not None:
            self.landing.follow()
        ring.advance()

    def start(self) -> Ring:
        """The ring that the producer fills."""
        alone = any(operand.gather is not None and operand.gather.alone for operand in self.gathers)
        self.landing = Landing(self.full, self.config.stages, alone) if self.gathers else None
        return Ring("produced", self.config.stages, 1)

    def finish(self) -> None:
        """After the last step."""
        if self.landing is not None:
            self.landing.finish()

    def address_blocks(self, threads: Threads) -> None:
        """Finds the barriers of the blocks of the cluster, one for each of the first warps."""
        if self.config.cluster > 1:
            self.peers = self.empty.of_block(tirx.min(threads.warp, self.config.cluster - 1))

    def follow(self, first: ProductFeed) -> None:
        """Uses what another feed, whose stages it shares, knows of the blocks of the cluster."""
        if self.config.cluster > 1:
            self.peers = first.peers

    def release(self, stage: ir.Expr, threads: Threads) -> None:
        """A consumer has read a stage: who leads those that multiply together tells each block that copies to it."""
        if self.config.cluster == 1:
            with self.config.family.leading(threads):
                self.empty.arrive(stage)
            return
        with when(tirx.And(threads.lane == 0, threads.warp < self.config.cluster)):
            self.empty.arrive_at(self.peers, stage)
