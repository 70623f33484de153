"""Masks over the registers of a tile, merged where they give one value, and as bit fields where possible.

A thread's registers of a row lie at offsets 8·j + e from its first column. Conditions on the position that are linear
in it become bounds on the offset; registers up to a bound b are the first n(b) = 2·⌊b/8⌋ + min(b mod 8, 1) + 1:

    j ≤ i            offset ≤ i − base             bits    (1 << n(b)) − 1
    j > i − w        offset ≥ i − w + 1 − base     bits  ~((1 << n(b − 1)) − 1)

A tensor of booleans is read four at a time, each of the four lanes of a row a quarter of its columns, and handed round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import conjuncts, dtype_of, loads_by, uses
from tvm_cascade.tile.attention.rows import RowFold
from tvm_cascade.tile.element import Mask
from tvm_cascade.tile.emit import bind, in_register, ptx, put, registers, when
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, QUAD, ROWS
from tvm_cascade.tile.live import as_bound, mask_slacks, solved_for
from tvm_cascade.tile.merge.lanes import from_lane
from tvm_cascade.transform.printer import cast

_BITS = 32
_BYTES = 4
"""Booleans that are read at a time."""

_PAIRS = 0x00030003
"""Where four booleans are once the odd ones have moved beside the even ones."""

_WORDS = "uint32"
_ALL = 0xFFFFFFFF


@dataclass(frozen=True)
class Pass:
    """A pass over all registers.

    Attributes
    ----------
    masks : all of one value.
    bounds : (±1, g) for each integer ±l + g(row) that is not negative where they keep a position.
    loads : of booleans that keep a position.
    """

    masks: tuple[Mask, ...]
    bounds: tuple[tuple[int, ir.Expr], ...] = ()
    loads: tuple[ir.TensorLoad, ...] = ()

    @property
    def as_bits(self) -> bool:
        """Whether bounds and loads say all."""
        return bool(self.bounds or self.loads)


def passes_of(masks: tuple[Mask, ...], position: tirx.Var, columns: int) -> list[Pass]:
    found: list[Pass] = []
    for mask in chain.from_iterable(map(_parts, masks)):
        one, last = _pass_of(mask, position, columns), found[-1] if found else None
        if last is not None and last.as_bits and one.as_bits and last.masks[0].values == mask.values:
            found[-1] = Pass((*last.masks, mask), last.bounds + one.bounds, last.loads + one.loads)
        else:
            found.append(one)
    return found


def _parts(mask: Mask) -> list[Mask]:
    return [replace(mask, condition=c) for c in conjuncts(mask.condition)] if mask.keeps else [mask]


def _pass_of(mask: Mask, position: tirx.Var, columns: int) -> Pass:
    load = _boolean_load(mask.condition, position) if mask.keeps and LoadedBits.fits(columns) else None
    if load is not None:
        return Pass((mask,), loads=(load,))
    slacks = mask_slacks(mask) or ()
    bounds = tuple(solved for slack in slacks if (solved := solved_for(slack, position)) is not None)
    return Pass((mask,), bounds if len(bounds) == len(slacks) else ())


def _boolean_load(condition: ir.Expr, position: tirx.Var) -> ir.TensorLoad | None:
    """A condition as a load whose booleans can be read four to a word; None for any other."""
    if not isinstance(condition, ir.TensorLoad) or dtype_of(condition) != "bool":
        return None
    *others, last = condition.indices
    extent = condition.source.ty.shape[-1]
    if not (isinstance(last, ir.Var) and last.same_as(position)) or any(uses(i, [position]) for i in others):
        return None
    return condition if isinstance(extent, prim.IntImm) and int(extent) % _BYTES == 0 else None


class Masking:
    """Applies passes to the registers of a warp group."""

    def __init__(self, passes: list[Pass], rows: RowFold, lane: ir.Expr) -> None:
        self.passes, self.rows, self.lane = passes, rows, lane
        as_bits = {k: one for k, one in enumerate(passes) if one.as_bits}
        self.bits = {k: KeptBits(rows.columns, f"kept_{k}") for k in as_bits}
        self.loaded = {k: [LoadedBits(rows.columns, f"loaded_{k}") for _ in one.loads] for k, one in as_bits.items()}
        self.limits = {k: [self._limits(one, r) for r in ROWS] for k, one in as_bits.items()}

    def prepare(self, tile: ir.Expr) -> None:
        """Prefetches what a tile's masks read from memory, before its scores are computed."""
        for k, every in self.loaded.items():
            for load, loaded in zip(self.passes[k].loads, every, strict=True):
                loaded.read(partial(self._address, load, tile), self.lane)

    def apply(self, tile: ir.Expr) -> None:
        for k, one in enumerate(self.passes):
            if one.as_bits:
                words = self.bits[k].words
                for n in range(int(words.ty.shape[0])):
                    put(words, n, T.uint32(_ALL))
                for r in ROWS:
                    self.bits[k].within(r, *self._bounds(k, tile, r))
                for loaded in self.loaded[k]:
                    for r in ROWS:
                        put(words, r, tirx.bitwise_and(words[r], loaded.words[r]))
            mask, stream = one.masks[0], self.rows.program.stream
            if not one.as_bits and mask.keeps and not uses(mask.condition, [stream.row, stream.position]):
                with when(tirx.Not(self.rows.row_input(mask.condition, 0))):
                    self.rows.mask(tile, replace(mask, condition=tirx.const(False, "bool")), None)
                continue
            self.rows.mask(tile, mask, self.bits[k].bit if one.as_bits else None)

    def _address(self, load: ir.TensorLoad, tile: ir.Expr, row: int, offset: ir.Expr) -> ir.Expr:
        """Of four booleans; past the end of the axis of its last four, which nothing reads."""
        last = load.source.ty.shape[-1] - 4
        position = tirx.min(tile * self.rows.columns + offset, cast(last, "int32"))
        return self.rows.address(load, row, {self.rows.program.stream.position: position})

    def _bounds(self, k: int, tile: ir.Expr, row: int) -> tuple[list[ir.Expr], list[ir.Expr]]:
        base = tile * self.rows.columns + self.rows.place.lane_column
        placed = [
            (sign, cast(self.rows.row_input(g, row) if limit is None else limit, "int32"))
            for (sign, g), limit in zip(self.passes[k].bounds, self.limits[k][row], strict=True)
        ]
        return [-g - base for sign, g in placed if sign > 0], [g - base for sign, g in placed if sign < 0]

    def _limits(self, one: Pass, row: int) -> list[ir.Expr | None]:
        """Of each bound, what is loaded for a row, before its first tile; None where that is nothing."""
        position = self.rows.program.stream.row
        return [
            in_register("limit", self.rows.row_input(as_bound(g, position), row)) if loads_by(g, position) else None
            for _, g in one.bounds
        ]


