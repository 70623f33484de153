"""The operands of a product in shared memory: bulk tensor copies fill the stages of a ring, products read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx

from tvm_cascade.analysis.tir import Extent
from tvm_cascade.tile.emit import kernel_extent, named
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.copy import BOX_BYTES, TensorMap
from tvm_cascade.tile.machine.family import Family
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.product.matrix import Side
from tvm_cascade.tile.skeletons.product.gather import Gather, Pieces, Realigned
from tvm_cascade.tile.work import GROUP_ROWS, Threads

_PIECE = 4
"""Bytes of the smallest piece that copies bring by themselves."""


class TileOperand:
    """Tiles of an operand: `length` of its own line, 128 bytes of what is summed over (or as many rows).

    Parameters
    ----------
    inner : what is summed over.
    own : the kernel's parameter for the tensor.
    extent : of its own line.
    shares : blocks of a cluster that copy a part each, for all of them.

    Attributes
    ----------
    copies : its bulk copies; None where threads copy it.
    there : rows of a tile that are copied.
    """

    def __init__(
        self,
        side: Side,
        inner: Line,
        own: Any,
        extent: Extent,
        length: int,
        shares: int,
        buffers: Mapping[tirx.Var, Any],
    ) -> None:
        self.side, self.inner, self.length, self.shares, self.buffers = side, inner, length, shares, buffers
        self.extent, self.depth = extent, BOX_BYTES // side.operand.size
        self.copies: TensorMap | None = None
        others = list(buffers.values())
        self.there = length if shares > 1 or side.across else _at_most(length, extent)
        if side.bulk and side.across:
            self.copies = TensorMap(side.operand, own, self.depth, self._columns() // shares, others=others)
        elif side.bulk and isinstance(self.there, int):
            self.copies = TensorMap(side.operand, own, self.there // shares, self.depth, others=others)
        elif side.bulk:
            self.copies = TensorMap(side.operand, own, length, self.depth, self.there, others=others)

    def _columns(self) -> int:
        """Columns of a tile that boxes cover: no more of them than there are columns for."""
        if self.shares > 1 or not isinstance(self.extent, int):
            return self.length
        return min(self.length, -(-self.extent // self.depth) * self.depth)

    @property
    def bytes(self) -> int:
        """Of a tile."""
        return self.length * BOX_BYTES

    @property
    def expected(self) -> int | ir.Expr:
        """Bytes that bulk copies bring."""
        if self.copies is None or isinstance(self.there, int):
            return 0 if self.copies is None else self.copies.tile_bytes * self.shares
        return self.there * BOX_BYTES

    def allocate(self, name: str, pool: Any, stages: int) -> None:
        """Shared memory, [stage, box, row, column]."""
        boxes, rows = (self.length // self.depth, self.depth) if self.side.across else (1, self.length)
        shape = (stages, boxes, rows, self.depth)
        element = self.side.operand.dtype if self.side.operand.size > 1 else "uint8"
        self.tiles = named(name, pool.alloc(shape, element, align=1024))
        kind: type[Gather] = Pieces if self.side.piece >= _PIECE else Realigned
        self.gather = None if self.side.bulk else kind(self.side, self.inner, self.tiles, shape, self.buffers)

    def share(self, other: TileOperand) -> None:
        """Uses the shared memory of an operand of another product, whose tiles have the same form."""
        self.tiles, self.gather = other.tiles, None

    def copy(
        self, stage: ir.Expr, first: ir.Expr, deep: ir.Expr, places: Mapping[tirx.Var, ir.Expr], rank: ir.Expr | int,
        barrier: ir.Expr,
    ) -> None:  # fmt: skip
        """Issues the bulk copies of a tile, or of this block's share of it.

        Parameters
        ----------
        first, deep : where the tile starts, on its own line and on what is summed over.
        places : of the other variables.
        rank : of the block in its cluster.
        """
        if self.copies is None:
            return
        operand, share = self.side.operand, self.length // self.shares
        fixed = {d: placed(operand.indices[d], places, self.buffers) for d in operand.fixed}
        own = first + rank * share if self.shares > 1 else first
        blocks = (1 << self.shares) - 1 if self.shares > 1 else None

        def target(box: int) -> ir.Expr:
            if self.shares == 1:
                return self.tiles.ptr_to([stage, box, 0, 0])
            if self.side.across:
                return self.tiles.ptr_to([stage, rank * (share // self.depth) + box, 0, 0])
            return self.tiles.ptr_to([stage, box, rank * share, 0])

        row, column = (deep, own) if self.side.across else (own, deep)
        self.copies.load_at(target, row, column, fixed, barrier, blocks)

    def matrix(self, family: Family, threads: Threads, first: ir.Expr | None = None) -> Any:
        """The tile as products read it: a right operand, or a left one from `first` on, a multiple of 64."""
        own: ir.Expr | int = 0 if first is None else first
        at = [0, own // GROUP_ROWS, 0, 0] if self.side.across else [0, 0, own, 0]
        return family.matrix(self.tiles.ptr_to(at), self.depth, self.side.across, threads, left=first is not None)

    def offset(self, family: Family, stage: ir.Expr, further: int = 0) -> ir.Expr:
        """The offset of a pipeline stage, and of so many multiples of 64 further on."""
        return family.offset(stage, self.bytes, further * GROUP_ROWS * BOX_BYTES)


def _at_most(length: int, extent: Extent) -> int | ir.Expr:
    """How much of a tile is copied: no more than there is, also where the launch alone knows how much.

    What of a tile is outside of the tensor alone need not be zero, since nothing of the result depends on it. A bulk
    copy takes longer the more of its box is outside (measured: 1.3 times with one of 128 rows inside).
    """
    if isinstance(extent, int):
        return min(length, extent)
    return tirx.max(tirx.min(kernel_extent(extent), length), 1)


def inner_tiles(extent: Any, depth: int) -> ir.Expr:
    """Tiles along what is summed over."""
    return (kernel_extent(extent) + (depth - 1)) // depth
