"""Operands whose rows start anywhere: threads load aligned words, and store what the rows have there.

    words of memory     | a b c d | e f g h | …        of lanes 0, 1, …
    a row from c on         | c d e f | g h …          what they store: their own word's rest, and the next lane's start

A warp loads as many rows as its lanes have registers for before it stores the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, sym, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, in_register, kernel_extent, named, ptx, put, registers
from tvm_cascade.tile.merge.lanes import ALL_LANES, WARP
from tvm_cascade.tile.skeletons.product.gather import Gather, divisor
from tvm_cascade.tile.work import WARP_GROUP

_WORD = 4
"""Bytes of a register."""

_ROWS = 24
"""That a warp has loaded in a turn of the loop at most."""

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
                following = in_register("following", _from(words[k], (lane + 1) % WARP))
                beyond = in_register("beyond", _from(last[0], k))
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
        """Of the tensor."""
        count = tirx.const(self.size, "int64")
        for extent in self.own.shape:
            count = count * T.cast(extent, "int64")
        return count

    def _viewed(self, dtype: str, count: ir.Expr) -> Any:
        """The tensor as one dimension of elements of a dtype."""
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


def _from(value: ir.Expr, lane: ir.Expr | int) -> ir.Expr:
    """A lane's value."""
    return T.tvm_warp_shuffle(T.uint32(ALL_LANES), value, lane, WARP, WARP)


def _low_bytes(count: ir.Expr) -> ir.Expr:
    """A mask of the low bytes of a word: none where the number of them is negative, all where it is four or more."""
    part = (T.uint64(1) << T.cast(tirx.max(tirx.min(count, _WORD), 0) * 8, "uint64")) - T.uint64(1)
    return T.cast(part, "uint32")
