"""The warp group that multiplies the other half of the columns with weights that the lifting group shares."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.fragment import NEIGHBOURS, ROWS, register_index
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.feed import Feed
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.rows import Place, RowFold
from tvm_cascade.tile.shape import Product
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.halves.columns import half_of
from tvm_cascade.tile.skeletons.stream.halves.feed import PartedFeed, column_offset, place_of
from tvm_cascade.tile.skeletons.stream.halves.meeting import HalfMeeting, PieceWork
from tvm_cascade.tile.skeletons.stream.halves.sharing import Shared
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, Threads, Work


class Follower:
    """Emits it; implements `epilogue.Folded`. Its parameters are those of `Lifter`."""

    group = 1

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed, tiles: PartedFeed, shared: Shared, epilogue: Epilogue,
        meeting: HalfMeeting,
    ) -> None:  # fmt: skip
        self.meeting = meeting
        self.tiling, self.threads, self.shared, self.epilogue = tiling, threads, shared, epilogue
        self.program, self.stream, self.config = tiling.program, tiling.stream, tiling.config
        self.columns = self.config.columns
        self.left_feed, self.values = left, tiles.values(self.group, len(self.stream.products))
        self.index, self.own_rows = T.int32(self.group), T.int32(0)
        self.accumulators = {
            p.component.symbol: registers(f"{p.component.symbol}_half", len(self.columns_of(p)) // 2)
            for p in self.stream.products
        }
        self.weights = [shared.matrix(accumulation) for accumulation in self.program.accumulations]
        self.matrices = [self._half(accumulation.product, tiles) for accumulation in self.program.accumulations]
        self.left, self.value = left.reading("left_of_half"), self.values.reading("value_of_half")

    def _half(self, product: Product, tiles: PartedFeed) -> wgmma.SharedMatrix:
        """The group's half of a value in the first stage: rows are positions."""
        box = self.columns_of(product).start // tiles.copies.per_box
        return wgmma.SharedMatrix(tiles.tiles.ptr_to([0, box, 0, 0]), self.columns, transposed=True)

    def columns_of(self, product: Product) -> range:
        """Its half."""
        return half_of(product, self.group, self.meeting.spread)

    def block_columns(self, product: Product) -> ir.Expr | int:
        """The first of the block's columns of a product."""
        assert isinstance(self.work, PieceWork)
        return 0 if self.meeting.spread == 1 else self.work.chunk * (product.width // self.meeting.spread)

    def run(self, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        """Emits the loop over the block's tiles of rows."""
        self.shared.free()
        with each_work() as work:
            self._place(work)
            with T.serial(work.tiles.end - work.tiles.first) as step:
                self._tile(bind("tile", work.tiles.end - 1 - step))
            self.shared.await_filled()
            self.shared.take_rows(self.rows, self.shared.final, self.threads)
            self.shared.free()
            assert isinstance(work, PieceWork)
            self.meeting.hand_over(self, work, self.epilogue)
            self.left.advance()
        self.epilogue.drain(self.threads)

    def left_is_read(self) -> None:
        """Releases the left operand's stage; called by one thread of the group."""
        self.left_feed.empty.arrive(self.left.stage)

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's own stage."""
        return place_of(self.left_feed.tiles[0], self.left.stage, box, row, column)

    def _place(self, work: Work) -> None:
        lane = self.threads.lane
        self.work, self.first_row = work, work.first_row
        upper = bind("row_of_half", work.first_row + self.threads.warp * 16 + lane // 4)
        place = Place(work.batch, (upper, upper + GROUP_ROWS // 8), lane % 4 * 2, self.tiling.buffers)
        self.rows = RowFold(self.program, place, None, self.columns)
        for array in self.accumulators.values():
            with T.unroll(int(array.ty.shape[0])) as k:
                put(array, k, T.float32(0))
        self.rows.start()
        self.rows.end = self.tiling.end_position(work)

    def _tile(self, tile: ir.Expr) -> None:
        """Moves the accumulators where the lifting group has moved its own, and adds a tile's products."""
        self.values.wait(self.value)
        self.shared.await_filled()
        with when(in_no_lane(self.shared.moved[0] == 0)):
            self.shared.take_rows(self.rows, self.shared.shifting, self.threads)
            self._shift(tile)
        wgmma.fence()
        for accumulation, left, right in zip(self.program.accumulations, self.weights, self.matrices, strict=True):
            product = accumulation.product
            wgmma.multiply_shared(
                self.accumulators[product.component.symbol], len(self.columns_of(product)), left, right,
                self.columns, (accumulation.dtype, product.value.dtype), T.uint64(0),
                column_offset(self.block_columns(product), self.value, self.values.copies[0]), add=True,
            )  # fmt: skip
        wgmma.commit()
        wgmma.wait(0)
        self.shared.free()
        with when(self.threads.leads):
            self.values.empty.arrive(self.value.stage)
        self.value.advance()

    def _shift(self, tile: ir.Expr) -> None:
        for accumulation in self.program.accumulations:
            symbol = accumulation.product.component.symbol
            if accumulation.shift == symbol:
                continue
            with T.unroll(len(self.columns_of(accumulation.product)) // 8) as j:
                for r in ROWS:
                    for e in NEIGHBOURS:
                        at = register_index(j, r, e)
                        own = {s: array[at] for s, array in self.accumulators.items()}
                        put(
                            self.accumulators[symbol], at, self.rows.write_accumulator(accumulation.shift, r, tile, own)
                        )
