"""The fold of a consumer warp group: products, folding of tiles in registers, and masks; schedules derive from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from typing import Any

import numpy as np
import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.masks import Masking, passes_of
from tvm_cascade.tile.attention.operands.feed import Feed
from tvm_cascade.tile.attention.operands.packing import Packing
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.attention.standing import Limit
from tvm_cascade.tile.emit import bind, branches, numbered, ptx, put, registers, variable, when
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS, register_index
from tvm_cascade.tile.hopper.barrier import NamedBarrier, Ring
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.skeletons.stream.epilogue import Columns, Epilogue, Folded, Staged
from tvm_cascade.tile.skeletons.stream.pieces.config import left_words
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, EachWork, Threads, Work

WARP_ROWS = 16
"""Rows of an accumulator that a warp holds."""


class GroupFold(Folded):
    """Registers of a warp group, and what is done to them tile by tile.

    Parameters
    ----------
    left, right, value : the feeds of the score's operands and of the products'. Without that of the left operand it is
        in registers, of few rows: a warp has sixteen, and those without a row of the program's fold none.

    Attributes
    ----------
    rows : the state and the steps of its rows.
    accumulators : registers of the components that are products.
    row_values : registers of what has a value per row that are there already.
    has_rows : whether the warp has rows of the program's; None where all have.
    """

    has_rows: ir.Expr | None = None
    left_feed: Feed

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed | None, right: Feed, value: Feed,
        own_columns: Columns | None = None,
    ) -> None:  # fmt: skip
        self.tiling, self.threads, self.right_feed, self.value_feed = tiling, threads, right, value
        self.config, self.program, self.stream = tiling.config, tiling.program, tiling.stream
        self.own_columns, self.in_registers = own_columns or Columns(), left is None
        self.family = tiling.config.family
        self.masks, self.columns = self.program.element.masks, self.config.columns
        self.index = bind("consumer", threads.group - 1)
        alike = self.config.row_groups < self.config.consumers  # groups have the same rows
        self.own_rows = T.int32(0) if alike else self.index * GROUP_ROWS
        self.scores = [registers(numbered("scores", k), self.columns // 2) for k in range(len(self.stream.scores))]
        self.accumulators = {
            p.component.symbol: registers(f"{p.component.symbol}", len(self.own_columns.of(p)) // 2)
            for p in self.stream.products
        }
        count = GROUP_ROWS if left is not None else min(int(self.stream.extent(self.stream.row)), GROUP_ROWS)
        self.row_count, self.thread_rows = count, ROWS if count > WARP_ROWS // len(ROWS) else ROWS[:1]
        self.packing = Packing(self.program.accumulations, self.columns, threads.lane, self.thread_rows)
        self.row_values: dict[sp.Symbol, Any] = {}
        self.optimistic = self.config.optimistic and self.program.optimistic is not None
        self.holds = self.config.optimistic and self.program.standing is not None and not self.overlaps
        self.answers: Any = registers("of_tile", len(tiling.at_once), "bool") if tiling.at_once else ()
        self.at_once = [self.answers[k] for k in range(len(tiling.at_once))]
        self._allocate(left)
        self.right_matrices = [
            self.family.matrix(tiles.ptr_to([0, 0, 0, 0]), self.columns, False, threads)
            for tiles in right.tiles[: len(self.scores)]
        ]
        self.value_matrices = [
            self.family.matrix(
                tiles.ptr_to([0, self.own_columns.of(product).start // copies.per_box, 0, 0]), copies.rows,
                not product.is_transposed, threads,
            )
            for product, copies, tiles in zip(self.stream.products, value.copies, value.tiles, strict=False)
        ]  # fmt: skip
        if left is not None:
            self.left_feed, self.left = left, left.reading("left")
        self.right = right.reading("right")
        # Of tiles that scores and products read, one after the other, there is one position.
        self.value = self.right if right.released == () and not self.overlaps else value.reading("value")

    def _allocate(self, left: Feed | None) -> None:
        if (self.optimistic or self.holds) and self.family.threads == WARP_GROUP:
            self.votes = registers("votes", 1, "uint32")
        if left is not None:
            own = [tiles.ptr_to([0, 0, self.own_rows, 0]) for tiles in left.tiles]
            found = [self.family.matrix(one, self.config.rows, False, self.threads, left=True) for one in own]
            self.left_matrices = [found[number] for number in self.stream.left_numbers]
            return
        self.left_words = registers("left_words", left_words(self.stream), "uint32")
        for packed in self.packing.packed.values():  # warps without rows multiply what is there
            with T.unroll(int(packed.ty.shape[0])) as k:
                put(packed, k, T.uint32(0))

    def _value_offset(self, product: Product, copies: TensorMap) -> ir.Expr:
        """Where the block's columns of a value, the first of which begins a box, begin in the stage that is read."""
        stage = self.family.offset(self.value.stage, copies.tile_bytes)
        first = self.own_columns.first(product, self.work)
        if isinstance(first, int):
            return stage
        return stage + self.family.offset(first // copies.per_box, copies.box_bytes)

    def _place(self, work: Work) -> None:
        self.place_rows(work, self.scores, self.row_values, self.thread_rows)
        along = self.value_feed.tiles[len(self.stream.products) :]
        self.rows.rows_along = {
            symbol: partial(self._along, tiles) for symbol, tiles in zip(self.program.rows_along, along, strict=False)
        }
        passing = None if work.passing is None else work.passing.any
        passes = passes_of(self.tiling.masks(passing, self.at_once), self.stream.position, self.columns)
        self.masking = Masking(passes, self.rows, self.threads.lane)
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self.whole = work.whole
        if self.whole is None:
            self.whole = self.tiling.whole(work.batch, self.first_row, self.row_count, passing)
            if self.whole is not None and self.masks:
                self.whole = TileRange(bind("whole_first", self.whole.first), bind("whole_end", self.whole.end))

    def _along(self, tiles: Any, place: ir.Expr) -> ir.Expr:
        return tiles[self.value.stage, 0, 0, place]

    def _fold_tiles(self, tiles: TileRange) -> None:
        """From the first score to the last product; tiles are visited from the last on."""
        self.right_feed.wait(self.right)
        self._start_scores()
        self._prepare(tiles.end - 1)
        self.family.wait(0)
        self._right_is_read()
        with self._where_rows():
            self._fold_rows(tiles.end - 1, first=True)
            self._pack(tiles.end - 1 if self.tiling.ragged else None)
        self._multiply_at_once()
        with self.tiling.visits(self.work, tiles, passed=1) as tile:
            self._tile(bind("tile", tile))
        self._scores_done()
        if self.holds:
            self.rows.recall_scales()
        if self.overlaps:
            self.value_feed.wait(self.value)
            self._start_products()
        self.rows.across_lanes()
        self._finish_products()

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        self.right_feed.wait(self.right)
        self._take_turn()
        if self.holds:
            self._fold_standing(tile)
            self._multiply_at_once()
            return
        self._start_scores()
        if self.overlaps:
            self.value_feed.wait(self.value)
            self._start_products()
        self._pass_turn()
        self._prepare(tile)
        self.family.wait(1 if self.overlaps else 0)
        self._fold_meanwhile(tile)
        self._multiply_at_once()

    def _prepare(self, tile: ir.Expr) -> None:
        """Reads what is asked of a tile, while its scores are computed."""
        self.masking.prepare(tile)
        for k, condition in enumerate(self.tiling.at_once):
            put(self.answers, k, self.tiling.passes([condition], self.work.batch, self.work.first_row, tile))

    def _fold_meanwhile(self, tile: ir.Expr) -> None:
        """Folds the scores of a tile while products with the weights of the one before are under way."""
        if self.optimistic:
            self._fold_optimistic(tile)
            self._pack(None)
            return
        self._right_is_read()
        with self._where_rows():
            self._fold_mapped(tile, partial(self.rows.step, tile, first=False, guarded=False))
        self._finish_products()
        with self._where_rows():
            self._shift_accumulators(tile)
            self._pack(None)

    def _start_scores(self) -> None:
        self.family.fence()
        for k, score in enumerate(self.stream.scores):
            depth, dtypes = score.depth, (score.left.dtype, score.right.dtype)
            right = self.family.offset(self.right.stage, self.right_feed.copies[k].tile_bytes)
            if self.in_registers:
                self.family.multiply_registers(
                    self.scores[k], self.columns, self.left_words, self.right_matrices[k], depth, dtypes, right,
                    add=False,
                )  # fmt: skip
                continue
            left = self.family.offset(self.left.stage, self.left_feed.copies[self.stream.left_numbers[k]].tile_bytes)
            self.family.multiply_shared(
                [[self.scores[k]]], self.columns, self.left_matrices[k], [self.right_matrices[k]], depth, dtypes,
                [left], [right],
            )  # fmt: skip
        self.family.commit()

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
        self._right_is_read()

    def _fold_standing(self, tile: ir.Expr) -> None:
        """Folds a tile at the scales as they stand, and again while some move.

        As a loop, since with the same code in a branch nvcc finds too few registers.
        """
        tries = variable("tries", T.int32(0))
        with T.While(tries[0] >= 0):
            self._start_scores()
            if self.config.ping_pong:
                with when(tries[0] == 0):
                    self._pass_turn()
            self._prepare(tile)
            self.family.wait(0)
            self._fold_mapped(tile, partial(self.rows.lift, tile))
            self._pack(None)
            beyond = self._beyond()
            most = reduce(tirx.max, (beyond(limit, r) for limit in self._limits for r in self.thread_rows))
            put(tries, 0, tirx.Select(self._unanimous(most <= 0), T.int32(-1), tries[0] + 1))
            with when(tries[0] > 0):
                stays = tirx.Not(self.rows.move_scales(tile, beyond))
                self._shift_accumulators(tile)
                put(tries, 0, tirx.Select(self._unanimous(stays), T.int32(-1), tries[0]))
        self._right_is_read()

    @property
    def _limits(self) -> tuple[Limit, ...]:
        assert self.program.standing is not None
        return self.program.standing.limits

    def _beyond(self) -> Callable[[Limit, int], ir.Expr]:
        """(limit, row) -> how far the largest weight that the thread has packed is beyond it, in steps of its dtype."""
        sizes = {limit: self.packing.largest(limit.weight, limit.dtype) for limit in self._limits}

        def beyond(limit: Limit, row: int) -> ir.Expr:
            pair, most = sizes[limit][row], int(np.array(limit.most, limit.dtype).view("uint16"))
            halves = (T.cast(half, "int32") for half in (pair & T.uint32(0xFFFF), pair >> T.uint32(16)))
            return tirx.max(*halves) - T.int32(most)

        return beyond

    def _unanimous(self, vote: ir.Expr) -> ir.Expr:
        """Whether every thread that would multiply again with this one votes for; as a vote of the warp."""
        if self.family.threads != WARP_GROUP:
            return in_no_lane(tirx.Not(vote))
        own = self.threads.named.take("votes", self.config.consumers)
        ptx("bar.red.popc.u32", self.votes[0], own.operand(own.first + self.index), T.uint32(WARP_GROUP), vote)
        return in_no_lane(self.votes[0] != T.uint32(WARP_GROUP))

    def _scores_done(self) -> None:
        """After the last product with the left operand."""

    def _where_rows(self) -> AbstractContextManager[None]:
        """Around what warps with rows of the program's do."""
        return nullcontext() if self.has_rows is None else when(self.has_rows)

    @property
    def _turns(self) -> NamedBarrier:
        return self.threads.named.take("turns", self.config.consumers)

    def _take_turn(self) -> None:
        if self.config.ping_pong:
            self._turns.sync(2 * WARP_GROUP, self._turns.first + self.index)

    def _pass_turn(self) -> None:
        if self.config.ping_pong:
            following = (self.index + 1) % self.config.consumers
            self._turns.arrive(2 * WARP_GROUP, self._turns.first + following)

    @property
    def overlaps(self) -> bool:
        """Whether products with the weights of a tile are under way while the next tile is folded.

        Of several scores, the weights are in the registers of scores.
        """
        return bool(self.accumulators) and self.family.deferred and len(self.scores) == 1

    def _finish_products(self) -> None:
        if self.overlaps:
            self.family.wait(0)
            self._release(self.value_feed, self.value)

    def _multiply_at_once(self) -> None:
        """The products with a tile's weights, where they do not overlap the next tile."""
        if self.accumulators and not self.overlaps:
            self._wait_for_values()
            self._start_products()
            self.family.wait(0)
            self._release(self.value_feed, self.value)

    def _start_products(self) -> None:
        self.family.fence()
        for accumulation, copies, matrix in zip(
            self.program.accumulations, self.value_feed.copies, self.value_matrices, strict=False
        ):
            product = accumulation.product
            self.family.multiply_registers(
                self.accumulators[product.component.symbol], len(self.own_columns.of(product)),
                self.packing.of(accumulation), matrix, self.columns, (accumulation.dtype, product.value.dtype),
                self._value_offset(product, copies),
            )  # fmt: skip
        self.family.commit()

    def _release(self, feed: Feed, ring: Ring) -> None:
        with self.family.leading(self.threads):
            feed.release(ring.stage)
        ring.advance()

    def _right_is_read(self) -> None:
        if self.right is not self.value:
            self._release(self.right_feed, self.right)

    def _wait_for_values(self) -> None:
        if self.right is not self.value:
            self.value_feed.wait(self.value)

    def _fold_rows(self, tile: ir.Expr, first: bool) -> None:
        self._map_and_mask(tile)
        # Tiles are visited from the last on, so that only the first of them can reach past the end of the axis.
        self.rows.step(tile, first, guarded=first and self.tiling.ragged)

    def _fold_mapped(self, tile: ir.Expr, fold: Callable[[], None]) -> None:
        """Maps, masks and folds a tile; where a warp's scores are small and all are kept, without a branch between.

        Special functions then take their time while multiply-adds map further scores.
        """
        near = self.program.near_zero
        if near is None:
            self._map_and_mask(tile)
            fold()
            return
        kept = self._all_kept(tile)
        small = self.rows.all_near(near)
        with branches(small if kept is None else tirx.And(small, kept)) as (plain, other):
            with plain:
                self.rows.map_scores(tile, near)
                if kept is None:
                    self.masking.apply(tile)
                fold()
            with other:
                self._map_and_mask(tile)
                fold()

    def _map_and_mask(self, tile: ir.Expr) -> None:
        self.rows.map_scores(tile)
        kept = self._all_kept(tile)
        if kept is None:
            self.masking.apply(tile)
        elif self.masks:
            with when(tirx.Not(kept)):
                self.masking.apply(tile)

    def _all_kept(self, tile: ir.Expr) -> ir.Expr | None:
        """The condition that no mask drops anything of a tile; None where that is unknown."""
        if self.whole is None:
            return None
        within = tirx.And(tile >= self.whole.first, tile < self.whole.end)
        return tirx.all(within, *(self.at_once[k] for k in self.tiling.whole_where))

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        for accumulation in self.program.accumulations:
            symbol = accumulation.product.component.symbol
            if accumulation.shift == symbol:
                continue
            with T.unroll(len(self.own_columns.of(accumulation.product)) // 8) as j:
                for r in self.thread_rows:
                    for e in NEIGHBOURS:
                        index = register_index(j, r, e)
                        own = {s: array[index] for s, array in self.accumulators.items()}
                        moved = self.rows.write_accumulator(accumulation.shift, r, tile, own)
                        put(self.accumulators[symbol], index, moved)

    def _pack(self, ragged: ir.Expr | None) -> None:
        """Weights as products read them; zeros past the end of a ragged tile."""
        self.packing.emit(lambda symbol, j, r, e: self.rows.weight(symbol, ragged, j, r, e))


# A group whose left operand is in shared memory, and which stores by way of that.


class Consumer(GroupFold, Staged):
    """Emits one consumer warp group."""

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed, right: Feed, value: Feed, epilogue: Epilogue,
        own_columns: Columns | None = None,
    ) -> None:  # fmt: skip
        super().__init__(tiling, threads, left, right, value, own_columns)
        self.epilogue = epilogue

    def run(self, each_work: EachWork) -> None:
        if self.config.ping_pong:
            with when(self.index == 0):
                self._turns.arrive(2 * WARP_GROUP)
        with each_work() as work:
            self._place(work)
            self._stream(work)
        self.epilogue.drain(self.threads)

    def _stream(self, work: Work) -> None:
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
        self.epilogue.emit(self)

    @property
    def apart(self) -> bool:
        """Whether the groups of a block fold different tiles."""
        return self.program.uneven and not self.tiling.needed

    def own_tiles(self, work: Work) -> TileRange:
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
            self._right_is_read()
            if self.accumulators:
                self._wait_for_values()
                self._release(self.value_feed, self.value)
            self._take_turn()
            self._pass_turn()

    def left_is_read(self) -> None:
        self.left_feed.release(self.left.stage)

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        return self.left_feed.tiles[0].ptr_to([self.left.stage, box, row, column])

    def _scores_done(self) -> None:
        if self.epilogue.own_staging:
            with self.family.leading(self.threads):
                self.left_is_read()
