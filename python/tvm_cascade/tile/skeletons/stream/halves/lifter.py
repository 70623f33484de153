"""The warp group that lifts every tile: scores, fold, its own half of the products; it shares the packed weights."""

from __future__ import annotations

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import put, registers, when
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.hopper.feed import Feed, Readings
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.shape import Product
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.halves.columns import half_of
from tvm_cascade.tile.skeletons.stream.halves.feed import PartedFeed, column_offset, place_of
from tvm_cascade.tile.skeletons.stream.halves.meeting import HalfMeeting, PieceWork
from tvm_cascade.tile.skeletons.stream.halves.sharing import Shared
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Threads, Work


class Lifter(Consumer):
    """Emits it.

    Parameters
    ----------
    left : the pipeline of the left operand.
    tiles : that of the right operand, which is the values too.
    """

    group = 0

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed, tiles: PartedFeed, shared: Shared, epilogue: Epilogue,
        meeting: HalfMeeting,
    ) -> None:  # fmt: skip
        self.shared, self.parts, self.meeting = shared, tiles.parts, meeting
        self.moved = registers("moved", 1, "uint32")
        products = len(tiling.stream.products)
        super().__init__(tiling, threads, Readings(left, tiles.scores(), tiles.values(self.group, products)), epilogue)

    @property
    def own_rows(self) -> ir.Expr:
        """The first of its rows in the block's tile, all of which it has."""
        return T.int32(0)

    @property
    def apart(self) -> bool:
        """Both groups visit the same tiles."""
        return False

    def columns_of(self, product: Product) -> range:
        """Its half."""
        return half_of(product, self.group, self.meeting.spread)

    def block_columns(self, product: Product) -> ir.Expr | int:
        """The first of the block's columns of a product."""
        assert isinstance(self.work, PieceWork)
        return 0 if self.meeting.spread == 1 else self.work.chunk * (product.width // self.meeting.spread)

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's own stage."""
        return place_of(self.feeds.left.tiles[0], self.left.stage, box, row, column)

    def _value_offset(self, product: Product, copies: TensorMap) -> ir.Expr:
        return column_offset(self.block_columns(product), self.value, copies)

    def hand_over(self) -> None:
        """Shares the final row values, and stores its half."""
        self.shared.await_free()
        self.shared.leave_rows(self.rows, self.shared.final, self.threads)
        self.shared.filled()
        assert isinstance(self.work, PieceWork)
        self.meeting.hand_over(self, self.work, self.epilogue)

    def _place(self, work: Work) -> None:
        super()._place(work)
        self.rows.end = self.tiling.end_position(work)

    def _start_scores(self) -> None:
        """As parts of the tile arrive."""
        stream, per_box = self.stream, self.feeds.right.copies[0].per_box
        left = self.left_matrix.anew(wgmma.stage_offset(self.left.stage, self.feeds.left.copies[0].tile_bytes))
        right = self.right_matrix.anew(wgmma.stage_offset(self.right.stage, self.feeds.right.copies[0].tile_bytes))
        for staged in self.parts:
            staged.full.wait(self.right.stage, self.right.parity)
            wgmma.fence()
            boxes = staged.part.boxes
            first, end = (wgmma.steps_of(min(b * per_box, stream.depth), stream.left.dtype)
                          for b in (boxes.start, boxes.stop))  # fmt: skip
            wgmma.multiply_shared(
                self.scores, self.columns, left, right, stream.depth,
                (stream.left.dtype, stream.right.dtype), T.uint64(0), T.uint64(0),
                range(first, end), add=staged is not self.parts[0],
            )  # fmt: skip
        wgmma.commit()

    def _fold_rows(self, tile: ir.Expr, first: bool) -> None:
        if first:
            put(self.moved, 0, T.uint32(0))
        super()._fold_rows(tile, first)

    def _tile(self, tile: ir.Expr) -> None:
        put(self.moved, 0, T.uint32(0))
        super()._tile(tile)

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        super()._shift_accumulators(tile)
        put(self.moved, 0, T.uint32(1))

    def _pack(self, ragged: ir.Expr | None) -> None:
        """Packs the weights, and shares them with what the other group moves its accumulators by."""
        super()._pack(ragged)
        self.shared.await_free()
        self.shared.leave_weights(self.packing, self.threads)
        with when(in_no_lane(self.moved[0] == 0)):
            self.shared.leave_rows(self.rows, self.shared.shifting, self.threads)
        with when(self.threads.leads):
            put(self.shared.moved, 0, self.moved[0])
        self.shared.filled()
