"""Copies of operand tiles to shared memory: vectors of 16 bytes where memory allows, else single elements.

Elements in the dtype of the sum go by cp.async; others through registers, where they are converted. The threads of a
warp copy neighbours of the operand's own side where those are neighbours in memory, else eight positions of k (a sector
of memory) at four places of its own side.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import Extent, as_index
from tvm_cascade.tile.emit import bind, branches, kernel_extent, ptx, put, registers, when
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.copies import copy_vector
from tvm_cascade.tile.row.linear import INDEX, VECTOR_BYTES
from tvm_cascade.tile.skeletons.simt.shape import Factor
from tvm_cascade.tile.skeletons.simt.shared import DEEP, Layout
from tvm_cascade.transform.printer import cast


def copied_at_once(factor: Factor, layout: Layout) -> int:
    """Elements that one copy brings: a vector where all are aligned, and inside of the tensor or outside together."""
    vector = layout.vector
    aligned = isinstance(factor.width, int) and factor.width % vector == 0 and factor.fills_rows
    return vector if aligned and not layout.is_turned else 1


@dataclass(frozen=True)
class Range:
    """A block's part of an operand's own side.

    Attributes
    ----------
    first : of the block's tile.
    extent : of the side.
    is_whole : no tile reaches beyond.
    """

    first: ir.Expr
    extent: ir.Expr
    is_whole: bool


class Copies:
    """The copies of one operand's tiles.

    Parameters
    ----------
    source : the tensor, as one dimension.
    memory, start : the block's shared memory, one dimension, and where the operand's stages start there.
    side : the block's part of the operand's own side.
    depth : the extent of k.
    """

    def __init__(
        self, name: str, source: Any, factor: Factor, layout: Layout, memory: Any, start: int, side: Range,
        depth: Extent, thread: ir.Expr, threads: int,
    ) -> None:  # fmt: skip
        self.source, self.factor, self.layout, self.side = source, factor, layout, side
        self.memory, self.dtype = memory, str(memory.dtype)
        self.depth, self.deep_whole = kernel_extent(depth), isinstance(depth, int) and depth % layout.depth == 0
        self.unit = copied_at_once(factor, layout)
        own, k = self._shared_out(thread, threads)
        self.own, self.k = bind(f"{name}_own_copied", own), bind(f"{name}_k_copied", k)
        offset = cast(side.first + self.own, INDEX) * as_index(factor.own, INDEX)
        self.origin = bind(f"{name}_origin", offset + cast(self.k, INDEX) * as_index(factor.depth, INDEX))
        self.place = bind(f"{name}_place", start + self.k * layout.row + self.own)
        self.is_converted = factor.dtype != self.dtype
        if self.is_converted:
            self.waiting = registers(f"{name}_waiting", self.count * self.unit, factor.dtype)

    def _shared_out(self, thread: ir.Expr, threads: int) -> tuple[ir.Expr, ir.Expr]:
        """(own, k) of a thread's first copy; the others are a step further, along its own side or along k."""
        layout = self.layout
        if layout.is_turned:
            parts = layout.depth // DEEP
            self.own_step, self.k_step = WARP // DEEP * (threads // WARP // parts), 0
            self.count = -(-layout.own // self.own_step)
            warp, lane = thread // WARP, thread % WARP
            return warp // parts * (WARP // DEEP) + lane // DEEP, warp % parts * DEEP + lane % DEEP
        across = layout.own // self.unit
        self.own_step, self.k_step = 0, threads // across
        self.count = -(-layout.depth // self.k_step)
        return thread % across * self.unit, thread // across

    def start(self, stage: ir.Expr, base: ir.Expr, step: ir.Expr) -> None:
        """Starts the thread's copies of a stage of k.

        Parameters
        ----------
        base : the offset of the batch, and of the outer sums.
        step : the stage's number along k.
        """
        factor, layout = self.factor, self.layout
        stride = as_index(factor.own, INDEX) * self.own_step + as_index(factor.depth, INDEX) * self.k_step
        deep = cast(step, INDEX) * (as_index(factor.depth, INDEX) * layout.depth)
        moved = bind("moved", base + self.origin + deep)
        for u in range(self.count):
            place, inside = moved + stride * u, self._inside(u, step)
            with self._has(u):
                if self.is_converted:
                    self._read(u, place, inside)
                else:
                    self._copy(self._target(stage, u), place, inside)

    def _target(self, stage: ir.Expr, u: int) -> ir.Expr:
        """Where the thread's u-th copy goes."""
        return stage * self.layout.elements + self.place + u * (self.k_step * self.layout.row + self.own_step)

    def _has(self, u: int) -> AbstractContextManager[None]:
        """Around a copy that not all threads may have."""
        layout = self.layout
        if layout.is_turned:
            every = (u + 1) * self.own_step <= layout.own
            return nullcontext() if every else when(self.own + u * self.own_step < layout.own)
        every = (u + 1) * self.k_step <= layout.depth
        return nullcontext() if every else when(self.k + u * self.k_step < layout.depth)

    def _inside(self, u: int, step: ir.Expr) -> ir.Expr | None:
        """Whether the thread's u-th copy is inside of the operand; None where all are."""
        conditions = []
        if not self.side.is_whole:
            conditions.append(self.side.first + self.own + u * self.own_step < self.side.extent)
        if not self.deep_whole:
            conditions.append(step * self.layout.depth + self.k + u * self.k_step < self.depth)
        return tirx.all(*conditions) if conditions else None

    def _copy(self, target: ir.Expr, place: ir.Expr, inside: ir.Expr | None) -> None:
        size = self.unit * self.layout.size
        given = [] if inside is None else [tirx.Select(inside, T.uint32(size), T.uint32(0))]
        instruction = f"cp.async.{'cg' if size == VECTOR_BYTES else 'ca'}.shared.global"
        ptx(instruction, self.memory.ptr_to([target]), self.source.ptr_to([place]), size, *given)

    def _read(self, u: int, place: ir.Expr, inside: ir.Expr | None) -> None:
        """To registers: the element, or zero outside."""
        first = tirx.const(u * self.unit, "int32")
        place = tirx.floordiv(place, self.unit) * self.unit if self.unit > 1 else place
        if inside is None:
            copy_vector(self.waiting, first, self.source, place, self.unit)
            return
        with branches(inside) as (there, elsewhere):
            with there:
                copy_vector(self.waiting, first, self.source, place, self.unit)
            with elsewhere:
                for e in range(self.unit):
                    put(self.waiting, u * self.unit + e, tirx.const(0, self.factor.dtype))

    def finish(self, stage: ir.Expr) -> None:
        """Stores what was read to registers."""
        if not self.is_converted:
            return
        converted = registers("converted", self.unit, self.dtype)
        for u in range(self.count):
            for e in range(self.unit):
                put(converted, e, cast(self.waiting[u * self.unit + e], self.dtype))
            place = self._target(stage, u)
            place = tirx.floordiv(place, self.unit) * self.unit if self.unit > 1 else place
            with self._has(u):
                copy_vector(self.memory, place, converted, tirx.const(0, "int32"), self.unit)


def commit() -> None:
    """Commits a thread's copies since the last commit as one group."""
    ptx("cp.async.commit_group")


def wait(pending: int) -> None:
    """Waits until at most so many of a thread's groups are under way."""
    ptx("cp.async.wait_group", pending)
