"""Tiles of operands in shared memory, [k][own side]: who copies which elements there, and who reads them.

Neighbours of the operand's own side that are neighbours in memory are copied as vectors of 16 bytes where all vectors
are aligned, else one by one, by cp.async. Where neighbours in k are neighbours in memory, or neither are, the tile is
turned on the way: single elements are copied by warps of 8 positions of k (a sector of memory) at 4 places of its own
side. Vectors along k, and elements that are converted, go through registers.

A warp of 8×4 threads reads eight different vectors of either side at most: a read of half a warp is one access.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import Extent, as_index, extent_of
from tvm_cascade.tile.emit import bind, branches, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.memory import INDEX, VECTOR_BYTES, as_multiple, copy_vector
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.product.matrix import Side
from tvm_cascade.transform.printer import cast

_VECTORS_DEEP, _ELEMENTS_DEEP = 4, 8
"""Lanes of a warp along k, where tiles are turned: of vectors, and of single elements."""

_PIECES = 4
"""Of a stage that goes through registers, at most."""


@dataclass(frozen=True)
class Cut:
    """How one side of a result, rows or columns, is cut into the elements of blocks, warps and threads.

    Attributes
    ----------
    warps : of a block along this side.
    lanes : of a warp along this side, 4 or 8; the other side has the other number.
    own : elements of a thread.
    """

    warps: int
    lanes: int
    own: int

    @property
    def warp(self) -> int:
        return self.lanes * self.own

    @property
    def block(self) -> int:
        return self.warps * self.warp


@dataclass(frozen=True)
class Layout:
    """The layout of an operand's tile of one stage.

    Attributes
    ----------
    own, depth : elements of its own side, and of k.
    is_turned : it is copied from memory where neighbours are not those of its own side, an element at a time; rows are
        a vector longer then, so that copies of eight positions of k are to banks of their own.
    size : bytes of an element.
    """

    own: int
    depth: int
    is_turned: bool
    size: int

    @property
    def vector(self) -> int:
        return VECTOR_BYTES // self.size

    @property
    def row(self) -> int:
        return self.own + (self.vector if self.is_turned else 0)

    @property
    def elements(self) -> int:
        return self.row * self.depth


@dataclass(frozen=True)
class Shares:
    """How the copies of a tile are shared out among threads.

    Attributes
    ----------
    unit : neighbours in memory that are copied at once.
    """

    layout: Layout
    unit: int
    threads: int

    @property
    def deep(self) -> int:
        """Positions of k that a warp copies at once, of a tile that is turned."""
        return _VECTORS_DEEP * self.unit if self.unit > 1 else _ELEMENTS_DEEP

    @property
    def lanes(self) -> int:
        """Lanes along the operand's own side, of a tile that is turned."""
        return WARP * self.unit // self.deep

    @property
    def warps_deep(self) -> int:
        """Warps beside each other along k, of a tile that is turned."""
        return min(self.threads // WARP, self.layout.depth // self.deep)

    @property
    def step(self) -> int:
        """Between a thread's copies: along the own side of a tile that is turned, along k of another."""
        if self.layout.is_turned:
            return self.lanes * (self.threads // WARP // self.warps_deep)
        return self.threads // self.across

    @property
    def across(self) -> int:
        """Copies of a row, of a tile that is not turned."""
        return self.layout.own // self.unit

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        layout = self.layout
        if not layout.is_turned:
            return tuple((0, k) for k in range(0, layout.depth, self.step))
        deep = range(0, layout.depth, self.warps_deep * self.deep)
        return tuple((own, k) for own in range(0, layout.own, self.step) for k in deep)

    def first(self, thread: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        if not self.layout.is_turned:
            return thread % self.across * self.unit, thread // self.across
        warp, lane, lanes_deep = thread // WARP, thread % WARP, self.deep // self.unit
        own = warp // self.warps_deep * self.lanes + lane // lanes_deep
        return own, warp % self.warps_deep * self.deep + lane % lanes_deep * self.unit

    @property
    def why_not(self) -> str:
        layout = self.layout
        if not layout.is_turned:
            wide = self.across > self.threads or self.threads % self.across
            return f"{self.threads} threads copy no whole rows of {layout.own}" if wide else ""
        short = layout.depth % self.deep or self.threads // WARP % self.warps_deep
        return f"{layout.depth} positions of k are no multiple of {self.deep}" if short else ""

    def has_all(self, own: int, k: int) -> bool:
        layout = self.layout
        return own + self.step <= layout.own if layout.is_turned else k + self.step <= layout.depth


def shares_of(side: Side, layout: Layout, depth: Extent, threads: int) -> Shares:
    """The shares of an operand: of vectors where all are aligned, and inside of the operand or outside together."""
    width = extent_of(side.view.shape[-1])
    widths = [width, depth] if layout.is_turned else [width]
    aligned = all(isinstance(extent, int) and extent % layout.vector == 0 for extent in widths)
    contiguous = (side.deep_step if layout.is_turned else side.own_step) == 1
    return Shares(layout, layout.vector if aligned and contiguous else 1, threads)


class Copies:
    """The copies of one operand's tiles.

    A stage that goes through registers is copied piece by piece while another is multiplied, so that few registers wait
    for memory:

        read piece 0;  some products;  store piece 0, read piece 1;  the next products;  store piece 1;  …

    Parameters
    ----------
    first : of the operand's own side, where the block's tile starts.
    memory, start : the block's shared memory, one dimension, and where the operand's stages start there.

    Attributes
    ----------
    pieces : of a stage that goes through registers; none of one that is copied by cp.async.
    """

    def __init__(
        self, name: str, source: Any, side: Side, depth: Extent, shares: Shares, first: ir.Expr, memory: Any,
        start: int, thread: ir.Expr,
    ) -> None:  # fmt: skip
        self.name, self.source, self.side, self.depth, self.shares = name, source, side, depth, shares
        self.layout, self.first, self.memory, self.dtype = shares.layout, first, memory, str(memory.dtype)
        own, k = shares.first(thread)
        self.own, self.k = bind(f"{name}_own_copied", own), bind(f"{name}_k_copied", k)
        offset = cast(first + self.own, INDEX) * as_index(side.own_step, INDEX)
        self.origin = bind(f"{name}_origin", offset + cast(self.k, INDEX) * as_index(side.deep_step, INDEX))
        self.target = bind(f"{name}_target", start + self.k * self.layout.row + self.own)
        self.pieces: list[range] = []
        if side.dtype != self.dtype or (self.layout.is_turned and shares.unit > 1):
            unit, copies = shares.unit, len(shares.steps)
            each = -(-copies // _PIECES)
            self.pieces = [range(u, min(u + each, copies)) for u in range(0, copies, each)]
            self.waiting = registers(f"{name}_waiting", each * unit, side.dtype)
            self.converted = registers(f"{name}_converted", unit, self.dtype)

    def at_step(self, base: ir.Expr, step: ir.Expr) -> ir.Expr:
        """The offset of the thread's first copy."""
        deep = cast(step, INDEX) * (as_index(self.side.deep_step, INDEX) * self.layout.depth)
        return bind(f"{self.name}_moved", base + self.origin + deep)

    def start(self, stage: ir.Expr, moved: ir.Expr, step: ir.Expr) -> None:
        """Starts the thread's copies of a stage of k by cp.async, the first of which is at the offset `moved`."""
        size = self.shares.unit * self.layout.size
        instruction = f"cp.async.{'cg' if size == VECTOR_BYTES else 'ca'}.shared.global"
        for u in range(0 if self.pieces else len(self.shares.steps)):
            inside = self._inside(u, step)
            given = [] if inside is None else [tirx.Select(inside, T.uint32(size), T.uint32(0))]
            with self._has(u):
                target = self.memory.ptr_to([self._target(stage, u)])
                ptx(instruction, target, self.source.ptr_to([self._source(moved, u)]), size, *given)

    def places(self, count: int) -> Iterator[tuple[int, int, range]]:
        """(first, last, piece) of each piece: the products among `count` that it is read before, and stored after."""
        for number, piece in enumerate(self.pieces):
            first, end = number * count // len(self.pieces), (number + 1) * count // len(self.pieces)
            yield first, max(first, end - 1), piece

    def read(self, piece: range, moved: ir.Expr, step: ir.Expr) -> None:
        unit = self.shares.unit
        for number, u in enumerate(piece):
            first, inside = tirx.const(number * unit, "int32"), self._inside(u, step)
            place = as_multiple(self._source(moved, u), unit)
            with self._has(u):
                if inside is None:
                    copy_vector(self.waiting, first, self.source, place, unit)
                    continue
                with branches(inside) as (there, elsewhere):
                    with there:
                        copy_vector(self.waiting, first, self.source, place, unit)
                    with elsewhere:
                        for e in range(unit):
                            put(self.waiting, number * unit + e, tirx.const(0, self.side.dtype))

    def store(self, piece: range, stage: ir.Expr) -> None:
        unit, row = self.shares.unit, self.layout.row
        for number, u in enumerate(piece):
            target = self._target(stage, u)
            with self._has(u):
                values = [cast(self.waiting[number * unit + e], self.dtype) for e in range(unit)]
                if self.layout.is_turned or unit == 1:
                    for e, value in enumerate(values):
                        put(self.memory, target + e * row, value)
                    continue
                for e, value in enumerate(values):
                    put(self.converted, e, value)
                copy_vector(self.memory, as_multiple(target, unit), self.converted, tirx.const(0, "int32"), unit)

    def _source(self, moved: ir.Expr, u: int) -> ir.Expr:
        own, k = self.shares.steps[u]
        return moved + as_index(self.side.own_step, INDEX) * own + as_index(self.side.deep_step, INDEX) * k

    def _target(self, stage: ir.Expr, u: int) -> ir.Expr:
        own, k = self.shares.steps[u]
        return stage * self.layout.elements + self.target + (k * self.layout.row + own)

    def _has(self, u: int) -> AbstractContextManager[None]:
        """Around a copy that not all threads may have."""
        own, k = self.shares.steps[u]
        if self.shares.has_all(own, k):
            return nullcontext()
        return when(self.own + own < self.layout.own if self.layout.is_turned else self.k + k < self.layout.depth)

    def _inside(self, u: int, step: ir.Expr) -> ir.Expr | None:
        """Whether the thread's u-th copy is inside of the operand; None where all are."""
        (own, k), layout, extent, depth = self.shares.steps[u], self.layout, self.side.line.extent, self.depth
        conditions = []
        if not (isinstance(extent, int) and extent % layout.own == 0):
            conditions.append(self.first + self.own + own < kernel_extent(extent))
        if not (isinstance(depth, int) and depth % layout.depth == 0):
            conditions.append(step * layout.depth + self.k + k < kernel_extent(depth))
        return tirx.all(*conditions) if conditions else None


class Fragment:
    """What a thread reads of an operand's tile, and its registers.

    Parameters
    ----------
    memory, first : the block's shared memory, one dimension, and where the operand's stages start there.
    warp, lane : of the thread, along the operand's own side.
    start : of the thread's slice in every stage, in positions of k.
    """

    def __init__(
        self, name: str, layout: Layout, cut: Cut, memory: Any, first: int, warp: ir.Expr, lane: ir.Expr,
        start: ir.Expr,
    ) -> None:  # fmt: skip
        self.layout, self.cut, self.memory, self.first = layout, cut, memory, first
        vector = layout.vector
        self.own = bind(f"{name}_own", warp * (cut.warp // vector) + lane)
        self.start = bind(f"{name}_start", start * (layout.row // vector) + self.own)
        self.registers = registers(f"{name}_fragment", cut.own, str(memory.dtype))

    def load(self, stage: ir.Expr, k: int) -> None:
        layout, vector = self.layout, self.layout.vector
        for group in range(self.cut.own // vector):
            place = self.start + (k * (layout.row // vector) + group * self.cut.lanes)
            source = self.first + stage * layout.elements + place * vector
            copy_vector(self.registers, tirx.const(group * vector, "int32"), self.memory, source, vector)

    def index(self, i: ir.Expr | int) -> ir.Expr:
        vector = self.layout.vector
        return self.own * vector + (i // vector * (self.cut.lanes * vector) + i % vector)
