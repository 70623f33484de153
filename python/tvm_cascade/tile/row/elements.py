"""Row data on chip: vectors in registers, from memory or from shares that bulk copies stage in shared memory.

What waits in shared memory takes no registers: several blocks of a multiprocessor each have a whole share under way or
at hand, so that some read memory while others merge their states or write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, loads_of
from tvm_cascade.devices.device import Gpu
from tvm_cascade.tile.emit import bind, named, ptx, put, registers, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.copy import COPY
from tvm_cascade.tile.memory import (
    INDEX,
    VECTOR_BYTES,
    WORD_BYTES,
    Tensors,
    as_multiple,
    copy_shifted,
    copy_vector,
    itemsize,
)
from tvm_cascade.tile.operand import COPY_ALIGNMENT
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.row.linear import Access, access_of, is_shifted, load_width
from tvm_cascade.tile.row.segment import Peel, Segment
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.transform.printer import cast

_STATE_BYTES = 2 * 1024
"""Of a block, beside shares: states of its warps and of other blocks, and barriers."""

STAGED_REGISTERS = 32
"""Of a thread, for what outputs read: where the vectors of a chunk take more, one is read at a time."""


def staged_streams(row: Row) -> tuple[Access, ...]:
    found: list[Access] = []
    for stream in (*row.folded, *row.written):
        if not stream.is_shared and not any(stream.beside(other) for other in found):
            found.append(stream)
    return tuple(found)


def staged_bytes(row: Row, positions: int, gpu: Gpu) -> int:
    own = sum(s.stride * itemsize(s.dtype) for s in staged_streams(row))
    return positions * own + _STATE_BYTES + gpu.reserved_shared_bytes


def why_not_staged(row: Row, positions: int, piece: int, gpu: Gpu, peel: Peel | None = None) -> str:
    """Why bulk copies cannot stage this many positions; empty where they can.

    Parameters
    ----------
    peel : where rows start that are brought without their rims.
    """
    for stream in staged_streams(row):
        alignment = stream.alignment if peel is None else peel.aligned(stream).alignment
        starts = (alignment, piece * stream.stride, positions * stream.stride)
        if any(n * itemsize(stream.dtype) % COPY_ALIGNMENT for n in starts):
            return f"{stream.buffer.name}: rows are no multiples of {COPY_ALIGNMENT} bytes, as bulk copies need"
    room = min(gpu.shared_bytes, gpu.block_shared_bytes + gpu.reserved_shared_bytes)
    if (needed := staged_bytes(row, positions, gpu)) > room:
        return f"shares of {positions} positions take {needed} of {room} bytes of shared memory"
    return ""


class Staging:
    """The shared memory of staged positions, with a barrier for each copy.

    Parameters
    ----------
    positions, piece : of the share, at most, and of a piece; the last piece has the rest.
    """

    def __init__(self, pool: Any, row: Row, positions: int, piece: int) -> None:
        self.streams, self.positions, self.piece = staged_streams(row), positions, piece
        self.buffers = [
            named(f"{s.buffer.name}_staged", pool.alloc((positions * s.stride,), s.dtype, align=128))
            for s in self.streams
        ]
        self.barriers = Barriers(pool, -(-positions // piece), 1)

    def start(self, tensors: Tensors, at: Mapping[tirx.Var, ir.Expr], share: Segment, thread: ir.Expr) -> None:
        """One thread issues all copies; every thread may wait for them afterwards."""
        self.first = share.start
        full = share.least // self.piece
        with when(tirx.EQ(thread, tirx.const(0, "int32"))):
            self.barriers.initialise()
            ptx("fence.proxy.async.shared::cta")
            with T.serial(full) as number:
                self._copy(tensors, at, number, self.piece)
            for last in range(full, -(-self.positions // self.piece)):
                known = self.positions - last * self.piece
                count = known if share.least == share.most else self._left(share, last)
                self._copy(tensors, at, tirx.const(last, "int32"), count)
        T.evaluate(T.cuda.cta_sync())

    def _left(self, share: Segment, number: int) -> ir.Expr:
        left = tirx.max(share.end - share.start - number * self.piece, 0)
        return bind("left", tirx.min(left, self.piece))

    def _copy(self, tensors: Tensors, at: Mapping[tirx.Var, ir.Expr], number: ir.Expr, count: int | ir.Expr) -> None:
        sizes = [count * s.stride * itemsize(s.dtype) for s in self.streams]
        self.barriers.announce(number, sum(sizes))
        for stream, buffer, size in zip(self.streams, self.buffers, sizes, strict=True):
            place = number * (self.piece * stream.stride)
            start = tensors.place(stream.base, at) + cast(self.first, INDEX) * stream.stride + place
            source = tensors.flat_of(stream.buffer).ptr_to([bind("piece", start)])
            with nullcontext() if isinstance(count, int) else when(count > 0):
                ptx(COPY, buffer.ptr_to([place]), source, T.uint32(size), self.barriers.pointer(number))

    def wait(self, start: ir.Expr) -> None:
        self.barriers.wait(bind("number", (start - self.first) // self.piece), 0)

    def source_of(self, stream: Access, start: ir.Expr) -> tuple[Any, ir.Expr] | None:
        """Where the elements of a stream from a position on are in shared memory; None for one that is not there."""
        for own, buffer in zip(self.streams, self.buffers, strict=True):
            if stream.beside(own):
                return buffer, (start - self.first) * stream.stride
        return None


class Vectors:
    """Registers for some accesses, of several vectors of neighbours.

    Parameters
    ----------
    along : what neighbours are: positions, or rows.
    vector, count : neighbours of a vector, and how many vectors.
    """

    def __init__(
        self,
        tensors: Tensors,
        along: Line,
        streams: tuple[Access, ...],
        vector: int,
        count: int,
        peel: Peel | None = None,
        staging: Staging | None = None,
    ) -> None:
        self.tensors, self.along, self.vector = tensors, along, vector
        self.peel, self.staging = peel, staging
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
        source, first = self._source(stream, start, at)
        if self.peel is not None:
            if is_shifted(stream, self.vector):
                copy_shifted(vectors, k * size, source, first, size, self.peel.is_inside(stream))
                return
            first = as_multiple(first, width)
        for part in range(0, size, width):
            copy_vector(vectors, k * size + part, source, first + part, width)

    def _source(self, stream: Access, start: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> tuple[Any, ir.Expr]:
        """Where the elements of a stream are read from: a buffer of one dimension, and the place of the first."""
        if self.staging is not None and (staged := self.staging.source_of(stream, start)) is not None:
            return staged
        first = self.tensors.place(stream.base, at) + cast(start, INDEX) * stream.stride
        return self.tensors.flat_of(stream.buffer), first

    def from_registers(self, expression: ir.Expr, index: ir.Expr) -> ir.Expr:
        """An expression over the frame with registers in place of its loads, at a neighbour by its number."""

        def replace(load: ir.TensorLoad) -> ir.Expr:
            found = access_of(load, self.along)
            for stream, vectors in zip(self.streams, self.registers, strict=True):
                if found is not None and found.beside(stream):
                    return cast(tirx.BufferLoad(vectors, [index * stream.stride + found.lane]), dtype_of(load))
            return load

        return tvm_ffi.structural_map(expression, (ir.TensorLoad, replace))

    def holds(self, expression: ir.Expr) -> bool:
        found = [access_of(load, self.along) for load in loads_of(expression)]
        return all(one is not None and any(one.beside(stream) for stream in self.streams) for one in found)


def registers_of(streams: Iterable[Access], vector: int, peel: Peel | None) -> int:
    """Registers for a vector of each stream, with those of an unaligned load."""
    found = covering = 0
    for stream in streams:
        own = vector * stream.stride * itemsize(stream.dtype) // WORD_BYTES
        found += own
        if peel is not None and is_shifted(peel.aligned(stream), vector):
            covering = max(covering, own + VECTOR_BYTES // WORD_BYTES)
    return found + covering
