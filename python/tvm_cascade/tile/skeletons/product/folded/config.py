"""The configuration of a kernel that folds the rows of a product: tiles of the product, and threads of a row."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.machine.family import WIDEST
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.skeletons.product.config import SUM_BYTES, ProductConfig, lacks_memory, lacks_steps
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.work import GROUP_ROWS

_SKEW = 8
"""Sums beyond a multiple of 16 from one row to the next, so that pairs of eight rows lie in different banks."""

_KEPT, _WIDEST_LOAD = 32, 4
"""Positions that a thread folds together, and sums that it reads at once."""


@dataclass(frozen=True)
class FoldedConfig:
    """The cut of a product and of its rows.

    Attributes
    ----------
    sharing : threads of a row.
    """

    tile: ProductConfig
    sharing: int

    def row(self, shape: FoldedProduct) -> RowConfig:
        """The cut of a row, whose sums are read again for outputs that have an element a position."""
        vector = min(shape.row.widest_vector, _WIDEST_LOAD)
        vectors = max(1, min(shape.columns // (self.sharing * vector), _KEPT // vector))
        return RowConfig(self.tile.computing, self.sharing, vector, vectors)

    @property
    def rows(self) -> int:
        return -(-self.tile.rows // self.tile.splits)

    @property
    def rows_at_once(self) -> int:
        return self.tile.computing // self.sharing

    @property
    def pitch(self) -> int:
        return self.tile.columns + (_SKEW - self.tile.columns) % (2 * _SKEW)

    @property
    def sums_bytes(self) -> int:
        return self.rows * self.tile.splits * self.pitch * SUM_BYTES

    def shared_bytes(self, shape: FoldedProduct) -> int:
        return self.tile.ring_bytes(shape.product) + self.sums_bytes

    def lacks(self, shape: FoldedProduct, gpu: Gpu) -> str:
        """What of a GPU or of the shape it does not fit, in words; empty where it fits."""
        tile = self.tile
        if len(shape.products) > 1:
            return f"{len(shape.products)} products, of which shared memory has room for the rows of one"
        if tile.cluster > 1:
            return "blocks of a cluster share parts of k, no operand"
        if tile.stages < 2:
            return f"{tile.stages} stages: products release one when those of the next are under way"
        if tile.columns < shape.columns:
            return f"{shape.columns} columns are more than the {tile.columns} of a tile"
        if tile.own_rows != GROUP_ROWS or tile.columns > WIDEST or tile.columns % 8:
            return (
                f"{tile.own_rows}×{tile.columns} sums of a consumer: expected 64 rows, and columns in 8s up to {WIDEST}"
            )
        if self.sharing > WARP or WARP % self.sharing or self.rows % min(self.rows_at_once, self.rows):
            return f"{self.sharing} threads a row of {self.rows} rows: expected a part of a warp, and all rows in turns"
        return self._lacks_of_splits(shape, gpu) or lacks_memory(self.shared_bytes(shape), gpu)

    def _lacks_of_splits(self, shape: FoldedProduct, gpu: Gpu) -> str:
        tile = self.tile
        if tile.splits == 1:
            return ""
        if tile.splits > gpu.largest_cluster:
            return f"{tile.splits} blocks in a cluster; {gpu.name} has {gpu.largest_cluster} at most"
        if self.sums_bytes > tile.stages * tile.columns * 128:
            return f"{tile.stages} stages leave no room for the partial sums of {tile.rows} rows"
        return lacks_steps(shape.product, tile.splits)


@dataclass(frozen=True)
class LongConfig:
    """The cut of a product and of its long rows.

    Attributes
    ----------
    stretches : of neighbouring tiles of the same rows, that a block folds one after the other.
    rows : that there are in a tile, at most.
    """

    tile: ProductConfig
    stretches: int
    rows: int

    @property
    def parts(self) -> int:
        return self.tile.own_rows // GROUP_ROWS

    @property
    def sharing(self) -> int:
        most = min(WARP, max(1, self.tile.computing // self.rows))
        return 1 << most.bit_length() - 1

    def lacks(self, shape: FoldedProduct, gpu: Gpu) -> str:
        """What of a GPU or of the shape it does not fit, in words; empty where it fits."""
        if shape.row.position_outputs:
            return f"{shape.row.position_outputs[0].buffer.name} has an element for every column, which is gone by then"
        if shape.picked:
            return f"{shape.picked} has elements that are picked of whole rows, which are gone by then"
        if self.tile.splits > 1:
            return "parts of k are added up before rows are folded, in shorter rows"
        if self.stretches > (tiles := -(-shape.columns // self.tile.columns)):
            return f"{self.stretches} stretches of {tiles} tiles"
        waiting = (len(shape.products) - 1) * self.tile.rows * self.tile.columns * SUM_BYTES
        return self.tile.lacks(shape.product, gpu) or lacks_memory(self.tile.ring_bytes(shape.product) + waiting, gpu)


Config = FoldedConfig | LongConfig
"""Of either: rows of a block, or stretches of rows."""
