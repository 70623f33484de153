"""The consumer warp groups of the stream skeleton: products, folding of tiles, and their overlap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Reader
from tvm_cascade.tile.emit import bind, branches, ptx, registers, when
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.skeletons.stream.epilogue import Columns, Epilogue
from tvm_cascade.tile.skeletons.stream.group_fold import GroupFold
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads, Work


class Consumer(GroupFold):
    """Emits one consumer warp group; implements `epilogue.Folded`."""

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Reader, right: Reader, value: Reader, epilogue: Epilogue,
        own_columns: Columns | None = None,
    ) -> None:  # fmt: skip
        self.left_feed, self.epilogue = left, epilogue
        super().__init__(tiling, threads, right, value, own_columns)

    def _allocate(self) -> None:
        self.optimistic = self.config.optimistic and self.program.optimistic is not None
        if self.optimistic and self.family.threads == WARP_GROUP:
            self.votes = registers("votes", 1, "uint32")

    def _describe_left(self) -> None:
        (left,) = self.left_feed.tiles
        own = left.ptr_to([0, 0, self.own_rows, 0])
        self.left_matrix = self.family.matrix(own, self.config.rows, False, self.threads, left=True)

    def _start_left(self) -> None:
        self.left = self.left_feed.reading("left")

    def run(self, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        """Emits the loop over the block's tiles of rows."""
        if self.config.ping_pong:
            with when(self.index == 0):
                self._turns.arrive(2 * WARP_GROUP)
        with each_work() as work:
            self._place(work)
            self._stream(work)
        self.epilogue.drain(self.threads)

    def _stream(self, work: Work) -> None:
        """From the first score to the last store."""
        tiles = self.own_tiles(work)
        self._pass_over(work.tiles.end - tiles.end)
        self.left_feed.wait(self.left)
        self._fold_tiles(tiles)
        if not self.accumulators:
            self.family.wait(0)
        self._pass_over(tiles.first - work.tiles.first)
        self.hand_over()
        self.left.advance()

    def hand_over(self) -> None:
        """Hands the folded rows of the group to the epilogue or the merge."""
        self.epilogue.emit(self)

    @property
    def apart(self) -> bool:
        """Whether the groups of a block fold different tiles."""
        return self.program.uneven

    def own_tiles(self, work: Work) -> TileRange:
        """The tiles that hold a live position of the group's own rows: one at least."""
        if not self.apart:
            return work.tiles
        own = work.own or self.tiling.visited(work.batch, self.first_row, GROUP_ROWS)
        first = bind("own_first", tirx.max(tirx.min(own.first, work.tiles.end - 1), work.tiles.first))
        return TileRange(first, bind("own_end", tirx.max(tirx.min(own.end, work.tiles.end), first + 1)))

    def _pass_over(self, count: ir.Expr) -> None:
        """Tiles that the block visits for other groups: waited for, released, and a turn passed on for each."""
        if not self.apart:
            return
        with T.serial(count):
            self.right_feed.wait(self.right)
            self._release(self.right_feed, self.right)
            if self.accumulators:
                self.value_feed.wait(self.value)
                self._release(self.value_feed, self.value)
            self._take_turn()
            self._pass_turn()

    def left_is_read(self) -> None:
        """Releases the left operand's stage; called by one thread of the group."""
        self.left_feed.release(self.left.stage)

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's own stage."""
        return self.left_feed.tiles[0].ptr_to([self.left.stage, box, row, column])

    def _scores_done(self) -> None:
        if self.epilogue.own_staging:
            with self.family.leading(self.threads):
                self.left_is_read()

    def _fold_meanwhile(self, tile: ir.Expr) -> None:
        if not self.optimistic:
            super()._fold_meanwhile(tile)
            return
        self._fold_optimistic(tile)
        self._pack(None)

    def _fold_optimistic(self, tile: ir.Expr) -> None:
        """Folds a tile at the current reference, and redoes it with its own maximum where a weight is too large."""
        self._fold_mapped(tile, partial(self.rows.step_optimistic, tile))
        within = self.rows.all_within()
        self._finish_products()
        with branches(self._unanimous(within)) as (kept, again):
            with kept:
                self.rows.combine_optimistic()
            with again:
                self._start_scores()
                self.family.wait(0)
                self._fold_rows(tile, first=False)
                self._shift_accumulators(tile)
        self._release(self.right_feed, self.right)

    def _unanimous(self, vote: ir.Expr) -> ir.Expr:
        """Whether every thread that would multiply again with this one votes for; as a vote of the warp."""
        if self.family.threads != WARP_GROUP:
            return in_no_lane(tirx.Not(vote))
        own = self.threads.named.take("votes", self.config.consumers)
        ptx("bar.red.popc.u32", self.votes[0], own.operand(own.first + self.index), T.uint32(WARP_GROUP), vote)
        return in_no_lane(self.votes[0] != T.uint32(WARP_GROUP))

    def _start_scores(self) -> None:
        stream = self.stream
        self.family.fence()
        self.family.multiply_shared(
            [[self.scores]], self.columns, self.left_matrix, [self.right_matrix], stream.depth,
            (stream.left.dtype, stream.right.dtype),
            [self.family.offset(self.left.stage, self.left_feed.copies[0].tile_bytes)],
            [self.family.offset(self.right.stage, self.right_feed.copies[0].tile_bytes)],
        )  # fmt: skip
        self.family.commit()
