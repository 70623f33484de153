"""The consumer of few rows: it folds a piece of the axis at a time, with the left operand in registers.

A warp has sixteen of the group's rows. All warps take part in products; those without a row of the program's fold none.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, branches, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import QUAD, ROWS
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.feed import Feed
from tvm_cascade.tile.operand import STEP_BYTES
from tvm_cascade.tile.pieces import Piece
from tvm_cascade.tile.skeletons.stream.epilogue import RowEpilogue
from tvm_cascade.tile.skeletons.stream.group_fold import GroupFold
from tvm_cascade.tile.skeletons.stream.pieces.config import left_words
from tvm_cascade.tile.skeletons.stream.pieces.meeting import EachPiece, Meeting
from tvm_cascade.tile.skeletons.stream.pieces.quarters import Quarters
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, Threads, Work

_WARP_ROWS = 16
"""Rows of an accumulator that a warp holds."""

_WORD = 4
"""Bytes of a register."""


class PiecesConsumer(GroupFold):
    """Emits one consumer warp group."""

    def __init__(
        self,
        tiling: Tiling,
        threads: Threads,
        right: Feed,
        value: Feed,
        meeting: Meeting,
        spread: Meeting | None,
        quarters: Quarters | None,
    ) -> None:
        self.quarters = quarters
        super().__init__(tiling, threads, right, value)
        self.meeting, self.spread, self.epilogue = meeting, spread, RowEpilogue(tiling)

    def _allocate(self) -> None:
        if self.quarters is not None:
            self.quarters.open(self.threads.warp, self.threads.lane)
        self.left_words = registers("left_words", left_words(self.stream), "uint32")
        for packed in self.packing.packed.values():  # warps without rows multiply what is there
            with T.unroll(int(packed.ty.shape[0])) as k:
                put(packed, k, T.uint32(0))

    @property
    def row_count(self) -> int:
        """How many they are at most."""
        return min(int(self.stream.extent(self.stream.row)), GROUP_ROWS)

    @property
    def thread_rows(self) -> tuple[int, ...]:
        """The upper one alone, where there are no others: the lower ones are eight further on."""
        return ROWS if self.row_count > _WARP_ROWS // len(ROWS) else ROWS[:1]

    @property
    def warp_rows(self) -> ir.Expr:
        """The first of the warp's rows: the same of all warps that fold quarters."""
        return super().warp_rows if self.quarters is None else tirx.const(0, "int32")

    @property
    def fold_columns(self) -> int:
        """Positions of a tile that a warp folds."""
        return self.columns if self.quarters is None else self.quarters.columns

    @property
    def folded_scores(self) -> Any:
        """Registers of their scores."""
        return self.scores if self.quarters is None else self.quarters.scores

    def run(self, each_piece: EachPiece) -> None:
        """Emits the loop over the block's pieces, and what follows it."""
        self._fold_pieces(each_piece)
        self.meeting.settle(self, each_piece)

    def _fold_pieces(self, each_piece: EachPiece) -> None:
        with each_piece() as (piece, work):
            self._place(work)
            self.rows.allocate()
            length = kernel_extent(self.stream.extent(self.stream.position))
            self.rows.end = bind("piece_end_position", tirx.min(work.tiles.end * self.columns, length))
            rows = kernel_extent(self.stream.extent(self.stream.row))
            self.has_rows = bind("has_rows", self.first_row + self.warp_rows < rows)
            self._fetch_left()
            self._fold_piece(work)
            if self.quarters is not None:
                self.quarters.merge(self, work)
            if self.meeting.is_of_all:
                self.meeting.leave(self, piece)
                return
            with branches(piece.is_whole) as (whole, part):
                with whole:
                    self._store_whole(piece)
                with part:
                    self.meeting.leave(self, piece)

    def _store_whole(self, piece: Piece) -> None:
        if self.spread is not None:
            self.spread.leave(self, piece)
            return
        with when(self.has_rows if self.quarters is None else self.threads.warp == 0):
            self.epilogue.finish_and_store(self)

    def _fetch_left(self) -> None:
        """Loads the thread's rows as the tensor cores read them; zeros past the depth."""
        size = self.stream.left.size
        for word in range(left_words(self.stream)):
            row, half, step = word % 2, word // 2 % 2, word // 4
            first = (step * STEP_BYTES + half * STEP_BYTES // 2) // size
            if first >= self.stream.depth:
                put(self.left_words, word, T.uint32(0))
                continue
            column = self.threads.lane % QUAD * (_WORD // size) + first
            address = self.rows.address_at(self.stream.left_load, row, {self.stream.inner: column})
            ptx("ld.global.nc.b32", self.left_words[word], address)

    def _fold_piece(self, work: Work) -> None:
        """From the first score to the last product."""
        tiles, first = work.tiles, self._fold_tile(work.tiles.end - 1)
        self.right_feed.wait(self.right)
        self._start_scores()
        self.masking.prepare(first)
        wgmma.wait(0)
        self._release(self.right_feed, self.right)
        with when(self.has_rows):
            self._take_scores()
            self._fold_rows(first, first=True)
            self._pack(first if self.tiling.ragged else None)
        with T.serial(tiles.end - tiles.first - 1) as step:
            self._tile(bind("tile", tiles.end - 2 - step))
        if self.accumulators:
            self.value_feed.wait(self.value)
            self._start_products()
        self.rows.across_lanes()
        self._finish_products()

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        self.right_feed.wait(self.right)
        self._start_scores()
        if self.accumulators:
            self.value_feed.wait(self.value)
            self._start_products()
        own = self._fold_tile(tile)
        self.masking.prepare(own)
        wgmma.wait(1 if self.accumulators else 0)
        self._release(self.right_feed, self.right)
        with when(self.has_rows):
            self._take_scores()
            self._fold_mapped(own, partial(self.rows.step, own, first=False, guarded=False))
        self._finish_products()
        with when(self.has_rows):
            self._shift_accumulators(own)
            self._pack(None)

    def _fold_tile(self, tile: ir.Expr) -> ir.Expr:
        """The number of what the warp folds of a tile."""
        return tile if self.quarters is None else bind("quarter", self.quarters.tile(tile))

    def _take_scores(self) -> None:
        """Takes the scores that the warp folds."""
        if self.quarters is not None:
            self.quarters.take(self.scores)

    def _pack(self, ragged: ir.Expr | None) -> None:
        if self.quarters is None:
            super()._pack(ragged)
            return
        self.quarters.pack(self.packing, lambda symbol, j, r, e: self.rows.weight(symbol, ragged, j, r, e))

    def _start_scores(self) -> None:
        stream = self.stream
        wgmma.fence()
        wgmma.multiply_registers(
            self.scores, self.columns, self.left_words, self.right_matrix, stream.depth,
            (stream.left.dtype, stream.right.dtype),
            wgmma.stage_offset(self.right.stage, self.right_feed.copies[0].tile_bytes), adds=False,
        )  # fmt: skip
        wgmma.commit()
