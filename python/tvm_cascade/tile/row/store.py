"""The end of a row: results from the merged state, and the stores of what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.domain import dtype_of, loads_of, uses
from tvm_cascade.analysis.extent import product
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.hopper.script import bind, put, registers, when, whole
from tvm_cascade.tile.output import Output, member_at
from tvm_cascade.tile.row.config import RowConfig, load_width
from tvm_cascade.tile.row.elements import Tensors, Vectors, copy_vector
from tvm_cascade.tile.row.linear import INDEX, Axis, access_of
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.sweep import Sweep
from tvm_cascade.tile.state import State
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import accumulator_dtype


class Store:
    """Emits finish and the stores."""

    def __init__(self, program: RowProgram, config: RowConfig, tensors: Tensors, sweep: Sweep) -> None:
        self.program, self.config, self.tensors, self.sweep = program, config, tensors, sweep
        self.row = program.row
        self.results: dict[sp.Symbol, ir.Expr] = {}

    def emit(self, state: State, member: ir.Expr) -> None:
        """Finishes the row; its first thread stores what has one value, all of them what has one a position."""
        self._finish(state)
        single = [o for o in self.row.outputs if not self.row.is_whole(o) and not o.loops]
        if single:
            with when(tirx.EQ(member, tirx.const(0, "int32"))):
                for output in single:
                    self._at(output, self.sweep.at)
        for output in self.row.outputs:
            if output.loops:
                self._along_loops(output, member)
        if self.row.whole_rows:
            self._whole_rows()

    def _at(self, output: Output, at: Mapping[tirx.Var, ir.Expr]) -> None:
        indices = [self.tensors.place(i, at) for i in output.indices]
        T.buffer_store(self._own(output), self.tensors.place(self._of_results(output.value), at), indices)

    def _along_loops(self, output: Output, member: ir.Expr) -> None:
        """An output with loops of its own: its elements are dealt out to the row's threads."""
        sharing, loops = self.config.sharing, Axis(output.loops, output.extents)
        count = whole(product(output.extents))
        with T.serial((count + (sharing - 1)) // sharing) as step:
            index = bind("index", step * sharing + member)
            with when(index < count):
                self._at(output, {**self.sweep.at, **loops.at(index)})

    def _own(self, output: Output) -> Any:
        return next(own for param, own in self.tensors.own.items() if param.same_as(output.buffer))

    def _finish(self, state: State) -> None:
        symbols = Symbols(self.results, self.sweep.row_values, {LENGTH: self.sweep.length}, state.symbols())
        for result, expression in self.row.fold.finish.items():
            dtype = accumulator_dtype(dtype_of(self.row.group.member_of(result).stage.buffer))
            self.results[result] = bind(str(result), TilePrinter(symbols, dtype, {})(expression))

    def _of_results(self, value: ir.Expr) -> ir.Expr:
        """A stored value with results in place of the loads that read them, rounded as their tensors round them."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            member = member_at(self.row.group, load)
            return load if member is None else cast(self.results[member.result], dtype_of(load))

        return tvm_ffi.structural_map(value, (ir.TensorLoad, replace))

    def _whole_rows(self) -> None:
        outputs = [(o, self._with_reciprocals(self._of_results(o.value))) for o in self.row.whole_rows]
        config, kept = self.config, self.sweep.vectors
        fresh = [s for s in self.row.written if not (config.kept and any(s.beside(other) for other in kept.streams))]
        again = Vectors(self.tensors, tuple(fresh), config.vector, 1 if config.kept else config.vectors)

        def chunk(start: ir.Expr, guarded: bool, _first: bool | None) -> None:
            if not config.kept:
                self.sweep.load(again, start, guarded)
            with T.unroll(config.vectors) as k:
                position = self.sweep.position(start, k)
                with when(position < self.sweep.segment.end) if guarded else nullcontext():
                    if config.kept:
                        again.load(tirx.const(0, "int32"), position, self.sweep.at, None)
                    for output, value in outputs:
                        self._vector(output, value, start, k, again)

        self.sweep.each_chunk(chunk)

    def _vector(self, output: Output, value: ir.Expr, start: ir.Expr, k: ir.Expr, again: Vectors) -> None:
        """An output at the positions of one vector."""
        count, own = self.config.vector, self._own(output)

        def stored(e: ir.Expr) -> ir.Expr:
            index = k * count + e
            found = again.held(value, e if self.config.kept else index)
            if self.config.kept:
                found = self.sweep.vectors.held(found, index)
            return self.sweep.place(found, start, index)

        access = access_of(tirx.BufferLoad(output.buffer, list(output.indices)), self.row.axis)
        if access is None or access.stride != 1:
            with T.unroll(count) as e:
                indices = [self.sweep.place(i, start, k * count + e) for i in output.indices]
                T.buffer_store(own, stored(e), indices)
            return
        staged = registers(f"{output.buffer.name}_stored", count, access.dtype)
        with T.unroll(count) as e:
            put(staged, e, cast(stored(e), access.dtype))
        width = load_width(access, count)
        first = self.tensors.place(access.base, self.sweep.at) + cast(self.sweep.position(start, k), INDEX)
        for part in range(0, count, width):
            copy_vector(self.tensors.flat_of(output.buffer), first + part, staged, part, width)

    def _with_reciprocals(self, value: ir.Expr) -> ir.Expr:
        """a / b as a · (1/b), where b is the same for the whole row and no number: one division a row."""
        axis = self.row.axis.variables

        def replace(quotient: prim.Div) -> ir.Expr:
            divisor, dtype = quotient.b, dtype_of(quotient)
            fixed = not uses(divisor, axis) and not isinstance(divisor, (prim.FloatImm, prim.IntImm))
            if (
                not fixed
                or not dtype.startswith("float")
                or any(uses(i, axis) for load in loads_of(divisor) for i in load.indices)
            ):
                return quotient
            inverse = bind("inverse", self.tensors.place(tirx.const(1, dtype) / divisor, self.sweep.at))
            return quotient.a * inverse

        return tvm_ffi.structural_map(value, (prim.Div, replace))
