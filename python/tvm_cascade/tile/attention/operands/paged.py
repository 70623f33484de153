"""Copies of tiles whose rows are in pages: the lanes of a producer's warp share out the boxes of a tile.

A box has rows of one page alone: as many as a page and a tile have in common. Every lane keeps the page numbers of
its boxes, which it reads while the tile before is under way. Pages without a live row are not looked up: their number
is −1, and the copy of what lies outside of a tensor writes zeros, without reading anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.copied_rows import RowCopies
from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.pages import NOWHERE, Numbers


class PageCopies:
    """The copies of a lane, of operands that find their pages alike.

    Parameters
    ----------
    copies : one of the operands' tensor maps; the others have boxes of as many rows.
    lane : of the thread.
    worker : the number of its warp among the feed's, where there are several; the first of them has all copies.
    """

    def __init__(self, copies: TensorMap, lane: ir.Expr, worker: ir.Expr | None = None) -> None:
        assert copies.operand.pages is not None
        self.copies, self.worker = copies, worker
        self.pages, self.lane = copies.operand.pages, lane
        self.rows, self.box_rows, self.boxes = copies.rows, copies.box_rows, copies.boxes
        self.count = copies.rows // copies.box_rows * copies.boxes
        self.turns = -(-self.count // WARP)
        self.numbers = registers("page_numbers", self.turns, "int32")

    def serves(self, copies: TensorMap) -> bool:
        """Whether another operand's boxes are in the same pages."""
        return copies.in_pages_of(self.copies)

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
        barrier: ir.Expr, boxes: range | None = None,
    ) -> None:  # fmt: skip
        """Issues the lane's copies of the tile from row `first` on, to `target(box, row)`; of all boxes by default."""
        for turn in range(self.turns):
            row, box = self._row(turn), self._box(turn)
            slot = tirx.floormod(first + row, self.pages.size)
            places = {**fixed, self.pages.dimension: self.numbers[turn]}
            if self._covers(turn) and self.worker is None and boxes is None:
                copies.load_box(target(box, row), box, slot, places, barrier)
            else:
                of_part = () if boxes is None else (box >= boxes.start, box < boxes.stop)
                with when(tirx.all(self._has(turn), *of_part)):
                    copies.load_box(target(box, row), box, slot, places, barrier)

    def _has(self, turn: int) -> ir.Expr:
        """Whether the lane has a copy in this turn."""
        own = self.lane + turn * WARP < self.count
        return own if self.worker is None else tirx.And(self.worker == 0, own)

    def _covers(self, turn: int) -> bool:
        """Whether every lane has a copy in this turn."""
        return (turn + 1) * WARP <= self.count

    def _box(self, turn: int) -> ir.Expr:
        return (self.lane + turn * WARP) % self.boxes

    def _row(self, turn: int) -> ir.Expr:
        """The first row of the lane's box in the tile; one of the tile's where it has none."""
        return tirx.floormod(tirx.floordiv(self.lane + turn * WARP, self.boxes) * self.box_rows, self.rows)


@dataclass(frozen=True)
class Filler:
    """A thread among those that fill a feed.

    Attributes
    ----------
    lane : of the thread.
    worker : the number of its warp among the feed's; only the first of them issues bulk copies.
    """

    lane: ir.Expr
    worker: ir.Expr | None = None

    @property
    def leads(self) -> ir.Expr:
        """Whether it is the one that does what one thread does."""
        return self.lane == 0 if self.worker is None else tirx.And(self.lane == 0, self.worker == 0)


class PageNumbers:
    """The page numbers that a thread keeps, for all operands of a feed that need some."""

    def __init__(self, maps: Sequence[TensorMap], place: Filler) -> None:
        self.place = place
        self.found: list[PageCopies | RowCopies] = []
        for copies in maps:
            if copies.operand.pages is not None and self.of(copies) is None:
                self.found.append(_copies_of(copies, place))

    def of(self, copies: TensorMap) -> PageCopies | RowCopies | None:
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


def warps_of(maps: Sequence[TensorMap]) -> int:
    """Warps that fill a feed of operands."""
    return max((copies.row_warps for copies in maps if copies.by_threads), default=1)


def _copies_of(copies: TensorMap, place: Filler) -> PageCopies | RowCopies:
    if copies.by_threads:
        assert place.worker is not None
        return RowCopies(copies, place.lane, place.worker)
    return PageCopies(copies, place.lane, place.worker)


def target_of(tiles: Any, stage: ir.Expr | int) -> Callable[..., ir.Expr]:
    """The shared memory of a box, from an element of a row of it on, in a stage of an operand's tiles."""
    return lambda box, row=0, column=0: tiles.ptr_to([stage, box, row, column])
