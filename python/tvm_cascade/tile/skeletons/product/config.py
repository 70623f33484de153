"""The configuration of a product kernel: tile sizes, pipeline stages, clusters and order of tiles."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_cascade.analysis.extent import ceil_div, product
from tvm_cascade.devices.cards import H200
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.operand import STORED_BYTES, Unfit
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP

DEPTH_BYTES = 128
"""Bytes of a row of an operand in one pipeline stage: the widest swizzle."""

SUM_BYTES = 4
"""Of an accumulated sum."""

BOX_COLUMNS = DEPTH_BYTES // STORED_BYTES
"""Columns of a result in one box of a bulk copy."""


@dataclass(frozen=True)
class ProductConfig:
    """Tile sizes, stages and order.

    Attributes
    ----------
    rows, columns : of a tile of the result. Rows are 64 for each consumer, or 128.
    consumers : warp groups that compute.
    stages : tiles of both operands in flight.
    cluster : blocks one below the other that share the right operand by multicast.
    splits : blocks of a cluster that sum a part of k each; they have one tile.
    band : tiles of rows that are done column by column, so that both operands stay in the L2 cache.
    staged : boxes of 64 columns of results that a consumer has under way to memory.
    blocks : that are launched at most; each does tiles in turn, and copies for the next while it computes.
    """

    rows: int = 128
    columns: int = 256
    consumers: int = 2
    stages: int = 4
    cluster: int = 1
    splits: int = 1
    band: int = 8
    staged: int = 2
    blocks: int = H200.processors

    @property
    def own_rows(self) -> int:
        """Rows of a consumer."""
        return self.rows // self.consumers

    @property
    def blocks_together(self) -> int:
        """Blocks of a cluster."""
        return self.cluster * self.splits

    @property
    def share(self) -> int:
        """Columns of a tile that a block stores."""
        return self.columns // self.splits

    @property
    def stores_boxes(self) -> bool:
        """Whether what a block stores is whole boxes of bulk copies."""
        return self.share % BOX_COLUMNS == 0

    @property
    def producer_registers(self) -> int:
        """Registers of a thread of the producer's warp group."""
        return 40 if self.consumers == 2 else 56

    @property
    def consumer_registers(self) -> int:
        """Registers of a consumer thread."""
        return 232 if self.consumers == 2 else 240

    @property
    def threads(self) -> int:
        """Threads of a block: the producer's warp group and the consumers'."""
        return WARP_GROUP * (self.consumers + 1)

    def shared_bytes(self, shape: MatrixProduct) -> int:
        """Bytes of shared memory of a block."""
        staging = self.rows * DEPTH_BYTES * self.staged if shape.tiled and self.stores_boxes else 0
        partial = self.rows * self.columns * SUM_BYTES if self.splits > 1 else 0
        return self.stages * (self.rows + self.columns) * DEPTH_BYTES + staging + partial + 1024

    def fits(self, shape: MatrixProduct, gpu: Gpu) -> bool:
        """Whether registers and shared memory suffice, and tiles are whole boxes."""
        if self.own_rows % GROUP_ROWS or self.own_rows * self.columns > 2 * GROUP_ROWS * 128:
            return False
        if self.columns % 8 or self.blocks_together > gpu.largest_cluster or self.splits > 1 < self.cluster:
            return False
        if self.share % 8 or not (self.splits == 1 or self._splits(shape)):
            return False
        if self.cluster > 1 and not (shape.left.bulk and shape.right.bulk):
            return False
        shares = self.columns // self.cluster
        if shares % (BOX_COLUMNS if shape.right.across else 8) or (shape.left.across and self.rows % BOX_COLUMNS):
            return False
        return self.shared_bytes(shape) <= gpu.block_shared_bytes

    def _splits(self, shape: MatrixProduct) -> bool:
        """Whether each part of k has a step at least, and partial sums find room where right operands were."""
        if self.rows * SUM_BYTES > self.stages * DEPTH_BYTES:
            return False
        extents = [shape.inner.extent, *(shape.extent(var) for var in shape.outer)]
        depth = DEPTH_BYTES // shape.left.operand.size
        steps = product([ceil_div(extents[0], depth), *extents[1:]])
        return isinstance(steps, int) and steps >= self.splits


def choose_config(shape: MatrixProduct, gpu: Gpu) -> ProductConfig:
    """The fitting configuration of the least estimated time.

    Raises
    ------
    Unfit
        Where none fits.
    """
    fitting = [c for c in (ProductConfig(blocks=gpu.processors), ProductConfig(columns=128)) if c.fits(shape, gpu)]
    if not fitting:
        raise Unfit("no tile fits into registers and shared memory")
    return fitting[0]


def tiles_of(shape: MatrixProduct, config: ProductConfig) -> object:
    """Tiles of the result, a number or an expression."""
    rows = ceil_div(shape.left.line.extent, config.rows)
    columns = ceil_div(shape.right.line.extent, config.columns)
    return product([rows, columns, *(shape.extent(v) for v in shape.batch)])
