"""The order of the tiles of a result: band by band of rows, column by column in each.

    band of 2      0 2 4 6
                   1 3 5 7
                   8 10 …

Tiles that are computed together then share their operands in the L2 cache. A product of a batch comes after the other;
where data say which right operand each has, neighbours have the same one mostly, and bands go on from one to the next.
The last tiles of rows and of columns end where the result does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import ir, sym, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import product
from tvm_cascade.tile.emit import bind, digits, in_register, kernel_extent
from tvm_cascade.tile.product.matrix import MatrixProduct, Side
from tvm_cascade.tile.skeletons.product.config import ProductConfig
from tvm_cascade.tile.work import Order


@dataclass(frozen=True)
class Tile:
    """A tile of the result."""

    first_row: ir.Expr
    first_column: ir.Expr
    batch: dict[tirx.Var, ir.Expr]


BAND = 8
"""Tiles of rows that are done column by column."""


class TileOrder(Order[Tile]):
    """An order of tiles.

    Attributes
    ----------
    rank : of a block among those whose tiles are neighbours in a column.
    """

    rank: ir.Expr | int = 0

    @abstractmethod
    def first(self, block: ir.Expr) -> Tile:
        """The first of a block's, for kernels that copy from it before all else."""


class Raster(TileOrder):
    """Assigns tiles to the blocks of a launch; those of a cluster are neighbours in a column."""

    def __init__(self, shape: MatrixProduct, config: ProductConfig) -> None:
        self.shape, self.config = shape, config
        down, across = config.rows * config.cluster, config.columns
        self.down = (kernel_extent(shape.left.line.extent) + (down - 1)) // down
        self.across = (kernel_extent(shape.right.line.extent) + (across - 1)) // across
        self.places = kernel_extent(product(shape.extent(var) for var in shape.batch))
        self.joined = any(side.is_gathered for side in shape.rights)

    @property
    def shares(self) -> ir.Expr:
        return self.down * self.across * self.places

    @property
    def clusters(self) -> ir.Expr:
        """Clusters that are launched: as many as there are shares where their blocks exchange partial sums."""
        if self.config.splits > 1:
            return self.shares
        return tirx.min(self.shares, self.config.blocks // self.config.blocks_together)

    @property
    def grid(self) -> ir.Expr:
        return self.clusters * self.config.blocks_together

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Tile]:
        with self.each_share(block) as share:
            yield self._tile(share)

    @contextmanager
    def each_share(self, block: ir.Expr) -> Iterator[ir.Expr]:
        first = block // self.config.blocks_together
        with T.serial((self.shares - first + (self.clusters - 1)) // self.clusters) as turn:
            yield bind("share", first + turn * self.clusters)

    def first(self, block: ir.Expr) -> Tile:
        return self._tile(block // self.config.blocks_together)

    def _tile(self, share: ir.Expr) -> Tile:
        row, column, batch = self.place(share)
        return Tile(
            self._computed("first_row", _first(row * self.config.rows, self.shape.left, self.config.rows)),
            self._computed("first_column", _first(column * self.config.columns, self.shape.right, self.config.columns)),
            batch,
        )

    def place(self, share: ir.Expr) -> tuple[ir.Expr, ir.Expr, dict[tirx.Var, ir.Expr]]:
        """The number of a share's tile of rows, its number across, and where it is in the batch."""
        config, down = self.config, self.down * self.places if self.joined else self.down
        index, rest = bind("index", share % (down * self.across)), share // (down * self.across)
        band = bind("band", index // (self.across * BAND))
        height = bind("height", tirx.min(down - band * BAND, BAND))
        inside = bind("inside", index - band * (self.across * BAND))
        place = band * BAND + inside % height
        if self.joined:
            rest, place = place // self.down, place % self.down
        row = place * config.cluster + self.rank
        return row, inside // height, digits(rest, self.shape.batch, self.shape.extent, self._computed)

    def _computed(self, name: str, value: ir.Expr) -> ir.Expr:
        """A place that is computed once for a tile: with divisors that the launch alone knows, and so in a register."""
        counts = self.down, self.across, self.places
        known = all(isinstance(sym.Analyzer().simplify(count), ir.prim.IntImm) for count in counts)
        return bind(name, value) if known else in_register(name, value)


def ends_with(side: Side, length: int) -> bool:
    """Whether the last of an operand's tiles ends with its line, over its neighbour, where there are so many elements.

    Both compute the same there. Bulk copies take longer the more of their boxes is outside.
    """
    extent = side.line.extent
    return side.bulk and (not isinstance(extent, int) or extent >= length)


def _first(place: ir.Expr, side: Side, length: int) -> ir.Expr:
    extent = side.line.extent
    if not ends_with(side, length) or (isinstance(extent, int) and extent % length == 0):
        return place
    return tirx.min(place, tirx.max(kernel_extent(extent) - length, 0))
