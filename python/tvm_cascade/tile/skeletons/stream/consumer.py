"""The consumer warp groups of the stream skeleton: products, folding of tiles, and their overlap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, branches, ptx, put, registers, when
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.hopper.feed import Feed, Feeds
from tvm_cascade.tile.hopper.packing import Packing
from tvm_cascade.tile.live import Rows, TileRange, mask_slacks, whole_tiles
from tvm_cascade.tile.masks import Masking, passes_of
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.rows import Place, RowFold
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads, Work

_TURN = 2
"""The first named barrier of the consumers' turns."""

_VOTE = 11
"""The first named barrier of the consumers' votes."""


class Consumer:
    """Emits one consumer warp group; implements `epilogue.Folded`.

    Attributes
    ----------
    work : the tile of rows that it is at.
    index : its number among the consumers.
    first_row : of its own rows.
    rows : the state and the steps of its rows.
    accumulators : registers of the components that are products.
    """

    def __init__(self, tiling: Tiling, threads: Threads, feeds: Feeds, epilogue: Epilogue) -> None:
        self.tiling, self.threads, self.feeds, self.epilogue = tiling, threads, feeds, epilogue
        self.config, self.program, self.stream = tiling.config, tiling.program, tiling.stream
        self.masks, self.columns = self.program.element.masks, self.config.columns
        self.index = bind("consumer", threads.group - 1)
        self.scores = registers("scores", self.columns // 2)
        self.accumulators = {
            p.component.symbol: registers(f"{p.component.symbol}", p.width // 2) for p in self.stream.products
        }
        self.packing = Packing(self.program.accumulations, self.columns, threads.lane)
        self.optimistic = self.config.optimistic and self.program.optimistic is not None
        if self.optimistic:
            self.votes = registers("votes", 1, "uint32")
        self._descriptors()
        self.left, self.right = feeds.left.reading("left"), feeds.right.reading("right")
        self.value = feeds.value.reading("value")

    def _descriptors(self) -> None:
        (left,), (right,) = self.feeds.left.tiles, self.feeds.right.tiles
        own = left.ptr_to([0, 0, self.own_rows, 0])
        self.left_matrix = wgmma.SharedMatrix(own, self.config.rows, transposed=False)
        self.right_matrix = wgmma.SharedMatrix(right.ptr_to([0, 0, 0, 0]), self.columns, transposed=False)
        value = self.feeds.value
        self.value_matrices = [
            wgmma.SharedMatrix(tiles.ptr_to([0, 0, 0, 0]), copies.rows, transposed=not product.is_transposed)
            for product, copies, tiles in zip(self.stream.products, value.copies, value.tiles, strict=True)
        ]

    @property
    def own_rows(self) -> ir.Expr:
        """The first of its rows in the block's tile."""
        return self.index * GROUP_ROWS

    def run(self, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        """Emits the loop over the block's tiles of rows."""
        if self.config.ping_pong:
            with when(self.index == 0):
                ptx("bar.arrive", T.uint32(_TURN), T.uint32(2 * WARP_GROUP))
        with each_work() as work:
            self._place(work)
            self._stream(work)
        self.epilogue.drain(self.threads)

    def _place(self, work: Work) -> None:
        lane = self.threads.lane
        self.work = work
        self.first_row = bind("first_own_row", work.first_row + self.own_rows)
        upper = bind("row", self.first_row + self.threads.warp * 16 + lane // 4)
        place = Place(work.batch, (upper, upper + 8), lane % 4 * 2, self.tiling.buffers)
        self.rows = RowFold(self.program, place, self.scores, self.columns, self.config.polynomial)
        self.masking = Masking(passes_of(self.masks, self.stream.position, self.columns), self.rows, lane)
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self._whole_range()

    def _stream(self, work: Work) -> None:
        """From the first score to the last store."""
        tiles = self.own_tiles(work)
        self._pass_over(work.tiles.end - tiles.end)
        self.feeds.left.wait(self.left)
        self.feeds.right.wait(self.right)
        self._start_scores()
        self.masking.prepare(tiles.end - 1)
        wgmma.wait(0)
        self._release(self.feeds.right, self.right)
        self._fold_rows(tiles.end - 1, first=True)
        self._pack(tiles.end - 1 if self.tiling.ragged else None)
        with T.serial(tiles.end - tiles.first - 1) as step:
            self._tile(bind("tile", tiles.end - 2 - step))
        if self.epilogue.own_staging:
            self._left_read()
        if self.accumulators:
            self.feeds.value.wait(self.value)
            self._start_products()
        self.rows.across_lanes()
        wgmma.wait(0)
        if self.accumulators:
            self._release(self.feeds.value, self.value)
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
        own = self.tiling.visited(work.batch, self.first_row, GROUP_ROWS)
        first = bind("own_first", tirx.max(tirx.min(own.first, work.tiles.end - 1), work.tiles.first))
        return TileRange(first, bind("own_end", tirx.max(tirx.min(own.end, work.tiles.end), first + 1)))

    def _pass_over(self, count: ir.Expr) -> None:
        """Tiles that the block visits for other groups: waited for, released, and a turn passed on for each."""
        if not self.apart:
            return
        with T.serial(count):
            self.feeds.right.wait(self.right)
            self._release(self.feeds.right, self.right)
            if self.accumulators:
                self.feeds.value.wait(self.value)
                self._release(self.feeds.value, self.value)
            self._take_turn()
            self._pass_turn()

    def _take_turn(self) -> None:
        if self.config.ping_pong:
            ptx("bar.sync", T.cast(_TURN + self.index, "uint32"), T.uint32(2 * WARP_GROUP))

    def _pass_turn(self) -> None:
        if self.config.ping_pong:
            following = (self.index + 1) % self.config.consumers
            ptx("bar.arrive", T.cast(_TURN + following, "uint32"), T.uint32(2 * WARP_GROUP))

    def left_is_read(self) -> None:
        """Releases the left operand's stage; called by one thread of the group."""
        self.feeds.left.empty.arrive(self.left.stage)

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's own stage."""
        return self.feeds.left.tiles[0].ptr_to([self.left.stage, box, row, column])

    def _left_read(self) -> None:
        with when(self.threads.leads):
            self.left_is_read()

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        self.feeds.right.wait(self.right)
        self._take_turn()
        self._start_scores()
        if self.accumulators:
            self.feeds.value.wait(self.value)
            self._start_products()
        self._pass_turn()
        self.masking.prepare(tile)
        wgmma.wait(1 if self.accumulators else 0)
        if self.optimistic:
            self._fold_optimistic(tile)
        else:
            self._release(self.feeds.right, self.right)
            self._fold_mapped(tile, partial(self.rows.step, tile, first=False, guarded=False))
            self._finish_products()
            self._shift_accumulators(tile)
        self._pack(None)

    def _fold_optimistic(self, tile: ir.Expr) -> None:
        """Folds a tile at the current reference, and redoes it with its own maximum where a weight is too large."""
        self._fold_mapped(tile, partial(self.rows.step_optimistic, tile))
        within = self.rows.all_within()
        self._finish_products()
        ptx("bar.red.popc.u32", self.votes[0], T.cast(_VOTE + self.index, "uint32"), T.uint32(WARP_GROUP), within)
        with branches(self._unanimous()) as (kept, again):
            with kept:
                self.rows.combine_optimistic()
            with again:
                self._start_scores()
                wgmma.wait(0)
                self._fold_rows(tile, first=False)
                self._shift_accumulators(tile)
        self._release(self.feeds.right, self.right)

    def _unanimous(self) -> ir.Expr:
        """Whether every thread of the group voted for; as a vote of the warp."""
        return in_no_lane(self.votes[0] != T.uint32(WARP_GROUP))

    def _finish_products(self) -> None:
        if self.accumulators:
            wgmma.wait(0)
            self._release(self.feeds.value, self.value)

    def _start_scores(self) -> None:
        stream, feeds = self.stream, self.feeds
        wgmma.fence()
        wgmma.multiply_shared(
            self.scores, self.columns, self.left_matrix, self.right_matrix, stream.depth,
            (stream.left.dtype, stream.right.dtype),
            wgmma.stage_offset(self.left.stage, feeds.left.copies[0].tile_bytes),
            wgmma.stage_offset(self.right.stage, feeds.right.copies[0].tile_bytes),
        )  # fmt: skip
        wgmma.commit()

    def _start_products(self) -> None:
        wgmma.fence()
        for accumulation, copies, matrix in zip(
            self.program.accumulations, self.feeds.value.copies, self.value_matrices, strict=True
        ):
            product = accumulation.product
            wgmma.multiply_registers(
                self.accumulators[product.component.symbol], product.width, self.packing.of(accumulation),
                matrix, self.columns, (accumulation.dtype, product.value.dtype),
                wgmma.stage_offset(self.value.stage, copies.tile_bytes),
            )  # fmt: skip
        wgmma.commit()

    def _release(self, feed: Feed, ring: Ring) -> None:
        with when(self.threads.leads):
            feed.empty.arrive(ring.stage)
        ring.advance()

    def _fold_rows(self, tile: ir.Expr, first: bool) -> None:
        self._map_and_mask(tile)
        # Tiles are visited from the last on, so that only the first of them can reach past the end of the axis.
        self.rows.step(tile, first, guarded=first and self.tiling.ragged)

    def _fold_mapped(self, tile: ir.Expr, fold: Callable[[], None]) -> None:
        """Maps, masks and folds a tile; where a warp's scores are small and all are kept, without a branch between.

        Special functions then take their time while multiply-adds map further scores.
        """
        near = self.program.near_zero if self.config.near_zero else None
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
        tiles = self.tiling.tile_count()
        rows = Rows(self.stream.row, self.first_row, GROUP_ROWS)
        self.whole: TileRange | None = TileRange(tirx.const(0, "int32"), tiles)
        for mask in self.masks:
            slacks = mask_slacks(mask)
            placed = None if slacks is None else tuple(self.tiling.placed(s, self.work.batch) for s in slacks)
            found = None if placed is None else whole_tiles(placed, self.stream.position, rows, self.columns, tiles)
            self.whole = None if found is None or self.whole is None else self.whole.within(found)
        if self.whole is not None and self.masks:
            self.whole = TileRange(bind("whole_first", self.whole.first), bind("whole_end", self.whole.end))

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        for accumulation in self.program.accumulations:
            symbol = accumulation.product.component.symbol
            if accumulation.shift == symbol:
                continue
            with T.unroll(accumulation.product.width // 8) as j:
                for r in ROWS:
                    for e in NEIGHBOURS:
                        put(self.accumulators[symbol], j * 4 + 2 * r + e,
                            self._shifted(accumulation.shift, r, j * 4 + 2 * r + e, tile))  # fmt: skip

    def _shifted(self, shift: sp.Expr, row: int, index: ir.Expr, tile: ir.Expr) -> ir.Expr:
        return self.rows.write_accumulator(shift, row, tile, {s: a[index] for s, a in self.accumulators.items()})

    def _pack(self, ragged: ir.Expr | None) -> None:
        """Weights as products read them; zeros past the end of a ragged tile."""
        self.packing.emit(lambda symbol, j, r, e: self.rows.weight(symbol, ragged, j, r, e))
