"""A whole item of very few rows whose results read much: its state is spread over all threads of the block.

Four rows of an accumulator are in sixteen lanes of one warp. Where results read states that other kernels left, one for
each element, those lanes would wait for all of them; a thread with one row and four columns waits once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import loads_of, uses
from tvm_cascade.tile.emit import named, put, when
from tvm_cascade.tile.fragment import QUAD
from tvm_cascade.tile.merge.pieces import FOUR
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.pieces import Piece
from tvm_cascade.tile.shape import Stream, product_along
from tvm_cascade.tile.skeletons.stream.group_fold import GroupFold
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Meeting
from tvm_cascade.tile.state import State

_MOST_ROWS = 16
"""Rows of a warp, at most: of more, most threads have elements of their own."""


def is_spread(stream: Stream) -> bool:
    """Whether results of very few rows read, for each element, more than the row's own state."""
    rows = stream.extent(stream.row)
    return isinstance(rows, int) and rows <= _MOST_ROWS and _reads_elements(stream)


def spread_bytes(stream: Stream) -> int:
    """Bytes of shared memory for the state."""
    if not is_spread(stream):
        return 0
    scalars = len(stream.fold.components) + len(stream.fold.references) + 1
    return (sum(p.width for p in stream.products) + scalars) * int(stream.extent(stream.row)) * 4


def _reads_elements(stream: Stream) -> bool:
    for output in stream.outputs:
        product = product_along(output, stream.products)
        read = [load for load in loads_of(output.value) if member_at(stream.group, load) is None]
        if product is not None and any(uses(index, [product.free]) for load in read for index in load.indices):
            return True
    return False


class SpreadFinish(Meeting):
    """Finishes and stores an item that one block has whole."""

    def allocate(self, pool: Any) -> None:
        """Shared memory for the state."""
        shape = [(self.most_rows, part.width) for part in self.form]
        order = sorted(range(len(shape)), key=lambda k: shape[k][1] == 1)
        self.places = {k: named("spread", pool.alloc(shape[k], self.form[k].dtype, align=16)) for k in order}

    def start(self) -> None:
        """Nothing: no other block takes part."""

    def open(self) -> None:
        """Nothing: all places are known."""

    def leave(self, fold: GroupFold, piece: Piece) -> None:
        """Finishes and stores; by all threads of the group."""
        self.fold, self.piece = fold, piece
        self._meet()
        self._leave_all()
        self._meet()
        self._merge_all()

    def _put(self, part: int, row: ir.Expr, value: ir.Expr) -> None:
        with when(self.fold.threads.lane % QUAD == 0):
            T.buffer_store(self.places[part], value, [row, 0])

    def _put_pair(self, part: int, row: ir.Expr, column: ir.Expr, pair: list[ir.Expr]) -> None:
        for e, value in enumerate(pair):
            T.buffer_store(self.places[part], value, [row, column + e])

    def _get(self, number: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        return self.places[part][row, 0]

    def _get_four(self, number: ir.Expr, part: int, row: ir.Expr, chunk: ir.Expr, into: Any) -> None:
        for e in range(FOUR):
            put(into, e, self.places[part][row, chunk * FOUR + e])

    def _own_chunks(self, chunks: int) -> tuple[ir.Expr, Callable[[ir.Expr], ir.Expr]]:
        return tirx.const(chunks, "int32"), lambda number: number

    def _merged(self, row: ir.Expr, chunk: ir.Expr, inputs: Mapping[sp.Symbol, ir.Expr]) -> State:
        """The state as it is."""
        (state,) = self._empty_states(1)
        self._take(state, tirx.const(0, "int32"), row, chunk)
        return state
