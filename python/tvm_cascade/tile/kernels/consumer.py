"""The consumers of the stream skeleton: products, the fold of their tiles, and what overlaps with what."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, branches, ptx, put, registers, when
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.kernels.packing import Packing
from tvm_cascade.tile.kernels.work import GROUP_ROWS, WARP_GROUP, Work
from tvm_cascade.tile.live import Rows, TileRange, mask_slacks, whole_tiles
from tvm_cascade.tile.masks import Masking, passes_of
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.rows import Place, RowFold

if TYPE_CHECKING:
    from tvm_cascade.tile.kernels.stream import StreamKernel

_TURN = 2
"""The first named barrier of the consumers' turns."""

_VOTE = 11
"""The first named barrier of the consumers' votes."""


class Consumer:
    """Emits one consumer warp group.

    Parameters
    ----------
    kernel : the skeleton that it belongs to.
    """

    def __init__(self, kernel: StreamKernel) -> None:
        self.kernel, self.config, self.stream = kernel, kernel.config, kernel.stream
        self.program = kernel.program
        self.index = bind("consumer", kernel.group - 1)
        self.columns = self.config.columns
        self.scores = registers("scores", self.columns // 2)
        self.accumulators = {
            p.component.symbol: registers(f"{p.component.symbol}", p.width // 2) for p in self.stream.products
        }
        self.packing = Packing(self.program.accumulations, self.columns, kernel.lane)
        self.held = self.config.held and self.program.held is not None
        if self.held:
            self.votes = registers("votes", 1, "uint32")
        self._descriptors()
        self.left = Ring("left", self.config.left_stages, 0)
        self.right, self.value = Ring("right", self.config.stages, 0), Ring("value", self.config.stages, 0)

    def _descriptors(self) -> None:
        kernel, columns = self.kernel, self.columns
        own = kernel.left_tiles.ptr_to([0, 0, self.index * GROUP_ROWS, 0])
        self.left_matrix = wgmma.SharedMatrix(own, self.config.rows, transposed=False)
        self.right_matrix = wgmma.SharedMatrix(kernel.right_tiles.ptr_to([0, 0, 0, 0]), columns, transposed=False)
        self.value_matrices = [
            wgmma.SharedMatrix(tiles.ptr_to([0, 0, 0, 0]), copies.rows, transposed=not product.is_transposed)
            for product, copies, tiles in zip(self.stream.products, kernel.values, kernel.value_tiles, strict=True)
        ]

    def run(self) -> None:
        """Every tile of rows that the block has."""
        if self.config.ping_pong:
            with when(self.index == 0):
                ptx("bar.arrive", T.uint32(_TURN), T.uint32(2 * WARP_GROUP))
        with self.kernel.each_work() as work:
            self._place(work)
            self._stream(work)
        self.kernel.epilogue.drain(self)

    def _place(self, work: Work) -> None:
        kernel = self.kernel
        self.work = work
        self.first_row = bind("first_own_row", work.first_row + self.index * GROUP_ROWS)
        upper = bind("row", self.first_row + kernel.warp * 16 + kernel.lane // 4)
        place = Place(work.batch, (upper, upper + 8), kernel.lane % 4 * 2, kernel.buffers)
        self.rows = RowFold(self.program, place, self.scores, self.columns, self.config.polynomial)
        self.masking = Masking(passes_of(kernel.masks, self.stream.position, self.columns), self.rows, kernel.lane)
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self._whole_range()

    def _stream(self, work: Work) -> None:
        """From the first score to the last store."""
        kernel, tiles = self.kernel, self._own_tiles(work)
        self._pass_over(work.tiles.end - tiles.end)
        kernel.left_full.wait(self.left.stage, self.left.parity)
        kernel.right_full.wait(self.right.stage, self.right.parity)
        self._start_scores()
        self.masking.prepare(tiles.end - 1)
        wgmma.wait(0)
        self._release(kernel.right_empty, self.right)
        self._fold_rows(tiles.end - 1, first=True)
        self._pack(tiles.end - 1 if kernel.ragged else None)
        with T.serial(tiles.end - tiles.first - 1) as step:
            self._tile(bind("tile", tiles.end - 2 - step))
        if kernel.epilogue.own_staging:
            self._left_read()
        if self.accumulators:
            kernel.value_full.wait(self.value.stage, self.value.parity)
            self._start_products()
        self.rows.across_lanes()
        wgmma.wait(0)
        if self.accumulators:
            self._release(kernel.value_empty, self.value)
        self._pass_over(tiles.first - work.tiles.first)
        kernel.epilogue.emit(self)
        self.left.advance()

    def _own_tiles(self, work: Work) -> TileRange:
        """The tiles that hold a live position of the group's own rows: one at least."""
        if not self.program.uneven:
            return work.tiles
        own = self.kernel.visited(work.batch, self.first_row, GROUP_ROWS)
        first = bind("own_first", tirx.max(tirx.min(own.first, work.tiles.end - 1), work.tiles.first))
        return TileRange(first, bind("own_end", tirx.max(tirx.min(own.end, work.tiles.end), first + 1)))

    def _pass_over(self, count: ir.Expr) -> None:
        """Tiles that the block visits for other rows: waited for, released, and a turn passed on for each."""
        if not self.program.uneven:
            return
        kernel = self.kernel
        with T.serial(count):
            kernel.right_full.wait(self.right.stage, self.right.parity)
            self._release(kernel.right_empty, self.right)
            if self.accumulators:
                kernel.value_full.wait(self.value.stage, self.value.parity)
                self._release(kernel.value_empty, self.value)
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
        """The left operand's memory may be written again; said by one thread of the group."""
        self.kernel.left_empty.arrive(self.left.stage)

    def _left_read(self) -> None:
        with when(tirx.And(self.kernel.lane == 0, self.kernel.warp == 0)):
            self.left_is_read()

    def _tile(self, tile: ir.Expr) -> None:
        """Scores of this tile and products of the one before, overlapped."""
        self.kernel.right_full.wait(self.right.stage, self.right.parity)
        self._take_turn()
        self._start_scores()
        if self.accumulators:
            self.kernel.value_full.wait(self.value.stage, self.value.parity)
            self._start_products()
        self._pass_turn()
        self.masking.prepare(tile)
        wgmma.wait(1 if self.accumulators else 0)
        if self.held:
            self._fold_held(tile)
        else:
            self._release(self.kernel.right_empty, self.right)
            self._fold_mapped(tile, partial(self.rows.step, tile, first=False, guarded=False))
            self._finish_products()
            self._shift_accumulators(tile)
        self._pack(None)

    def _fold_held(self, tile: ir.Expr) -> None:
        """Folds a tile in at the reference as it stands, or once more with its own where a weight is too large."""
        self._fold_mapped(tile, partial(self.rows.step_held, tile))
        within = self.rows.all_within()
        self._finish_products()
        ptx("bar.red.popc.u32", self.votes[0], T.cast(_VOTE + self.index, "uint32"), T.uint32(WARP_GROUP), within)
        with branches(self._unanimous()) as (kept, again):
            with kept:
                self.rows.combine_held()
            with again:
                self._start_scores()
                wgmma.wait(0)
                self._fold_rows(tile, first=False)
                self._shift_accumulators(tile)
        self._release(self.kernel.right_empty, self.right)

    def _unanimous(self) -> ir.Expr:
        """Whether every thread of the group voted for; as a vote of the warp."""
        return in_no_lane(self.votes[0] != T.uint32(WARP_GROUP))

    def _finish_products(self) -> None:
        if self.accumulators:
            wgmma.wait(0)
            self._release(self.kernel.value_empty, self.value)

    def _start_scores(self) -> None:
        kernel, stream = self.kernel, self.stream
        wgmma.fence()
        wgmma.multiply_shared(
            self.scores, self.columns, self.left_matrix, self.right_matrix, stream.depth,
            (stream.left.dtype, stream.right.dtype),
            wgmma.stage_offset(self.left.stage, kernel.left.tile_bytes),
            wgmma.stage_offset(self.right.stage, kernel.right.tile_bytes),
        )  # fmt: skip
        wgmma.commit()

    def _start_products(self) -> None:
        wgmma.fence()
        for accumulation, copies, matrix in zip(
            self.program.accumulations, self.kernel.values, self.value_matrices, strict=True
        ):
            product = accumulation.product
            wgmma.multiply_registers(
                self.accumulators[product.component.symbol], product.width, self.packing.of(accumulation),
                matrix, self.columns, (accumulation.dtype, product.value.dtype),
                wgmma.stage_offset(self.value.stage, copies.tile_bytes),
            )  # fmt: skip
        wgmma.commit()

    def _release(self, empty: Barriers, ring: Ring) -> None:
        with when(tirx.And(self.kernel.lane == 0, self.kernel.warp == 0)):
            empty.arrive(ring.stage)
        ring.advance()

    def _fold_rows(self, tile: ir.Expr, first: bool) -> None:
        self._map_and_mask(tile)
        # Tiles are visited from the last on, so that only the first of them can reach past the end of the axis.
        self.rows.step(tile, first, guarded=first and self.kernel.ragged)

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
        elif self.kernel.masks:
            with when(tirx.Not(kept)):
                self.masking.apply(tile)

    def _all_kept(self, tile: ir.Expr) -> ir.Expr | None:
        """The condition that no mask drops anything of a tile; None where that is unknown."""
        return None if self.whole is None else tirx.And(tile >= self.whole.first, tile < self.whole.end)

    def _whole_range(self) -> None:
        """The tiles in which no mask drops anything of the group's rows."""
        tiles = self.kernel.tile_count()
        rows = Rows(self.stream.row, self.first_row, GROUP_ROWS)
        self.whole: TileRange | None = TileRange(tirx.const(0, "int32"), tiles)
        for mask in self.kernel.masks:
            slacks = mask_slacks(mask)
            placed = None if slacks is None else tuple(self.kernel.placed(s, self.work.batch) for s in slacks)
            found = None if placed is None else whole_tiles(placed, self.stream.position, rows, self.columns, tiles)
            self.whole = None if found is None or self.whole is None else self.whole.within(found)
        if self.whole is not None and self.kernel.masks:
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
