"""A block's share of a row in shared memory: bulk copies bring it, all of it under way at once, piece after piece.

What waits there takes no registers: several blocks of a multiprocessor each have a whole share under way or at hand, so
that some read memory while others merge their states or write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.script import bind, named, ptx
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.row.elements import Tensors, Vectors
from tvm_cascade.tile.row.linear import INDEX, Access, itemsize
from tvm_cascade.tile.row.shape import Row
from tvm_cascade.transform.printer import cast

_UNIT_BYTES = 16
"""Bulk copies start at multiples of this, and have multiples of it."""

_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"

SHARED_BYTES, BLOCK_BYTES = 228 * 1024, 1024
"""Of a multiprocessor, and what each of its blocks takes of that for itself."""

_STATE_BYTES = 2 * 1024
"""Of a block, beside shares: states of its warps and of other blocks, and barriers."""


def staged_streams(row: Row) -> tuple[Access, ...]:
    """What is brought to shared memory: all that a row alone reads along its axis."""
    found: list[Access] = []
    for stream in (*row.folded, *row.written):
        if not stream.is_shared and not any(stream.beside(other) for other in found):
            found.append(stream)
    return tuple(found)


def shared_streams(row: Row) -> tuple[Access, ...]:
    """What all rows read along the axis."""
    found: list[Access] = []
    for stream in (*row.folded, *row.written):
        if stream.is_shared and not any(stream.beside(other) for other in found):
            found.append(stream)
    return tuple(found)


def staged_bytes(row: Row, positions: int, stages: int, once: bool) -> int:
    """Of a block's shared memory, with what the multiprocessor takes for it; arguments as those of `Staging`."""
    own, shared = (
        sum(s.stride * itemsize(s.dtype) for s in streams) for streams in (staged_streams(row), shared_streams(row))
    )
    return positions * (own * stages + (shared if once else 0)) + _STATE_BYTES + BLOCK_BYTES


def why_not_staged(row: Row, positions: int, piece: int, stages: int, once: bool) -> str:
    """Why bulk copies cannot bring such shares, in words; empty where they can. Arguments as those of `Staging`."""
    for stream in (*staged_streams(row), *(shared_streams(row) if once else ())):
        starts = (stream.alignment, piece * stream.stride, positions * stream.stride)
        if any(n * itemsize(stream.dtype) % _UNIT_BYTES for n in starts):
            return f"{stream.buffer.name}: rows are no multiples of {_UNIT_BYTES} bytes, as bulk copies need"
    if (needed := staged_bytes(row, positions, stages, once)) > SHARED_BYTES:
        return f"{stages} shares of {positions} positions take {needed} of {SHARED_BYTES} bytes of shared memory"
    return ""


class Staging:
    """The shared memory of a share, or of the shares of several rows in turn, with a barrier for each piece.

    Parameters
    ----------
    pool : the block's shared memory.
    positions, piece : of the share, and of a piece; the last piece has the rest.
    stages : rows that have a place; with several, what all rows share is brought once, and stays.

    Raises
    ------
    Unfit
        Where bulk copies could not start at some row, or have its length.
    """

    def __init__(self, pool: Any, row: Row, positions: int, piece: int, stages: int, once: bool) -> None:
        self.positions, self.piece, self.pieces = positions, piece, -(-positions // piece)
        self.own, self.once = staged_streams(row), shared_streams(row) if once else ()
        if reason := why_not_staged(row, positions, piece, stages, once):
            raise Unfit(reason)
        self.buffers = [
            named(f"{s.buffer.name}_staged", pool.alloc((count * positions * s.stride,), s.dtype, align=128))
            for count, streams in ((stages, self.own), (1, self.once))
            for s in streams
        ]
        self.barriers = Barriers(pool, stages * self.pieces + bool(self.once), 1)
        self.stages = stages
        self.stage: ir.Expr | int = 0
        self.parity: ir.Expr | int = 0

    def prepare(self, tensors: Tensors, first: ir.Expr) -> None:
        """Said by one thread, before any copy: what all rows share is under way after that.

        Parameters
        ----------
        first : the position where the share starts.
        """
        self.tensors, self.first = tensors, first
        self.barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        if self.once:
            number = tirx.const(self.stages * self.pieces, "int32")
            self._copy(self.once, {}, number, 0, 0, self.positions)

    def bring(self, at: Mapping[tirx.Var, ir.Expr], stage: ir.Expr | int) -> None:
        """Said by one thread: starts all copies of a row to a stage that nobody reads any more.

        Parameters
        ----------
        at : the variables of the row.
        """
        full, rest = divmod(self.positions, self.piece)
        with T.serial(full) as number:
            self._copy(self.own, at, stage * self.pieces + number, stage, number, self.piece)
        if rest:
            self._copy(self.own, at, stage * self.pieces + full, stage, full, rest)

    def _copy(
        self,
        streams: tuple[Access, ...],
        at: Mapping[tirx.Var, ir.Expr],
        barrier: ir.Expr,
        stage: ir.Expr | int,
        piece: ir.Expr | int,
        count: int,
    ) -> None:
        sizes = [count * s.stride * itemsize(s.dtype) for s in streams]
        self.barriers.announce(barrier, sum(sizes))
        for stream, size in zip(streams, sizes, strict=True):
            place = piece * (self.piece * stream.stride)
            start = self.tensors.place(stream.base, at) + cast(self.first, INDEX) * stream.stride + place
            source = self.tensors.flat_of(stream.buffer).ptr_to([bind("piece", start)])
            target = self._buffer(stream).ptr_to([stage * (self.positions * stream.stride) + place])
            ptx(_COPY, target, source, T.uint32(size), self.barriers.pointer(barrier))

    def wait_for_shared(self) -> None:
        """Wait for what all rows share."""
        if self.once:
            self.barriers.wait(self.stages * self.pieces, 0)

    def turn(self, stage: ir.Expr, parity: ir.Expr) -> None:
        """Which stage is read from here on, and the parity of its barriers' phase."""
        self.stage, self.parity = stage, parity

    def wait(self, start: ir.Expr) -> None:
        """Wait for the piece that starts at a position."""
        number = bind("number", self.stage * self.pieces + (start - self.first) // self.piece)
        self.barriers.wait(number, self.parity)

    def source_of(self, stream: Access, start: ir.Expr) -> tuple[Any, ir.Expr] | None:
        """Where the elements of a stream from a position on are in shared memory; None for one that is not there."""
        for streams, stage in ((self.own, self.stage), (self.once, 0)):
            for own in streams:
                if stream.beside(own):
                    return self._buffer(own), (stage * self.positions + start - self.first) * stream.stride
        return None

    def _buffer(self, stream: Access) -> Any:
        return next(b for own, b in zip((*self.own, *self.once), self.buffers, strict=True) if stream.beside(own))


class StagedVectors(Vectors):
    """Registers for what a thread works on, from shared memory where it is there."""

    def __init__(
        self, staging: Staging, tensors: Tensors, streams: tuple[Access, ...], vector: int, count: int
    ) -> None:
        super().__init__(tensors, streams, vector, count)
        self.staging = staging

    def source(self, stream: Access, start: ir.Expr, at: Mapping[tirx.Var, ir.Expr]) -> tuple[Any, ir.Expr]:
        """Where the elements of a stream are read from: a buffer of one dimension, and the place of the first."""
        return self.staging.source_of(stream, start) or super().source(stream, start, at)
