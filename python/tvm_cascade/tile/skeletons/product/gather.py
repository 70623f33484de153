"""Operands that threads copy: tensors whose rows are no multiple of the 16 bytes that bulk copies need.

They put them where a bulk copy with the 128-byte swizzle would: of row r, chunk c of 16 bytes at chunk c ⊕ (r mod 8).
What is outside of the tensor is zero. Copies are under way for some steps before threads wait for them (cp.async). Rows
that are multiples of four bytes or eight come in pieces of so many, each to its place; for others see `Realigned`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, in_register, kernel_extent, named, ptx, put, registers, variable, when
from tvm_cascade.tile.fragment import placed
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import BOX_BYTES, CHUNK, CHUNKS
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.product.lines import Line
from tvm_cascade.tile.product.matrix import Side
from tvm_cascade.tile.skeletons.product.config import REALIGNED_BYTES
from tvm_cascade.tile.work import WARP_GROUP, WARPS

_PIECES = 4
"""That a thread starts copies of in a turn of the loop at most."""


class Gather(ABC):
    """Copies of tiles by a warp group.

    Parameters
    ----------
    tiles : shared memory of a shape [stage, box, row, column].
    """

    def __init__(self, side: Side, inner: Line, tiles: Any, shape: tuple[int, ...], buffers: Mapping[tirx.Var, Any]):
        self.side, self.inner, self.tiles, self.buffers = side, inner, tiles, buffers
        _, self.boxes, self.rows, self.columns = shape
        self.size = side.operand.size
        self.tensor = buffers[side.operand.buffer]

    def copy(
        self, stage: ir.Expr, first: ir.Expr, deep: ir.Expr, places: Mapping[tirx.Var, ir.Expr], thread: ir.Expr
    ) -> None:
        """A thread's part of a tile.

        Parameters
        ----------
        first, deep : where the tile starts, on the operand's own line and on what is summed over.
        """
        self.stage, self.first, self.deep, self.places = stage, first, deep, places
        self._copy(thread)

    @abstractmethod
    def _copy(self, thread: ir.Expr) -> None:
        """A thread's part of the tile."""

    @abstractmethod
    def land(self, stage: ir.Expr, thread: ir.Expr) -> None:
        """What is left to do for a tile when the thread's own copies for it are complete."""

    def _box_and_row(self, row: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        return bind("gathered_box", row // self.rows), bind("gathered_row", row % self.rows)

    def _swizzled(self, row: ir.Expr, offset: ir.Expr) -> ir.Expr:
        """The column at which a row has what is so many bytes behind its start."""
        return ((offset // CHUNK ^ (row % CHUNKS)) * CHUNK + offset % CHUNK) // self.size

    def _element(self, row: ir.Expr, column: ir.Expr) -> tuple[ir.Expr, ir.TensorLoad]:
        own, inner = self._at(row, column)
        line = self.side.line
        inside = tirx.And(own < kernel_extent(line.extent), inner < kernel_extent(self.inner.extent))
        return inside, self._load(own, inner)

    def _load(self, own: ir.Expr, inner: ir.Expr) -> ir.TensorLoad:
        places = {**self.places, **self.side.line.places(own), **self.inner.places(inner)}
        load = placed(self.side.load, places, self.buffers)
        assert isinstance(load, ir.TensorLoad)
        return load

    def _at(self, row: ir.Expr, column: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """An element of a tile on the operand's own line, and on what is summed over."""
        if self.side.across:
            return self.first + column, self.deep + row
        return self.first + row, self.deep + column


class Pieces(Gather):
    """Copies of pieces of four bytes or eight."""

    def _copy(self, thread: ir.Expr) -> None:
        piece = self.side.piece
        per_row = BOX_BYTES // piece
        turns = self.boxes * self.rows * per_row // WARP_GROUP
        together = divisor(turns, _PIECES)
        with T.serial(turns // together) as turn:
            for k in range(together):
                place = bind("piece", (turn * together + k) * WARP_GROUP + thread)
                box, row = self._box_and_row(place // per_row)
                offset = place % per_row * piece
                inside, load = self._element(row, box * self.columns + offset // self.size)
                given = tirx.Select(inside, T.uint32(piece), T.uint32(0))
                target = self.tiles.ptr_to([self.stage, box, row, self._swizzled(row, offset)])
                source = self.tensor.ptr_to(list(load.indices))
                ptx("cp.async.ca.shared.global", target, source, piece, given)

    def land(self, stage: ir.Expr, thread: ir.Expr) -> None:
        """Nothing: pieces are where they belong."""


def divisor(count: int, most: int) -> int:
    return next(n for n in range(min(most, count), 0, -1) if count % n == 0)


# Operands whose rows start anywhere: threads copy the aligned words around them, and move these into place later.
#
#     memory      | a b c d | e f g h | i j k l |     in chunks of 16 bytes
#     a row           | c d   e f g h   i j |         skips the first bytes of its first chunk
#
# A warp copies and moves the same rows, so that only its own threads wait for each other.


_WORD = 4
"""Bytes that a thread moves at once."""

_AROUND = REALIGNED_BYTES // CHUNK
"""Chunks around a row."""

_TOGETHER = 8
"""Rows that a warp loads from shared memory before it stores the first."""


class Realigned(Gather):
    """Copies of rows by way of shared memory, from which threads move them a word at a time.

    Of a tile it is known where its first row starts in its first chunk. What lies in a tile behind the ends of rows is
    zero where it would be summed.
    """

    def stage_in(self, pool: Any, steps: int) -> None:
        """Shared memory for the copies of so many steps, and for what each warp knows of them."""
        shape = (steps, self.boxes * self.rows, REALIGNED_BYTES // _WORD)
        self.around = named("words_around", pool.alloc(shape, "uint32", align=CHUNK))
        self.known = named("known_of_copies", pool.alloc((steps * WARPS,), "int32", align=CHUNK))
        self.coming, self.landing = Ring("coming", steps, 0), Ring("landing", steps, 0)
        self.own = self.boxes * self.rows // WARPS

    def _copy(self, thread: ir.Expr) -> None:
        lane, warp = thread % WARP, thread // WARP
        start = bind("tile_start", self._start())
        ends = self._left() * self.size
        with when(lane == 0):
            known = T.cast(start % CHUNK, "int32") | ends << _SKIPPED_BITS
            put(self.known, self.coming.stage * WARPS + warp, known)
        pieces = self.own * _AROUND
        with T.unroll(-(-pieces // WARP)) as turn:
            piece = bind("piece", turn * WARP + lane)
            with when(piece < pieces) if pieces % WARP else nullcontext():
                self._copy_around(start, bind("copied_row", warp * self.own + piece // _AROUND), piece % _AROUND)
        self.coming.advance()

    def _copy_around(self, start: ir.Expr, place: ir.Expr, chunk: ir.Expr) -> None:
        """A chunk around a row, as far as it is in the tensor."""
        box, row = self._box_and_row(place)
        inside = self._is_inside(row)
        at = bind("row_start", start + T.cast(row, "int64") * self._step + T.cast(box * BOX_BYTES, "int64"))
        offset = bind("offset", at - at % CHUNK + T.cast(chunk * CHUNK, "int64"))
        there = tirx.max(tirx.min(self._bytes - offset, T.int64(CHUNK)), T.int64(0))
        given = tirx.Select(inside, there, T.int64(0))
        target = self.around.ptr_to([self.coming.stage, place, chunk * (CHUNK // _WORD)])
        source = self._memory.ptr_to([tirx.Select(given > 0, offset, T.int64(0))])
        ptx("cp.async.ca.shared.global", target, source, CHUNK, T.cast(given, "uint32"))

    def land(self, stage: ir.Expr, thread: ir.Expr) -> None:
        """Moves the rows of a warp into place."""
        T.evaluate(T.cuda.warp_sync())
        known = in_register("known", self.known[self.landing.stage * WARPS + thread // WARP])
        start, ends = bind("skipped_first", known % (1 << _SKIPPED_BITS)), bind("row_ends", known >> _SKIPPED_BITS)
        if self.side.across:
            self._move(stage, thread, start)
        else:
            with T.If(ends >= BOX_BYTES):
                with T.Then():
                    self._move(stage, thread, start)
                with T.Else():
                    self._move(stage, thread, start, ends)
        T.evaluate(T.cuda.warp_sync())
        self.landing.advance()

    def _move(self, stage: ir.Expr, thread: ir.Expr, start: ir.Expr, ends: ir.Expr | None = None) -> None:
        """Moves rows.

        Parameters
        ----------
        start : bytes that the first row of the tile skips.
        ends : bytes of a row behind which there are zeros; None where there is all of it.
        """
        lane, together = thread % WARP, divisor(self.own, _TOGETHER)
        words = registers("moved_words", 2 * together, "uint32")
        step = T.cast(self._step % CHUNK, "int32")
        with T.unroll(self.own // together) as turn:
            first = bind("first_moved", thread // WARP * self.own + turn * together)
            skipped = []
            for k in range(together):
                _, row = self._box_and_row(first + k)
                skipped.append(bind("skipped", (start + row * step) % CHUNK))
                for n in range(2):
                    put(words, 2 * k + n, self.around[self.landing.stage, first + k, skipped[k] // _WORD + lane + n])
            for k in range(together):
                both = T.cast(words[2 * k + 1], "uint64") << T.uint64(8 * _WORD) | T.cast(words[2 * k], "uint64")
                found = T.cast(both >> T.cast(skipped[k] % _WORD * 8, "uint64"), "uint32")
                box, row = self._box_and_row(first + k)
                target = self.tiles.ptr_to([stage, box, row, self._swizzled(row, lane * _WORD)])
                ptx("st.shared.b32", target, found if ends is None else found & _low_bytes(ends - lane * _WORD))

    def _start(self) -> ir.Expr:
        """The byte of the tensor at which the tile starts."""
        zero, offset = tirx.const(0, "int32"), tirx.const(0, "int64")
        load = self._load(*self._at(zero, zero))
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
            offset = offset * T.cast(extent, "int64") + T.cast(index, "int64")
        return offset * self.size

    @property
    def _step(self) -> ir.Expr:
        """Bytes from row to row of a box."""
        step = self.side.deep_step if self.side.across else self.side.own_step
        return T.cast(kernel_extent(step), "int64") * self.size

    def _is_inside(self, row: ir.Expr) -> ir.Expr:
        """Whether there is a row of a tile."""
        if self.side.across:
            return self.deep + row < kernel_extent(self.inner.extent)
        return self.first + row < kernel_extent(self.side.line.extent)

    def _left(self) -> ir.Expr:
        """Elements of a row of the tensor from the tile's first on that are summed, as many as a box has at most."""
        if self.side.across:
            return tirx.const(self.columns, "int32")
        return tirx.min(kernel_extent(self.inner.extent) - self.deep, self.columns)

    @property
    def _bytes(self) -> ir.Expr:
        count = tirx.const(self.size, "int64")
        for extent in self.tensor.shape:
            count = count * T.cast(extent, "int64")
        return count

    @property
    def _memory(self) -> Any:
        return named("gathered_from", T.decl_buffer((self._bytes,), "uint8", data=self.tensor.data))


_SKIPPED_BITS = 8
"""Of what a warp knows of copies, those of the bytes that the first row skips; the others are of where rows end."""


def _low_bytes(count: ir.Expr) -> ir.Expr:
    """A mask of the low bytes of a word: none where the number of them is negative, all where it is four or more."""
    part = (T.uint32(1) << T.cast(tirx.max(tirx.min(count, _WORD - 1), 0) * 8, "uint32")) - T.uint32(1)
    return tirx.Select(count >= _WORD, T.uint32(0xFFFFFFFF), part)


# Arrivals of threads for the stages that they copy, some steps after they have started the copies.


class Landing:
    """Arrivals for stages that threads copy, some steps after they have started the copies.

    Attributes
    ----------
    behind : steps whose copies a thread has under way.
    ahead : copies are started before their stage is empty.
    """

    def __init__(self, full: Barriers, stages: int, behind: int, gathers: Sequence[Gather]) -> None:
        self.full, self.behind, self.gathers = full, behind, gathers
        self.ahead = all(isinstance(one, Realigned) for one in gathers)
        self.ring, self.started = Ring("landed", stages, 0), variable("started", T.int32(0))

    def follow(self, thread: ir.Expr) -> None:
        """After the copies of a step have been started: arrives for the step so far behind it, once there is one."""
        ptx("cp.async.commit_group")
        put(self.started, 0, self.started[0] + 1)
        with when(self.started[0] > self.behind):
            self._arrive(self.behind, thread)
            put(self.started, 0, T.int32(self.behind))

    def finish(self, thread: ir.Expr) -> None:
        if self.behind:
            with T.serial(self.started[0]):
                self._arrive(0, thread)

    def _arrive(self, pending: int, thread: ir.Expr) -> None:
        ptx("cp.async.wait_group", pending)
        for gather in self.gathers:
            gather.land(self.ring.stage, thread)
        ptx("fence.proxy.async.shared::cta")
        self.full.arrive(self.ring.stage)
        self.ring.advance()
