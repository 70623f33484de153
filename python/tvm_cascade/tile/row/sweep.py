"""A thread's way along its row: vector after vector, several in flight, each chunk folded as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.hopper.script import bind, put, registers, when
from tvm_cascade.tile.row.chunk import Chunk, ChunkFold
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.elements import Tensors, Vectors
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.state import State


@dataclass(frozen=True)
class Segment:
    """Positions [start, end) of a row; `length` where it is a number."""

    start: ir.Expr
    end: ir.Expr
    length: int | None

    @staticmethod
    def known(length: object) -> int | None:
        """A length as a number, if it is one."""
        return length if isinstance(length, int) else None


class Sweep:
    """Emits the passes of one thread over its row.

    Parameters
    ----------
    at : the values of the variables of rows.
    segment : what of the row the thread's block has.
    member : the thread's number among those that share it.
    """

    def __init__(
        self,
        program: RowProgram,
        config: RowConfig,
        tensors: Tensors,
        at: Mapping[tirx.Var, ir.Expr],
        segment: Segment,
        member: ir.Expr,
    ) -> None:
        self.program, self.config, self.tensors, self.at = program, config, tensors, dict(at)
        self.segment, self.member, self.row = segment, member, program.row
        self.row_values = {
            s: bind(str(s), tensors.place(expression, self.at)) for s, expression in program.row_inputs.items()
        }
        self.vectors = Vectors(tensors, self.row.folded, config.vector, config.vectors)

    @property
    def length(self) -> ir.Expr:
        """N as a number."""
        extent = self.row.length
        dtype = self.program.reference_dtype
        return tirx.const(extent, dtype) if isinstance(extent, int) else extent.astype(dtype)

    def fold(self, state: State) -> None:
        """Folds the thread's positions into a state."""
        fold = ChunkFold(self.program, state, self.row_values, self.length)

        def one(start: ir.Expr, guarded: bool, first: bool | None) -> None:
            chunk = self._chunk(start, guarded, first)
            self.load(self.vectors, start, guarded)
            if guarded:
                with when(chunk.existing > 0):
                    fold.fold(chunk)
            else:
                fold.fold(chunk)

        self.each_chunk(one)

    def each_chunk(self, emit: Callable[[ir.Expr, bool, bool | None], None]) -> None:
        """`emit(start, guarded, first)` for every chunk; the last is guarded where it may reach past the end."""
        segment, size = self.segment, self.config.chunk
        if segment.length is not None:
            full, rest = divmod(segment.length, size)
            if full == 1:
                emit(segment.start, False, True)
            elif full:
                with T.serial(full) as step:
                    emit(bind("chunk_start", segment.start + step * size), False, None)
            if rest:
                emit(bind("chunk_start", segment.start + full * size), True, True if full == 0 else None)
            return
        full = bind("full", tirx.max(segment.end - segment.start, 0) // size)
        with T.serial(full) as step:
            emit(bind("chunk_start", segment.start + step * size), False, None)
        emit(bind("chunk_start", segment.start + full * size), True, None)

    def position(self, start: ir.Expr, k: Any) -> ir.Expr:
        """Where the k-th vector of a chunk starts."""
        return start + (k * self.config.sharing + self.member) * self.config.vector

    def load(self, vectors: Vectors, start: ir.Expr, guarded: bool) -> None:
        """All vectors of a chunk."""
        with T.unroll(self.config.vectors) as k:
            position = self.position(start, k)
            vectors.load(k, position, self.at, position < self.segment.end if guarded else None)

    def _chunk(self, start: ir.Expr, guarded: bool, first: bool | None) -> Chunk:
        config, program = self.config, self.program

        def each(emit: Callable[[Any], None]) -> None:
            with T.unroll(config.vectors) as k, T.unroll(config.vector) as e:
                emit(k * config.vector + e)

        def read(expression: ir.Expr, index: Any) -> ir.Expr:
            beside = guarded and not self.vectors.holds(expression)
            return self.place(self.vectors.held(expression, index), start, index, beside)

        def inputs(index: Any, of: set[sp.Symbol]) -> dict[sp.Symbol, ir.Expr]:
            return {s: read(e, index) for s, e in program.position_inputs.items() if s in of}

        def conditions(index: Any, of: set[sp.Symbol]) -> dict[sp.Symbol, ir.Expr]:
            return {s: read(e, index) for s, e in program.conditions.items() if s in of}

        def exists(index: Any) -> ir.Expr:
            return self.position(start, index // config.vector) < self.segment.end

        existing = self._existing(start) if guarded else tirx.const(config.vector * config.vectors, "int32")
        count = config.vector * config.vectors
        return Chunk(count, each, inputs, conditions, exists if guarded else None, existing, first)

    def _existing(self, start: ir.Expr) -> ir.Expr:
        """How many positions of a chunk there are: vectors are whole, or not there at all."""
        count = registers("existing", 1, "int32")
        put(count, 0, tirx.const(0, "int32"))
        with T.unroll(self.config.vectors) as k:
            there = self.position(start, k) < self.segment.end
            put(
                count, 0, count[0] + tirx.Select(there, tirx.const(self.config.vector, "int32"), tirx.const(0, "int32"))
            )
        return count[0]

    def place(self, expression: ir.Expr, start: ir.Expr, index: Any, beside: bool = False) -> ir.Expr:
        """An expression over the frame at a position of a chunk, by its number in the thread's share.

        Parameters
        ----------
        beside : the position may be past the end, where the last one is read.
        """
        config = self.config
        position = self.position(start, index // config.vector) + index % config.vector
        if beside:
            position = tirx.min(position, self.segment.end - 1)
        return self.tensors.place(expression, {**self.at, **self.row.axis.at(position)})
