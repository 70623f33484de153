"""Tiles that are copied part by part from rows in pages: the lanes of a warp share out the boxes of a part.

A lane has the same rows of every part, so that it looks up their page once a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.hopper.feed import Feed
from tvm_cascade.tile.hopper.paged import target_of
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.pages import NOWHERE, Numbers
from tvm_cascade.tile.skeletons.stream.halves.feed import PartedFeed
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Threads, Work


class LanePages:
    """The pages of a lane's rows of a tile.

    Parameters
    ----------
    copies : the operand's.
    lane : of the thread.
    """

    def __init__(self, copies: TensorMap, lane: ir.Expr) -> None:
        assert copies.operand.pages is not None
        self.copies, self.pages, self.lane = copies, copies.operand.pages, lane
        self.groups = copies.rows // copies.box_rows
        self.at_once = min(self.groups, WARP)
        self.turns = -(-self.groups // self.at_once)
        self.numbers = registers("page_numbers", self.turns, "int32")

    def look_up(self, first: ir.Expr, live: TileRange, number: Numbers) -> None:
        """Reads the page numbers of the tile from row `first` on; `live` : the pages that hold a live row."""
        for turn in range(self.turns):
            page = bind("page", tirx.floordiv(first + self._row(turn), self.pages.size))
            known = tirx.all(page >= live.first, page < live.end)
            found = tirx.if_then_else(known, T.cast(number(self.pages, page), "int32"), T.int32(NOWHERE))
            put(self.numbers, turn, found)

    def load(
        self, boxes: range, target: Callable[..., ir.Expr], first: ir.Expr, fixed: Mapping[int, ir.Expr],
        barrier: ir.Expr,
    ) -> None:  # fmt: skip
        """Issues the lane's copies of some boxes of the tile from row `first` on, to `target(box, row)`."""
        for turn in range(self.turns):
            row = self._row(turn)
            places = {**fixed, self.pages.dimension: self.numbers[turn]}
            for box_of_lane in range(-(-len(boxes) * self.at_once // WARP)):
                with self._own(turn, boxes, box_of_lane) as box:
                    slot = tirx.floormod(first + row, self.pages.size)
                    self.copies.load_box(target(box, row), box, slot, places, barrier)

    @contextmanager
    def _own(self, turn: int, boxes: range, number: int) -> Iterator[ir.Expr]:
        """The n-th of a lane's boxes, if it has as many."""
        box = bind("box", boxes.start + number * (WARP // self.at_once) + self.lane // self.at_once)
        with when(tirx.And(box < boxes.stop, self.lane % self.at_once + turn * self.at_once < self.groups)):
            yield box

    def _row(self, turn: int) -> ir.Expr:
        """The first of the lane's rows in the tile; one of the tile's where it has none."""
        group = self.lane % self.at_once + turn * self.at_once
        return tirx.floormod(group * self.copies.box_rows, self.copies.rows)


class PartedProducer(PagedProducer):
    """Emits the producer's first warp, which copies tiles from pages, and tiles of rows.

    Parameters
    ----------
    tiles : the feed of the right operand.
    """

    def __init__(self, tiling: Tiling, threads: Threads, tiles: PartedFeed, left: Feed) -> None:
        super().__init__(tiling, threads, [], left)
        self.tiles = tiles

    def run(self, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        """Emits the loop over the block's work."""
        with when(self.threads.warp == 0):
            self._copy(each_work)

    def _copy(self, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        columns, lane, left = self.tiling.config.columns, self.threads.lane, self.left
        assert left is not None
        pages = LanePages(self.tiles.copies, lane)
        ring, left_ring = self.tiles.filling("produced"), left.filling("produced_left")
        with each_work() as work:
            with when(lane == 0):
                left.copy(left_ring, work.first_row, self._fixed(left, work))
            left_ring.advance()
            live, find = self._live_pages(work, pages.pages.size), partial(self._number, work)
            pages.look_up((work.tiles.end - 1) * columns, live, find)
            with T.serial(work.tiles.end - work.tiles.first) as step:
                first = bind("first_position", (work.tiles.end - 1 - step) * columns)
                self._tile(ring, first, self.tiling.fixed(self.tiles.copies.operand, work.batch), pages)
                ring.advance()
                pages.look_up(tirx.max(first - columns, 0), live, find)

    def _tile(self, ring: Ring, first: ir.Expr, fixed: Mapping[int, ir.Expr], pages: LanePages) -> None:
        """The copies of a tile, each part once its stage is empty."""
        stage, target = ring.stage, target_of(self.tiles.tiles, ring.stage)
        for staged in self.tiles.parts:
            staged.empty.wait(stage, ring.parity)
            with when(self.threads.lane == 0):
                staged.full.announce(stage, len(staged.part.boxes) * self.tiles.copies.box_bytes)
            T.evaluate(T.cuda.warp_sync())
            pages.load(staged.part.boxes, target, first, fixed, staged.full.pointer(stage))
