"""One piece a block: the items of longer sequences have more blocks, and no block has parts of two items.

    lengths      10 3 7           tiles of an item of each sequence, of 8 blocks
    share        3                the least that 8 blocks suffice for: 4 + 1 + 3
    origins      0 4 5 8          blocks before each sequence's
    pieces       2 3 2 3 | 3 | 2 2 3

Where the start of a piece and its meeting take as long as many tiles, pieces of unequal length lose less than blocks
with several pieces of `RaggedCut`. Items are no more than blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.pieces import Piece
from tvm_cascade.tile.attention.ragged import RaggedCut, origin_bytes
from tvm_cascade.tile.emit import bind, in_register, put, registers, when
from tvm_cascade.tile.merge.lanes import WARP, from_lane_at
from tvm_cascade.tile.work import Threads


def counted_bytes(sequences: int) -> int:
    """Bytes of shared memory for the tiles, and the blocks, of so many sequences."""
    return 2 * origin_bytes(sequences)


_WORD = 31
"""Bits of an integer that is not negative."""


class OneEach(RaggedCut):
    """Blocks of one piece each, more of an item that has more tiles.

    Parameters
    ----------
    items, most, blocks, sequences, tiles_of : see `RaggedCut`; `most` and `blocks` are known, and blocks suffice for a
        piece of every item.
    """

    def allocate(self, pool: Any) -> None:
        """Takes shared memory: for blocks before each sequence's, and tiles of an item of each."""
        super().allocate(pool)
        self.counted = pool.alloc((self.sequences,), "int32", align=16)

    def count(self, threads: Threads, block_threads: int) -> None:
        """Counts tiles, and then blocks, with all threads of a block; a barrier of the block has to follow."""
        self._count_tiles(threads, block_threads, self.counted, 0)
        with when(threads.thread < WARP):
            share = self._least_share(threads.lane)
            with T.serial(-(-self.sequences // WARP)) as turn:
                sequence = bind("sequence", turn * WARP + threads.lane)
                with when(sequence < self.sequences):
                    put(self.origins, sequence + 1, self._parts(self.counted[sequence], share))
            T.evaluate(T.cuda.warp_sync())
            self._add_up(threads.lane)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        """The one piece of a block, if it has any."""
        has_one = tirx.Select(block < self.total, 1, 0)
        item = in_register("item", self.item_at(block))
        sequence, _ = self.apart(item)
        before, parts = self.span(item)
        first_block, blocks = in_register("first_block", before), in_register("item_blocks", parts)
        with T.serial(in_register("has_piece", has_one)):
            tiles = in_register("item_tiles", self.counted[sequence])
            rank = bind("rank_of_item", block - first_block)
            first, end = (in_register("piece_bound", r * tiles // blocks) for r in (rank, rank + 1))
            yield Piece(item, first, end, rank == 0, rank == blocks - 1, first_block, blocks)

    @staticmethod
    def _parts(tiles: ir.Expr, share: ir.Expr) -> ir.Expr:
        """Blocks of an item with pieces of so many tiles at most."""
        return (tiles + (share - 1)) // share

    def _least_share(self, lane: ir.Expr) -> ir.Expr:
        """The least number of tiles of a piece with which the blocks suffice, found by halving; by one warp."""
        bounds = registers("share_bounds", 2, "int32")
        put(bounds, 0, T.int32(1))
        put(bounds, 1, tirx.max(self.tiles, 1))
        used = registers("blocks_used", 1, "int32")
        with T.serial(_halvings(self.tiles)):
            middle = in_register("share_between", (bounds[0] + bounds[1]) // 2)
            put(used, 0, T.int32(0))
            with T.serial(-(-self.sequences // WARP)) as turn:
                sequence = bind("sequence", turn * WARP + lane)
                with when(sequence < self.sequences):
                    put(used, 0, used[0] + self._parts(self.counted[sequence], middle))
            for distance in (16, 8, 4, 2, 1):
                put(used, 0, used[0] + from_lane_at(used[0], distance))
            enough = in_register("share_suffices", tirx.Select(used[0] * self.repeats <= self.blocks, 1, 0))
            put(bounds, 1, tirx.Select(enough != 0, middle, bounds[1]))
            put(bounds, 0, tirx.Select(enough != 0, bounds[0], tirx.min(middle + 1, bounds[1])))
        return bounds[1]


def _halvings(most: ir.Expr) -> int:
    """After which one number of 1 to a known one is left."""
    return int(most.value).bit_length() if isinstance(most, tirx.IntImm) else _WORD
