"""A thread's way along neighbouring rows: at each position a vector of them, each folded into its own state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.domain import dtype_of
from tvm_cascade.tile.hopper.script import put, registers, when
from tvm_cascade.tile.merge.columns import ThreadStates
from tvm_cascade.tile.row.chunk import ChunkFold
from tvm_cascade.tile.row.cut import Cut
from tvm_cascade.tile.row.elements import Tensors
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.sweep import Point, Segment, Sweep


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

    def load_rows(self) -> None:
        """Reads the inputs that have one value a row."""
        for symbol, expression in self.program.row_inputs.items():
            self.inputs[symbol] = registers(str(symbol), self.config.vector, dtype_of(expression))
            with T.unroll(self.config.vector) as row:
                put(self.inputs[symbol], row, self.tensors.place(expression, self.row_at(row)))

    def row_at(self, row: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        """The values of the variables of rows, and of what `per_row` has worked out."""
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

    def origin(self, start: ir.Expr, k: Any) -> tuple[Mapping[tirx.Var, ir.Expr], ir.Expr]:
        """Where it starts in memory: the variables beside what neighbours run along, and the place on that."""
        return {**self.at, **self.row.axis.at(self.position(start, k))}, self.first

    def place(self, expression: ir.Expr, start: ir.Expr, index: Any, beside: bool = False) -> ir.Expr:
        """An expression over the frame at a position of a chunk and one of its rows, by the number of both together."""
        vector = self.config.vector
        position = self.before_end(self.position(start, index // vector), beside)
        return self.tensors.place(expression, {**self.row_at(index % vector), **self.row.axis.at(position)})

    def per_row(self, name: str, value: Callable[[Mapping[tirx.Var, ir.Expr]], ir.Expr]) -> ir.Expr:
        """A value of each of the thread's rows, worked out once, as a variable that `place` knows."""
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
