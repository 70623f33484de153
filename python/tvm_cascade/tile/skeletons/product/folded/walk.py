"""The order of the tiles of long rows: a block walks along neighbouring tiles of the same rows, a stretch of them.

    rows       stretch 0: tiles 0 … 14     stretch 1: tiles 15 … 29    …

Stretches are done as tiles of the product are, band by band of rows: those that are walked at the same time have
columns in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.skeletons.product.raster import Raster, Tile
from tvm_cascade.tile.skeletons.product.shape import MatrixProduct


@dataclass(frozen=True)
class WalkedTile(Tile):
    """A tile of a stretch.

    Attributes
    ----------
    stretch : its number among those of the same rows.
    row_tile : the number of the rows' tile, over the batch.
    is_first, is_last : of the stretch.
    """

    stretch: ir.Expr
    row_tile: ir.Expr
    is_first: ir.Expr
    is_last: ir.Expr


class Walk(Raster):
    """Assigns stretches to the blocks of a launch.

    Parameters
    ----------
    stretches : of each row.
    """

    def __init__(self, shape: MatrixProduct, config: ProductConfig, stretches: int) -> None:
        super().__init__(shape, config)
        self.columns, self.across = self.across, kernel_extent(stretches)

    @contextmanager
    def each(self, block: ir.Expr, rank: ir.Expr | int) -> Iterator[Tile]:
        """A loop over a block's tiles around the statements of the block."""
        first = block // self.config.blocks_together
        with T.serial((self.shares - first + (self.clusters - 1)) // self.clusters) as turn:
            share = bind("share", first + turn * self.clusters)
            row, across, batch = self._place(share, rank)
            first_row, stretch = bind("first_row", row * self.config.rows), bind("stretch", across)
            place = share // (self.down * self.across)
            row_tile = bind("row_tile", place * (self.down * self.config.cluster) + row)
            start = bind("start", stretch * self.columns // self.across)
            count = bind("count", (stretch + 1) * self.columns // self.across - start)
            with T.serial(count) as step:
                column = bind("first_column", (start + step) * self.config.columns)
                yield WalkedTile(first_row, column, batch, stretch, row_tile, step == 0, step == count - 1)
