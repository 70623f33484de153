"""The meeting of an item's pieces: each leaves its state, and all are merged in the order of the axis.

Pieces of any blocks meet in global memory, where the last to arrive merges; those of one cluster of blocks in its
distributed shared memory, where each block merges some columns.

What is merged is spread over all threads of a warp group anew: a thread takes one row and four neighbouring columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.dependent import wait_for_others
from tvm_cascade.tile.emit import bind, kernel_extent, named, ptx, put, registers, when
from tvm_cascade.tile.fragment import DTYPE, QUAD, Symbols, TilePrinter, placed
from tvm_cascade.tile.merge.cluster import cluster_arrive, cluster_wait, leave_at_rank, leave_pair_at_rank
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


class Meeting(ABC):
    """Emits what happens to the state of a piece that is not the whole of its item.

    Attributes
    ----------
    is_of_all : no piece is the whole of its item.
    """

    is_of_all: ClassVar[bool] = False
    fold: GroupFold
    piece: Piece

    def __init__(self, tiling: Tiling) -> None:
        self.tiling, self.stream, self.config = tiling, tiling.stream, tiling.config
        self.widths = {product.component.symbol: product.width for product in self.stream.products}
        self.form = self._form()
        self.most_rows = min(int(self.stream.extent(self.stream.row)), self.config.rows)

    def _form(self) -> list[PartForm]:
        components = [PartForm(DTYPE, self.widths.get(c.symbol, 1)) for c in self.stream.fold.components]
        return [*components, *(PartForm(DTYPE) for _ in self.stream.fold.references), PartForm(COUNTER)]

    @abstractmethod
    def allocate(self, pool: Any) -> None:
        """Shared memory for it."""

    @abstractmethod
    def start(self) -> None:
        """What all threads of a block do at first."""

    @abstractmethod
    def open(self) -> None:
        """What the consumers compute at first."""

    @abstractmethod
    def leave(self, fold: GroupFold, piece: Piece) -> None:
        """Leaves the state of a piece; merges and stores where all others are there."""

    @abstractmethod
    def _put(self, part: int, row: ir.Expr, value: ir.Expr) -> None:
        """Leaves a scalar part of a row; called by the first of the four lanes that have it."""

    @abstractmethod
    def _put_pair(self, part: int, row: ir.Expr, column: ir.Expr, pair: list[ir.Expr]) -> None:
        """Leaves two neighbouring elements of a vector part."""

    @abstractmethod
    def _get(self, number: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        """A scalar part of a row of one of the pieces."""

    @abstractmethod
    def _get_four(self, number: ir.Expr, part: int, row: ir.Expr, chunk: ir.Expr, into: Any) -> None:
        """Loads a chunk of a vector part of one of the pieces into registers."""

    @abstractmethod
    def _own_chunks(self, chunks: int) -> tuple[ir.Expr, Callable[[ir.Expr], ir.Expr]]:
        """How many of the chunks of a row the block merges, and their numbers."""

    def _leave_all(self) -> None:
        fold, lane = self.fold, self.fold.threads.lane
        counter = Part(registers("folded", 1, COUNTER))
        counter.put(fold.rows.end - fold.work.tiles.first * fold.columns)
        for r, state in enumerate(row_states(self.stream, fold, counter)):
            row = fold.own_rows + fold.threads.warp * 16 + lane // QUAD + 8 * r
            with when(row < self._rows()):
                for k, part in enumerate(state.parts):
                    if self.form[k].width == 1:
                        self._put(k, row, part[0])
                        continue
                    with T.unroll(part.width // 2) as j:
                        self._put_pair(k, row, j * 8 + lane % QUAD * 2, [part[j * 2], part[j * 2 + 1]])

    def _meet(self) -> None:
        """Waits for all consumers of the block."""
        ptx("bar.sync", T.uint32(_MEETING), T.uint32(self.config.consumers * WARP_GROUP))

    def _rows(self) -> ir.Expr:
        """Rows that the block's tile has of the program's."""
        return kernel_extent(self.stream.extent(self.stream.row)) - self.fold.work.first_row

    def _merge_all(self) -> None:
        """Every thread merges and stores some rows' columns."""
        if self.tiling.program.late:
            wait_for_others()
        count, number = self._own_chunks(max(self.widths.values(), default=FOUR) // FOUR)
        fold = self.fold
        own = bind("merged_rows", tirx.min(self._rows() - fold.own_rows, GROUP_ROWS))
        thread = fold.threads.warp * 32 + fold.threads.lane
        with T.serial((own * count + (WARP_GROUP - 1)) // WARP_GROUP) as step:
            unit = bind("unit", step * WARP_GROUP + thread)
            with when(unit < own * count):
                self._merge_one(bind("tile_row", fold.own_rows + unit // count), bind("chunk", number(unit % count)))

    def _merge_one(self, row: ir.Expr, chunk: ir.Expr) -> None:
        program = self.tiling.program
        places = {**self.fold.work.batch, self.stream.row: self.fold.work.first_row + row}
        inputs: dict[sp.Symbol, ir.Expr] = {
            LENGTH: tirx.Cast(DTYPE, kernel_extent(self.stream.extent(self.stream.position)))
        }
        for symbol, expression in program.row_inputs.items():
            inputs[symbol] = bind(str(symbol), placed(expression, places, self.tiling.buffers).astype(DTYPE))
        state = self._merged(row, chunk, inputs)
        self._store(MergedRow(self, state, inputs), places, chunk)

    def _empty_states(self, count: int) -> list[State]:
        """New registers for states of one row and four columns."""
        fold, widths = self.stream.fold, dict.fromkeys(self.widths, FOUR)
        dtypes = {component.symbol: DTYPE for component in fold.components}
        return [State.in_registers(fold, dtypes, DTYPE, f"_piece_{k}", widths) for k in range(count)]

    def _merged(self, row: ir.Expr, chunk: ir.Expr, inputs: Mapping[sp.Symbol, ir.Expr]) -> State:
        """The state of all pieces."""
        state, *others = self._empty_states(_AT_ONCE + 1)
        state.clear()
        with T.serial((self.piece.blocks + (_AT_ONCE - 1)) // _AT_ONCE) as turn:
            for k, other in enumerate(others):
                self._take(other, turn * _AT_ONCE + k, row, chunk)
            merge(program_of(self.stream.fold), state, Alone(), inputs, others=others)
        return state

    def _take(self, state: State, number: ir.Expr, row: ir.Expr, chunk: ir.Expr) -> None:
        """The state of one of the pieces; the identity past the last one."""
        state.clear()
        with when(number < self.piece.blocks):
            for k, part in enumerate(state.parts):
                width = self.form[k].width
                if width == 1:
                    part.put(self._get(number, k, row))
                    continue
                with when(chunk * FOUR < width):
                    self._get_four(number, k, row, chunk, part.array)

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
                finish.start_row(output, 0, places)
                for e in range(FOUR):
                    column = chunk * FOUR + e
                    at = {**places, product.free: column}
                    indices = [placed(i, at, self.tiling.buffers) for i in output.indices]
                    of_products = {s: part[e] for s, part in rows.state.fragments.items()}
                    T.buffer_store(own, finish.value(output, 0, places, column, of_products), indices)


class GridMeeting(Meeting):
    """A meeting in global memory, of pieces of any blocks.

    Parameters
    ----------
    name : of the kernel.
    """

    def __init__(self, tiling: Tiling, name: str) -> None:
        super().__init__(tiling)
        blocks = self.config.blocks
        self.states = PieceStates(name, SLOTS * blocks, blocks, self.most_rows, self.form)

    def allocate(self, pool: Any) -> None:
        """Shared memory by which the thread that arrives tells the others."""
        self.is_last = named("is_last", pool.alloc((1,), "int32", align=16))

    def start(self) -> None:
        """Nothing: nobody waits for a block that has not started."""

    def open(self) -> None:
        """See `PieceStates.start`."""
        self.states.start()

    def leave(self, fold: GroupFold, piece: Piece) -> None:
        """Leaves the state of a piece; the last to arrive merges and stores."""
        self.fold, self.piece = fold, piece
        self.slot = bind("slot", piece.own_slot(fold.threads.block))
        self._leave_all()
        self._meet()
        with when(tirx.And(fold.index == 0, fold.threads.leads)):
            put(self.is_last, 0, self.states.arrive(piece.first_block, piece.blocks))
        self._meet()
        with when(self.is_last[0] != 0):
            self._merge_all()

    def _put(self, part: int, row: ir.Expr, value: ir.Expr) -> None:
        with when(self.fold.threads.lane % QUAD == 0):
            self.states.put(self.slot, part, row, value)

    def _put_pair(self, part: int, row: ir.Expr, column: ir.Expr, pair: list[ir.Expr]) -> None:
        self.states.put_pair(self.slot, part, row, column, pair)

    def _get(self, number: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        return self.states.get(self.piece.slot(number), part, row)

    def _get_four(self, number: ir.Expr, part: int, row: ir.Expr, chunk: ir.Expr, into: Any) -> None:
        self.states.get_four(self.piece.slot(number), part, row, chunk * FOUR, into)

    def _own_chunks(self, chunks: int) -> tuple[ir.Expr, Callable[[ir.Expr], ir.Expr]]:
        return tirx.const(chunks, "int32"), lambda number: number


class ClusterMeeting(Meeting):
    """A meeting of the blocks of a cluster, all of which have a piece of one item.

    Each leaves to every other what that one merges: the scalars of all rows, and the chunks of vectors whose numbers
    are its own modulo the blocks. The memory of a block is written by none before that block has started.

    Parameters
    ----------
    blocks : of a cluster.
    """

    is_of_all = True

    def __init__(self, tiling: Tiling, blocks: int) -> None:
        super().__init__(tiling)
        self.blocks = blocks

    def allocate(self, pool: Any) -> None:
        """Shared memory for the states of all blocks."""
        self.places: dict[int, Any] = {}
        for k in sorted(range(len(self.form)), key=lambda k: self.form[k].width == 1):
            part = self.form[k]
            own = 1 if part.width == 1 else -(-part.width // FOUR // self.blocks) * FOUR
            self.places[k] = named("met", pool.alloc((self.blocks, self.most_rows, own), part.dtype, align=16))

    def start(self) -> None:
        """Arrives as one that has started."""
        cluster_arrive()

    def open(self) -> None:
        """Nothing: all places are known."""

    def leave(self, fold: GroupFold, piece: Piece) -> None:
        """Leaves the state of the block's piece, and merges what is its own to merge."""
        self.fold, self.piece = fold, piece
        self.rank = bind("own_rank", fold.threads.block % self.blocks)
        cluster_wait()
        self._leave_all()
        cluster_arrive()
        cluster_wait()
        self._merge_all()

    def _put(self, part: int, row: ir.Expr, value: ir.Expr) -> None:
        place, lane = self.places[part].ptr_to([self.rank, row, 0]), self.fold.threads.lane % QUAD
        for first in range(0, self.blocks, QUAD):
            with when(lane + first < self.blocks):
                leave_at_rank(place, lane + first, value)

    def _put_pair(self, part: int, row: ir.Expr, column: ir.Expr, pair: list[ir.Expr]) -> None:
        chunk = column // FOUR
        own = chunk // self.blocks * FOUR + column % FOUR
        leave_pair_at_rank(self.places[part].ptr_to([self.rank, row, own]), chunk % self.blocks, *pair)

    def _get(self, number: ir.Expr, part: int, row: ir.Expr) -> ir.Expr:
        return self.places[part][number, row, 0]

    def _get_four(self, number: ir.Expr, part: int, row: ir.Expr, chunk: ir.Expr, into: Any) -> None:
        for e in range(FOUR):
            put(into, e, self.places[part][number, row, chunk // self.blocks * FOUR + e])

    def _own_chunks(self, chunks: int) -> tuple[ir.Expr, Callable[[ir.Expr], ir.Expr]]:
        count = bind("own_chunks", (chunks - self.rank + (self.blocks - 1)) // self.blocks)
        return count, lambda number: number * self.blocks + self.rank
