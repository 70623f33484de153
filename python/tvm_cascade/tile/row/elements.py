"""Row data in a thread's registers: vectors of neighbouring positions or rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import as_index, product
from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.tile.emit import named, put, registers, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.row.copies import as_multiple, copy_shifted, copy_vector
from tvm_cascade.tile.row.linear import (
    INDEX,
    VECTOR_BYTES,
    Access,
    access_of,
    is_shifted,
    itemsize,
    load_width,
    moved_dtype,
)
from tvm_cascade.tile.row.peel import Peel
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.transform.printer import cast

_REGISTER_BYTES = 4


class Tensors:
    """The kernel's parameters, and flat views of them.

    Parameters
    ----------
    own : the program's tensors -> the kernel's parameters.
    scalars : the program's numbers -> the kernel's.
    """

    def __init__(self, row: Row, own: Mapping[tirx.Var, Any], scalars: Mapping[tirx.Var, Any]) -> None:
        self.row, self.own, self.scalars = row, own, scalars
        self.flat: dict[tirx.Var, Any] = {}

    def declare(self) -> None:
        """Declares flat views of what is accessed in vectors."""
        for param, buffer in self.own.items():
            size = as_index(product(_extent(n) for n in param.ty.shape), INDEX)
            dtype = moved_dtype(str(param.ty.dtype))
            self.flat[param] = named(f"{param.name}_flat", T.decl_buffer((size,), dtype, data=buffer.data))

    def flat_of(self, buffer: tirx.Var) -> Any:
        """The view of a tensor."""
        return next(view for param, view in self.flat.items() if param.same_as(buffer))

    def own_of(self, buffer: tirx.Var) -> Any:
        """The kernel's parameter of a program's tensor."""
        return next(own for param, own in self.own.items() if param.same_as(buffer))

    def place(self, expression: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> ir.Expr:
        """An expression over the frame at a point, with its loads from the kernel's parameters."""
        return placed(expression, {**at, **self.scalars}, self.own)


class Vectors:
    """Registers for some accesses, of several vectors of neighbours.

    Parameters
    ----------
    vector, count : neighbours of a vector, and how many vectors.
    peel : where vectors start, if not with the row.
    """

    def __init__(
        self, tensors: Tensors, streams: tuple[Access, ...], vector: int, count: int, peel: Peel | None = None
    ) -> None:
        self.tensors, self.vector, self.count, self.peel = tensors, vector, count, peel
        self.streams = streams if peel is None else tuple(peel.aligned(stream) for stream in streams)
        self.registers = [registers(f"{s.buffer.name}_vectors", count * vector * s.stride, s.dtype) for s in streams]

    def load(self, k: ir.Expr, start: ir.Expr, at: Mapping[tirx.Var, ir.Expr], exists: ir.Expr | None) -> None:
        """The k-th vector; zeros where it does not exist.

        Parameters
        ----------
        start : of what neighbours run along.
        at : the variables beside that.
        """
        for stream, vectors in zip(self.streams, self.registers, strict=True):
            if exists is None:
                self._copy(stream, vectors, k, start, at)
                continue
            with T.unroll(self.vector * stream.stride) as j:
                put(vectors, k * (self.vector * stream.stride) + j, tirx.const(0, stream.dtype))
            with when(exists):
                self._copy(stream, vectors, k, start, at)

    def _copy(self, stream: Access, vectors: Any, k: ir.Expr, start: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> None:
        size, width = self.vector * stream.stride, load_width(stream, self.vector)
        source, first = self.source(stream, start, at)
        if self.peel is not None:
            if is_shifted(stream, self.vector):
                copy_shifted(vectors, k * size, source, first, size, self.peel.is_inside(stream))
                return
            first = as_multiple(first, width)
        for part in range(0, size, width):
            copy_vector(vectors, k * size + part, source, first + part, width)

    def source(self, stream: Access, start: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> tuple[Any, ir.Expr]:
        """The source of a stream's elements: a flat buffer, and the index of the first."""
        first = self.tensors.place(stream.base, at) + cast(start, INDEX) * stream.stride
        return self.tensors.flat_of(stream.buffer), first

    def from_registers(self, expression: ir.Expr, index: ir.Expr) -> ir.Expr:
        """An expression over the frame with registers in place of its loads, at a neighbour by its number."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            found = access_of(load, self.tensors.row.along)
            for stream, vectors in zip(self.streams, self.registers, strict=True):
                if found is not None and found.beside(stream):
                    return cast(tirx.BufferLoad(vectors, [index * stream.stride + found.lane]), dtype_of(load))
            return load

        return tvm_ffi.structural_map(expression, (ir.TensorLoad, replace))

    def holds(self, expression: ir.Expr) -> bool:
        """Whether all of an expression's loads are in these registers."""
        for load in loads_of(expression):
            found = access_of(load, self.tensors.row.along)
            if found is None or not any(found.beside(stream) for stream in self.streams):
                return False
        return True


def registers_of(streams: Iterable[Access], vector: int, peel: Peel | None) -> int:
    """Registers for a vector of each stream, with those of an unaligned load.

    Parameters
    ----------
    vector : neighbours of a vector.
    peel : where vectors start, if not with the row.
    """
    found = covering = 0
    for stream in streams:
        own = vector * stream.stride * itemsize(stream.dtype) // _REGISTER_BYTES
        found += own
        if peel is not None and is_shifted(peel.aligned(stream), vector):
            covering = max(covering, own + VECTOR_BYTES // _REGISTER_BYTES)
    return found + covering


def _extent(extent: ir.Expr) -> int | ir.Expr:
    return int(extent) if isinstance(extent, ir.prim.IntImm) else extent
