"""Copies of tiles whose rows are in pages: lanes of the producer's warps share out the boxes of a tile.

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

from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.pages import Pages

NOWHERE = -1
"""The number of a page outside of every tensor."""

Numbers = Callable[[Pages, ir.Expr], ir.Expr]
"""(pages, index of a page) -> its number in the tensor."""


@dataclass(frozen=True)
class Lanes:
    """The lanes of one or several warps.

    Attributes
    ----------
    lane : of the thread among them.
    warps : how many there are.
    """

    lane: ir.Expr
    warps: int = 1

    @property
    def count(self) -> int:
        """How many they are."""
        return WARP * self.warps


class PageCopies:
    """The copies of a lane, of operands that find their pages alike.

    Parameters
    ----------
    copies : one of the operands' tensor maps; the others have boxes of as many rows.
    lanes : that share out the boxes.
    """

    def __init__(self, copies: TensorMap, lanes: Lanes) -> None:
        assert copies.operand.pages is not None
        self.pages, self.lane, self.lanes = copies.operand.pages, lanes.lane, lanes.count
        self.rows, self.box_rows, self.boxes = copies.rows, copies.box_rows, copies.boxes
        self.count = copies.rows // copies.box_rows * copies.boxes
        self.turns = -(-self.count // self.lanes)
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
                with when(self.lane + turn * self.lanes < self.count):
                    copies.load_box(target(box, row), box, slot, places, barrier)

    def _covers(self, turn: int) -> bool:
        """Whether every lane has a copy in this turn."""
        return (turn + 1) * self.lanes <= self.count

    def _box(self, turn: int) -> ir.Expr:
        return (self.lane + turn * self.lanes) % self.boxes

    def _row(self, turn: int) -> ir.Expr:
        """The first row of the lane's box in the tile; one of the tile's where it has none."""
        return tirx.floormod(tirx.floordiv(self.lane + turn * self.lanes, self.boxes) * self.box_rows, self.rows)


class PagedProducer:
    """The page numbers that lanes keep, for all operands that need some."""

    def __init__(self, maps: Sequence[TensorMap], lanes: Lanes) -> None:
        self.lanes = lanes
        self.found: list[PageCopies] = []
        for copies in maps:
            if copies.operand.pages is not None and not any(own.serves(copies) for own in self.found):
                self.found.append(PageCopies(copies, lanes))

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
