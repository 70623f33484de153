"""The fold of a consumer warp group: products, folding of tiles in registers, and masks; schedules derive from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.masks import Masking, passes_of
from tvm_cascade.tile.attention.operands.feed import Reader
from tvm_cascade.tile.attention.operands.packing import Packing
from tvm_cascade.tile.attention.rows import Place, RowFold
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.emit import bind, branches, put, registers, when
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS
from tvm_cascade.tile.hopper.barrier import NamedBarrier, Ring
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.skeletons.stream.epilogue import AllColumns, Columns
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads, Work


class GroupFold:
    """Registers of a warp group, and what is done to them tile by tile.

    Parameters
    ----------
    right, value : the feeds of the score's right operand and of the products'.

    Attributes
    ----------
    work : the tile of rows that it is at.
    index : its number among the consumers.
    first_row : of its own rows.
    rows : the state and the steps of its rows.
    accumulators : registers of the components that are products.
    row_values : registers of what has a value per row that are there already.
    has_rows : whether the warp has rows of the program's; None where all have.
    """

    has_rows: ir.Expr | None = None

    def __init__(
        self, tiling: Tiling, threads: Threads, right: Reader, value: Reader, own_columns: Columns | None = None
    ) -> None:
        self.tiling, self.threads, self.right_feed, self.value_feed = tiling, threads, right, value
        self.config, self.program, self.stream = tiling.config, tiling.program, tiling.stream
        self.own_columns = own_columns or AllColumns()
        self.family = tiling.config.family
        self.masks, self.columns = self.program.element.masks, self.config.columns
        self.index = bind("consumer", threads.group - 1)
        self.scores = registers("scores", self.columns // 2)
        self.accumulators = {
            p.component.symbol: registers(f"{p.component.symbol}", len(self.own_columns.of(p)) // 2)
            for p in self.stream.products
        }
        self.packing = Packing(self.program.accumulations, self.columns, threads.lane, self.thread_rows)
        self.row_values: dict[sp.Symbol, Any] = {}
        self._allocate()
        self._describe_left()
        self.right_matrix = self.family.matrix(right.tiles[0].ptr_to([0, 0, 0, 0]), self.columns, False, threads)
        self.value_matrices = [
            self.family.matrix(
                tiles.ptr_to([0, self.own_columns.of(product).start // copies.per_box, 0, 0]), copies.rows,
                not product.is_transposed, threads,
            )
            for product, copies, tiles in zip(self.stream.products, value.copies, value.tiles, strict=True)
        ]  # fmt: skip
        self._start_left()
        self.right, self.value = right.reading("right"), value.reading("value")

    def _allocate(self) -> None:
        """Registers of a schedule's own."""

    def _describe_left(self) -> None:
        """Where products find the left operand."""

    def _start_left(self) -> None:
        """The first stage of the left operand."""

    def _value_offset(self, product: Product, copies: TensorMap) -> ir.Expr:
        """Where the block's columns of a value, the first of which begins a box, begin in the stage that is read."""
        stage = self.family.offset(self.value.stage, copies.tile_bytes)
        first = self.own_columns.first(product, self.work)
        if isinstance(first, int):
            return stage
        return stage + self.family.offset(first // copies.per_box, copies.box_bytes)

    @property
    def own_rows(self) -> ir.Expr:
        """The first of its rows in the block's tile."""
        return self.index * GROUP_ROWS

    @property
    def row_count(self) -> int:
        """How many they are at most."""
        return GROUP_ROWS

    @property
    def thread_rows(self) -> tuple[int, ...]:
        """Which of a thread's two rows the program may have."""
        return ROWS

    def _place(self, work: Work) -> None:
        lane = self.threads.lane
        self.work = work
        self.first_row = bind("first_own_row", work.first_row + self.own_rows)
        upper = bind("row", self.first_row + self.threads.warp * 16 + lane // 4)
        place = Place(work.batch, (upper, upper + 8), lane % 4 * 2, self.tiling.buffers)
        self.rows = RowFold(self.program, place, self.scores, self.columns, dict(self.row_values))
        self.rows.own = self.thread_rows
        self.masking = Masking(passes_of(self.masks, self.stream.position, self.columns), self.rows, lane)
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self._whole_range()

    def _fold_tiles(self, tiles: TileRange) -> None:
        """From the first score to the last product; tiles are visited from the last on."""
        self.right_feed.wait(self.right)
        self._start_scores()
        self.masking.prepare(tiles.end - 1)
        self.family.wait(0)
        self._release(self.right_feed, self.right)
        with self._where_rows():
            self._fold_rows(tiles.end - 1, first=True)
            self._pack(tiles.end - 1 if self.tiling.ragged else None)
        self._multiply_at_once()
        with T.serial(tiles.end - tiles.first - 1) as step:
            self._tile(bind("tile", tiles.end - 2 - step))
        self._scores_done()
        if self.overlaps:
            self.value_feed.wait(self.value)
            self._start_products()
        self.rows.across_lanes()
        self._finish_products()

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        self.right_feed.wait(self.right)
        self._take_turn()
        self._start_scores()
        if self.overlaps:
            self.value_feed.wait(self.value)
            self._start_products()
        self._pass_turn()
        self.masking.prepare(tile)
        self.family.wait(1 if self.accumulators else 0)
        self._fold_meanwhile(tile)
        self._multiply_at_once()

    def _fold_meanwhile(self, tile: ir.Expr) -> None:
        """Folds the scores of a tile while products with the weights of the one before are under way."""
        self._release(self.right_feed, self.right)
        with self._where_rows():
            self._fold_mapped(tile, partial(self.rows.step, tile, first=False, guarded=False))
        self._finish_products()
        with self._where_rows():
            self._shift_accumulators(tile)
            self._pack(None)

    def _start_scores(self) -> None:
        """Starts the products of the left operand with a tile of the right one."""
        raise NotImplementedError

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
        """Whether products with the weights of a tile are under way while the next tile is folded."""
        return bool(self.accumulators) and self.family.deferred

    def _finish_products(self) -> None:
        if self.overlaps:
            self.family.wait(0)
            self._release(self.value_feed, self.value)

    def _multiply_at_once(self) -> None:
        """The products with a tile's weights, where they do not overlap the next tile."""
        if self.accumulators and not self.overlaps:
            self.value_feed.wait(self.value)
            self._start_products()
            self._release(self.value_feed, self.value)

    def _start_products(self) -> None:
        self.family.fence()
        for accumulation, copies, matrix in zip(
            self.program.accumulations, self.value_feed.copies, self.value_matrices, strict=True
        ):
            product = accumulation.product
            self.family.multiply_registers(
                self.accumulators[product.component.symbol], len(self.own_columns.of(product)),
                self.packing.of(accumulation), matrix, self.columns, (accumulation.dtype, product.value.dtype),
                self._value_offset(product, copies),
            )  # fmt: skip
        self.family.commit()

    def _release(self, feed: Reader, ring: Ring) -> None:
        with self.family.leading(self.threads):
            feed.release(ring.stage)
        ring.advance()

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
        return None if self.whole is None else tirx.And(tile >= self.whole.first, tile < self.whole.end)

    def _whole_range(self) -> None:
        """The tiles in which no mask drops anything of the group's rows."""
        self.whole = self.work.whole
        if self.whole is None:
            self.whole = self.tiling.whole(self.work.batch, self.first_row, self.row_count)
            if self.whole is not None and self.masks:
                self.whole = TileRange(bind("whole_first", self.whole.first), bind("whole_end", self.whole.end))

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        for accumulation in self.program.accumulations:
            symbol = accumulation.product.component.symbol
            if accumulation.shift == symbol:
                continue
            with T.unroll(len(self.own_columns.of(accumulation.product)) // 8) as j:
                for r in self.thread_rows:
                    for e in NEIGHBOURS:
                        put(self.accumulators[symbol], j * 4 + 2 * r + e,
                            self._shifted(accumulation.shift, r, j * 4 + 2 * r + e, tile))  # fmt: skip

    def _shifted(self, shift: sp.Expr, row: int, index: ir.Expr, tile: ir.Expr) -> ir.Expr:
        return self.rows.write_accumulator(shift, row, tile, {s: a[index] for s, a in self.accumulators.items()})

    def _pack(self, ragged: ir.Expr | None) -> None:
        """Weights as products read them; zeros past the end of a ragged tile."""
        self.packing.emit(lambda symbol, j, r, e: self.rows.weight(symbol, ragged, j, r, e))
