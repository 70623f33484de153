"""A thread's loop along neighbouring rows: at each position a vector of rows, each with its own state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import extent_of, same_extent
from tvm_cascade.analysis.tir import dtype_of, loads_of, uses
from tvm_cascade.tile.emit import put, registers, when
from tvm_cascade.tile.merge.block import ThreadStates
from tvm_cascade.tile.row.chunk import ChunkFold
from tvm_cascade.tile.row.cut import Cut
from tvm_cascade.tile.row.elements import Tensors, Vectors
from tvm_cascade.tile.row.linear import moved_dtype
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.segment import Segment
from tvm_cascade.tile.row.sweep import Point, Sweep
from tvm_cascade.transform.printer import cast


class ColumnSweep(Sweep):
    """Emits the passes of one thread over its rows.

    Parameters
    ----------
    point : the first of them.
    place : where it is along the lanes.
    """

    def __init__(
        self,
        program: RowProgram,
        config: Cut,
        tensors: Tensors,
        point: Point,
        place: ir.Expr,
        segment: Segment,
        member: ir.Expr,
    ) -> None:
        super().__init__(program, config, tensors, point, segment, member)
        self.first = place
        self.by_row: dict[tirx.Var, Any] = {}
        self.inputs: dict[sp.Symbol, Any] = {}
        self.beside = self._read_beside()

    def load_rows(self) -> None:
        """Reads the inputs that have one value a row."""
        for symbol, expression in self.program.row_inputs.items():
            self.inputs[symbol] = registers(str(symbol), self.config.vector, dtype_of(expression))
            with T.unroll(self.config.vector) as row:
                put(self.inputs[symbol], row, self.tensors.place(expression, self.row_at(row)))

    def row_at(self, row: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The values of row variables, and of what `per_row` computed."""
        known = {var: values[row] for var, values in self.by_row.items()}
        return {**self.at, **self.row.lanes.at(self.first + row), **known}

    def fold_rows(self, states: ThreadStates) -> None:
        """Folds the thread's positions into the states of its rows."""

        def one(start: ir.Expr, guarded: bool, first: bool | None) -> None:
            self.load(self.vectors, start, guarded)
            existing = self.existing(start, guarded)
            with when(existing > 0) if guarded else nullcontext(), T.unroll(self.config.vector) as row:
                states.take(row)
                values = {s: (lambda a=a: a[row]) for s, a in self.inputs.items()}
                fold = ChunkFold(self.program, states.state, values, self.length)
                fold.fold(self.chunk(start, guarded, first, existing, lambda k: k * self.config.vector + row))
                states.leave(row)

        self.each_chunk(one)

    def _read_beside(self) -> list[tuple[ir.TensorLoad, Any]]:
        """Registers for the loads that all rows of a position share."""
        read = (*self.program.position_inputs.values(), *self.program.conditions.values())
        found: list[tuple[ir.TensorLoad, Any]] = []
        for load in (load for expression in read for load in loads_of(expression)):
            shared = any(uses(i, self.row.axis.variables) for i in load.indices) and self._is_whole(load)
            shared = shared and not any(uses(i, self.row.lanes.variables) for i in load.indices)
            if shared and not any(tvm_ffi.structural_equal(load, known) for known, _ in found):
                name, dtype = f"{load.source.name}_beside", moved_dtype(dtype_of(load))
                found.append((load, registers(name, self.config.vectors, dtype)))
        return found

    def _is_whole(self, load: ir.TensorLoad) -> bool:
        """Whether a load has its place in the tensor at every point, not only where a condition holds."""
        extents = self.row.group.frame.extents
        return all(
            any(index.same_as(v) and same_extent(extents[v], extent_of(size)) for v in extents)
            for index, size in zip(load.indices, load.source.ty.shape, strict=True)
        )

    def load(self, vectors: Vectors, start: ir.Expr, guarded: bool) -> None:
        """All vectors of a chunk, and what its positions share."""
        super().load(vectors, start, guarded)
        for load, registers_of in self.beside if vectors is self.vectors else ():
            with T.unroll(self.config.vectors) as k:
                position = self.before_end(self.position(start, k), guarded)
                value = self.tensors.place(load, {**self.at, **self.row.axis.at(position)})
                put(registers_of, k, cast(value, moved_dtype(dtype_of(load))))

    def from_registers(self, expression: ir.Expr, index: Any) -> ir.Expr:
        """An expression over the frame with registers in place of loads, at an element by its number."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            for known, registers_of in self.beside:
                if tvm_ffi.structural_equal(load, known):
                    return cast(registers_of[index // self.config.vector], dtype_of(load))
            return load

        return super().from_registers(tvm_ffi.structural_map(expression, (ir.TensorLoad, replace)), index)

    def once_a_row(self, value: ir.Expr) -> ir.Expr:
        """A value with its loop-invariant loads hoisted out of the pass."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            if any(uses(i, self.row.axis.variables) for i in load.indices) or not self._is_whole(load):
                return load
            return self.per_row(f"{load.source.name}_of_row", lambda at: self.tensors.place(load, at))

        return tvm_ffi.structural_map(value, (ir.TensorLoad, replace))

    def origin(self, start: ir.Expr, k: Any) -> tuple[Mapping[tirx.Var, ir.Expr], ir.Expr]:
        """The memory coordinates of its start: the outer variables, and the index along the contiguous axis."""
        return {**self.at, **self.row.axis.at(self.position(start, k))}, self.first

    def place(self, expression: ir.Expr, start: ir.Expr, index: Any, beside: bool = False) -> ir.Expr:
        """An expression over the frame at a position of a chunk and one of its rows, by the number of both together."""
        vector = self.config.vector
        position = self.before_end(self.position(start, index // vector), beside)
        return self.tensors.place(expression, {**self.row_at(index % vector), **self.row.axis.at(position)})

    def per_row(self, name: str, value: Callable[[Mapping[tirx.Var, ir.Expr]], ir.Expr]) -> ir.Expr:
        """A value of each of the thread's rows, computed once, as a variable that `place` substitutes."""
        return self.hold(name, lambda row: value(self.row_at(row)))

    def hold(self, name: str, value: Callable[[ir.Expr], ir.Expr]) -> tirx.Var:
        """As `per_row`, of the number of a row among the thread's."""
        dtype = dtype_of(value(tirx.const(0, "int32")))
        values = registers(name, self.config.vector, dtype)
        with T.unroll(self.config.vector) as row:
            put(values, row, value(row))
        var = tirx.Var(name, dtype)
        self.by_row[var] = values
        return var
