"""The consumer of few rows: it folds a piece of the axis at a time, with the left operand in registers.

A warp has sixteen of the group's rows. All warps take part in products; those without a row of the program's fold none.
"""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Reader
from tvm_cascade.tile.attention.pieces import Piece
from tvm_cascade.tile.emit import bind, branches, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import QUAD, ROWS
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.operand import STEP_BYTES
from tvm_cascade.tile.skeletons.stream.epilogue import RowEpilogue
from tvm_cascade.tile.skeletons.stream.group_fold import GroupFold
from tvm_cascade.tile.skeletons.stream.pieces.config import left_words
from tvm_cascade.tile.skeletons.stream.pieces.meeting import EachPiece, Meeting
from tvm_cascade.tile.skeletons.stream.pieces.spread import SpreadFinish
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, Threads

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
        right: Reader,
        value: Reader,
        meeting: Meeting,
        spread: SpreadFinish | None,
    ) -> None:
        super().__init__(tiling, threads, right, value)
        self.meeting, self.spread, self.epilogue = meeting, spread, RowEpilogue(tiling)

    def _allocate(self) -> None:
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

    def run(self, each_piece: EachPiece) -> None:
        """Emits the loop over the block's pieces, and what follows it."""
        self.meeting.begin(self)
        if self.spread is not None:
            self.spread.begin(self)
        self._fold_pieces(each_piece)
        self.meeting.settle(self, each_piece)
        if self.spread is not None:
            self.spread.settle(self, each_piece)

    def _fold_pieces(self, each_piece: EachPiece) -> None:
        with each_piece() as (piece, work):
            self._place(work)
            self.rows.allocate()
            length = kernel_extent(self.stream.extent(self.stream.position))
            self.rows.end = bind("piece_end_position", tirx.min(work.tiles.end * self.columns, length))
            rows = kernel_extent(self.stream.extent(self.stream.row))
            self.has_rows = bind("has_rows", self.first_row + self.threads.warp * _WARP_ROWS < rows)
            self._fetch_left()
            self._fold_tiles(work.tiles)
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
        with when(self.has_rows):
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

    def _start_scores(self) -> None:
        stream = self.stream
        wgmma.fence()
        wgmma.multiply_registers(
            self.scores, self.columns, self.left_words, self.right_matrix, stream.depth,
            (stream.left.dtype, stream.right.dtype),
            wgmma.stage_offset(self.right.stage, self.right_feed.copies[0].tile_bytes), adds=False,
        )  # fmt: skip
        wgmma.commit()
