"""Tiles that are converted on the way to the tensor cores: floats of 8 bits, as they arrive, to those of 16 bits.

Between the copies and the products stands a warp group: it waits for a tile as it is stored, writes it as products read
it into a ring of its own, and gives the first one's stage back. Both tiles are swizzled, rows of 128 bytes a box.
A thread takes 16 elements at a time; of eight threads that run together four have neighbours in one half of a row and
four in the other half of the next, so that what they read and what they write falls into different banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Feed, StagedPart, arrivals_of, staged_tiles
from tvm_cascade.tile.emit import bind, ptx, registers, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.copy import CHUNK, CHUNKS, TensorMap
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.operand import MATRIX_DTYPES, Operand
from tvm_cascade.tile.work import WARP_GROUP, WARPS, Threads

_WORDS = CHUNK // 4
"""Registers of a chunk, which a thread reads at a time."""

WIDE_STAGES = 2
"""Tiles of each operand that are converted on the way: one that products read, and one that is being written."""


class FeedPair:
    """A feed as copies fill it, and as products read it: the same, unless warps convert its tiles on the way."""

    def __init__(self, pool: Any, name: str, stages: int, copies: Sequence[TensorMap]) -> None:
        self.stages, self.copies = stages, copies
        self.is_widened = any(one.operand.stored != one.operand.dtype for one in copies)
        self.stored_tiles = [staged_tiles(name, pool, stages, one) for one in copies]
        self.wide_copies = [_widened(one) for one in copies] if self.is_widened else []
        self.wide_tiles = [staged_tiles(f"wide_{name}", pool, WIDE_STAGES, one) for one in self.wide_copies]

    def add_barriers(self, pool: Any, readers: int) -> None:
        """Barriers of both, after all tiles; `readers`: arrivals of those that multiply."""
        full = Barriers(pool, self.stages, arrivals_of(self.copies))
        empty = Barriers(pool, self.stages, WARPS if self.is_widened else readers)
        self.stored = self.wide = Feed(self.copies, self.stored_tiles, (StagedPart(full, empty),))
        if self.is_widened:
            full, empty = Barriers(pool, WIDE_STAGES, WARPS), Barriers(pool, WIDE_STAGES, readers)
            self.wide = Feed(self.wide_copies, self.wide_tiles, (StagedPart(full, empty),))

    @property
    def barriers(self) -> list[Barriers]:
        feeds = (self.stored, self.wide) if self.is_widened else (self.stored,)
        return [barriers for feed in feeds for part in feed.parts for barriers in (part.full, part.empty)]


def _widened(copies: TensorMap) -> TensorMap:
    """The form of tiles as products read them; the warp group has its writes seen by itself."""
    wide = copy(copies)
    wide.size, wide.by_threads = copies.operand.size, False
    return wide


class Widener:
    """Emits the warp group that converts the tiles of a feed."""

    def __init__(self, pair: FeedPair, threads: Threads) -> None:
        self.stored, self.wide, self.threads = pair.stored, pair.wide, threads
        self.source, self.target = self.stored.reading("stored"), self.wide.filling("widened")
        turns = max(copies.rows * CHUNKS // WARP_GROUP for copies in self.stored.copies)
        self.words = registers("stored_words", turns * _WORDS, "uint32")
        self.halves = registers("wide_words", CHUNK // 2, "uint32")

    def tile(self) -> None:
        (wide,) = self.wide.parts
        self.stored.wait(self.source)
        wide.empty.wait(self.target.stage, self.target.parity)
        for copies, tiles, target in zip(self.stored.copies, self.stored.tiles, self.wide.tiles, strict=True):
            for box in range(copies.boxes):
                self._box(copies, box, tiles, target)
        ptx("fence.proxy.async.shared::cta")
        T.evaluate(T.cuda.warp_sync())
        with when(self.threads.lane == 0):
            wide.full.arrive(self.target.stage)
            self.stored.release(self.source.stage)
        self.source.advance()
        self.target.advance()

    def _box(self, copies: TensorMap, box: int, tiles: Any, wide: Any) -> None:
        thread = self.threads.warp * WARP + self.threads.lane
        chunks = min(-(-(copies.columns - box * copies.per_box) // CHUNK), CHUNKS)
        turns = [turn * WARP_GROUP + thread for turn in range(copies.rows * CHUNKS // WARP_GROUP)]
        units = [bind("unit", unit) for unit in turns]
        for turn, unit in enumerate(units):  # all loads first: none of them may pass a store
            row, chunk = _place(unit)
            column = tirx.bitwise_xor(chunk, row % CHUNKS) * CHUNK
            words = [self.words[turn * _WORDS + k] for k in range(_WORDS)]
            ptx("ld.shared.v4.b32", *words, tiles.ptr_to([self.source.stage, box, row, column]))
        for turn, unit in enumerate(units):
            row, chunk = _place(unit)
            if chunks < CHUNKS:
                with when(chunk < chunks):
                    self._chunk(copies.operand, wide, box, turn, row, chunk)
            else:
                self._chunk(copies.operand, wide, box, turn, row, chunk)

    def _chunk(self, operand: Operand, wide: Any, box: int, turn: int, row: ir.Expr, chunk: ir.Expr) -> None:
        halves = self.halves
        for k in range(CHUNK // 2):
            word = self.words[turn * _WORDS + k // 2]
            _widen(operand, halves, k, T.cast(tirx.shift_right(word, T.uint32(k % 2 * 16)), "uint16"))
        per_unit = CHUNK // operand.size
        for half in range(2):
            unit = chunk * 2 + half
            place = tirx.bitwise_xor(unit % CHUNKS, row % CHUNKS) * per_unit
            address = wide.ptr_to([self.target.stage, box * 2 + unit // CHUNKS, row, place])
            ptx("st.shared.v4.b32", address, *[halves[half * _WORDS + k] for k in range(_WORDS)])


def _place(unit: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    return unit // 16 * 2 + unit // 4 % 2, unit % 4 + (unit // 8 + unit // 4) % 2 * 4


def _widen(operand: Operand, halves: Any, index: int, pair: ir.Expr) -> None:
    """Two elements as two halves; float16 has every float of 8 bits, and bfloat16 too, by way of float32."""
    stored, wide = MATRIX_DTYPES[operand.stored].name, MATRIX_DTYPES[operand.dtype].name
    ptx(f"cvt.rn.f16x2.{stored}x2", halves[index], pair)
    if wide == "f16":
        return
    floats = registers("widened_pair", 2)
    for k in range(2):
        half = T.cast(tirx.shift_right(halves[index], T.uint32(16 * k)), "uint16")
        ptx("cvt.f32.f16", floats[k], half)
    ptx(f"cvt.rn.{wide}x2.f32", halves[index], floats[1], floats[0])
