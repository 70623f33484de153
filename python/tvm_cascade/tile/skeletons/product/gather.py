"""Operands that threads copy: tensors whose rows are no multiple of the 16 bytes that bulk copies need.

They put them where a bulk copy with the 128-byte swizzle would: of row r, chunk c of 16 bytes at chunk c ⊕ (r mod 8).
What is outside of the tensor is zero. Here, rows that are multiples of four bytes or eight, in pieces of so many, which
go there by themselves (cp.async); for others see `Realigned`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, sym, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, in_register, kernel_extent, named, ptx, put, registers, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import BOX_BYTES
from tvm_cascade.tile.merge.lanes import WARP, from_lane
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.product.matrix import Side
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
        self.own = buffers[side.operand.buffer]

    def copy(
        self, stage: ir.Expr, first: ir.Expr, deep: ir.Expr, places: Mapping[tirx.Var, ir.Expr], thread: ir.Expr
    ) -> None:
        """A thread's part of a tile.

        Parameters
        ----------
        first, deep : where the tile starts, on the operand's own line and on what is summed over.
        """
        self.stage, self.first, self.deep, self.places = stage, first, deep, places
        self._copy(thread)

    @abstractmethod
    def _copy(self, thread: ir.Expr) -> None:
        """A thread's part of the tile."""

    def _box_and_row(self, row: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        return bind("gathered_box", row // self.rows), bind("gathered_row", row % self.rows)

    def _target(self, box: ir.Expr, row: ir.Expr, offset: ir.Expr) -> ir.Expr:
        swizzled = (offset // _CHUNK ^ (row % _CHUNKS)) * _CHUNK + offset % _CHUNK
        return self.tiles.ptr_to([self.stage, box, row, swizzled // self.size])

    def _element(self, row: ir.Expr, column: ir.Expr) -> tuple[ir.Expr, ir.TensorLoad]:
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
    return next(n for n in range(min(most, count), 0, -1) if count % n == 0)


# Operands whose rows start anywhere: threads load aligned words, and store what the rows have there.
#
#     words of memory     | a b c d | e f g h | …        of lanes 0, 1, …
#     a row from c on         | c d e f | g h …          what they store: the rest of their word, the next lane's start
#
# A warp loads as many rows as its lanes have registers for before it stores the first.


_WORD = 4
"""Bytes of a register."""

_ROWS = 32
"""That a warp has loaded in a turn of the loop at most: a stage of 128 rows, so that it waits for memory once."""

_WARPS = WARP_GROUP // WARP


class Realigned(Gather):
    """Copies of rows through registers, a word a lane."""

    alone = False

    def _copy(self, thread: ir.Expr) -> None:
        lane, warp = thread % WARP, thread // WARP
        turns = self.boxes * self.rows // _WARPS
        together = divisor(turns, _ROWS)
        words, last = registers("words", together, "uint32"), registers("last_words", 1, "uint32")
        memory, end = self._viewed("uint32", self._bytes // _WORD), self._end()
        with T.serial(turns // together) as turn:
            first = bind("first_turn", turn * together)
            rows = [self._row((first + k) * _WARPS + warp) for k in range(together)]
            mine = self._row((first + tirx.min(lane, together - 1)) * _WARPS + warp)
            self._load(memory, end, last, 0, mine.word + WARP)
            for k, row in enumerate(rows):
                self._load(memory, end, words, k, row.word + lane)
            for k, row in enumerate(rows):
                following = in_register("following", from_lane((lane + 1) % WARP, words[k]))
                beyond = in_register("beyond", from_lane(k, last[0]))
                upper = T.cast(tirx.Select(lane == WARP - 1, beyond, following), "uint64") << T.uint64(8 * _WORD)
                both = upper | T.cast(words[k], "uint64")
                found = T.cast(both >> T.cast(row.skipped * 8, "uint64"), "uint32")
                target = self._target(row.box, row.row, lane * _WORD)
                ptx("st.shared.b32", target, found & _low_bytes(row.bytes - lane * _WORD))

    def _row(self, place: ir.Expr) -> _Row:
        box, row = self._box_and_row(place)
        inside, load = self._element(row, box * self.columns)
        offset = tirx.const(0, "int64")
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
            offset = offset * T.cast(extent, "int64") + T.cast(index, "int64")
        start = bind("row_start", offset * self.size)
        along = self._at(row, box * self.columns)[0 if self.side.across else 1]
        extent = kernel_extent(self.side.line.extent if self.side.across else self.inner.extent)
        length = bind("row_bytes", tirx.Select(inside, (extent - along) * self.size, tirx.const(0, "int32")))
        return _Row(box, row, bind("row_word", start // _WORD), bind("skipped", T.cast(start % _WORD, "int32")), length)

    @property
    def _bytes(self) -> ir.Expr:
        count = tirx.const(self.size, "int64")
        for extent in self.own.shape:
            count = count * T.cast(extent, "int64")
        return count

    def _viewed(self, dtype: str, count: ir.Expr) -> Any:
        return named("gathered_from", T.decl_buffer((count,), dtype, data=self.own.data))

    def _end(self) -> ir.Expr | None:
        """What the tensor has behind its last whole word, as a word; None where that is nothing."""
        per_word, total = _WORD // self.size, self._bytes // self.size
        if sym.Analyzer().can_prove_equal(total % per_word, 0):
            return None
        found, flat = T.uint32(0), self._viewed(self.side.operand.stored, total)
        for e in range(per_word - 1):
            at = total // per_word * per_word + e
            bits = T.cast(tirx.reinterpret(f"uint{8 * self.size}", flat[tirx.min(at, total - 1)]), "uint32")
            found = found | tirx.Select(at < total, bits << T.uint32(8 * self.size * e), T.uint32(0))
        return in_register("end", found)

    def _load(self, memory: Any, end: ir.Expr | None, words: Any, slot: int, word: ir.Expr) -> None:
        """Loads a word of the tensor, or its nearest one: what is not of a row is cut off later."""
        whole = self._bytes // _WORD
        loaded = memory[tirx.max(tirx.min(word, whole - 1), 0)]
        put(words, slot, loaded if end is None else tirx.Select(word == whole, end, loaded))


@dataclass(frozen=True)
class _Row:
    """A row of a tile in memory.

    Attributes
    ----------
    box, row : in the tile.
    word : of the tensor in which it starts.
    skipped : bytes of that word before it.
    bytes : from its start to the end of the tensor's row; none of a row outside.
    """

    box: ir.Expr
    row: ir.Expr
    word: ir.Expr
    skipped: ir.Expr
    bytes: ir.Expr


def _low_bytes(count: ir.Expr) -> ir.Expr:
    """A mask of the low bytes of a word: none where the number of them is negative, all where it is four or more."""
    part = (T.uint64(1) << T.cast(tirx.max(tirx.min(count, _WORD), 0) * 8, "uint64")) - T.uint64(1)
    return T.cast(part, "uint32")


# Arrivals of threads for the stages that they copy, some steps after they have started the copies.


_BEHIND = 4
"""Steps that a thread has under way at most."""

_FREE = 2
"""Stages that no copies are under way to: products release one when those of the next have started."""


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
        if self.behind:
            with T.serial(self.started[0]):
                self._arrive(0)

    def _arrive(self, pending: int) -> None:
        if self.alone:
            ptx("cp.async.wait_group", pending)
        ptx("fence.proxy.async.shared::cta")
        self.full.arrive(self.ring.stage)
        self.ring.advance()
