"""A whole item of very few rows whose results read much: its state is spread over all threads of the block.

Four rows of an accumulator are in sixteen lanes of one warp. Where results read states that other kernels left, one for
each element, those lanes would wait for all of them; a thread with one row and four columns waits once. A block beside
a kernel that leaves such states keeps its own of several items, and waits for that kernel once it has folded them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.pieces import EachWork, PieceWork
from tvm_cascade.tile.emit import named, put, registers, when
from tvm_cascade.tile.fragment import QUAD
from tvm_cascade.tile.merge.lanes import in_no_lane
from tvm_cascade.tile.merge.places import FOUR, SPAN, take_four
from tvm_cascade.tile.skeletons.stream.epilogue import Folded
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Meeting, Unit
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import State
from tvm_cascade.tile.work import WARP_GROUP, Threads


class SpreadFinish(Meeting):
    """Finishes and stores items that one block has whole.

    Parameters
    ----------
    kept : items whose states it keeps before it stores any; one is stored at once.
    """

    def __init__(self, tiling: Tiling, kept: int) -> None:
        super().__init__(tiling, 1)
        self.kept = kept

    def allocate(self, pool: Any, threads: Threads) -> None:
        """Shared memory for the states."""
        self.threads = threads
        shape = [(self.kept * self.most_rows, part.width) for part in self.form]
        order = sorted(range(len(shape)), key=lambda k: shape[k][1] == 1)
        self.places = {k: named("spread", pool.alloc(shape[k], self.form[k].dtype, align=16)) for k in order}

    def begin(self, index: ir.Expr | int) -> None:
        """The count of the states that are kept, in the registers of a consumer."""
        if self.kept > 1:
            self.count = registers("kept_states", 1, "int32")
            put(self.count, 0, T.int32(0))

    def leave(self, fold: Folded, work: PieceWork) -> None:
        """Keeps the state, or finishes and stores it where one is kept; by all threads of the block's one consumer."""
        if self.kept > 1:
            self._leave_state(fold)
            put(self.count, 0, self.count[0] + 1)
            return
        self._meet()
        self._leave_state(fold)
        self._meet()
        self._finish(work)

    def settle(self, each_work: EachWork) -> None:
        """Finishes and stores the items whose states are kept."""
        if self.kept == 1:
            return
        self._meet()
        put(self.count, 0, T.int32(0))
        with each_work() as work, when(in_no_lane(tirx.Not(work.piece.is_whole))):
            self._finish(work)
            put(self.count, 0, self.count[0] + 1)

    def _finish(self, work: PieceWork) -> None:
        thread = self.threads.warp * 32 + self.threads.lane
        self._merge_units(work, 0, self.units, thread, WARP_GROUP)

    def _place(self, row: ir.Expr) -> ir.Expr:
        """Where a row of the item that is left or finished is kept."""
        return row if self.kept == 1 else self.count[0] * self.most_rows + row

    def _meet(self) -> None:
        self.threads.named.take("meeting").sync(WARP_GROUP)

    def _put_scalars(self, row: ir.Expr, values: list[ir.Expr]) -> None:
        with when(self.threads.lane % QUAD == 0):
            for part, value in zip(self.scalars, values, strict=True):
                T.buffer_store(self.places[part], value, [self._place(row), 0])

    def _put_four(self, part: int, row: ir.Expr, span: ir.Expr | int, values: list[ir.Expr]) -> None:
        first = span * SPAN + self.threads.lane % QUAD * FOUR
        for e, value in enumerate(values):
            T.buffer_store(self.places[part], value, [self._place(row), first + e])

    def _get(self, unit: Unit, number: ir.Expr, part: int) -> ir.Expr:
        return self.places[part][self._place(unit.row), 0]

    def _get_four(self, unit: Unit, number: ir.Expr, part: int, span: ir.Expr, into: Any, first: int) -> None:
        own = self.places[part].ptr_to([self._place(unit.row), span * SPAN + unit.lane * FOUR])
        take_four(own, T.address_of(into[first]))

    def _merged(self, unit: Unit, inputs: Mapping[sp.Symbol, ir.Expr]) -> State:
        """The state as it is."""
        (state,) = self._empty_states(unit, 1)
        self._take(state, unit, tirx.const(0, "int32"), unit.work.piece.blocks)
        return state
