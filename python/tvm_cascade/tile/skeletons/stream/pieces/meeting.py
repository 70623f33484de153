"""The meeting of an item's pieces: each leaves its state, and the last to arrive merges them in the order of the axis.

What is merged is spread over all threads of a warp group anew: a thread takes one row and four neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.emit import bind, kernel_extent, named, ptx, put, registers, when
from tvm_cascade.tile.fragment import DTYPE, QUAD, Symbols, TilePrinter, placed
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.pieces import FOUR, PieceStates
from tvm_cascade.tile.pieces import SLOTS, Piece
from tvm_cascade.tile.shape import product_along
from tvm_cascade.tile.skeletons.stream.finish import Finish
from tvm_cascade.tile.skeletons.stream.group_fold import GroupFold
from tvm_cascade.tile.skeletons.stream.states import row_states
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, PartForm, State
from tvm_cascade.tile.work import GROUP_ROWS, WARP_GROUP

_MEETING = 1
"""The named barrier of the consumers at a meeting."""

_AT_ONCE = 8
"""Pieces that a thread reads at once: as many loads are under way together."""


class MergedRow:
    """A row whose pieces are merged, in a thread; implements `finish.FinalRows`."""

    def __init__(self, meeting: Meeting, state: State, inputs: Mapping[sp.Symbol, ir.Expr]) -> None:
        self.state, self.inputs, self.offsets = state, inputs, meeting.tiling.program.offsets
        self.values: dict[sp.Symbol, Any] = {}

    def set(self, symbol: sp.Symbol, row: int, value: ir.Expr) -> None:
        """Stores a value in its register."""
        if symbol not in self.values:
            self.values[symbol] = registers(str(symbol), 1)
        put(self.values[symbol], row, value)

    def row_symbols(self, row: int) -> Symbols:
        """Everything that has a value per row."""
        own = {s: array[row] for s, array in self.values.items()}
        return Symbols(own, self.state.symbols(), self.inputs)

    def write(self, expression: sp.Expr, symbols: Symbols) -> ir.Expr:
        """An expression over registers as TIR."""
        return TilePrinter(symbols, DTYPE, {}, self.offsets)(expression)


class Meeting:
    """Emits what happens to the state of a piece that is not the whole of its item.

    Parameters
    ----------
    name : of the kernel.
    """

    def __init__(self, tiling: Tiling, name: str) -> None:
        self.tiling, self.stream, self.config = tiling, tiling.stream, tiling.config
        self.widths = {product.component.symbol: product.width for product in self.stream.products}
        rows = min(int(self.stream.extent(self.stream.row)), self.config.rows)
        self.states = PieceStates(name, SLOTS * self.config.blocks, self.config.blocks, rows, self._form())

    def _form(self) -> list[PartForm]:
        components = [PartForm(DTYPE, self.widths.get(c.symbol, 1)) for c in self.stream.fold.components]
        return [*components, *(PartForm(DTYPE) for _ in self.stream.fold.references), PartForm(COUNTER)]

    def allocate(self, pool: Any) -> None:
        """Shared memory by which the thread that arrives tells the others."""
        self.is_last = named("is_last", pool.alloc((1,), "int32", align=16))

    def leave(self, fold: GroupFold, piece: Piece) -> None:
        """Leaves the state of a piece; merges and stores where all others are there."""
        self.fold, self.piece = fold, piece
        self._put()
        self._meet()
        with when(tirx.And(fold.index == 0, fold.threads.leads)):
            put(self.is_last, 0, self.states.arrive(piece.first_block, piece.blocks))
        self._meet()
        with when(self.is_last[0] != 0):
            self._merge_all()

    def _meet(self) -> None:
        ptx("bar.sync", T.uint32(_MEETING), T.uint32(self.config.consumers * WARP_GROUP))

    def _put(self) -> None:
        fold, lane = self.fold, self.fold.threads.lane
        counter = Part(registers("folded", 1, COUNTER))
        counter.put(fold.rows.end - fold.work.tiles.first * fold.columns)
        slot = bind("slot", self.piece.own_slot(fold.threads.block))
        for r, state in enumerate(row_states(self.stream, fold, counter)):
            row = fold.own_rows + fold.threads.warp * 16 + lane // QUAD + 8 * r
            with when(row < self._rows()):
                for k, part in enumerate(state.parts):
                    if self.states.form[k].width == 1:
                        with when(lane % QUAD == 0):
                            self.states.put(slot, k, row, part[0])
                        continue
                    with T.unroll(part.width // 2) as j:
                        column = j * 8 + lane % QUAD * 2
                        self.states.put_pair(slot, k, row, column, [part[j * 2], part[j * 2 + 1]])

    def _rows(self) -> ir.Expr:
        """Rows that the block's tile has of the program's."""
        return kernel_extent(self.stream.extent(self.stream.row)) - self.fold.work.first_row

    def _merge_all(self) -> None:
        """Every thread merges and stores some rows' columns."""
        chunks = max(self.widths.values(), default=FOUR) // FOUR
        fold = self.fold
        own = bind("merged_rows", tirx.min(self._rows() - fold.own_rows, GROUP_ROWS))
        thread = fold.threads.warp * 32 + fold.threads.lane
        with T.serial((own * chunks + (WARP_GROUP - 1)) // WARP_GROUP) as step:
            unit = bind("unit", step * WARP_GROUP + thread)
            with when(unit < own * chunks):
                self._merge_one(bind("tile_row", fold.own_rows + unit // chunks), bind("chunk", unit % chunks))

    def _merge_one(self, row: ir.Expr, chunk: ir.Expr) -> None:
        fold, program = self.stream.fold, self.tiling.program
        places = {**self.fold.work.batch, self.stream.row: self.fold.work.first_row + row}
        inputs: dict[sp.Symbol, ir.Expr] = {
            LENGTH: tirx.Cast(DTYPE, kernel_extent(self.stream.extent(self.stream.position)))
        }
        for symbol, expression in program.row_inputs.items():
            inputs[symbol] = bind(str(symbol), placed(expression, places, self.tiling.buffers).astype(DTYPE))
        dtypes = {component.symbol: DTYPE for component in fold.components}
        widths = dict.fromkeys(self.widths, FOUR)
        state, *others = (State.in_registers(fold, dtypes, DTYPE, f"_piece_{k}", widths) for k in range(_AT_ONCE + 1))
        state.clear()
        with T.serial((self.piece.blocks + (_AT_ONCE - 1)) // _AT_ONCE) as turn:
            for k, other in enumerate(others):
                self._get(other, turn * _AT_ONCE + k, row, chunk)
            merge(program_of(fold), state, Alone(), inputs, others=others)
        self._store(MergedRow(self, state, inputs), places, chunk)

    def _get(self, state: State, number: ir.Expr, row: ir.Expr, chunk: ir.Expr) -> None:
        """The state of one of the pieces; the identity past the last one."""
        state.clear()
        with when(number < self.piece.blocks):
            slot = bind("slot", self.piece.slot(number))
            for k, part in enumerate(state.parts):
                width = self.states.form[k].width
                if width == 1:
                    part.put(self.states.get(slot, k, row))
                    continue
                with when(chunk * FOUR < width):
                    self.states.get_four(slot, k, row, chunk * FOUR, part.array)

    def _store(self, rows: MergedRow, places: dict[tirx.Var, ir.Expr], chunk: ir.Expr) -> None:
        finish = Finish(self.tiling, rows, (0,))
        for output in self.stream.outputs:
            own, product = self.tiling.own(output.buffer), product_along(output, self.stream.products)
            if product is None:
                with when(chunk == 0):
                    indices = [placed(i, places, self.tiling.buffers) for i in output.indices]
                    T.buffer_store(own, finish.value(output, 0, places, None, {}), indices)
                continue
            with when(chunk * FOUR < product.width):
                for e in range(FOUR):
                    column = chunk * FOUR + e
                    at = {**places, product.free: column}
                    indices = [placed(i, at, self.tiling.buffers) for i in output.indices]
                    of_products = {s: part[e] for s, part in rows.state.fragments.items()}
                    T.buffer_store(own, finish.value(output, 0, places, column, of_products), indices)
