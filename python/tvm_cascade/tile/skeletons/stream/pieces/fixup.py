"""The fix-up of an item's pieces: each leaves its state, then all are merged in the order of the axis.

leave    scalars of rows, and spans of sixteen columns of which four lanes have four neighbours each
merge    a *unit* a thread, of some of one row's spans: the states of all pieces at it, some pieces at a time
finish   the merged rows' results, and their stores

Who merges which units is the fix-up's own: blocks meet in global memory (`grid`) or in a cluster (`cluster`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.attention.pieces import EachWork, PieceWork
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.emit import bind, named, put, registers, variable, when
from tvm_cascade.tile.fragment import COLUMNS_PER_STEP, DTYPE, NEIGHBOURS, QUAD, Symbols, placed
from tvm_cascade.tile.hopper.stores import are_stored_at_once, store_four
from tvm_cascade.tile.launch.dependent import wait_for_others
from tvm_cascade.tile.merge.combine import Alone, merge
from tvm_cascade.tile.merge.lanes import ALL_LANES, WARP, Lanes, in_no_lane
from tvm_cascade.tile.merge.places import FOUR, SPAN, take_four
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.skeletons.stream.epilogue import Columns, Folded, row_states
from tvm_cascade.tile.skeletons.stream.finish import Finish, LoadedColumns
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import COUNTER, Part, PartForm, State
from tvm_cascade.tile.work import WARP_GROUP, Threads, Work

_AT_ONCE = 12
"""Pieces that a thread reads at once, at most: as many loads are under way together."""

HELD = 160
"""Registers of a thread that hold elements of states while it merges."""


@dataclass(frozen=True)
class Unit:
    """What a thread merges at once.

    Attributes
    ----------
    work : the tile of rows, by one of its pieces.
    spans : their numbers in the row.
    lane : which of the four that have a span.
    """

    work: PieceWork
    row: ir.Expr
    spans: Sequence[ir.Expr]
    lane: ir.Expr


class MergedRow:
    """A row whose pieces are merged, in a thread; implements `finish.FinalRows`."""

    def __init__(self, state: State, inputs: Mapping[sp.Symbol, ir.Expr]) -> None:
        self.state, self.inputs = state, inputs
        self.values: dict[sp.Symbol, Any] = {}

    def set(self, symbol: sp.Symbol, row: int, value: ir.Expr) -> None:
        if symbol not in self.values:
            self.values[symbol] = registers(str(symbol), 1)
        put(self.values[symbol], row, value)

    def row_symbols(self, row: int) -> Symbols:
        own = {s: array[row] for s, array in self.values.items()}
        return Symbols(own, self.state.symbols(), self.inputs)


class FixUp(ABC):
    """Emits what happens to the state of a piece that is not the whole of its item.

    Parameters
    ----------
    pieces : of an item at most; None where that is unknown.
    own_columns : those whose states meet; all by default.

    Attributes
    ----------
    is_of_all : no piece is the whole of its item.
    spans : of a row.
    scalars : which parts of a state have one value a row.
    at_a_time : spans of a unit.
    sharing : lanes of a warp that share out the pieces of a unit: a power of two.
    """

    is_of_all: bool = False
    at_a_time = 1
    sharing = 1
    threads: Threads

    def __init__(self, tiling: Tiling, pieces: int | None, own_columns: Columns | None = None) -> None:
        self.own_columns = own_columns or Columns()
        self.tiling, self.stream, self.config = tiling, tiling.stream, tiling.config
        self.widths = {p.component.symbol: -(-len(self.own_columns.of(p)) // SPAN) * SPAN for p in self.stream.products}
        self.spans = max(self.widths.values(), default=SPAN) // SPAN
        components = [PartForm(DTYPE, self.widths.get(c.symbol, 1)) for c in self.stream.fold.components]
        self.form = [*components, *(PartForm(DTYPE) for _ in self.stream.fold.references), PartForm(COUNTER)]
        self.scalars = [k for k, part in enumerate(self.form) if part.width == 1]
        self.most_rows = min(int(self.stream.extent(self.stream.row)), self.config.rows)
        self.pieces = pieces

    @property
    def at_once(self) -> int:
        known = -(-(self.pieces or _AT_ONCE) // self.sharing)
        return -(-known // -(-known // _AT_ONCE))

    @abstractmethod
    def allocate(self, pool: Any, threads: Threads) -> None:
        """Shared memory for it, of a block with those threads."""

    def initialise(self) -> None:  # noqa: B027
        """Initialises barriers of its own, if any; called by one thread, before a block-wide barrier."""

    def start(self) -> None:  # noqa: B027
        """What all threads of a block do at first, if anything."""

    def begin(self, index: ir.Expr | int) -> None:  # noqa: B027
        """What consumers do before their first piece, if anything."""

    @abstractmethod
    def leave(self, fold: Folded, work: PieceWork) -> None:
        """Leaves the state of a piece."""

    @abstractmethod
    def settle(self, each_work: EachWork) -> None:
        """Merges what is the block's to merge, once it has left the states of all its pieces."""

    @abstractmethod
    def _put_scalars(self, row: ir.Expr, values: list[ir.Expr]) -> None:
        """Leaves the scalar parts of a row, in order; called by the four lanes that have them."""

    @abstractmethod
    def _put_four(self, part: int, row: ir.Expr, span: ir.Expr | int, values: list[ir.Expr]) -> None:
        """Leaves what a lane has of a span of a vector part."""

    @abstractmethod
    def _get(self, unit: Unit, number: ir.Expr, part: int) -> ir.Expr:
        """A scalar part of one of the pieces."""

    @abstractmethod
    def _get_four(self, unit: Unit, number: ir.Expr, part: int, span: ir.Expr, into: Any, first: int) -> None:
        """Loads the unit's elements of a span of one of the pieces into registers, from the first on."""

    def _leave_state(self, fold: Folded) -> None:
        lane, work = self.threads.lane, fold.work
        counter = Part(registers("folded", 1, COUNTER))
        counter.put(fold.rows.end - work.tiles.first * self.config.columns)
        for r, state in zip(fold.rows.own, row_states(self.stream, fold, counter), strict=True):
            row = bind("left_row", fold.own_rows + self.threads.warp * 16 + lane // QUAD + 8 * r)
            spans = [(k, self._in_spans(part)) for k, part in enumerate(state.parts) if self.form[k].width > 1]
            with when(bind("has_left_row", self._has_row(work, row))):
                self._put_scalars(row, [state.parts[k][0] for k in self.scalars])
                for k, last in spans:
                    self._put_spans(k, row, state.parts[k], last)

    def _in_spans(self, part: Part) -> list[ir.Expr]:
        """Turns a vector into the four neighbouring columns that a lane leaves of each span; no store comes between.

        What it leaves of a span that is not whole is given back.
        """
        whole, rest = divmod(part.width, FOUR)
        with T.unroll(whole) as span:
            for e, value in enumerate(self._neighbours([part[span * FOUR + e] for e in range(FOUR)])):
                part.put(value, span * FOUR + e)
        if not rest:
            return []
        own = [part[whole * FOUR + e] for e in range(rest)]
        return self._neighbours(own + [T.float32(0)] * (FOUR - rest))

    def _put_spans(self, k: int, row: ir.Expr, part: Part, last: list[ir.Expr]) -> None:
        whole = part.width // FOUR
        with T.unroll(whole) as span:
            self._put_four(k, row, span, [part[span * FOUR + e] for e in range(FOUR)])
        if last:
            self._put_four(k, row, whole, last)

    def _neighbours(self, own: list[ir.Expr]) -> list[ir.Expr]:
        """Four neighbouring columns of a span, of which a lane has two and its neighbour two."""
        odd = bind("is_odd", self.threads.lane % 2 == 1)
        lower, upper = own[: len(NEIGHBOURS)], own[len(NEIGHBOURS) :]
        given = [tirx.Select(odd, a, b) for a, b in zip(lower, upper, strict=True)]
        others = [
            bind("neighbours", T.tvm_warp_shuffle_xor(T.uint32(ALL_LANES), value, 1, WARP, WARP)) for value in given
        ]
        four = [tirx.Select(odd, b, a) for a, b in zip([*lower, *others], [*others, *upper], strict=True)]
        return [bind("left", value) for value in four]

    def _has_row(self, work: Work, row: ir.Expr) -> ir.Expr:
        return row < self._rows(work)

    def _rows(self, work: Work) -> ir.Expr:
        return self.tiling.row_count - work.first_row

    @property
    def units(self) -> int:
        """Units of an item: their spans first, as these lie in memory, so that neighbouring threads have neighbours."""
        return self.spans // self.at_a_time * self.most_rows * QUAD

    def _merge_units(
        self, work: PieceWork, first: ir.Expr | int, end: ir.Expr | int, thread: ir.Expr, threads: int
    ) -> None:
        if self.tiling.late:
            wait_for_others()
        if self.sharing > 1:
            self._merge_shared_units(work, first, end, thread, threads)
            return
        with T.serial((end - first + (threads - 1)) // threads) as turn:
            number = bind("unit", first + turn * threads + thread)
            row = bind("unit_row", number % (self.most_rows * QUAD) // QUAD)
            with when(tirx.And(number < end, row < self._rows(work))):
                self._merge(self._unit(work, number, row))

    def _merge_shared_units(
        self, work: PieceWork, first: ir.Expr | int, end: ir.Expr | int, thread: ir.Expr, threads: int
    ) -> None:
        """As `_merge_units`, where lanes share units: all lanes of a warp take part, and one of the sharers stores."""
        apart, units = WARP // self.sharing, threads // self.sharing
        own = bind("own_unit", thread // WARP * apart + thread % apart)
        with T.serial((end - first + (units - 1)) // units) as turn:
            number = bind("unit", first + turn * units + own)
            existing = bind("existing_unit", tirx.min(number, end - 1))
            row = bind("unit_row", existing % (self.most_rows * QUAD) // QUAD)
            stores = tirx.all(thread % WARP < apart, number < end, row < self._rows(work))
            self._merge(self._unit(work, existing, row), bind("stores", stores))

    def _unit(self, work: PieceWork, number: ir.Expr, row: ir.Expr) -> Unit:
        first = number // (self.most_rows * QUAD) * self.at_a_time
        spans = [bind("span", first + i) for i in range(self.at_a_time)]
        return Unit(work, row, spans, bind("unit_lane", number % QUAD))

    def _merge(self, unit: Unit, stores: ir.Expr | None = None) -> None:
        program = self.tiling.program
        places = {**unit.work.batch, self.stream.row: unit.work.first_row + unit.row}
        inputs: dict[sp.Symbol, ir.Expr] = {LENGTH: tirx.Cast(DTYPE, self.tiling.length)}
        for symbol, expression in program.row_inputs.items():
            inputs[symbol] = bind(str(symbol), placed(expression, places, self.tiling.buffers).astype(DTYPE))
        merged = MergedRow(self._merged(unit, inputs), inputs)
        with nullcontext() if stores is None else when(stores):
            self._store(merged, unit, places)

    def _empty_states(self, unit: Unit, count: int) -> list[State]:
        fold, widths = self.stream.fold, dict.fromkeys(self.widths, FOUR * len(unit.spans))
        dtypes = {component.symbol: DTYPE for component in fold.components}
        return [State.in_registers(fold, dtypes, DTYPE, f"_piece_{k}", widths) for k in range(count)]

    def _merged(self, unit: Unit, inputs: Mapping[sp.Symbol, ir.Expr]) -> State:
        state, *others = self._empty_states(unit, self.at_once + 1)
        state.clear()
        first, end = self._own_pieces(unit)
        with T.serial((end - first + (self.at_once - 1)) // self.at_once) as turn:
            for k, other in enumerate(others):
                self._take(other, unit, first + turn * self.at_once + k, end)
            merge(program_of(self.stream.fold), state, Alone(), inputs, others=others)
        if self.sharing > 1:
            lanes = Lanes(self.threads.lane, self.sharing, WARP // self.sharing)
            merge(program_of(self.stream.fold), state, lanes, inputs)
        return state

    def _own_pieces(self, unit: Unit) -> tuple[ir.Expr | int, ir.Expr]:
        """The first of a unit's pieces that a thread takes, and their end: neighbours, as states merge in order."""
        if self.sharing == 1:
            return 0, unit.work.piece.blocks
        share = bind("shared_pieces", (unit.work.piece.blocks + (self.sharing - 1)) // self.sharing)
        first = bind("first_shared_piece", self.threads.lane // (WARP // self.sharing) * share)
        return first, bind("end_shared_piece", tirx.max(tirx.min(first + share, unit.work.piece.blocks), first))

    def _take(self, state: State, unit: Unit, number: ir.Expr, end: ir.Expr) -> None:
        """The state of one of the pieces before an end; the identity from there on.

        What is past the last is read from it, as a branch would have each piece's loads wait for those before.
        """
        if len(set(self.widths.values())) > 1:
            state.clear()
        exists = bind("exists", number < end)
        number = bind("existing", tirx.min(number, unit.work.piece.blocks - 1))
        for k, part in enumerate(state.parts):
            width = self.form[k].width
            if width == 1:
                part.put(self._get(unit, number, k))
                continue
            for i, span in enumerate(unit.spans):
                with self._when_less(span * SPAN, width, self.spans * SPAN):
                    self._get_four(unit, number, k, span, part.array, i * FOUR)
        moved = {symbol for symbol, shift in program_of(self.stream.fold).shifts.items() if shift != symbol}
        for symbol, part in state.components.items():
            with part.each() as register:
                if symbol not in moved:  # of others, those of no positions count for nothing
                    part.put(tirx.Select(exists, part[register], state.identity(symbol)), register)
        state.counter.put(tirx.Select(exists, state.count, tirx.const(0, COUNTER)))

    def _store(self, rows: MergedRow, unit: Unit, places: dict[tirx.Var, ir.Expr]) -> None:
        finish = Finish(self.tiling, rows, (0,))
        for output in self.stream.outputs:
            own, product = self.tiling.buffers[output.buffer], self.stream.product_along(output)
            if product is None:
                with when(tirx.And(unit.lane == 0, unit.spans[0] == 0)):
                    indices = [placed(i, places, self.tiling.buffers) for i in output.indices]
                    T.buffer_store(own, finish.value(output, 0, places, None, {}), indices)
                continue
            columns, first = self.own_columns.of(product), self.own_columns.first(product, unit.work)
            ahead = self._loaded_ahead(finish, output, product, unit, places)
            finish.start_row(output, 0, places)
            for i, span in enumerate(unit.spans):
                column = self._first_of(span, unit.lane)
                with self._when_less(column, len(columns), self.spans * SPAN):
                    start = bind("stored_column", first + columns.start + column)
                    fours = ahead[i] if ahead else finish.start_columns(output, product, places, start)
                    values, targets = [], []
                    for e in range(FOUR):
                        at = {**places, product.free: start + e}
                        targets.append([placed(index, at, self.tiling.buffers) for index in output.indices])
                        of_products = {s: part[i * FOUR + e] for s, part in rows.state.fragments.items()}
                        values.append(finish.value(output, 0, places, start + e, of_products, e, fours))
                    if are_stored_at_once(output, product.free, FOUR):
                        store_four([own.ptr_to(targets[k]) for k in (0, 2)], values, dtype_of(own))
                        continue
                    for indices, value in zip(targets, values, strict=True):
                        T.buffer_store(own, value, indices)

    def _loaded_ahead(
        self, finish: Finish, output: Output, product: Product, unit: Unit, places: dict[tirx.Var, ir.Expr]
    ) -> list[LoadedColumns]:
        """What all spans of a unit read of kernels before, so that a thread waits for it once; where rows have all."""
        columns, first = self.own_columns.of(product), self.own_columns.first(product, unit.work)
        if len(unit.spans) == 1 or not self.tiling.late or len(columns) < self.spans * SPAN:
            return []
        starts = [first + columns.start + self._first_of(span, unit.lane) for span in unit.spans]
        return [finish.start_columns(output, product, places, bind("first_column", start)) for start in starts]

    @staticmethod
    def _first_of(span: ir.Expr, lane: ir.Expr) -> ir.Expr:
        return span * SPAN + lane % 2 * COLUMNS_PER_STEP + lane // 2 * FOUR

    @staticmethod
    def _when_less(column: ir.Expr, width: int, most: int) -> AbstractContextManager[None]:
        return nullcontext() if width == most else when(column < width)


# A whole item of very few rows whose results read much: its state is spread over all threads of the block.
#
# Four rows of an accumulator are in sixteen lanes of one warp. Where results read states that other kernels left, one
# for each element, those lanes would wait for all of them; a thread with one row and four columns waits once. A block
# beside a kernel that leaves such states keeps its own of several items, and waits for that kernel once it has folded
# them all.


class SpreadFinish(FixUp):
    """Finishes and stores items that one block has whole.

    Parameters
    ----------
    kept : items whose states it keeps before it stores any; one is stored at once.
    """

    def __init__(self, tiling: Tiling, kept: int) -> None:
        super().__init__(tiling, 1)
        self.kept = kept

    def allocate(self, pool: Any, threads: Threads) -> None:
        self.threads = threads
        shape = [(self.kept * self.most_rows, part.width) for part in self.form]
        order = sorted(range(len(shape)), key=lambda k: shape[k][1] == 1)
        self.places = {k: named("spread", pool.alloc(shape[k], self.form[k].dtype, align=16)) for k in order}

    def begin(self, index: ir.Expr | int) -> None:
        """The count of the states that are kept, in the registers of a consumer."""
        if self.kept > 1:
            self.count = variable("kept_states", T.int32(0))

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
        return row if self.kept == 1 else self.count[0] * self.most_rows + row

    def _meet(self) -> None:
        self.threads.named.take("fix-up").sync(WARP_GROUP)

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
        (state,) = self._empty_states(unit, 1)
        self._take(state, unit, tirx.const(0, "int32"), unit.work.piece.blocks)
        return state
