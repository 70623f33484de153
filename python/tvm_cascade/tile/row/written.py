"""The second pass over a row: outputs along the axis, from resident registers or read again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np
import sympy as sp
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, loads_of, uses
from tvm_cascade.tile.emit import put, registers, when
from tvm_cascade.tile.output import Output
from tvm_cascade.tile.row.copies import as_multiple, copy_vector
from tvm_cascade.tile.row.elements import Vectors, registers_of
from tvm_cascade.tile.row.linear import INDEX, access_of, load_width
from tvm_cascade.tile.row.narrowed import is_narrowed, store_narrowed
from tvm_cascade.tile.row.results import of_results
from tvm_cascade.tile.row.staging import STAGED_REGISTERS
from tvm_cascade.tile.row.sweep import Sweep
from tvm_cascade.transform.printer import cast


class PositionOutputs:
    """Emits the outputs along the axis.

    Parameters
    ----------
    results : of the row.
    """

    def __init__(self, sweep: Sweep, results: Mapping[sp.Symbol, ir.Expr]) -> None:
        self.sweep, self.results = sweep, results
        self.row, self.config, self.tensors = sweep.row, sweep.config, sweep.tensors
        self.one_by_one = sweep.config.kept and not sweep.config.ahead
        if sweep.staging is not None:
            each = registers_of(sweep.fresh(), sweep.config.vector, sweep.peel)
            self.one_by_one = each * sweep.config.vectors > STAGED_REGISTERS

    def emit(self) -> None:
        """Emits every position of the thread's part."""
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
        """An output at the neighbours of one vector."""
        count, own = self.config.vector, self.tensors.own_of(output.buffer)

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

        if is_narrowed(value, width):
            to = first()
            for part in range(0, count, width):
                values = [stored(tirx.const(part + e, "int32")) for e in range(width)]
                store_narrowed(flat.ptr_to([to + part]), values, output.buffer.name)
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
