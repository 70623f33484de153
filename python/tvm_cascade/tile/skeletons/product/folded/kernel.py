"""Emits kernels of products whose rows are folded: the product kernel's loop, and a fold of the sums in each block."""

from __future__ import annotations

import dataclasses
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.hopper.barrier import Ring, cluster_arrive, cluster_wait, fence_barriers
from tvm_cascade.tile.memory import Tensors
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.skeletons.product.consumer import Consumer
from tvm_cascade.tile.skeletons.product.feed import ProductFeed
from tvm_cascade.tile.skeletons.product.folded.config import FoldedConfig, LongConfig
from tvm_cascade.tile.skeletons.product.folded.fold import RowEpilogue
from tvm_cascade.tile.skeletons.product.folded.long import LongEpilogue
from tvm_cascade.tile.skeletons.product.folded.several import ConsumerOfSeveral
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.skeletons.product.folded.walk import Walk
from tvm_cascade.tile.skeletons.product.kernel import ProductKernel
from tvm_cascade.tile.skeletons.product.operands import TileOperand
from tvm_cascade.tile.skeletons.product.raster import Tile


class RowsKernel(ProductKernel):
    """Emits the kernel of a folded product, of which a block has whole rows."""

    def __init__(self, shape: FoldedProduct, program: RowProgram, config: FoldedConfig) -> None:
        super().__init__(shape.product, config.tile)
        self.folded, self.row_program, self.cut = shape, program, config

    def _outputs(self) -> RowEpilogue:
        self.tensors = Tensors(self.buffers)
        return RowEpilogue(self.folded, self.row_program, self.cut, self.tensors, self.feed)

    def _exchange(self, pool: Any) -> None:
        """Parts of k are added up in whole rows, by the epilogue."""
        self.epilogue.rank = self.rank
        return

    def _initialise(self) -> None:
        super()._initialise()
        self.epilogue.sums.initialise()

    def _meet(self) -> None:
        """Blocks wait for each other before they send sums, not before they copy operands."""
        fence_barriers()
        cluster_arrive(relaxed=True)
        T.evaluate(T.cuda.cta_sync())

    def _produce(self) -> None:
        super()._produce()
        if self.config.splits > 1:
            cluster_wait()

    def _places(self) -> None:
        self.tensors.flatten()
        super()._places()


class LongKernel(ProductKernel):
    """Emits the kernel of a folded product, of which a block has stretches of rows."""

    def __init__(self, shape: FoldedProduct, program: RowProgram, config: LongConfig) -> None:
        super().__init__(shape.product, config.tile)
        self.folded, self.row_program, self.cut = shape, program, config

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        self.name = "".join(c if c.isalnum() else "_" for c in name)
        return super().build(name)

    def _outputs(self) -> LongEpilogue:
        shape, tile = self.shape, self.cut.tile
        others = [ProductFeed(product, self.config, self.buffers) for product in self.folded.products[1:]]
        self.feeds = [self.feed, *others]
        self.tensors = Tensors(self.buffers)
        places, rows = product(shape.extent(var) for var in shape.batch), shape.left.line.extent
        assert isinstance(places, int) and isinstance(rows, int)
        down = tile.rows * tile.cluster
        items = places * -(-rows // down) * tile.cluster
        return LongEpilogue(self.folded, self.row_program, self.cut, self.tensors, self.name, items)

    def _raster(self) -> Walk:
        return Walk(self.shape, self.config, self.cut.stretches)

    def _shared(self) -> None:
        super()._shared()
        for feed in self.feeds[1:]:
            feed.share(self.feed)

    def _consumer(self) -> Consumer:
        if len(self.feeds) == 1:
            return super()._consumer()
        return ConsumerOfSeveral(self.feeds, self.epilogue.waiting, self.threads, self.epilogue, self.rank)

    def _fill_tile(self, ring: Ring, tile: Tile) -> None:
        super()._fill_tile(ring, tile)
        for number, feed in enumerate(self.feeds[1:], start=1):
            own = dataclasses.replace(tile, batch=self.folded.batch_of(number, tile.batch))
            with T.serial(feed.steps) as step:
                feed.fill(ring, own, step, self.rank, self.threads)

    def _prefetched(self) -> list[TileOperand]:
        return [operand for feed in self.feeds for operand in feed.operands]

    def _places(self) -> None:
        self.tensors.flatten()
        super()._places()
