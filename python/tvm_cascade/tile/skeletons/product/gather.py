"""Operands that threads copy: tensors whose rows are no multiple of the 16 bytes that bulk copies need.

They put them where a bulk copy with the 128-byte swizzle would: of row r, chunk c of 16 bytes at chunk c ⊕ (r mod 8).
What is outside of the tensor is zero. Pieces of four bytes or eight go there by themselves (cp.async); single elements
go through registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.skeletons.product.shape import Side
from tvm_cascade.tile.work import WARP_GROUP

_CHUNK, _WORD = 16, 4
"""Bytes that are swizzled together, and of a register."""

_WORDS = _CHUNK // _WORD

_CHUNKS = BOX_BYTES // _CHUNK
"""Of a row."""

_TOGETHER = 4
"""Chunks, or pieces, that a thread copies in a turn of the loop."""

_BEHIND = 4
"""Steps that a thread has under way at most."""

_FREE = 2
"""Stages that no copies are under way to: products release one when those of the next have started."""


class Gather:
    """Copies of tiles by a warp group.

    Parameters
    ----------
    inner : what is summed over.
    tiles : shared memory of a shape [stage, box, row, column].

    Attributes
    ----------
    alone : copies complete by themselves; a thread waits for its own (cp.async.wait_group).
    """

    def __init__(self, side: Side, inner: Line, tiles: Any, shape: tuple[int, ...], buffers: Mapping[tirx.Var, Any]):
        self.side, self.inner, self.tiles, self.buffers = side, inner, tiles, buffers
        _, self.boxes, self.rows, self.columns = shape
        self.size, self.piece = side.operand.size, side.piece
        self.own = next(own for param, own in buffers.items() if param.same_as(side.operand.buffer))
        self.alone = self.piece >= _WORD

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
        self.first, self.deep, self.places = first, deep, places
        unit = self.piece if self.alone else _CHUNK
        turns = self.boxes * self.rows * (BOX_BYTES // unit) // WARP_GROUP
        together = next(n for n in range(min(_TOGETHER, turns), 0, -1) if turns % n == 0)
        words = registers("gathered", together * _WORDS, "uint32")
        with T.serial(turns // together) as turn:
            parts = [bind("part", (turn * together + k) * WARP_GROUP + thread) for k in range(together)]
            for k, part in enumerate(parts):
                if self.alone:
                    self._start(stage, part)
                else:
                    self._load(words, k * _WORDS, part)
            for k, part in enumerate(() if self.alone else parts):
                box, row, at = self._place(part, _CHUNKS)
                found = [words[k * _WORDS + w] for w in range(_WORDS)]
                ptx("st.shared.v4.b32", self._target(stage, box, row, at * _CHUNK), *found)

    def _place(self, part: ir.Expr, per_row: int) -> tuple[ir.Expr, ir.Expr, ir.Expr]:
        """(box, row, place in the row) of a part of a tile."""
        row = bind("gathered_row", part // per_row % self.rows)
        return bind("gathered_box", part // (per_row * self.rows)), row, part % per_row

    def _target(self, stage: ir.Expr, box: ir.Expr, row: ir.Expr, offset: ir.Expr) -> ir.Expr:
        """The address of a byte of a row in shared memory."""
        swizzled = (offset // _CHUNK ^ (row % _CHUNKS)) * _CHUNK + offset % _CHUNK
        return self.tiles.ptr_to([stage, box, row, swizzled // self.size])

    def _start(self, stage: ir.Expr, part: ir.Expr) -> None:
        """Starts the copy of a piece."""
        box, row, at = self._place(part, BOX_BYTES // self.piece)
        offset = at * self.piece
        inside, load = self._element(row, box * self.columns + offset // self.size)
        given = tirx.Select(inside, T.uint32(self.piece), T.uint32(0))
        target, source = self._target(stage, box, row, offset), self.own.ptr_to(list(load.indices))
        ptx("cp.async.ca.shared.global", target, source, self.piece, given)

    def _load(self, words: Any, first: int, part: ir.Expr) -> None:
        """Loads a chunk of single elements into registers."""
        box, row, at = self._place(part, _CHUNKS)
        column, bits, per_word = box * self.columns + at * (_CHUNK // self.size), 8 * self.size, _WORD // self.size
        for word in range(_WORDS):
            found = [self._bits(row, column + (word * per_word + e)) for e in range(per_word)]
            put(words, first + word, sum((b << T.uint32(bits * e) for e, b in enumerate(found[1:], 1)), found[0]))

    def _bits(self, row: ir.Expr, column: ir.Expr) -> ir.Expr:
        """An element's bits; those of zero outside of the tensor."""
        inside, load = self._element(row, column)
        value = tirx.reinterpret(f"uint{8 * self.size}", load)
        return tirx.if_then_else(inside, T.cast(value, "uint32"), T.uint32(0))

    def _element(self, row: ir.Expr, column: ir.Expr) -> tuple[ir.Expr, ir.TensorLoad]:
        """Whether an element of a tile is in the tensor, and its load."""
        own, inner = (
            (self.first + column, self.deep + row) if self.side.across else (self.first + row, self.deep + column)
        )
        line = self.side.line
        inside = tirx.And(own < kernel_extent(line.extent), inner < kernel_extent(self.inner.extent))
        at = {**self.places, **line.places(own), **self.inner.places(inner)}
        load = placed(self.side.load, at, self.buffers)
        assert isinstance(load, ir.TensorLoad)
        return inside, load


class Landing:
    """Arrivals for stages that threads copy, some steps after they have started the copies.

    Attributes
    ----------
    behind : steps whose copies a thread has under way.
    """

    def __init__(self, full: Barriers, stages: int, alone: bool) -> None:
        self.full, self.alone = full, alone
        self.behind = max(0, min(stages - _FREE, _BEHIND)) if alone else 0
        self.ring, self.started = Ring("landed", stages, 0), registers("started", 1, "int32")
        put(self.started, 0, T.int32(0))

    def follow(self) -> None:
        """After the copies of a step have been started: arrives for the step so far behind it, once there is one."""
        if self.alone:
            ptx("cp.async.commit_group")
        put(self.started, 0, self.started[0] + 1)
        with when(self.started[0] > self.behind):
            self._arrive(self.behind)
            put(self.started, 0, T.int32(self.behind))

    def finish(self) -> None:
        """Arrives for the last steps."""
        if self.behind:
            with T.serial(self.started[0]):
                self._arrive(0)

    def _arrive(self, pending: int) -> None:
        if self.alone:
            ptx("cp.async.wait_group", pending)
        ptx("fence.proxy.async.shared::cta")
        self.full.arrive(self.ring.stage)
        self.ring.advance()
