"""Two warp groups that fold alternate tiles of the same rows: one's scores are multiplied while the other folds.

The second group leaves its state in shared memory, from where the first merges it into its own: both groups have the
same elements of a state in the same registers, so that each thread reads what its counterpart has written.
"""

from __future__ import annotations

from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.emit import branches, kernel_extent, named, ptx, registers, when
from tvm_cascade.tile.fragment import DTYPE
from tvm_cascade.tile.hopper.barrier import Ring
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.merge.pieces import as_float
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.shape import Stream
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Group
from tvm_cascade.tile.skeletons.stream.states import row_states, state_form
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, State
from tvm_cascade.tile.work import WARP_GROUP, Work

GROUPS = 2
"""Warp groups that take turns."""

_JOINED = 2
"""The named barrier of both."""

_WARP_ROWS, _THREAD_ROWS = 16, 8
"""Rows of an accumulator that a warp holds, and of those the rows of which a thread has one each."""


def may_alternate(program: TileProgram) -> bool:
    """Whether a tile's fold reads nothing of how many positions came before it."""
    fold = program.stream.fold
    read = [reference.value for reference in fold.references] + list(program_of(fold).shifts.values())
    return not any(sp.sympify(expression).has(COUNT) for expression in read)


def joined_bytes(stream: Stream) -> int:
    """Bytes of shared memory for the second group's state."""
    warps, rows = _threads_of(stream)
    return 4 * sum(part.width for part in state_form(stream)) * warps * WARP * rows


def _threads_of(stream: Stream) -> tuple[int, int]:
    """Warps that have rows of the program's, and such rows of a thread, at most."""
    rows = min(int(stream.extent(stream.row)), WARP_GROUP // WARP * _WARP_ROWS)
    return -(-rows // _WARP_ROWS), 1 if rows <= _THREAD_ROWS else 2


def own_tiles(work: Work, index: ir.Expr) -> ir.Expr:
    """How many tiles of a piece a group has, of which the first takes the last one, and so on backwards."""
    return (work.tiles.end - work.tiles.first + (GROUPS - 1) - index) // GROUPS


class Turns:
    """A group's position in a ring of stages of which it reads every other."""

    def __init__(self, name: str, ring: Ring, index: ir.Expr) -> None:
        self.ring, self.index = ring, index
        self.origin = Ring(name, ring.stages, 0)

    def start(self) -> None:
        """To the group's first stage of a piece."""
        self.ring.join(self.origin)
        with when(self.index == 1):
            self.ring.advance()

    def end(self, work: Work) -> None:
        """Behind all tiles of the piece."""
        self.origin.move(work.tiles.end - work.tiles.first)


class Joining:
    """Emits how the second group's state joins the first's.

    Parameters
    ----------
    columns : of a tile.
    """

    def __init__(self, tiling: Tiling, columns: int) -> None:
        self.tiling, self.stream, self.columns = tiling, tiling.stream, columns
        self.form = state_form(tiling.stream)

    def allocate(self, pool: Any) -> None:
        """Shared memory for the state."""
        warps, rows = _threads_of(self.stream)
        shape = rows, sum(part.width for part in self.form), warps * WARP
        self.place = named("joined", pool.alloc(shape, DTYPE, align=16))

    def join(self, fold: Group, index: ir.Expr, has_rows: ir.Expr) -> None:
        """The first group's state becomes that of both; called by both."""
        with branches(index == 0) as (first, second):
            with first:
                _meet()
                with when(has_rows):
                    self._merge(fold)
                _meet()
            with second:
                with when(has_rows):
                    self._leave(fold)
                _meet()
                _meet()

    def _leave(self, fold: Group) -> None:
        for r, state in self._states(fold, own_tiles(fold.work, tirx.const(1, "int32")) * self.columns):
            for first, part in self._places(state):
                with part.each() as number:
                    T.buffer_store(self.place, as_float(part[number]), [r, first + number, self._thread(fold)])

    def _merge(self, fold: Group) -> None:
        others = own_tiles(fold.work, tirx.const(1, "int32")) * self.columns
        count = fold.rows.end - fold.work.tiles.first * self.columns - others
        widths = {p.component.symbol: len(fold.columns_of(p)) // 4 for p in self.stream.products}
        dtypes = {component.symbol: DTYPE for component in self.stream.fold.components}
        for r, state in self._states(fold, count):
            other = State.in_registers(self.stream.fold, dtypes, DTYPE, "_joined", widths)
            for first, part in self._places(other):
                with part.each() as number:
                    word = self.place[r, first + number, self._thread(fold)]
                    part.put(word if part.dtype == DTYPE else tirx.reinterpret(part.dtype, word), number)
            inputs: dict[sp.Symbol, ir.Expr] = {
                LENGTH: tirx.Cast(DTYPE, kernel_extent(self.stream.extent(self.stream.position)))
            }
            inputs |= {symbol: fold.rows.values[symbol][r] for symbol in self.tiling.program.row_inputs}
            merge(program_of(self.stream.fold), state, Alone(), inputs, others=[other])

    def _states(self, fold: Group, count: ir.Expr) -> list[tuple[int, State]]:
        """The state of each of a thread's rows, of so many positions."""
        found = []
        for k, r in enumerate(fold.rows.own):
            counter = Part(registers("joined_count", 1, COUNTER))
            counter.put(count)
            found.append((r, row_states(self.stream, fold, counter)[k]))
        return found

    @staticmethod
    def _places(state: State) -> list[tuple[int, Part]]:
        """Every part with the number of its first word."""
        widths = [part.width for part in state.parts]
        return [(sum(widths[:k]), part) for k, part in enumerate(state.parts)]

    @staticmethod
    def _thread(fold: Group) -> ir.Expr:
        return fold.threads.warp * WARP + fold.threads.lane


def _meet() -> None:
    ptx("bar.sync", T.uint32(_JOINED), T.uint32(GROUPS * WARP_GROUP))
