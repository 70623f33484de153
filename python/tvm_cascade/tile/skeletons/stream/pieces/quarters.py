"""Tiles of very few rows that products read faster than one warp folds them: each warp folds a quarter of a tile.

    rows of the accumulator    0 … 7      16 … 23    32 … 39    48 … 55
    are the program's rows     0 … 7      0 … 7      0 … 7      0 … 7
    and fold of a tile         positions 0 … n/4     n/4 … n/2  n/2 … 3n/4 3n/4 … n

All warps multiply the same rows, so that each has the scores of all positions. A warp folds its own quarter into a
state of its own, with weights of zero for the other three: values have to be finite, as zero times infinity is no
number. At the end of a piece the first warp merges the four states.
"""

from __future__ import annotations

import math
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.rounding import FORMATS
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.emit import kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, DTYPE, NEIGHBOURS, register_index
from tvm_cascade.tile.hopper.packing import Packing, Weight
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.merge.slots import shared_slots
from tvm_cascade.tile.operand import MATRIX_DTYPES
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.shape import Stream
from tvm_cascade.tile.skeletons.stream.group_fold import GroupFold
from tvm_cascade.tile.skeletons.stream.states import row_states, state_form
from tvm_cascade.tile.state import COUNTER, Part, State
from tvm_cascade.tile.work import WARP_GROUP, Work

WARPS = 4
"""Of a warp group."""

_MOST_ROWS = 8
"""Rows that a warp has one each of in a thread."""

_LEAST_COLUMNS = 16
"""Positions of a quarter: those of an instruction that multiplies weights of 16 bits."""

_MEETING = 2
"""The named barrier of the warps."""


def has_quarters(stream: Stream, columns: int, consumers: int, converters: int) -> bool:
    """Whether warps may fold quarters of tiles: where tiles are converted, all else waits for the memory alone."""
    rows = stream.extent(stream.row)
    few = isinstance(rows, int) and rows <= _MOST_ROWS
    values = [product.value for product in stream.products]
    halves = all(MATRIX_DTYPES[value.dtype].size == 2 for value in values)
    finite = all(math.isnan(FORMATS[value.stored].overflow) for value in values)
    whole = columns % (WARPS * _LEAST_COLUMNS) == 0
    return few and halves and finite and whole and consumers == 1 and converters > 0 and not _counts(stream)


def quarter_bytes(stream: Stream) -> int:
    """Bytes of shared memory for the states of all warps but the first."""
    return (WARPS - 1) * WARP * sum(part.width for part in state_form(stream)) * 4


def _counts(stream: Stream) -> bool:
    """Whether shifts or references depend on how many positions there have been."""
    expressions = [c.shift for c in stream.fold.components] + [r.value for r in stream.fold.references]
    return any(COUNT in expression.free_symbols for expression in expressions)


class Quarters:
    """The quarters of a kernel's tiles.

    Parameters
    ----------
    pool : the block's shared memory.
    columns : positions of a tile.
    """

    def __init__(self, program: TileProgram, pool: Any, columns: int) -> None:
        self.program, self.stream, self.columns = program, program.stream, columns // WARPS
        self.steps = self.columns // COLUMNS_PER_STEP
        self.slots = shared_slots("quarters", pool, state_form(self.stream), (WARPS - 1) * WARP)

    def open(self, warp: ir.Expr, lane: ir.Expr) -> None:
        """Registers of a thread's own quarter."""
        self.warp, self.lane = warp, lane
        self.scores = registers("own_scores", self.columns // 2)
        self.packing = Packing(self.program.accumulations, self.columns, lane, (0,))

    def tile(self, tile: ir.Expr) -> ir.Expr:
        """The number of the warp's quarter of a tile, among all quarters."""
        return tile * WARPS + self.warp

    def take(self, scores: Any) -> None:
        """Takes the scores of the quarter from those of the tile."""
        for j in range(self.steps):
            for e in NEIGHBOURS:
                every = [scores[register_index(j + k * self.steps, 0, e)] for k in range(WARPS)]
                put(self.scores, register_index(j, 0, e), self._of_warp(every))

    def pack(self, whole: Packing, weight: Weight) -> None:
        """The weights of the quarter as products of the tile read them, beside zeros."""
        self.packing.emit(weight)
        for key, own in self.packing.packed.items():
            for k in range(WARPS):
                for j in range(self.steps):
                    kept = tirx.Select(self.warp == k, own[j * 2], T.uint32(0))
                    put(whole.packed[key], (k * self.steps + j) * 2, kept)

    def merge(self, fold: GroupFold, work: Work) -> None:
        """The first warp's state becomes that of all; called by the warp group."""
        counter = Part(registers("folded_of_quarter", 1, COUNTER))
        counter.put(self._positions(work))
        state = row_states(self.stream, fold, counter)[0]
        self._meet()
        with when(self.warp > 0):
            self.slots.leave(state, (self.warp - 1) * WARP + self.lane)
        self._meet()
        with when(self.warp == 0):
            own = self.stream.fold
            widths = {symbol: part.width for symbol, part in state.fragments.items()}
            other = State.in_registers(own, state.dtypes, DTYPE, "_quarter", widths)
            with T.serial(WARPS - 1) as k:
                self.slots.take(other, k * WARP + self.lane)
                merge(program_of(own), state, Alone(), self._inputs(fold), self.program.offsets, [other])

    def _of_warp(self, values: list[ir.Expr]) -> ir.Expr:
        """One of four values, by the warp."""
        found = values[-1]
        for k in reversed(range(WARPS - 1)):
            found = tirx.Select(self.warp == k, values[k], found)
        return found

    def _positions(self, work: Work) -> ir.Expr:
        """Those of the axis that the warp has folded."""
        last = ((work.tiles.end - 1) * WARPS + self.warp) * self.columns
        rest = tirx.max(tirx.min(self._length() - last, self.columns), 0)
        return (work.tiles.end - 1 - work.tiles.first) * self.columns + rest

    def _length(self) -> ir.Expr:
        return kernel_extent(self.stream.extent(self.stream.position))

    def _inputs(self, fold: GroupFold) -> dict[sp.Symbol, ir.Expr]:
        of_rows = {symbol: fold.rows.values[symbol][0] for symbol in self.program.row_inputs}
        return {LENGTH: tirx.Cast(DTYPE, self._length()), **of_rows}

    def _meet(self) -> None:
        ptx("bar.sync", T.uint32(_MEETING), T.uint32(WARP_GROUP))
