"""Operands that threads copy: tensors whose rows are no multiple of the 16 bytes that bulk copies need.

They put them where a bulk copy with the 128-byte swizzle would: of row r, chunk c of 16 bytes at chunk c ⊕ (r mod 8).
What is outside of the tensor is zero. Here, rows that are multiples of four bytes or eight, in pieces of so many, which
go there by themselves (cp.async); for others see `realign`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent, ptx
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.skeletons.product.shape import Side
from tvm_cascade.tile.work import WARP_GROUP

_CHUNK = 16
"""Bytes that are swizzled together."""

_CHUNKS = BOX_BYTES // _CHUNK
"""Of a row."""

_PIECES = 4
"""That a thread starts copies of in a turn of the loop at most."""


class Gather(ABC):
    """Copies of tiles by a warp group.

    Parameters
    ----------
    inner : what is summed over.
    tiles : shared memory of a shape [stage, box, row, column].

    Attributes
    ----------
    alone : copies complete by themselves; a thread waits for its own (cp.async.wait_group).
    """

    alone: ClassVar[bool]

    def __init__(self, side: Side, inner: Line, tiles: Any, shape: tuple[int, ...], buffers: Mapping[tirx.Var, Any]):
        self.side, self.inner, self.tiles, self.buffers = side, inner, tiles, buffers
        _, self.boxes, self.rows, self.columns = shape
        self.size = side.operand.size
        self.own = next(own for param, own in buffers.items() if param.same_as(side.operand.buffer))

    def copy(
        self, stage: ir.Expr, first: ir.Expr, deep: ir.Expr, places: Mapping[tirx.Var, ir.Expr], thread: ir.Expr
    ) -> None:
        """A thread's part of a tile.

        Parameters
        ----------
        first, deep : where the tile starts, on the operand's own line and on what is summed over.
        places : of the other variables.
        thread : in the warp group.
        """
        self.stage, self.first, self.deep, self.places = stage, first, deep, places
        self._copy(thread)

    @abstractmethod
    def _copy(self, thread: ir.Expr) -> None:
        """A thread's part of the tile."""

    def _box_and_row(self, row: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        return bind("gathered_box", row // self.rows), bind("gathered_row", row % self.rows)

    def _target(self, box: ir.Expr, row: ir.Expr, offset: ir.Expr) -> ir.Expr:
        """The address of a byte of a row in shared memory."""
        swizzled = (offset // _CHUNK ^ (row % _CHUNKS)) * _CHUNK + offset % _CHUNK
        return self.tiles.ptr_to([self.stage, box, row, swizzled // self.size])

    def _element(self, row: ir.Expr, column: ir.Expr) -> tuple[ir.Expr, ir.TensorLoad]:
        """Whether an element of a tile is in the tensor, and its load."""
        own, inner = self._at(row, column)
        line = self.side.line
        inside = tirx.And(own < kernel_extent(line.extent), inner < kernel_extent(self.inner.extent))
        load = placed(self.side.load, {**self.places, **line.places(own), **self.inner.places(inner)}, self.buffers)
        assert isinstance(load, ir.TensorLoad)
        return inside, load

    def _at(self, row: ir.Expr, column: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """An element of a tile on the operand's own line, and on what is summed over."""
        if self.side.across:
            return self.first + column, self.deep + row
        return self.first + row, self.deep + column


class Pieces(Gather):
    """Copies of pieces of four bytes or eight."""

    alone = True

    def _copy(self, thread: ir.Expr) -> None:
        piece = self.side.piece
        per_row = BOX_BYTES // piece
        turns = self.boxes * self.rows * per_row // WARP_GROUP
        together = divisor(turns, _PIECES)
        with T.serial(turns // together) as turn:
            for k in range(together):
                place = bind("piece", (turn * together + k) * WARP_GROUP + thread)
                box, row = self._box_and_row(place // per_row)
                offset = place % per_row * piece
                inside, load = self._element(row, box * self.columns + offset // self.size)
                given = tirx.Select(inside, T.uint32(piece), T.uint32(0))
                target, source = self._target(box, row, offset), self.own.ptr_to(list(load.indices))
                ptx("cp.async.ca.shared.global", target, source, piece, given)


def divisor(count: int, most: int) -> int:
    """The largest divisor of a number that is not above another."""
    return next(n for n in range(min(most, count), 0, -1) if count % n == 0)
