"""The producer of operands in pages: warps for each feed, whose lanes issue copies of the pages that they looked up.

for work:   look up the pages of the last tile
    for tile, from the last:    wait until the stage is empty; announce its bytes; copy; look up the next tile's pages
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Feed
from tvm_cascade.tile.attention.operands.paged import PageNumbers, warps_of
from tvm_cascade.tile.emit import bind, when
from tvm_cascade.tile.operand import Pages
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import EachWork, Threads, Work


class PagedProducer:
    """Emits the producer's warp group.

    Parameters
    ----------
    feeds : of the right operands; the first warps serve the first of them, and so on.
    left : the feed of the rows, where they come by copies too; the first warp serves it.
    """

    def __init__(self, tiling: Tiling, threads: Threads, feeds: Sequence[Feed], left: Feed | None = None) -> None:
        self.tiling, self.threads, self.feeds, self.left = tiling, threads, feeds, left

    def run(self, each_work: EachWork) -> None:
        first, own = 0, self.threads.warp
        for number, feed in enumerate(self.feeds):
            count = warps_of(feed.copies)
            worker = None if count == 1 else own - first
            with when(own == first if count == 1 else tirx.all(own >= first, own < first + count)):
                numbers = PageNumbers(feed.copies, self.threads.lane, worker)
                self._serve(feed, self.left if number == 0 else None, numbers, each_work)
            first += count

    def _serve(self, feed: Feed, left: Feed | None, numbers: PageNumbers, each_work: EachWork) -> None:
        columns, ring = self.tiling.config.columns, feed.filling("produced")
        left_ring = None if left is None else left.filling("produced_left")
        with each_work() as work:
            if left is not None and left_ring is not None:
                with when(numbers.leads):
                    left.copy(left_ring, work.first_row, self.tiling.fixed_of(left.copies, work))
                left_ring.advance()
            live = partial(self.tiling.visited, work.batch, work.first_row, self.tiling.config.rows)
            find = partial(self._number, work)
            numbers.look_up((work.tiles.end - 1) * columns, live, find)
            with T.serial(work.tiles.end - work.tiles.first) as step:
                first = bind("first_position", (work.tiles.end - 1 - step) * columns)
                feed.copy_paged(ring, first, self.tiling.fixed_of(feed.copies, work), numbers)
                ring.advance()
                numbers.look_up(tirx.max(first - columns, 0), live, find)

    def _number(self, work: Work, pages: Pages, page: ir.Expr) -> ir.Expr:
        return self.tiling.placed(pages.number, {**work.batch, pages.page: page})
