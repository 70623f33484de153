"""The producer of operands in pages: a warp for each feed, whose lanes issue copies of the pages that they looked up.

for work:   look up the pages of the last tile
    for tile, from the last:    wait until the stage is empty; announce its bytes; copy; look up the next tile's pages
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, when
from tvm_cascade.tile.hopper.feed import Feed
from tvm_cascade.tile.hopper.paged import PageNumbers
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.pages import Pages
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Threads, Work


class PagedProducer:
    """Emits the producer's warp group.

    Parameters
    ----------
    feeds : of the right operands; the n-th warp serves the n-th of them.
    left : the feed of the rows, where they come by copies too; the first warp serves it.
    """

    def __init__(self, tiling: Tiling, threads: Threads, feeds: Sequence[Feed], left: Feed | None = None) -> None:
        self.tiling, self.threads, self.feeds, self.left = tiling, threads, feeds, left

    def run(self, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        """Emits the loop over the block's work, for every warp."""
        for number, feed in enumerate(self.feeds):
            with when(self.threads.warp == number):
                self._serve(feed, self.left if number == 0 else None, each_work)

    def _serve(self, feed: Feed, left: Feed | None, each_work: Callable[[], AbstractContextManager[Work]]) -> None:
        columns, lane = self.tiling.config.columns, self.threads.lane
        numbers = PageNumbers(feed.copies, lane)
        ring = feed.filling("produced")
        left_ring = None if left is None else left.filling("produced_left")
        with each_work() as work:
            if left is not None and left_ring is not None:
                with when(lane == 0):
                    left.copy(left_ring, work.first_row, self._fixed(left, work))
                left_ring.advance()
            live, find = partial(self._live_pages, work), partial(self._number, work)
            numbers.look_up((work.tiles.end - 1) * columns, live, find)
            with T.serial(work.tiles.end - work.tiles.first) as step:
                first = bind("first_position", (work.tiles.end - 1 - step) * columns)
                feed.copy_paged(ring, first, self._fixed(feed, work), numbers)
                ring.advance()
                numbers.look_up(tirx.max(first - columns, 0), live, find)

    def _fixed(self, feed: Feed, work: Work) -> list[dict[int, ir.Expr]]:
        return [self.tiling.fixed(copies.operand, work.batch) for copies in feed.copies]

    def _number(self, work: Work, pages: Pages, page: ir.Expr) -> ir.Expr:
        return self.tiling.placed(pages.number, {**work.batch, pages.page: page})

    def _live_pages(self, work: Work, size: int) -> TileRange:
        """The pages of the cascade axis that hold a live position of the block's rows."""
        return self.tiling.visited(work.batch, work.first_row, self.tiling.config.rows, size)
