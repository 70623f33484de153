"""Copies of tiles whose rows are in pages: the lanes of a producer's warp share out the boxes of a tile.

A box has rows of one page alone: as many as a page and a tile have in common. Every lane keeps the page numbers of
its boxes, which it reads while the tile before is under way. Pages without a live row are not looked up: their number
is −1, and the copy of what lies outside of a tensor writes zeros, without reading anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, ptx, put, registers, when
from tvm_cascade.tile.hopper.copy import CHUNK, CHUNKS, TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import WARP, from_lane
from tvm_cascade.tile.operand import NOWHERE, Numbers


class LaneCopies(ABC):
    """The copies of a thread, of operands that find their pages alike.

    Parameters
    ----------
    copies : one of the operands' tensor maps; the others have tiles of the same form.
    turns : page numbers that it looks up for a tile.
    """

    def __init__(self, copies: TensorMap, lane: ir.Expr, turns: int) -> None:
        assert copies.operand.pages is not None
        self.copies, self.pages, self.lane, self.turns = copies, copies.operand.pages, lane, turns
        self.rows, self.box_rows, self.boxes = copies.rows, copies.box_rows, copies.boxes
        self.numbers = registers("page_numbers", turns, "int32")

    def serves(self, copies: TensorMap) -> bool:
        """Whether another operand's rows are in the same pages."""
        return copies.in_pages_of(self.copies)

    def look_up(self, first: ir.Expr, live: TileRange, number: Numbers) -> None:
        """Reads the page numbers of the tile from row `first` on, of those pages that hold a live row."""
        for turn in range(self.turns):
            row, inside = self._looked_up(turn)
            page = bind("page", tirx.floordiv(first + row, self.pages.size))
            known = tirx.all(*inside, page >= live.first, page < live.end)
            found = tirx.if_then_else(known, T.cast(number(self.pages, page), "int32"), T.int32(NOWHERE))
            put(self.numbers, turn, found)

    @abstractmethod
    def _looked_up(self, turn: int) -> tuple[ir.Expr, tuple[ir.Expr, ...]]:
        """The row of the tile whose page is looked up, and on what condition."""


