"""The epilogue of a row: results from the merged state, and stores of one value a row."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import nullcontext

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.extent import product
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.tile.emit import bind, kernel_extent, when
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.row.again import Guards
from tvm_cascade.tile.row.elements import Tensors
from tvm_cascade.tile.row.linear import Axis
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.results import of_results, result_dtype
from tvm_cascade.tile.row.shape import rows_alike
from tvm_cascade.tile.row.sweep import Point, length_of
from tvm_cascade.tile.state import State
from tvm_cascade.transform.finish import key_from_its_start, or_its_start
from tvm_cascade.transform.tiling import no_positions


class Store:
    """Emits finish and the stores of a row.

    Parameters
    ----------
    sharing : threads that have the row's merged state.
    guards : of its results; None where none is guarded.
    """

    def __init__(
        self, program: RowProgram, tensors: Tensors, point: Point, sharing: int, guards: Guards | None = None
    ) -> None:
        self.program, self.tensors, self.point, self.sharing = program, tensors, point, sharing
        self.guards = guards
        self.row = program.row
        self.results: dict[sp.Symbol, ir.Expr] = {}

    def emit(self, state: State, member: ir.Expr) -> None:
        """Finishes the row; its first thread stores single values, all threads outputs with own loops."""
        if not self.results:
            self.finish(state)
        single = [o for o in self.row.outputs if not self.row.has_positions(o) and not o.loops]
        if single:
            with when(tirx.EQ(member, tirx.const(0, "int32"))):
                for output in single:
                    self._at(output, self.point.at)
        for output in self.row.outputs:
            if output.loops:
                self._along_loops(output, member)

    def _at(self, output: Output, at: Mapping[tirx.Var, ir.Expr]) -> None:
        """Stores an element; of rows that an output does not tell apart, the first does."""
        indices = [self.tensors.place(i, at) for i in output.indices]
        value = of_results(self.row, output.value, self.results)
        first = [tirx.EQ(lookup(dict(at), v), 0) for v in rows_alike(output, self.row.rows, self.row.group)]
        with when(functools.reduce(tirx.And, first)) if first else nullcontext():
            T.buffer_store(self.tensors.own_of(output.buffer), self._placed(value, at), indices)

    def _placed(self, value: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> ir.Expr:
        """A value at a point."""
        return self.tensors.place(value, at)

    def _along_loops(self, output: Output, member: ir.Expr) -> None:
        """An output with further loops: its elements are distributed over the row's threads."""
        sharing, loops = self.sharing, Axis(output.loops, output.extents)
        count = kernel_extent(product(output.extents))
        with T.serial((count + (sharing - 1)) // sharing) as step:
            index = bind("index", step * sharing + member)
            with when(index < count):
                self._at(output, {**self.point.at, **loops.at(index)})

    def finish(self, state: State) -> None:
        """The results of the row; where they are guarded, all threads of the warp take part."""
        symbols = Symbols(self.results, self.point.values, {LENGTH: length_of(self.program)}, state.symbols())
        for finish in self.program.body.finish:
            printer = TilePrinter(symbols, result_dtype(self.row, finish.result), {}, self.program.offsets)
            member = self.row.group.member_of(finish.result)
            value = key_from_its_start(member, printer(finish.expression))
            value = or_its_start(member, value, no_positions(self.row.length))
            self.results[finish.result] = bind(str(finish.result), value)
        if self.guards is not None:
            self.results = self.guards.emit(self.results, state)
