"""A warp group that has half of the columns: it lifts every other tile, and multiplies with the weights of all.

own tile j      start scores of all parts but the last;  take tile j - 1;  start the rest;  fold;  share
                half += weights @ V
tile j - 1      wait until it is shared;  rows = what is shared;  half = moved;  start half += shared weights @ V

A tile's scores so are under way while the other group folds; and as soon as its products are done, a tile's stage is
filled again. Source: FlashMLA's "seesaw" (DeepSeek, 2025), where references too go back and forth; here all of a row's
state does, so that tiles are folded in order, as by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Feed, Reader, StagedPart
from tvm_cascade.tile.attention.pieces import PieceWork
from tvm_cascade.tile.emit import bind, branches, computed_here, in_register, put, registers, when
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.machine.family import steps_of
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, HalfColumns
from tvm_cascade.tile.skeletons.stream.halves.shares import Handed
from tvm_cascade.tile.skeletons.stream.halves.sharing import Shared
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Threads, Work


class Half(Consumer):
    """Emits it; the first group lifts the first tile.

    Parameters
    ----------
    left : the pipeline of the left operand, in the parts that the right one has.
    tiles : that of the right operand, which is the values too.
    meeting : of pieces, if any.
    handed : registers that both groups hand over, where they go on together.
    """

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed, tiles: Feed, shared: Shared, epilogue: Epilogue,
        meeting: GridMeeting | None, group: int, spread: int, handed: Handed | None = None,
    ) -> None:  # fmt: skip
        self.shared, self.parts, self.meeting, self.group = shared, tiles.parts, meeting, group
        shared.begin()
        self.order = order_of(tiles, group)
        self.moved = registers("moved", 1, "uint32")
        products = len(tiling.stream.products)
        super().__init__(
            tiling,
            threads,
            left.whole,
            scores_of(tiles),
            values_of(tiles, group, products),
            epilogue,
            HalfColumns(group, spread),
        )
        if handed is not None:
            self.accumulators, self.row_values = handed.all_accumulators, handed.values
        self.weights = [shared.matrix(one, self.family, threads) for one in self.program.accumulations]

    @property
    def own_rows(self) -> ir.Expr:
        """The first of its rows in the block's tile, all of which it has."""
        return T.int32(0)

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's own stage."""
        return place_of(self.left_feed.tiles[0], self.left.stage, box, row, column)

    def hand_over(self) -> None:
        """Stores its half of a whole axis, or leaves the state of a part; nothing where both groups go on together."""
        if self.meeting is None:
            return
        if not self.meeting.meets:
            self.epilogue.emit(self)
            return
        assert isinstance(self.work, PieceWork)
        with branches(in_no_lane(self.work.piece.is_whole)) as (part, whole):
            with part:
                self.meeting.leave(self, self.work)
                with when(self.threads.leads):
                    self.left_is_read()
            with whole:
                self.epilogue.emit(self)

    def _place(self, work: Work) -> None:
        super()._place(work)
        self.rows.end = self.tiling.end_position(work)
        self.rows.allocate()

    def _stream(self, work: Work) -> None:
        """From the first score to the last store; tiles in turn are its own."""
        count, end = in_register("tile_count", work.tiles.end - work.tiles.first), work.tiles.end
        if self.group == 0:
            self._first_tile(end - 1)
        else:
            self.left_feed.wait(self.left)
            self.shared.read()
            self.right.advance()
        with T.serial((count - 1 + self.group) // GROUPS) as step:
            self._tile(bind("tile", end - (GROUPS + 1 - self.group) - step * GROUPS))
        with when(in_no_lane(count % GROUPS != self.group)):
            self._take(work.tiles.first)
            self._multiplied()
        self.right.join(self.value)
        self.rows.across_lanes()
        self.hand_over()
        self.left.advance()

    def _first_tile(self, tile: ir.Expr) -> None:
        """The first of all tiles, which may reach past the end of the axis."""
        self._start_scores(rows=self.left_feed)
        self.masking.prepare(tile)
        self.family.wait(0)
        self._release(self.right_feed, self.right)
        self._fold_rows(tile, first=True)
        put(self.moved, 0, T.uint32(0))
        self._pack(tile if self.tiling.ragged else None)
        self.shared.await_read()
        self._share()
        self._multiply_own()

    def _tile(self, tile: ir.Expr) -> None:
        """A tile of its own, after that of the other group before it."""
        early = max(len(self.order) - 1, 1)
        self._start_scores(self.order[:early])
        self._take(tile + 1)
        self._start_scores(self.order[early:], add=True)
        self.masking.prepare(tile)
        self._multiplied(pending=1)
        self.family.wait(0)
        put(self.moved, 0, T.uint32(0))
        if self.optimistic:
            self._fold_optimistic(tile)
        else:
            self._release(self.right_feed, self.right)
            self._fold_mapped(tile, partial(self.rows.step, tile, first=False, guarded=False))
            self._shift_accumulators(tile)
            self.shared.meet(self.group, self.threads)
        self._pack(None)
        self._share()
        self._multiply_own()

    def _start_scores(
        self, parts: Sequence[StagedPart] | None = None, rows: Reader | None = None, add: bool = False
    ) -> None:
        """As parts of the tile arrive, all by default, and those of the rows, where these have not been waited for.

        Parameters
        ----------
        add : to what earlier parts gave.
        """
        stream, per_box = self.stream, self.right_feed.copies[0].per_box
        left = self.left_matrix.anew(self.family.offset(self.left.stage, self.left_feed.copies[0].tile_bytes))
        right = self.right_matrix.anew(self.family.offset(self.right.stage, self.right_feed.copies[0].tile_bytes))
        for staged in self.order if parts is None else parts:
            if rows is not None:
                rows.wait_part(rows.awaited[self.parts.index(staged)], self.left)
            self.right_feed.wait_part(staged, self.right)
            self.family.fence()
            boxes = staged.boxes
            assert boxes is not None
            first, end = (steps_of(min(b * per_box, stream.depth), stream.left.dtype)
                          for b in (boxes.start, boxes.stop))  # fmt: skip
            self.family.multiply_shared(
                [[self.scores]], self.columns, left, [right], stream.depth,
                (stream.left.dtype, stream.right.dtype), [T.uint64(0)], [T.uint64(0)],
                range(first, end), add=add,
            )  # fmt: skip
            add = True
        self.family.commit()

    def _take(self, tile: ir.Expr) -> None:
        """Takes the rows as the other group has left them, and starts to add the products of its tile."""
        self.value_feed.wait(self.value)
        self.shared.await_filled(1 - self.group)
        self.shared.take_rows(self.rows, self.shared.state, self.threads)
        with when(in_no_lane(self.shared.moved[self.threads.warp] == 0)):
            self.shared.take_rows(self.rows, self.shared.shifting, self.threads)
            super()._shift_accumulators(tile)
        self.family.fence()
        for accumulation, left, right in zip(
            self.program.accumulations, self.weights, self.value_matrices, strict=True
        ):
            product = accumulation.product
            self.family.multiply_shared(
                [[self.accumulators[product.component.symbol]]], len(self.own_columns.of(product)), left, [right],
                self.columns, (accumulation.dtype, product.value.dtype), [T.uint64(0)],
                [self._value_offset(product, self.value_feed.copies[0])], add=True,
            )  # fmt: skip
        self.family.commit()

    def _share(self) -> None:
        """Leaves packed weights and rows to the other group, and what it moves its accumulators by."""
        self.shared.leave_weights(self.packing, self.threads)
        self.shared.leave_rows(self.rows, self.shared.state, self.threads)
        with when(in_no_lane(self.moved[0] == 0)):
            self.shared.leave_rows(self.rows, self.shared.shifting, self.threads)
        put(self.shared.moved, self.threads.warp, self.moved[0])  # by all lanes: one alone would be a branch
        self.shared.filled(self.group)

    def _multiply_own(self) -> None:
        """Adds the products of its own tile, and goes on to its next one."""
        self._start_products()
        self._multiplied()
        for _ in range(GROUPS):
            self.right.advance()

    def _multiplied(self, pending: int = 0) -> None:
        """Waits for the products of a tile, which may be followed by further groups, and releases it."""
        self.family.wait(pending)
        self._release(self.value_feed, self.value)
        self.value.advance()

    def _finish_products(self) -> None:
        """They are finished where they are started."""

    def _release(self, feed: Reader, ring: Ring) -> None:
        with when(self.threads.leads):
            feed.release(ring.stage)

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        super()._shift_accumulators(tile)
        put(self.moved, 0, T.uint32(1))


# What a group reads of a tile that is the right operand and the values at once.


def order_of(tiles: Feed, group: int) -> list[StagedPart]:
    """The parts as they arrive of the tiles that a group lifts: it is the first to have read its own before."""
    return sorted(tiles.parts, key=lambda part: bool(part.readers) + (group not in part.readers))


def copying_shares(tiles: Feed) -> list[list[int]]:
    """The numbers of the parts that group 0 reads, and of all others: copied by one thread each."""
    own = [number for number, part in enumerate(tiles.parts) if 0 in part.readers]
    others = [number for number in range(len(tiles.parts)) if number not in own]
    return [share for share in (others, own) if share]


def scores_of(tiles: Feed) -> Reader:
    """The reader of the scores; of parts that products read too these are the last."""
    alone = tuple(part for part in tiles.parts if not part.readers)
    return Reader(tiles.copies, tiles.tiles, tiles.parts[:1], alone)


def values_of(tiles: Feed, group: int, products: int) -> Reader:
    """The products of a group, which all read the one operand."""
    own = tuple(part for part in tiles.parts if group in part.readers)
    return Reader([*tiles.copies] * products, [*tiles.tiles] * products, own, own)


def place_of(tiles: Any, stage: ir.Expr, box: ir.Expr | int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
    """An address in a tile that is used once, so that no register is worth keeping it in."""
    at = column if isinstance(column, int) else computed_here(column)
    return tiles.ptr_to([stage, box, computed_here(row), at])
