"""A thread's passes over its rows: vectors in flight, each chunk folded as it arrives.

contiguous rows    a vector is of neighbouring positions of one row; the rim of a peeled row is a pass by itself
strided rows       a vector is of neighbouring rows at one position, each of which has its own state
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.tile.emit import bind, in_register, put, registers, variable, when
from tvm_cascade.tile.memory import Tensors
from tvm_cascade.tile.merge.block import ThreadStates
from tvm_cascade.tile.merge.combine import Exchange, merge
from tvm_cascade.tile.product.lines import runs
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.elements import Staging, Vectors
from tvm_cascade.tile.row.linear import Access, is_whole
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.segment import Peel, Segment
from tvm_cascade.tile.state import State


class Point:
    """One row of a program: its variables, and by symbol what has one value a row, N among it."""

    def __init__(self, program: RowProgram, tensors: Tensors, at: Mapping[tirx.Var, ir.Expr]) -> None:
        self.program, self.tensors, self.at = program, tensors, dict(at)
        self.values: dict[sp.Symbol, Any] = {
            s: bind(str(s), tensors.place(expression, self.at)) for s, expression in program.row_inputs.items()
        }
        extent, dtype = program.row.length, program.reference_dtype
        self.values[LENGTH] = tirx.const(extent, dtype) if isinstance(extent, int) else extent.astype(dtype)

    def merge(self, state: State, exchange: Exchange, others: Sequence[State] = ()) -> None:
        """See `combine.merge`."""
        merge(self.program.body, state, exchange, self.values, self.program.offsets, others)


class Sweep:
    """Emits the passes of one thread over its rows.

    Parameters
    ----------
    point : the row, or the first of them.
    segment : what of it the thread's block has.
    member : the thread's number among those that share it.
    place : of the first of strided rows along the lanes.
    piece : which of the pieces of a row this is, that all are read before the first is folded; None for a whole row.

    Attributes
    ----------
    sure : vectors of the chunk at hand that every thread has, whatever the row, of a guarded one.
    """

    def __init__(
        self,
        config: RowConfig,
        point: Point,
        segment: Segment,
        member: ir.Expr,
        staging: Staging | None = None,
        peel: Peel | None = None,
        place: ir.Expr | None = None,
        piece: int | None = None,
    ) -> None:
        self.program, self.config, self.tensors, self.at = point.program, config, point.tensors, point.at
        self.segment, self.member, self.row, self.row_values = segment, member, point.program.row, point.values
        self.staging, self.peel, self.first, self.piece = staging, peel, place, piece
        self.vectors = self.registers_for(self.row.folded, config.vectors)
        self.beside_kept = self.registers_for(self.fresh(), config.vectors) if config.ahead else None
        self.sure = 0
        self.by_row: dict[tirx.Var, Any] = {}
        if piece is not None:
            self._load_all(segment.start, True)

    def registers_for(self, streams: tuple[Access, ...], count: int) -> Vectors:
        along, vector = self.row.along, self.config.vector
        return Vectors(self.tensors, along, streams, vector, count, self.peel, self.staging)

    def fresh(self) -> tuple[Access, ...]:
        kept = self.vectors.streams if self.config.kept else ()
        return tuple(s for s in self.row.written if not any(s.beside(other) for other in kept))

    def _load_all(self, start: ir.Expr, guarded: bool) -> None:
        self.load(self.vectors, start, guarded)
        if self.beside_kept is not None:
            self.load(self.beside_kept, start, guarded)

    def fold(self, state: State) -> None:
        fold = ChunkFold(self.program, state, self.row_values)

        def one(start: ir.Expr, guarded: bool, first: bool | None) -> None:
            existing = self.existing(start, guarded)
            if self.staging is not None:
                self.staging.wait(start)
            if self.piece is None:
                self._load_all(start, guarded)
            with when(existing > 0) if guarded else nullcontext():
                fold.fold(self.chunk(start, guarded, first, existing, lambda index: index))

        self.each_chunk(one)

    def fold_rows(self, states: ThreadStates) -> None:
        inputs: dict[sp.Symbol, Any] = {}
        for symbol, expression in self.program.row_inputs.items():
            inputs[symbol] = registers(str(symbol), self.config.vector, dtype_of(expression))
            with T.unroll(self.config.vector) as row:
                put(inputs[symbol], row, self.tensors.place(expression, self.row_at(row)))
        states.clear()

        def one(start: ir.Expr, guarded: bool, first: bool | None) -> None:
            self.load(self.vectors, start, guarded)
            existing = self.existing(start, guarded)
            with when(existing > 0) if guarded else nullcontext(), T.unroll(self.config.vector) as row:
                states.take(states.state, row)
                values = self.row_values | {s: (lambda a=a: a[row]) for s, a in inputs.items()}
                fold = ChunkFold(self.program, states.state, values)
                fold.fold(self.chunk(start, guarded, first, existing, lambda k: k * self.config.vector + row))
                states.leave(states.state, row)

        self.each_chunk(one)

    def each_chunk(self, emit: Callable[[ir.Expr, bool, bool | None], None]) -> None:
        segment, size = self.segment, self.config.chunk
        if segment.most is not None:
            full = segment.least // size
            if full == 1:
                emit(segment.start, False, True)
            elif full:
                with T.serial(full) as step:
                    emit(bind("chunk_start", segment.start + step * size), False, None)
            for at in range(full, -(-segment.most // size)):
                if segment.least < segment.most:
                    self.sure = max(0, segment.least - at * size) // (size // self.config.vectors)
                emit(bind("chunk_start", segment.start + at * size), True, True if at == 0 and not self.piece else None)
            return
        full = bind("full", tirx.max(segment.end - segment.start, 0) // size)
        with T.serial(full) as step:
            emit(bind("chunk_start", segment.start + step * size), False, None)
        emit(bind("chunk_start", segment.start + full * size), True, None)

    def position(self, start: ir.Expr, k: Any) -> ir.Expr:
        return start + (k * self.config.sharing + self.member) * self.config.positions

    def origin(self, start: ir.Expr, k: Any) -> tuple[Mapping[tirx.Var, ir.Expr], ir.Expr]:
        """The memory coordinates of its start: the outer variables, and the index along the contiguous axis."""
        position = self.position(start, k)
        if self.first is None:
            return self.at, position
        return {**self.at, **self.row.axis.places(position)}, self.first

    def there(self, start: ir.Expr, k: Any) -> ir.Expr:
        before = self.position(start, k) < self.segment.end
        return tirx.any(k < self.sure, before) if self.sure else before

    def load(self, vectors: Vectors, start: ir.Expr, guarded: bool) -> None:
        with T.unroll(self.config.vectors) as k:
            at, place = self.origin(start, k)
            vectors.load(k, place, at, self.there(start, k) if guarded else None)

    def chunk(
        self, start: ir.Expr, guarded: bool, first: bool | None, existing: ir.Expr, element: Callable[[Any], Any]
    ) -> Chunk:
        """The positions of a chunk that the thread folds into one state.

        Parameters
        ----------
        existing : how many there are.
        element : the number of a position -> that of its element among those that the thread holds.
        """
        config = self.config

        def read(expression: ir.Expr, index: Any) -> ir.Expr:
            replaced = self.vectors.from_registers(expression, element(index))
            beside = guarded and bool(loads_of(replaced)) and not self.vectors.holds(expression)
            return self.place(replaced, start, element(index), beside)

        def exists(index: Any) -> ir.Expr:
            return self.there(start, index // config.positions)

        count = config.vectors * config.positions
        return Chunk(count, config.positions, read, exists if guarded else None, existing, first)

    def existing(self, start: ir.Expr, guarded: bool) -> ir.Expr:
        """How many positions of a chunk exist; vectors are complete or absent."""
        if not guarded:
            return tirx.const(self.config.positions * self.config.vectors, "int32")
        count = variable("existing", tirx.const(0, "int32"))
        with T.unroll(self.config.vectors) as k:
            positions = tirx.const(self.config.positions, "int32")
            put(count, 0, count[0] + tirx.Select(self.there(start, k), positions, tirx.const(0, "int32")))
        return count[0]

    def place(self, expression: ir.Expr, start: ir.Expr, index: Any, beside: bool = False) -> ir.Expr:
        """An expression over the frame at a neighbour of a chunk, by its number in the thread's share.

        Parameters
        ----------
        beside : the position may be past the end, where the last one is read.
        """
        vector = self.config.vector
        position, number = self.position(start, index // vector), index % vector
        position = position + number if self.first is None else position
        position = tirx.min(position, self.segment.end - 1) if beside else position
        return self.tensors.place(expression, {**self.row_at(number), **self.row.axis.places(position)})

    def row_at(self, row: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The values of row variables, and of what `per_row` computed; of strided rows by their number."""
        if self.first is None:
            return self.at
        known = {var: values[row] for var, values in self.by_row.items()}
        return {**self.at, **self.row.lanes.places(self.first + row), **known}

    def per_row(self, name: str, value: Callable[[Mapping[tirx.Var, ir.Expr]], ir.Expr]) -> tirx.Var:
        """A per-row value, computed once, as a variable that `place` substitutes.

        Parameters
        ----------
        value : the values of the variables of rows -> the value.
        """
        if self.first is None:
            return bind(name, value(self.at))
        return self.hold(name, lambda row: value(self.row_at(row)))

    def hold(self, name: str, value: Callable[[ir.Expr], ir.Expr]) -> tirx.Var:
        """As `per_row`, of the number of a strided row among the thread's."""
        dtype = dtype_of(value(tirx.const(0, "int32")))
        values = registers(name, self.config.vector, dtype)
        with T.unroll(self.config.vector) as row:
            put(values, row, value(row))
        var = tirx.Var(name, dtype)
        self.by_row[var] = values
        return var

    def once_a_row(self, value: ir.Expr) -> ir.Expr:
        """A value of strided rows with its loop-invariant loads hoisted out of the pass."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            if runs(load, *self.row.axis.parts) or not self._is_whole(load):
                return load
            return self.per_row(f"{load.source.name}_of_row", lambda at: self.tensors.place(load, at))

        return value if self.first is None else tvm_ffi.structural_map(value, (ir.TensorLoad, replace))

    def _is_whole(self, load: ir.TensorLoad) -> bool:
        """Whether a load has its place in the tensor at every point, not only where a condition holds."""
        extents = self.row.group.frame.extents
        return all(is_whole(*one, extents) for one in zip(load.indices, load.source.ty.shape, strict=True))


class Rest(Sweep):
    """Emits the passes of one thread over what registers do not keep of a row, which most rows have nothing of."""

    def each_chunk(self, emit: Callable[[ir.Expr, bool, bool | None], None]) -> None:
        with when(self.segment.start < self.segment.end):
            super().each_chunk(emit)


class Rim(Sweep):
    """Emits the passes of one thread over its position of the rim, which is read before those of the body.

    Each of the first threads of the row has one position.

    Parameters
    ----------
    head, end : where the body starts and ends.
    member : the thread's number among those of all blocks that share the row.
    """

    def __init__(
        self, config: RowConfig, point: Point, peel: Peel, head: ir.Expr, end: ir.Expr, member: ir.Expr
    ) -> None:
        alone = dataclasses.replace(config, vector=1, vectors=1, kept=True, staged=False)
        super().__init__(alone, point, Segment.whole(peel.length), member)
        beyond = end + (member - head)
        self.own = in_register("rim", tirx.Select(member < head, member, beyond))
        self.vectors.load(tirx.const(0, "int32"), self.own, self.at, self.own < self.segment.end)

    def each_chunk(self, emit: Callable[[ir.Expr, bool, bool | None], None]) -> None:
        emit(self.own, True, None)

    def position(self, start: ir.Expr, _k: Any) -> ir.Expr:
        return start

    def load(self, vectors: Vectors, start: ir.Expr, guarded: bool) -> None:
        if vectors is not self.vectors:
            super().load(vectors, start, guarded)
