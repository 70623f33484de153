"""A thread's loop over its row: vectors in flight, each chunk folded as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.tile.emit import bind, put, registers, when
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.cut import Cut
from tvm_cascade.tile.row.elements import Tensors, Vectors
from tvm_cascade.tile.row.linear import Access
from tvm_cascade.tile.row.peel import Peel
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.segment import Segment
from tvm_cascade.tile.row.staging import StagedVectors, Staging
from tvm_cascade.tile.state import State


class Point:
    """One row: the values of its variables, and of the inputs that have one value a row."""

    def __init__(self, program: RowProgram, tensors: Tensors, at: Mapping[tirx.Var, ir.Expr]) -> None:
        self.at = dict(at)
        self.values: dict[sp.Symbol, Any] = {
            s: bind(str(s), tensors.place(expression, self.at)) for s, expression in program.row_inputs.items()
        }


def length_of(program: RowProgram) -> ir.Expr:
    """N as a number."""
    extent, dtype = program.row.length, program.reference_dtype
    return tirx.const(extent, dtype) if isinstance(extent, int) else extent.astype(dtype)


class Sweep:
    """Emits the passes of one thread over its row.

    Parameters
    ----------
    point : the row.
    segment : what of it the thread's block has.
    member : the thread's number among those that share it.
    staging : where bulk copies bring it to shared memory.
    peel : where its vectors start, if not with the row.

    Attributes
    ----------
    sure : vectors of the chunk at hand that every thread has, whatever the row, of a guarded one.
    """

    def __init__(
        self,
        program: RowProgram,
        config: Cut,
        tensors: Tensors,
        point: Point,
        segment: Segment,
        member: ir.Expr,
        staging: Staging | None = None,
        peel: Peel | None = None,
    ) -> None:
        self.program, self.config, self.tensors, self.at = program, config, tensors, point.at
        self.segment, self.member, self.row, self.row_values = segment, member, program.row, point.values
        self.staging, self.peel = staging, peel
        self.vectors = self.registers_for(self.row.folded, config.vectors)
        self.beside_kept = self.registers_for(self.fresh(), config.vectors) if config.ahead else None
        self.length = length_of(program)
        self.sure = 0

    def registers_for(self, streams: tuple[Access, ...], count: int) -> Vectors:
        """Registers for so many vectors of some streams."""
        if self.staging is not None:
            return StagedVectors(self.staging, self.tensors, streams, self.config.vector, count, self.peel)
        return Vectors(self.tensors, streams, self.config.vector, count, self.peel)

    def fresh(self) -> tuple[Access, ...]:
        """Streams that outputs read and that are not resident."""
        kept = self.vectors.streams if self.config.kept else ()
        return tuple(s for s in self.row.written if not any(s.beside(other) for other in kept))

    def fold(self, state: State) -> None:
        """Folds the thread's positions into a state."""
        fold = ChunkFold(self.program, state, self.row_values, self.length)

        def one(start: ir.Expr, guarded: bool, first: bool | None) -> None:
            existing = self.existing(start, guarded)
            if self.staging is not None:
                self.staging.wait(start)
            self.load(self.vectors, start, guarded)
            if self.beside_kept is not None:
                self.load(self.beside_kept, start, guarded)
            with when(existing > 0) if guarded else nullcontext():
                fold.fold(self.chunk(start, guarded, first, existing, lambda index: index))

        self.each_chunk(one)

    def each_chunk(self, emit: Callable[[ir.Expr, bool, bool | None], None]) -> None:
        """`emit(start, guarded, first)` for every chunk; the last is guarded where it may reach past the end."""
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
                emit(bind("chunk_start", segment.start + at * size), True, True if at == 0 else None)
            return
        full = bind("full", tirx.max(segment.end - segment.start, 0) // size)
        with T.serial(full) as step:
            emit(bind("chunk_start", segment.start + step * size), False, None)
        emit(bind("chunk_start", segment.start + full * size), True, None)

    def position(self, start: ir.Expr, k: Any) -> ir.Expr:
        """The position of the k-th vector of a chunk."""
        return start + (k * self.config.sharing + self.member) * self.config.positions

    def origin(self, start: ir.Expr, k: Any) -> tuple[Mapping[tirx.Var, ir.Expr], ir.Expr]:
        """The memory coordinates of its start: the outer variables, and the index along the contiguous axis."""
        return self.at, self.position(start, k)

    def there(self, start: ir.Expr, k: Any) -> ir.Expr:
        """Whether the k-th vector of a chunk exists."""
        before = self.position(start, k) < self.segment.end
        return tirx.any(k < self.sure, before) if self.sure else before

    def load(self, vectors: Vectors, start: ir.Expr, guarded: bool) -> None:
        """All vectors of a chunk."""
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
        config, program = self.config, self.program

        def each(emit: Callable[[Any], None]) -> None:
            with T.unroll(config.vectors) as k, T.unroll(config.positions) as e:
                emit(k * config.positions + e)

        def read(expression: ir.Expr, index: Any) -> ir.Expr:
            replaced = self.from_registers(expression, element(index))
            beside = guarded and bool(loads_of(replaced)) and not self.vectors.holds(expression)
            return self.place(replaced, start, element(index), beside)

        def inputs(index: Any, of: set[sp.Symbol]) -> dict[sp.Symbol, ir.Expr]:
            return {s: read(e, index) for s, e in program.position_inputs.items() if s in of}

        def conditions(index: Any, of: set[sp.Symbol]) -> dict[sp.Symbol, ir.Expr]:
            return {s: read(e, index) for s, e in program.conditions.items() if s in of}

        def exists(index: Any) -> ir.Expr:
            return self.there(start, index // config.positions)

        count = config.positions * config.vectors
        return Chunk(count, each, inputs, conditions, exists if guarded else None, existing, first)

    def from_registers(self, expression: ir.Expr, index: Any) -> ir.Expr:
        """An expression over the frame with registers in place of loads, at an element by its number."""
        return self.vectors.from_registers(expression, index)

    def once_a_row(self, value: ir.Expr) -> ir.Expr:
        """A value with its loop-invariant loads hoisted out of the pass."""
        return value

    def existing(self, start: ir.Expr, guarded: bool) -> ir.Expr:
        """How many positions of a chunk exist; vectors are complete or absent."""
        if not guarded:
            return tirx.const(self.config.positions * self.config.vectors, "int32")
        count = registers("existing", 1, "int32")
        put(count, 0, tirx.const(0, "int32"))
        with T.unroll(self.config.vectors) as k:
            positions = tirx.const(self.config.positions, "int32")
            put(count, 0, count[0] + tirx.Select(self.there(start, k), positions, tirx.const(0, "int32")))
        return count[0]

    def place(self, expression: ir.Expr, start: ir.Expr, index: Any, beside: bool = False) -> ir.Expr:
        """An expression over the frame at a position of a chunk, by its number in the thread's share.

        Parameters
        ----------
        beside : the position may be past the end, where the last one is read.
        """
        vector = self.config.vector
        position = self.before_end(self.position(start, index // vector) + index % vector, beside)
        return self.tensors.place(expression, {**self.at, **self.row.axis.at(position)})

    def before_end(self, position: ir.Expr, beside: bool) -> ir.Expr:
        """A position, or the last one in place of those past the end."""
        return tirx.min(position, self.segment.end - 1) if beside else position

    def per_row(self, name: str, value: Callable[[Mapping[tirx.Var, ir.Expr]], ir.Expr]) -> ir.Expr:
        """A per-row value, computed once, as a variable that `place` substitutes.

        Parameters
        ----------
        value : the values of the variables of rows -> the value.
        """
        return bind(name, value(self.at))
