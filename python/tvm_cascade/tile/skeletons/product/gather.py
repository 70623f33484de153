"""Operands that threads copy: tensors whose rows are no multiple of the 16 bytes that bulk copies need.

A thread brings 16 bytes of a row at a time, in pieces as large as rows are multiples of, and puts them where a bulk
copy with the 128-byte swizzle would: of row r, chunk c at chunk c ⊕ (r mod 8). What is outside of the tensor is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.skeletons.product.shape import Side
from tvm_cascade.tile.work import WARP_GROUP

_CHUNK, _WORD = 16, 4
"""Bytes that a thread stores at once, and of a register."""

_CHUNKS = 8
"""Of a row of 128 bytes."""

_TOGETHER = 4
"""Chunks that a thread has under way."""

_LOADS = {8: "ld.global.nc.v2.b32", 4: "ld.global.nc.b32"}
"""The instruction that loads a piece of so many bytes."""


class Gather:
    """Copies of tiles by a warp group.

    Parameters
    ----------
    inner : what is summed over.
    tiles : shared memory of a shape [stage, box, row, column].
    """

    def __init__(self, side: Side, inner: Line, tiles: Any, shape: tuple[int, ...], buffers: Mapping[tirx.Var, Any]):
        self.side, self.inner, self.tiles, self.buffers = side, inner, tiles, buffers
        _, self.boxes, self.rows, self.columns = shape
        self.size, self.piece = side.operand.size, side.piece
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
        per_chunk, words = _CHUNK // self.size, _CHUNK // _WORD
        turns = self.boxes * self.rows * _CHUNKS // WARP_GROUP
        together = next(n for n in range(min(_TOGETHER, turns), 0, -1) if turns % n == 0)
        found = registers("gathered", words * together, "uint32")
        with T.serial(turns // together) as turn:
            targets = []
            for k in range(together):
                chunk = bind("chunk", (turn * together + k) * WARP_GROUP + thread)
                row = bind("gathered_row", chunk // _CHUNKS % self.rows)
                box, at = bind("gathered_box", chunk // (_CHUNKS * self.rows)), chunk % _CHUNKS
                column = bind("gathered_column", box * self.columns + at * per_chunk)
                for offset in range(0, _CHUNK, max(self.piece, _WORD)):
                    self._load(
                        found, k * words + offset // _WORD, first, deep, row, column + offset // self.size, places
                    )
                targets.append(self.tiles.ptr_to([stage, box, row, (at ^ (row % _CHUNKS)) * per_chunk]))
            for k, target in enumerate(targets):
                ptx("st.shared.v4.b32", target, *[found[k * words + w] for w in range(words)])

    def _load(
        self, found: Any, word: int, first: ir.Expr, deep: ir.Expr, row: ir.Expr, column: ir.Expr,
        places: Mapping[tirx.Var, ir.Expr],
    ) -> None:  # fmt: skip
        """A piece of a row into registers, zero outside of the tensor; or a register, of single elements."""
        if self.piece < _WORD:
            bits = 8 * self.size
            parts = [self._bits(first, deep, row, column + e, places) for e in range(_WORD // self.size)]
            put(found, word, sum((part << T.uint32(bits * e) for e, part in enumerate(parts[1:], 1)), parts[0]))
            return
        words = range(word, word + self.piece // _WORD)
        for k in words:
            put(found, k, T.uint32(0))
        inside, load = self._element(first, deep, row, column, places)
        with when(inside):
            ptx(_LOADS[self.piece], *[found[k] for k in words], self.own.ptr_to(list(load.indices)))

    def _bits(
        self, first: ir.Expr, deep: ir.Expr, row: ir.Expr, column: ir.Expr, places: Mapping[tirx.Var, ir.Expr]
    ) -> ir.Expr:
        """An element's bits; those of zero outside of the tensor."""
        inside, load = self._element(first, deep, row, column, places)
        value = tirx.reinterpret(f"uint{8 * self.size}", load)
        return tirx.if_then_else(inside, T.cast(value, "uint32"), T.uint32(0))

    def _element(
        self, first: ir.Expr, deep: ir.Expr, row: ir.Expr, column: ir.Expr, places: Mapping[tirx.Var, ir.Expr]
    ) -> tuple[ir.Expr, ir.TensorLoad]:
        """Whether an element of a tile is in the tensor, and its load."""
        own, inner = (first + column, deep + row) if self.side.across else (first + row, deep + column)
        line = self.side.line
        inside = tirx.And(own < kernel_extent(line.extent), inner < kernel_extent(self.inner.extent))
        at = {**places, **line.places(own), **self.inner.places(inner)}
        load = placed(self.side.load, at, self.buffers)
        assert isinstance(load, ir.TensorLoad)
        return inside, load