class PageCopies(LaneCopies):
    """Bulk copies of the boxes of a tile.

    Parameters
    ----------
    worker : the number of its warp among the feed's, where there are several; the first of them has all copies.
    """

    def __init__(self, copies: TensorMap, lane: ir.Expr, worker: ir.Expr | None = None) -> None:
        self.worker, self.count = worker, copies.rows // copies.box_rows * copies.boxes
        super().__init__(copies, lane, -(-self.count // WARP))

    def _looked_up(self, turn: int) -> tuple[ir.Expr, tuple[ir.Expr, ...]]:
        return self._row(turn), ()

    def load(
        self, copies: TensorMap, target: Callable[..., ir.Expr], first: ir.Expr, fixed: Mapping[int, ir.Expr],
        barrier: ir.Expr, boxes: range | None = None,
    ) -> None:  # fmt: skip
        """Issues the lane's copies of the tile from row `first` on, to `target(box, row)`; of all boxes by default."""
        for turn in range(self.turns):
            row, number = self._row(turn), self.lane + turn * WARP
            box, slot = number % self.boxes, tirx.floormod(first + row, self.pages.size)
            places = {**fixed, self.pages.dimension: self.numbers[turn]}
            own = number < self.count if self.worker is None else tirx.And(self.worker == 0, number < self.count)
            of_part = () if boxes is None else (box >= boxes.start, box < boxes.stop)
            all_copy = (turn + 1) * WARP <= self.count and self.worker is None and boxes is None
            with nullcontext() if all_copy else when(tirx.all(own, *of_part)):
                copies.load(partial(target, row=row), slot, places, barrier, [box])

    def _row(self, turn: int) -> ir.Expr:
        """The first row of the lane's box in the tile; one of the tile's where it has none."""
        return tirx.floormod(tirx.floordiv(self.lane + turn * WARP, self.boxes) * self.box_rows, self.rows)


class PageNumbers:
    """The page numbers that a thread keeps, for all operands of a feed that need some.

    Parameters
    ----------
    worker : the number of its warp among the feed's, where there are several; the first of them issues bulk copies.
    """

    def __init__(self, maps: Sequence[TensorMap], lane: ir.Expr, worker: ir.Expr | None = None) -> None:
        self.leads = lane == 0 if worker is None else tirx.And(lane == 0, worker == 0)
        self.found: list[PageCopies | RowCopies] = []
        for copies in maps:
            if copies.operand.pages is not None and self.of(copies) is None:
                assert worker is not None or not copies.by_threads
                self.found.append((RowCopies if copies.by_threads else PageCopies)(copies, lane, worker))

    def of(self, copies: TensorMap) -> PageCopies | RowCopies | None:
        """The page copies of an operand; None where its rows follow one another."""
        return next((own for own in self.found if own.serves(copies)), None)

    def look_up(self, first: ir.Expr, live: Callable[[int], TileRange], number: Numbers) -> None:
        """As of `LaneCopies`, of every operand; `live` gives the pages of so many rows."""
        for own in self.found:
            own.look_up(first, live(own.pages.size), number)


def warps_of(maps: Sequence[TensorMap]) -> int:
    return max((copies.row_warps for copies in maps if copies.by_threads), default=1)


def target_of(tiles: Any, stage: ir.Expr | int) -> Callable[..., ir.Expr]:
    """The shared memory of a box, from an element of a row of it on, in a stage of an operand's tiles."""
    return lambda box, row=0, column=0: tiles.ptr_to([stage, box, row, column])


# Copies of tiles whose rows are in small pages: threads copy 16 bytes each (cp.async) to where a bulk copy would.
#
#     lanes       0 1 2 … 15 | 16 17 … 31      two rows of 256 bytes a turn of a warp; of longer rows 512 bytes a turn
#     page        shuffled from the lane that looked it up
#
# A stage is full once all copies of all threads have landed, which is when each of them arrives at its barrier.


_AT_ONCE = 4
"""Copies of a thread whose places are computed together: all of them would take more registers than producers have."""


class RowCopies(LaneCopies):
    """Copies of 16 bytes of rows each."""

    def __init__(self, copies: TensorMap, lane: ir.Expr, worker: ir.Expr) -> None:
        self.worker, self.row_lanes = worker, min(CHUNKS << (copies.boxes - 1).bit_length(), WARP)
        super().__init__(copies, lane, -(-copies.rows // copies.box_rows // WARP))

    def _looked_up(self, turn: int) -> tuple[ir.Expr, tuple[ir.Expr, ...]]:
        row = (self.lane + turn * WARP) * self.box_rows
        return row, (row < self.rows,)

    def load(
        self, copies: TensorMap, target: Callable[..., ir.Expr], first: ir.Expr, fixed: Mapping[int, ir.Expr]
    ) -> None:
        """Starts the thread's copies of the tile from row `first` on, to `target(box, row, element)`."""
        warp_rows, found_rows = WARP // self.row_lanes, WARP * self.box_rows  # at a time: copied, and looked up
        own = bind("own_row", self.worker * warp_rows + self.lane // self.row_lanes)
        first_chunk, source = bind("own_chunk", self.lane % self.row_lanes), _Rows(copies, fixed)
        at_once = warp_rows * self.copies.row_warps
        for turn in range(self.turns):
            rows = min(self.rows - turn * found_rows, found_rows)
            with T.serial(-(-rows // at_once), unroll=_AT_ONCE) as step:
                row = bind("tile_row", own + turn * found_rows + step * at_once)
                number = bind("page_number", from_lane(row // self.box_rows % WARP, self.numbers[turn]))
                slot = tirx.floormod(first + row, self.pages.size)
                for across in range(0, self.boxes * CHUNKS, self.row_lanes):
                    chunk = first_chunk + across
                    whole = chunk * CHUNK < copies.columns * copies.size
                    place = source.address(tirx.max(number, 0), slot, chunk)
                    unit = tirx.bitwise_xor(chunk % CHUNKS, row % CHUNKS) * (CHUNK // copies.size)
                    given = tirx.Select(tirx.And(number >= 0, whole), T.uint32(CHUNK), T.uint32(0))
                    with when(chunk < self.boxes * CHUNKS):
                        ptx("cp.async.cg.shared.global", target(chunk // CHUNKS, row, unit), place, CHUNK, given)


class _Rows:
    """Where the rows of an operand are in memory."""

    def __init__(self, copies: TensorMap, fixed: Mapping[int, ir.Expr]) -> None:
        operand = copies.operand
        assert operand.pages is not None and operand.row is not None
        self.copies, self.slots, self.dimension = copies, operand.row, operand.pages.dimension
        self.strides = [tirx.const(1, "int64")]
        for extent in reversed(operand.shape[1:]):
            self.strides.insert(0, self.strides[0] * T.cast(extent, "int64"))
        size = self.strides[0] * T.cast(operand.shape[0], "int64")
        name = f"{operand.buffer.name}_flat"
        self.flat = named(name, T.decl_buffer((size,), copies.element, data=copies.buffer.data))
        self.start = bind("row_start", sum((self._moved(d, at) for d, at in fixed.items()), tirx.const(0, "int64")))

    def address(self, number: ir.Expr, slot: ir.Expr, chunk: ir.Expr) -> ir.Expr:
        place = self.start + self._moved(self.dimension, number) + chunk * (CHUNK // self.copies.size)
        return self.flat.ptr_to([place if self.slots == self.dimension else place + self._moved(self.slots, slot)])

    def _moved(self, dimension: int, at: ir.Expr) -> ir.Expr:
        return T.cast(at, "int64") * self.strides[dimension]