class KeptBits:
    """The unmasked registers as bit fields, words for each of a thread's rows, in register order."""

    def __init__(self, columns: int, name: str) -> None:
        self.per_row = -(-columns // (QUAD * _BITS))
        self.words: Any = registers(name, len(ROWS) * self.per_row, _WORDS)

    def bit(self, step: ir.Expr, row: int, neighbour: int) -> ir.Expr:
        index = step * 2 + neighbour
        one = tirx.shift_left(T.uint32(1), T.cast(tirx.floormod(index, _BITS), _WORDS))
        return tirx.bitwise_and(self.words[row * self.per_row + tirx.floordiv(index, _BITS)], one)

    def within(self, row: int, least: Sequence[ir.Expr], most: Sequence[ir.Expr]) -> None:
        """Clears the bits of a row outside of bounds on the offset."""
        upper = [bind("kept", _registers_up_to(b)) for b in most]
        lower = [bind("dropped", _registers_up_to(b - 1)) for b in least]
        for w in range(self.per_row):
            word = self.words[row * self.per_row + w]
            for count in upper:
                word = tirx.bitwise_and(word, _lowest(count - w * _BITS))
            for count in lower:
                word = tirx.bitwise_and(word, tirx.bitwise_not(_lowest(count - w * _BITS)))
            put(self.words, row * self.per_row + w, word)


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
                ptx("ld.global.b32", raw[r * per_row + k], at)
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
    ones = tirx.shift_right(T.uint32(_ALL), T.cast(_BITS - tirx.max(tirx.min(count, _BITS), 1), _WORDS))
    return tirx.Select(count <= 0, T.uint32(0), ones)
