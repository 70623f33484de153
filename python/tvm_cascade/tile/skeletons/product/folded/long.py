"""The epilogue of a product with long rows: sums are folded where they are, in registers, tile by tile of a stretch.

    first tile of a stretch     states of rows are empty
    every tile                  a thread folds the sums that it has of its rows
    last tile                   merge over the lanes of a row; leave the states; the last block to arrive at some rows
                                merges those of all their stretches, finishes and stores

Nothing of the rows' length goes to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import bind, kernel_extent, named, ptx, put, when
from tvm_cascade.tile.fragment import QUAD, ROWS, register_index
from tvm_cascade.tile.memory import Tensors
from tvm_cascade.tile.merge.blocks import GridStates
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.lanes import Lanes
from tvm_cascade.tile.once import computed_once
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.store import Store
from tvm_cascade.tile.row.sweep import Point, length_of
from tvm_cascade.tile.skeletons.product.folded.config import LongConfig
from tvm_cascade.tile.skeletons.product.folded.several import WaitingSums
from tvm_cascade.tile.skeletons.product.folded.shape import FoldedProduct
from tvm_cascade.tile.skeletons.product.folded.walk import WalkedTile
from tvm_cascade.tile.state import State
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP, Threads
from tvm_cascade.transform.printer import cast

_ALL = 7
"""The named barrier of all consumers."""

_AT_ONCE = 6
"""Stretches whose states a thread reads at once: as many loads are under way together."""


class LongEpilogue:
    """Emits what consumers do with the sums of a tile.

    Attributes
    ----------
    copies : bulk copies of outputs; there are none.
    """

    def __init__(
        self, shape: FoldedProduct, program: RowProgram, config: LongConfig, tensors: Tensors, name: str, items: int
    ) -> None:
        self.shape, self.program, self.config, self.tensors = shape, program, config, tensors
        self.copies: dict[tirx.Var, Any] = {}
        self.name, self.items = name, items
        self.rank: ir.Expr | int = 0
        self.waiting: WaitingSums | None = None

    def allocate(self, pool: Any) -> None:
        """Shared memory by which one thread tells all others the launch's set, and whether the block is the last."""
        self.set = named("set_of_launch", pool.alloc((1,), "int32", align=16))
        self.flag = named("is_last_block", pool.alloc((1,), "int32", align=4))
        if self.config.products > 1:
            self.waiting = WaitingSums(self.config, pool)

    def start(self, index: ir.Expr, threads: Threads) -> None:
        """States for the rows that a thread has sums of; asks for the launch's set, where states meet."""
        if self.waiting is not None:
            self.waiting.start(index, threads)
        self.states = [self._state(f"_of_{part}_{row}") for part in range(self.config.parts) for row in ROWS]
        self.leads = tirx.And(index == 0, threads.leads)
        if self.config.stretches > 1:
            self.grid = self._grid()
            self.sets = self.grid.sets
            self.sets.allocate()
            with when(self.leads):
                self.sets.request()

    def _state(self, suffix: str = "") -> State:
        return State.in_registers(self.program.row.fold, self.program.dtypes, self.program.reference_dtype, suffix)

    def emit(self, tile: WalkedTile, sums: Sequence[Sequence[Any]], index: ir.Expr, threads: Threads) -> None:
        """Folds a tile.

        Parameters
        ----------
        sums : registers of 64 rows each.
        index : of the consumer.
        """
        lane = threads.lane
        own = bind("own_row", index * self.config.tile.own_rows + threads.warp * 16 + lane // QUAD)
        self.first = bind("lane_column", tile.first_column + lane % QUAD * 2)
        with when(tile.is_first):
            for state in self.states:
                state.clear()
        for number, state in enumerate(self.states):
            part, row = divmod(number, len(ROWS))
            point = self._point(tile, own + part * GROUP_ROWS + row * 8)
            fold = ChunkFold(self.program, state, point.values, length_of(self.program))
            fold.fold(self._chunk(part, sums[part][0], row, point))
        with when(tile.is_last):
            for number, state in enumerate(self.states):
                part, row = divmod(number, len(ROWS))
                self._merge(state, Lanes(lane, QUAD), self._point(tile, own + part * GROUP_ROWS + row * 8))
            self._meet(tile, own, index, threads)

    def _point(self, tile: WalkedTile, own: ir.Expr) -> Point:
        """A row of the tile, or the last one in place of those past the end."""
        line = self.shape.product.left.line
        row = bind("row", tirx.min(tile.first_row + own, kernel_extent(line.extent) - 1))
        return Point(self.program, self.tensors, self.shape.at({**line.places(row), **tile.batch}))

    def _merge(self, state: State, exchange: Any, point: Point, others: Sequence[State] = ()) -> None:
        inputs = {**point.values, LENGTH: length_of(self.program)}
        merge(self.program.body, state, exchange, inputs, self.program.offsets, others)

    def _chunk(self, part: int, sums: Any, row: int, point: Point) -> Chunk:
        """The sums of a row that a thread has; those of all products but the last wait in shared memory."""
        program, steps = self.program, self.config.tile.columns // 8
        inside = self.shape.columns % self.config.tile.columns == 0
        end, tensors = kernel_extent(self.shape.columns), self.shape.tensors

        def each(emit: Callable[[Any], None]) -> None:
            with T.unroll(steps) as j, T.unroll(2) as e:
                emit(j * 2 + e)

        def column(k: Any) -> ir.Expr:
            return self.first + k // 2 * 8 + k % 2

        def read(expression: ir.Expr, k: Any) -> ir.Expr:
            def replace(load: ir.TensorLoad) -> ir.Expr:
                number = next((n for n, tensor in enumerate(tensors) if load.source.same_as(tensor)), None)
                if number is None:
                    return load
                register = register_index(k // 2, row, k % 2)
                if self.waiting is not None and number + 1 < len(tensors):
                    return cast(self.waiting.read(number, part, register), dtype_of(load))
                return cast(sums[register], dtype_of(load))

            found = tvm_ffi.structural_map(expression, (ir.TensorLoad, replace))
            position = column(k) if inside else tirx.min(column(k), end - 1)
            return computed_once(self.tensors.place(found, {**point.at, **program.row.axis.at(position)}))

        def some(table: Mapping[sp.Symbol, ir.Expr]) -> Callable[[Any, set[sp.Symbol]], dict[sp.Symbol, ir.Expr]]:
            return lambda k, of: {s: read(e, k) for s, e in table.items() if s in of}

        count = tirx.const(steps * 2, "int32")
        if not inside:
            left = [tirx.max(tirx.min((end - self.first - e + 7) // 8, steps), 0) for e in (0, 1)]
            count = bind("existing", left[0] + left[1])
        return Chunk(
            steps * 2, each, some(program.position_inputs), some(program.conditions),
            None if inside else (lambda k: column(k) < end), count, None,
        )  # fmt: skip

    def _meet(self, tile: WalkedTile, own: ir.Expr, index: ir.Expr, threads: Threads) -> None:
        """Leaves the states of a stretch; the last block to arrive merges those of all."""
        config, lane = self.config, threads.lane
        last = kernel_extent(self.shape.product.left.line.extent) - 1
        if config.stretches == 1:
            for number, state in enumerate(self.states):
                part, row = divmod(number, len(ROWS))
                place = own + part * GROUP_ROWS + row * 8
                self._store(state, self._point(tile, place), QUAD, lane % QUAD, tile.first_row + place <= last)
            return
        with when(self.leads):
            put(self.set, 0, self.sets.obtain())
        self._sync()
        self.grid.set = bind("set_of_states", self.set[0])
        first_row = bind("first_row_of_all", tile.row_tile * config.tile.rows)
        with when(tirx.EQ(lane % QUAD, 0)):
            for number, state in enumerate(self.states):
                part, row = divmod(number, len(ROWS))
                self.grid.put(state, tile.stretch, first_row + own + part * GROUP_ROWS + row * 8)
        self._sync()
        with when(self.leads):
            put(self.flag, 0, self.grid.arrive(tile.row_tile))
        self._sync()
        with when(self.flag[0] != 0):
            self._merge_all(self.grid, tile, index, threads, last)

    def _grid(self) -> GridStates:
        """Global memory for the states of all stretches."""
        return GridStates(self.name, self.config.stretches, self.items * self.config.tile.rows, self.states[0].form)

    def _merge_all(self, states: GridStates, tile: WalkedTile, index: ir.Expr, threads: Threads, last: ir.Expr) -> None:
        """Several threads a row merge some stretches each, and then what they have."""
        config = self.config
        sharing, thread = config.sharing, bind("thread_of_all", index * WARP_GROUP + threads.warp * 32 + threads.lane)
        member = bind("member", thread % sharing)
        at_once = config.threads // sharing
        with T.serial(-(-config.rows // at_once)) as turn:
            place = bind("merged_row", turn * at_once + thread // sharing)
            point = self._point(tile, place)
            state = self._state("_merged")
            state.clear()
            batch = min(_AT_ONCE, -(-config.stretches // sharing))
            others = [self._state(f"_other_{k}") for k in range(batch)]
            with T.serial(-(-config.stretches // (sharing * batch))) as step:
                numbers = [bind("number", (step * batch + k) * sharing + member) for k in range(batch)]
                for other, number in zip(others, numbers, strict=True):
                    states.get(other, number, tile.row_tile * config.tile.rows + place)
                self._merge(state, Alone(), point, others)
            self._merge(state, Lanes(threads.lane, sharing), point)
            self._store(state, point, sharing, member, tile.first_row + place <= last)

    def _store(self, state: State, point: Point, sharing: int, member: ir.Expr, exists: ir.Expr) -> None:
        with when(exists):
            Store(self.program, self.tensors, point, sharing).emit(state, member)

    def _sync(self) -> None:
        ptx("bar.sync", T.uint32(_ALL), T.uint32(self.config.threads))

    def drain(self, threads: Threads) -> None:
        """Gives the launch's set back."""
        if self.config.stretches > 1:
            self._sync()
            with when(self.leads):
                self.sets.release(self.sets.obtain())
