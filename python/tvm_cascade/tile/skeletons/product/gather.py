"""Operands that threads copy: tensors whose rows are no multiple of the 16 bytes that bulk copies need.

A thread brings 16 bytes of a row at a time, element by element, and puts them where a bulk copy with the 128-byte
swizzle would: of row r, chunk c at chunk c ⊕ (r mod 8). What is outside of the tensor is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent, ptx, put, registers
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.skeletons.product.lines import Line
from tvm_cascade.tile.skeletons.product.shape import Side
from tvm_cascade.tile.work import WARP_GROUP

_CHUNK, _WORD = 16, 4
"""Bytes that a thread stores at once, and of a register."""

_CHUNKS = 8
"""Of a row of 128 bytes."""


class Gather:
    """Copies of tiles by a warp group.

    Parameters
    ----------
    tiles : shared memory, [stage, box, row, column].
    inner : what is summed over.
    """

    def __init__(self, side: Side, inner: Line, tiles: Any, shape: tuple[int, ...], buffers: Mapping[tirx.Var, Any]):
        self.side, self.inner, self.tiles, self.buffers = side, inner, tiles, buffers
        _, self.boxes, self.rows, self.columns = shape

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
        per_chunk, per_word = _CHUNK // self.side.operand.size, _WORD // self.side.operand.size
        words = registers("gathered", _CHUNK // _WORD, "uint32")
        count = self.boxes * self.rows * _CHUNKS
        with T.serial(-(-count // WARP_GROUP)) as turn:
            chunk = bind("chunk", turn * WARP_GROUP + thread)
            row = bind("gathered_row", chunk // _CHUNKS % self.rows)
            box, at = bind("gathered_box", chunk // (_CHUNKS * self.rows)), chunk % _CHUNKS
            column = bind("gathered_column", box * self.columns + at * per_chunk)
            for word in range(_CHUNK // _WORD):
                parts = [
                    self._bits(first, deep, row, column + (word * per_word + e), places)
                    << tirx.const(8 * self.side.operand.size * e, "uint32")
                    for e in range(per_word)
                ]
                together = parts[0]
                for part in parts[1:]:
                    together = together | part
                put(words, word, together)
            target = self.tiles.ptr_to([stage, box, row, (at ^ (row % _CHUNKS)) * per_chunk])
            ptx("st.shared.v4.b32", target, *[words[k] for k in range(_CHUNK // _WORD)])

    def _bits(
        self, first: ir.Expr, deep: ir.Expr, row: ir.Expr, column: ir.Expr, places: Mapping[tirx.Var, ir.Expr]
    ) -> ir.Expr:
        """An element's bits; those of zero outside of the tensor."""
        own, inner = (first + column, deep + row) if self.side.across else (first + row, deep + column)
        line = self.side.line
        inside = tirx.And(own < kernel_extent(line.extent), inner < kernel_extent(self.inner.extent))
        at = {**places, **line.places(own), **self.inner.places(inner)}
        value = tirx.reinterpret(f"uint{8 * self.side.operand.size}", placed(self.side.load, at, self.buffers))
        return tirx.if_then_else(inside, T.cast(value, "uint32"), T.uint32(0))
