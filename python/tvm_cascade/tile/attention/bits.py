"""Masks as bit fields: the unmasked registers of a thread, computed once a row and tested per register.

A thread's registers of a row lie at offsets 8·j + e from its first column. Conditions on the position that are linear
in it become bounds on the offset; registers up to a bound b are the first n(b) = 2·⌊b/8⌋ + min(b mod 8, 1) + 1:

    j ≤ i            offset ≤ i − base             bits    (1 << n(b)) − 1
    j > i − w        offset ≥ i − w + 1 − base     bits  ~((1 << n(b − 1)) − 1)

A tensor of booleans is read four at a time, each of the four lanes of a row a quarter of its columns, and handed round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, uses
from tvm_cascade.tile.emit import bind, ptx, put, registers
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, QUAD, ROWS
from tvm_cascade.tile.merge.lanes import from_lane

_BITS = 32
_BYTES = 4
"""Booleans that are read at a time."""

_PAIRS = 0x00030003
"""Where four booleans are once the odd ones have moved beside the even ones."""

_WORDS = "uint32"
_ALL = 0xFFFFFFFF


@dataclass(frozen=True)
class Bounds:
    """A mask as an interval of a row's offsets, from `least` to `most`; None for no bound."""

    least: tuple[ir.Expr, ...]
    most: tuple[ir.Expr, ...]


class KeptBits:
    """The unmasked registers as bit fields, words for each of a thread's rows, in register order.

    Parameters
    ----------
    columns : positions of a tile.
    name : of the words' array.
    """

    def __init__(self, columns: int, name: str) -> None:
        self.columns, self.per_row = columns, -(-columns // (QUAD * _BITS))
        self.words: Any = registers(name, len(ROWS) * self.per_row, _WORDS)

    def bit(self, step: ir.Expr, row: int, neighbour: int) -> ir.Expr:
        """Not 0 where a register is kept."""
        index = step * 2 + neighbour
        one = tirx.shift_left(T.uint32(1), T.cast(tirx.floormod(index, _BITS), _WORDS))
        return tirx.bitwise_and(self.words[row * self.per_row + tirx.floordiv(index, _BITS)], one)

    def keep_all(self) -> None:
        """Sets every bit."""
        for k in range(len(ROWS) * self.per_row):
            put(self.words, k, T.uint32(_ALL))

    def within(self, bounds: Callable[[int], Bounds]) -> None:
        """Clears the bits outside of each row's bounds."""
        for r in ROWS:
            of_row = bounds(r)
            most = [bind("kept", _registers_up_to(b)) for b in of_row.most]
            least = [bind("dropped", _registers_up_to(b - 1)) for b in of_row.least]
            for w in range(self.per_row):
                word = self.words[r * self.per_row + w]
                for count in most:
                    word = tirx.bitwise_and(word, _lowest(count - w * _BITS))
                for count in least:
                    word = tirx.bitwise_and(word, tirx.bitwise_not(_lowest(count - w * _BITS)))
                put(self.words, r * self.per_row + w, word)

    def intersect(self, loaded: LoadedBits) -> None:
        """Clears the bits that booleans mask."""
        for r in ROWS:
            put(self.words, r, tirx.bitwise_and(self.words[r], loaded.words[r]))


class LoadedBits:
    """Words of bits from a tensor of booleans.

    Each of the four lanes of a row reads a quarter of its columns, four booleans at a time, and gathers those of lane q
    in byte 2·(q mod 2) + ⌊q/2⌋ of a word; then each takes its own byte out of every lane's word.
    """

    def __init__(self, columns: int, name: str) -> None:
        self.eights = columns // QUAD // COLUMNS_PER_STEP
        self.words: Any = registers(name, len(ROWS), _WORDS)

    @staticmethod
    def fits(columns: int) -> bool:
        """Whether a quarter is whole eights of columns, and a lane's part of it no more than a byte."""
        return columns % (QUAD * COLUMNS_PER_STEP) == 0 and columns <= QUAD * _BITS

    def read(self, address: Callable[[int, ir.Expr], ir.Expr], lane: ir.Expr) -> None:
        """Loads a tile's words.

        Parameters
        ----------
        address : of four booleans of a row, so many positions from the tile's first.
        """
        per_row = self.eights * 2
        raw, own = registers("booleans", len(ROWS) * per_row, _WORDS), registers("gathered", len(ROWS), _WORDS)
        for r in ROWS:
            for k in range(per_row):
                at = address(r, lane % QUAD * (self.eights * COLUMNS_PER_STEP) + k * _BYTES)
                ptx("ld.global.nc.b32", raw[r * per_row + k], at)
        quad, byte = lane - lane % QUAD, T.cast(lane % 2 * 16 + lane % QUAD // 2 * 8, _WORDS)
        for r in ROWS:
            gathered: ir.Expr = T.uint32(0)
            for k in range(per_row):
                four = raw[r * per_row + k]
                pairs = tirx.bitwise_and(tirx.bitwise_or(four, tirx.shift_right(four, T.uint32(7))), T.uint32(_PAIRS))
                gathered = gathered + pairs * T.uint32(1 << (k % 2 * 8 + k // 2 * 2))
            put(own, r, gathered)
            word: ir.Expr = T.uint32(0)
            for p in range(QUAD):
                theirs = from_lane(quad + p, own[r])
                part = tirx.bitwise_and(tirx.shift_right(theirs, byte), T.uint32(0xFF))
                word = tirx.bitwise_or(word, tirx.shift_left(part, T.uint32(2 * self.eights * p)))
            put(self.words, r, word)


def _registers_up_to(bound: ir.Expr) -> ir.Expr:
    """n(b): how many registers of a row lie at offsets of at most b."""
    b = bind("bound", tirx.max(bound, -1))
    eights = tirx.shift_right(b, tirx.const(3, "int32"))
    return eights * 2 + tirx.min(tirx.bitwise_and(b, tirx.const(7, "int32")), 1) + 1


def _lowest(count: ir.Expr) -> ir.Expr:
    """A word of so many ones, from its lowest bit on."""
    ones = tirx.shift_right(T.uint32(_ALL), T.cast(_BITS - tirx.max(tirx.min(count, _BITS), 1), _WORDS))
    return tirx.Select(count <= 0, T.uint32(0), ones)


def boolean_load(condition: ir.Expr, position: tirx.Var) -> ir.TensorLoad | None:
    """A condition as a load whose booleans can be read four to a word; None for any other."""
    if not isinstance(condition, ir.TensorLoad) or dtype_of(condition) != "bool":
        return None
    *others, last = condition.indices
    extent = condition.source.ty.shape[-1]
    if not (isinstance(last, ir.Var) and last.same_as(position)) or any(uses(i, [position]) for i in others):
        return None
    return condition if isinstance(extent, prim.IntImm) and int(extent) % _BYTES == 0 else None
