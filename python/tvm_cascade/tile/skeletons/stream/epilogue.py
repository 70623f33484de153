"""The epilogue of a stream kernel: results from the final state, maps of them, and stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.attention.rows import Place, RowFold
from tvm_cascade.tile.attention.shape import Product, Stream
from tvm_cascade.tile.emit import bind, ptx, when
from tvm_cascade.tile.fragment import NEIGHBOURS, QUAD, ROWS, placed, register_index
from tvm_cascade.tile.hopper.copy import CHUNK, TensorMap
from tvm_cascade.tile.hopper.stores import (
    BOX_COLUMNS,
    CHUNK_COLUMNS,
    BulkStores,
    MatrixStore,
    are_stored_at_once,
    store_pair,
)
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.skeletons.stream.finish import Finish
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.state import Number, Part, State
from tvm_cascade.tile.work import GROUP_ROWS, Threads, Work


class Columns:
    """Which columns of products a warp group has; here all."""

    def of(self, product: Product) -> range:
        """Its own, among those of its block."""
        return range(product.width)

    def first(self, product: Product, work: Work) -> ir.Expr | int:
        """The first of the block's."""
        return 0


class Folded:
    """A folded tile of rows, as epilogues and fix-ups take it.

    Attributes
    ----------
    index : the number of the warp group among those that store.
    own_rows, first_row : the first of its rows in the block's tile of rows, `work`, and the first of all.
    rows : their state, reduced across lanes.
    accumulators : registers of the components that are products, of the group's own columns.
    own_columns : of the products.
    """

    tiling: Tiling
    threads: Threads
    index: ir.Expr
    work: Work
    own_rows: ir.Expr
    first_row: ir.Expr
    rows: RowFold
    accumulators: Mapping[sp.Symbol, Any]
    own_columns: Columns

    def place_rows(
        self, work: Work, scores: Sequence[Any], values: Mapping[sp.Symbol, Any], own: tuple[int, ...]
    ) -> None:
        """Places the group's rows at a tile of rows; see `RowFold` for the others."""
        lane = self.threads.lane
        self.work, self.first_row = work, bind("first_own_row", work.first_row + self.own_rows)
        upper = bind("row", self.first_row + self.threads.warp * 16 + lane // QUAD)
        place = Place(work.batch, (upper, upper + 8), lane % QUAD * 2, self.tiling.buffers)
        self.rows = RowFold(self.tiling.program, place, scores, self.tiling.config.columns, dict(values), own=own)


class Staged(Folded, ABC):
    """A folded tile of rows whose stores go through shared memory."""

    @abstractmethod
    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the left operand's own stage, where results may wait for their store."""

    @abstractmethod
    def left_is_read(self) -> None:
        """Releases that stage; called by one thread of the group."""


class Epilogue:
    """Emits the epilogue of rows.

    Parameters
    ----------
    bulk : bulk copies store those outputs that they can; otherwise threads store their own elements of all.
    """

    def __init__(self, tiling: Tiling, bulk: bool = True) -> None:
        self.tiling, self.program, self.stream = tiling, tiling.program, tiling.stream
        self.config, self.buffers = tiling.config, tiling.buffers
        tiled = self.stream.tiled.items() if bulk else ()
        self.tiled = {buffer: TensorMap(operand, tiling.buffers[buffer], GROUP_ROWS) for buffer, operand in tiled}

    def finish_and_store(self, folded: Folded) -> None:
        self.folded, self.rows, self.threads = folded, folded.rows, folded.threads
        self.finish = Finish(self.tiling, folded.rows, folded.rows.own)
        for output in self.stream.outputs:
            product = self.stream.product_along(output)
            if product is None:
                self._store_rows(output)
            elif output.buffer in self.tiled:
                self._store_tile(output, product)
            else:
                self._store_elements(output, product)

    def _value(self, output: Output, row: int, column: ir.Expr | None, index: ir.Expr | None) -> ir.Expr:
        of_product = {} if index is None else {s: a[index] for s, a in self.folded.accumulators.items()}
        return self.finish.value(output, row, self._places(row), column, of_product)

    def _places(self, row: int) -> dict[tirx.Var, ir.Expr]:
        return {**self.folded.work.batch, self.stream.row: self.rows.place.rows[row]}

    def _in_range(self, row: int) -> ir.Expr:
        return self.rows.place.rows[row] < self.tiling.row_count

    def _store_rows(self, output: Output) -> None:
        own = self.tiling.buffers[output.buffer]
        for r in self.rows.own:
            with when(tirx.And(self.threads.lane % 4 == 0, self._in_range(r))):
                indices = [placed(i, self._places(r), self.buffers) for i in output.indices]
                T.buffer_store(own, self._value(output, r, None, None), indices)

    def _store_elements(self, output: Output, product: Product) -> None:
        own = self.tiling.buffers[output.buffer]
        own_columns = self.folded.own_columns
        first, columns = own_columns.first(product, self.folded.work), own_columns.of(product)
        for r in self.rows.own:
            with when(self._in_range(r)):
                self.finish.start_row(output, r, self._places(r))
                with T.unroll(len(columns) // 8) as j:
                    column = first + columns.start + j * 8 + self.rows.place.lane_column
                    pair = [self._value(output, r, column + e, j * 4 + 2 * r + e) for e in NEIGHBOURS]
                    places = [self._indices(output, r, product, column + e) for e in NEIGHBOURS]
                    if are_stored_at_once(output, product.free, len(pair)):
                        store_pair(own.ptr_to(places[0]), pair, dtype_of(own))
                        continue
                    for value, indices in zip(pair, places, strict=True):
                        T.buffer_store(own, value, indices)

    def _indices(self, output: Output, row: int, product: Product, column: ir.Expr) -> list[ir.Expr]:
        places = {**self._places(row), product.free: column}
        return [placed(i, places, self.buffers) for i in output.indices]

    def allocate(self, pool: Any, left_boxes: int) -> None:
        """Shared memory for the stores: their own where there is room, else that of the left operand."""
        boxes = max((copies.boxes for copies in self.tiled.values()), default=0)
        self.own_staging = self.config.own_staging or boxes > left_boxes
        if self.own_staging and boxes:
            dtype = next(iter(self.tiled.values())).operand.dtype
            self.staging = pool.alloc((boxes, self.config.rows, BOX_COLUMNS), dtype, align=1024)

    def _staged(self, box: int, row: ir.Expr, chunk: ir.Expr | int) -> ir.Expr:
        if self.own_staging:
            return self.staging.ptr_to([box, row, chunk * (CHUNK_COLUMNS)])
        per_chunk = CHUNK // self.stream.left.size
        return self.staged.left_place(box, row, chunk * per_chunk)

    def emit(self, folded: Staged) -> None:
        self.staged = folded
        self.finish_and_store(folded)
        if not self.own_staging:
            with when(self._is_storing()):
                ptx("cp.async.bulk.wait_group.read", 0)
                folded.left_is_read()

    def drain(self, threads: Threads) -> None:
        with when(tirx.And(threads.warp == 0, threads.lane == 0)):
            ptx("cp.async.bulk.wait_group", 0)

    def _is_storing(self) -> ir.Expr:
        return tirx.And(self.threads.warp == 0, self.threads.lane == 0)

    def _store_tile(self, output: Output, product: Product) -> None:
        """Through shared memory: matrices of 8×8 from the registers, then one bulk copy a box."""
        copies = self.tiled[output.buffer]
        first, columns = self.staged.own_rows, self.staged.own_columns.of(product)
        right = self.staged.own_columns.first(product, self.staged.work)
        boxes = range(columns.start // copies.per_box, -(-columns.stop // copies.per_box))
        stores = BulkStores(self.threads, self.config.consumers, self.staged.index, self._is_storing())
        if self.own_staging or len(self.tiled) > 1:  # copies of the rows before, or of another output, may read it
            stores.reuse()
        for r in ROWS:
            self.finish.start_row(output, r, self._places(r))
        matrices = MatrixStore(copies.operand.dtype, self.threads.lane)
        row = bind("stored_row", first + self.threads.warp * 16 + self.threads.lane % 16)
        value = partial(self._element, output, right + columns.start)
        matrices.columns(len(columns), value, lambda box, chunk: self._staged(boxes.start + box, row, chunk))
        fixed = self.tiling.fixed(copies.operand, self.staged.work.batch)
        with stores.copies():
            for box in boxes:
                column = tirx.const(box * copies.per_box, "int32") + right
                copies.store(self._staged(box, first, 0), self.staged.first_row, column, fixed)

    def _element(self, output: Output, first: ir.Expr | int, j: int, row: int, e: int) -> ir.Expr:
        column = first + j * 8 + self.rows.place.lane_column + e
        return self._value(output, row, column, tirx.const(j * 4 + 2 * row + e, "int32"))


# Row states of a warp group for the merge levels: two rows a thread, and a fragment of their products.
#
# Threads of two groups that have the same place in their groups have the same rows and the same elements of fragments.


def row_states(stream: Stream, folded: Folded, counter: Part) -> list[State]:
    """The state of each of a thread's rows that the program has, over the registers that it is in.

    Parameters
    ----------
    counter : of the positions that the group has folded in.
    """
    widths = {p.component.symbol: len(folded.own_columns.of(p)) // QUAD for p in stream.products}

    def of_row(symbol: sp.Symbol, row: int) -> Part:
        if symbol in folded.accumulators:
            place = partial(_place_in_accumulator, row)
            return Part(folded.accumulators[symbol], widths[symbol], place)
        return Part(folded.rows.values[symbol], 1, lambda _: row)

    fold = stream.fold
    return [
        State(
            fold,
            {c.symbol: of_row(c.symbol, r) for c in fold.components},
            {reference.symbol: of_row(reference.moved, r) for reference in fold.references},
            counter,
        )
        for r in folded.rows.own
    ]


def _place_in_accumulator(row: int, number: Number) -> Number:
    return register_index(number // len(NEIGHBOURS), row, number % len(NEIGHBOURS))
