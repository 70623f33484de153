"""The epilogue of rows: finish, stores of one value a row, and the second pass for outputs along the axis.

Elements of the second pass are in registers still, or are read again. Those of float8 outputs are converted two and
two, and stored as words of four: a conversion of one element takes a word's place, a mask and a shift for each byte.
4096 rows of 2560, 4096 and 7168 elements took 10.9, 14.7 and 22.4 µs by pairs, and 15.3, 18.4 and 31.8 one by one
(measured on an H200).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, product, uses
from tvm_cascade.tile.emit import bind, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.memory import INDEX, as_multiple, copy_vector
from tvm_cascade.tile.operand import MATRIX_DTYPES
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.product.lines import places_of
from tvm_cascade.tile.row.again import Guards
from tvm_cascade.tile.row.elements import STAGED_REGISTERS, Vectors, registers_of
from tvm_cascade.tile.row.linear import access_of, load_width
from tvm_cascade.tile.row.program import of_results, result_dtype
from tvm_cascade.tile.row.shape import rows_alike
from tvm_cascade.tile.row.sweep import Point, Sweep
from tvm_cascade.tile.state import State
from tvm_cascade.transform.finish import key_from_its_start, or_its_start
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.tiling import no_positions

_FLOAT32 = "float32"
_STORES = {4: "st.global.b32", 8: "st.global.v2.b32"}
"""Of float8, by the elements that they store."""


class Store:
    """Emits finish and the stores of a row.

    Parameters
    ----------
    guards : of its results; None where none is guarded.
    """

    def __init__(self, point: Point, sharing: int, guards: Guards | None = None) -> None:
        self.program, self.tensors, self.point, self.sharing = point.program, point.tensors, point, sharing
        self.guards, self.row = guards, point.program.row
        self.results: dict[sp.Symbol, ir.Expr] = {}

    def emit(self, state: State, member: ir.Expr) -> None:
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
        first = [tirx.EQ(dict(at)[v], 0) for v in rows_alike(output, self.row.rows, self.row.group)]
        with when(functools.reduce(tirx.And, first)) if first else nullcontext():
            T.buffer_store(self.tensors.own[output.buffer], self._placed(value, at), indices)

    def _placed(self, value: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> ir.Expr:
        return self.tensors.place(value, at)

    def _along_loops(self, output: Output, member: ir.Expr) -> None:
        """An output with further loops: its elements are distributed over the row's threads."""
        sharing, count = self.sharing, kernel_extent(product(output.extents))
        with T.serial((count + (sharing - 1)) // sharing) as step:
            index = bind("index", step * sharing + member)
            with when(index < count):
                self._at(output, {**self.point.at, **places_of(output.loops, output.extents, index)})

    def finish(self, state: State) -> None:
        """The results of the row; where they are guarded, all threads of the warp take part."""
        symbols = Symbols(self.results, self.point.values, state.symbols())
        for finish in self.program.body.finish:
            printer = TilePrinter(symbols, result_dtype(self.row, finish.result), {}, self.program.offsets)
            member = self.row.group.member_of(finish.result)
            value = key_from_its_start(member, printer(finish.expression))
            value = or_its_start(member, value, no_positions(self.row.length))
            self.results[finish.result] = bind(str(finish.result), value)
        if self.guards is not None:
            self.results = self.guards.emit(self.results, state)


class PositionOutputs:
    """Emits the outputs along the axis."""

    def __init__(self, sweep: Sweep, results: Mapping[sp.Symbol, ir.Expr]) -> None:
        self.sweep, self.results = sweep, results
        self.row, self.config, self.tensors = sweep.row, sweep.config, sweep.tensors
        self.one_by_one = sweep.config.kept and not sweep.config.ahead
        if sweep.staging is not None:
            each = registers_of(sweep.fresh(), sweep.config.vector, sweep.peel)
            self.one_by_one = each * sweep.config.vectors > STAGED_REGISTERS

    def emit(self) -> None:
        outputs = [
            (o, self.sweep.once_a_row(self._with_reciprocals(of_results(self.row, o.value, self.results))))
            for o in self.row.position_outputs
        ]
        config = self.config
        again = self.sweep.beside_kept
        if again is None:
            again = self.sweep.registers_for(self.sweep.fresh(), 1 if self.one_by_one else config.vectors)

        def chunk(start: ir.Expr, guarded: bool, _first: bool | None) -> None:
            if not config.kept and not self.one_by_one:
                self.sweep.load(again, start, guarded)
            with T.unroll(config.vectors) as k, when(self.sweep.there(start, k)) if guarded else nullcontext():
                if self.one_by_one:
                    at, place = self.sweep.origin(start, k)
                    again.load(tirx.const(0, "int32"), place, at, None)
                for output, value in outputs:
                    self._vector(output, value, start, k, again)

        self.sweep.each_chunk(chunk)

    def _vector(self, output: Output, value: ir.Expr, start: ir.Expr, k: ir.Expr, again: Vectors) -> None:
        count, own = self.config.vector, self.tensors.own[output.buffer]

        def stored(e: ir.Expr) -> ir.Expr:
            index = k * count + e
            found = again.from_registers(value, e if self.one_by_one else index)
            if self.config.kept:
                found = self.sweep.vectors.from_registers(found, index)
            return self.sweep.place(found, start, index)

        access = access_of(tirx.BufferLoad(output.buffer, list(output.indices)), self.row.along)
        if access is None or access.stride != 1:
            with T.unroll(count) as e:
                indices = [self.sweep.place(i, start, k * count + e) for i in output.indices]
                T.buffer_store(own, stored(e), indices)
            return
        aligned = access if self.sweep.peel is None else self.sweep.peel.aligned(access)
        width = load_width(aligned, count)
        flat = self.tensors.flat_of(output.buffer)

        def first() -> ir.Expr:
            at, place = self.sweep.origin(start, k)
            found = self.tensors.place(aligned.base, at) + cast(place, INDEX)
            return found if self.sweep.peel is None else as_multiple(found, width)

        if _is_narrowed(value, width):
            to = first()
            for part in range(0, count, width):
                values = [stored(tirx.const(part + e, "int32")) for e in range(width)]
                _store_narrowed(flat.ptr_to([to + part]), values, output.buffer.name)
            return
        staged = registers(f"{output.buffer.name}_stored", count, access.dtype)
        with T.unroll(count) as e:
            put(staged, e, cast(stored(e), access.dtype))
        to = first()
        for part in range(0, count, width):
            copy_vector(flat, to + part, staged, part, width)

    def _with_reciprocals(self, value: ir.Expr) -> ir.Expr:
        """a / b as (a·s) · (1/(b·s)) for a loop-invariant b that is no constant: one division a row.

        s is a power of two by which b·s has a reciprocal that is finite, and normal. Halves are divided in float32.
        """
        axis = self.row.axis.parts

        def replace(quotient: prim.Div) -> ir.Expr:
            divisor, dtype = quotient.b, dtype_of(quotient)
            fixed = not uses(divisor, axis) and not isinstance(divisor, (prim.FloatImm, prim.IntImm))
            if not fixed or not dtype.startswith("float"):
                return quotient
            wide = dtype if dtype == "float64" else "float32"
            size = self.sweep.per_row("divisor_size", lambda at: tirx.abs(self.tensors.place(cast(divisor, wide), at)))
            scale = self.sweep.per_row("divisor_scale", lambda at: self.tensors.place(_scale(size, wide), at))
            inverse = self.sweep.per_row(
                "inverse", lambda at: self.tensors.place(tirx.const(1, wide) / (cast(divisor, wide) * scale), at)
            )
            return cast(cast(quotient.a, wide) * scale * inverse, dtype)

        return tvm_ffi.structural_map(value, (prim.Div, replace))


def _scale(size: ir.Expr, dtype: str) -> ir.Expr:
    """The power of two for a divisor of a size: 1 where its reciprocal is finite, and normal."""
    exponent = np.finfo(dtype).maxexp
    bound, step = 2.0 ** (exponent - 2), 2.0 ** (exponent // 2)
    one, large, small = (tirx.const(c, dtype) for c in (1, 1 / step, step))
    below = tirx.Select(size < tirx.const(1 / bound, dtype), small, one)
    return tirx.Select(size > tirx.const(bound, dtype), large, below)


def _is_narrowed(value: ir.Expr, width: int) -> bool:
    """Whether a value is float32 rounded to float8, of which so many neighbours are stored at once."""
    is_cast = isinstance(value, prim.Cast) and dtype_of(value.value) == _FLOAT32
    return is_cast and dtype_of(value).startswith("float8_e") and dtype_of(value) in MATRIX_DTYPES and width in _STORES


def _store_narrowed(target: Any, values: Sequence[ir.Expr], name: str) -> None:
    """Stores float32 values rounded to float8.

    Parameters
    ----------
    target : pointer to the first.
    values : as `_is_narrowed` has them, in order.
    name : of the output.
    """
    pairs = registers(f"{name}_pairs", len(values) // 2, "uint16")
    words = registers(f"{name}_words", len(values) // 4, "uint32")
    instruction = f"cvt.rn.satfinite.{MATRIX_DTYPES[dtype_of(values[0])].name}x2.f32"
    for k in range(len(values) // 2):
        ptx(instruction, pairs[k], values[2 * k + 1].value, values[2 * k].value)
    for k in range(len(values) // 4):
        put(words, k, pairs[2 * k].astype("uint32") | (pairs[2 * k + 1].astype("uint32") << tirx.const(16, "uint32")))
    ptx(_STORES[len(values)], target, *(words[k] for k in range(len(values) // 4)))
