"""Copies of tiles whose rows are in pages: the lanes of a producer's warp share out the boxes of a tile.

A box has rows of one page alone: as many as a page and a tile have in common. Every lane keeps the page numbers of
its boxes, which it reads while the tile before is under way. Pages without a live row are not looked up: their number
is −1, and the copy of what lies outside of a tensor writes zeros, without reading anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.pages import Pages

NOWHERE = -1
"""The number of a page outside of every tensor."""

Numbers = Callable[[Pages, ir.Expr], ir.Expr]
"""(pages, index of a page) -> its number in the tensor."""


class PageCopies:
    """The copies of a lane, of operands that find their pages alike.

    Parameters
    ----------
    copies : one of the operands' tensor maps; the others have boxes of as many rows.
    lane : of the thread.
    """

    def __init__(self, copies: TensorMap, lane: ir.Expr) -> None:
        assert copies.operand.pages is not None
        self.pages, self.lane = copies.operand.pages, lane
        self.rows, self.box_rows, self.boxes = copies.rows, copies.box_rows, copies.boxes
        self.count = copies.rows // copies.box_rows * copies.boxes
        self.turns = -(-self.count // WARP)
        self.numbers = registers("page_numbers", self.turns, "int32")

    def serves(self, copies: TensorMap) -> bool:
        """Whether another operand's boxes are in the same pages."""
        pages = copies.operand.pages
        alike = pages is not None and self.pages.same_numbers(pages)
        return alike and (copies.rows, copies.boxes) == (self.rows, self.boxes)

    def look_up(self, first: ir.Expr, live: TileRange, number: Numbers) -> None:
        """Reads the page numbers of the tile from row `first` on.

        Parameters
        ----------
        live : the pages that hold a live row.
        """
        for turn in range(self.turns):
            page = bind("page", tirx.floordiv(first + self._row(turn), self.pages.size))
            known = tirx.all(page >= live.first, page < live.end)
            found = tirx.if_then_else(known, T.cast(number(self.pages, page), "int32"), T.int32(NOWHERE))
            put(self.numbers, turn, found)

    def load(
        self, copies: TensorMap, target: Callable[..., ir.Expr], first: ir.Expr, fixed: Mapping[int, ir.Expr],
        barrier: ir.Expr,
    ) -> None:  # fmt: skip
        """Issues the lane's copies of the tile from row `first` on, to `target(box, row)`."""
        for turn in range(self.turns):
            row, box = self._row(turn), self._box(turn)
            slot = tirx.floormod(first + row, self.pages.size)
            places = {**fixed, self.pages.dimension: self.numbers[turn]}
            if self._covers(turn):
                copies.load_box(target(box, row), box, slot, places, barrier)
            else:
                with when(self.lane + turn * WARP < self.count):
                    copies.load_box(target(box, row), box, slot, places, barrier)

    def _covers(self, turn: int) -> bool:
        """Whether every lane has a copy in this turn."""
        return (turn + 1) * WARP <= self.count

    def _box(self, turn: int) -> ir.Expr:
        return (self.lane + turn * WARP) % self.boxes

    def _row(self, turn: int) -> ir.Expr:
        """The first row of the lane's box in the tile; one of the tile's where it has none."""
        return tirx.floormod(tirx.floordiv(self.lane + turn * WARP, self.boxes) * self.box_rows, self.rows)


class PageNumbers:
    """The page numbers that a lane keeps, for all operands of a feed that need some."""

    def __init__(self, maps: Sequence[TensorMap], lane: ir.Expr) -> None:
        self.lane = lane
        self.found: list[PageCopies] = []
        for copies in maps:
            if copies.operand.pages is not None and not any(own.serves(copies) for own in self.found):
                self.found.append(PageCopies(copies, lane))

    def of(self, copies: TensorMap) -> PageCopies | None:
        """The page copies of an operand; None where its rows follow one another."""
        return next((own for own in self.found if own.serves(copies)), None)

    def look_up(self, first: ir.Expr, live: Callable[[int], TileRange], number: Numbers) -> None:
        """Reads the page numbers of the tile from row `first` on, of every operand.

        Parameters
        ----------
        live : the pages of so many rows that hold a live row.
        """
        for own in self.found:
            own.look_up(first, live(own.pages.size), number)


def target_of(tiles: Any, stage: ir.Expr) -> Callable[..., ir.Expr]:
    """The shared memory of a box, from a row of it on, in a stage of an operand's tiles."""
    return lambda box, row=0: tiles.ptr_to([stage, box, row, 0])
