"""Copies of tiles whose rows are in small pages: threads copy 16 bytes each (cp.async) to where a bulk copy would.

    lanes       0 1 2 … 15 | 16 17 … 31      two rows of 256 bytes a turn of a warp; 512 bytes of a longer one at a time
    page        shuffled from the lane that looked it up

A stage is full once all copies of all threads have landed, which is when each of them arrives at its barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, named, ptx, put, registers, when
from tvm_cascade.tile.hopper.copy import BOX_BYTES, TensorMap
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.merge.lanes import WARP, from_lane
from tvm_cascade.tile.pages import NOWHERE, Numbers

_AT_ONCE = 4
"""Copies of a thread whose places are computed together: all of them would take more registers than producers have."""

_CHUNK = 16
"""Bytes of a copy."""

_CHUNKS = BOX_BYTES // _CHUNK
"""Of a row of a box."""


class RowCopies:
    """The copies of a thread, of operands that find their pages alike.

    Parameters
    ----------
    copies : one of the operands' tensor maps; the others have tiles of the same form.
    lane : of the thread.
    worker : the number of its warp among the feed's.
    """

    def __init__(self, copies: TensorMap, lane: ir.Expr, worker: ir.Expr) -> None:
        assert copies.operand.pages is not None
        self.copies, self.pages, self.lane, self.worker = copies, copies.operand.pages, lane, worker
        self.rows, self.box_rows, self.boxes = copies.rows, copies.box_rows, copies.boxes
        self.row_lanes = min(_CHUNKS << (copies.boxes - 1).bit_length(), WARP)
        self.found = -(-copies.rows // copies.box_rows // WARP)
        self.numbers = registers("page_numbers", self.found, "int32")

    def serves(self, copies: TensorMap) -> bool:
        """Whether another operand's rows are in the same pages."""
        return copies.in_pages_of(self.copies)

    def look_up(self, first: ir.Expr, live: TileRange, number: Numbers) -> None:
        """Reads the page numbers of the tile from row `first` on, one a lane and turn.

        Parameters
        ----------
        live : the pages that hold a live row.
        """
        for turn in range(self.found):
            row = (self.lane + turn * WARP) * self.box_rows
            page = bind("page", tirx.floordiv(first + row, self.pages.size))
            known = tirx.all(row < self.rows, page >= live.first, page < live.end)
            put(self.numbers, turn, tirx.if_then_else(known, T.cast(number(self.pages, page), "int32"), NOWHERE))

    def load(
        self, copies: TensorMap, target: Callable[..., ir.Expr], first: ir.Expr, fixed: Mapping[int, ir.Expr]
    ) -> None:
        """Starts the thread's copies of the tile from row `first` on, to `target(box, row, element)`."""
        own = bind("own_row", self.worker * self.warp_rows + self.lane // self.row_lanes)
        first_chunk, source = bind("own_chunk", self.lane % self.row_lanes), _Rows(copies, fixed)
        for turn, rows in enumerate(self._turns()):
            with T.serial(-(-rows // self.rows_at_once), unroll=_AT_ONCE) as step:
                row = bind("tile_row", own + turn * self.found_rows + step * self.rows_at_once)
                number = bind("page_number", from_lane(row // self.box_rows % WARP, self.numbers[turn]))
                slot = tirx.floormod(first + row, self.pages.size)
                for across in range(0, self.boxes * _CHUNKS, self.row_lanes):
                    chunk = first_chunk + across
                    whole = chunk * _CHUNK < copies.columns * copies.size
                    place = source.address(tirx.max(number, 0), slot, chunk)
                    unit = tirx.bitwise_xor(chunk % _CHUNKS, row % _CHUNKS) * (_CHUNK // copies.size)
                    given = tirx.Select(tirx.And(number >= 0, whole), T.uint32(_CHUNK), T.uint32(0))
                    with when(chunk < self.boxes * _CHUNKS):
                        ptx("cp.async.cg.shared.global", target(chunk // _CHUNKS, row, unit), place, _CHUNK, given)

    def _turns(self) -> list[int]:
        """Rows of the tile whose numbers each register has."""
        return [min(self.rows - turn * self.found_rows, self.found_rows) for turn in range(self.found)]

    @property
    def warp_rows(self) -> int:
        """Rows that a warp copies at a time."""
        return WARP // self.row_lanes

    @property
    def rows_at_once(self) -> int:
        """Rows that all warps of the feed copy at a time."""
        return self.warp_rows * self.copies.row_warps

    @property
    def found_rows(self) -> int:
        """Rows of the pages whose numbers a warp looks up at a time."""
        return WARP * self.box_rows


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
        """Of 16 bytes of a row of a page."""
        place = self.start + self._moved(self.dimension, number) + chunk * (_CHUNK // self.copies.size)
        return self.flat.ptr_to([place if self.slots == self.dimension else place + self._moved(self.slots, slot)])

    def _moved(self, dimension: int, at: ir.Expr) -> ir.Expr:
        return T.cast(at, "int64") * self.strides[dimension]
