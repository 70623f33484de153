"""Copies of operand tiles to shared memory: which elements each thread has, and cp.async of those kept as they are.

Neighbours of the operand's own side that are neighbours in memory are copied as vectors of 16 bytes where all vectors
are aligned, else one by one. Where neighbours in k are neighbours in memory, or neither are, the tile is turned on the
way: single elements are copied by warps of 8 positions of k (a sector of memory) at 4 places of its own side, vectors
along k as `tile.skeletons.simt.staged` says.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import Extent, as_index
from tvm_cascade.tile.emit import bind, kernel_extent, ptx, when
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.row.linear import INDEX, VECTOR_BYTES
from tvm_cascade.tile.skeletons.simt.shape import Factor
from tvm_cascade.tile.skeletons.simt.shared import Layout
from tvm_cascade.transform.printer import cast

_VECTORS_DEEP, _ELEMENTS_DEEP = 4, 8
"""Lanes of a warp along k, where tiles are turned: of vectors, and of single elements."""


@dataclass(frozen=True)
class Shares:
    """How the copies of a tile are shared out among threads.

    Attributes
    ----------
    layout : of the tile.
    unit : neighbours in memory that are copied at once.
    threads : of the block.
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
    def across(self) -> int:
        """Copies of a row, of a tile that is not turned."""
        return self.layout.own // self.unit

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """(own, k) of each of a thread's copies, from its first one on."""
        layout = self.layout
        if not layout.is_turned:
            step = self.threads // self.across
            return tuple((0, k) for k in range(0, layout.depth, step))
        step = self.lanes * (self.threads // WARP // self.warps_deep)
        deep = range(0, layout.depth, self.warps_deep * self.deep)
        return tuple((own, k) for own in range(0, layout.own, step) for k in deep)

    def first(self, thread: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """(own, k) of a thread's first copy."""
        if not self.layout.is_turned:
            return thread % self.across * self.unit, thread // self.across
        warp, lane, lanes_deep = thread // WARP, thread % WARP, self.deep // self.unit
        own = warp // self.warps_deep * self.lanes + lane // lanes_deep
        return own, warp % self.warps_deep * self.deep + lane % lanes_deep * self.unit

    @property
    def why_not(self) -> str:
        """Why a tile cannot be shared out so; empty where it can."""
        layout = self.layout
        if not layout.is_turned:
            wide = self.across > self.threads or self.threads % self.across
            return f"{self.threads} threads copy no whole rows of {layout.own}" if wide else ""
        short = layout.depth % self.deep or self.threads // WARP % self.warps_deep
        return f"{layout.depth} positions of k are no multiple of {self.deep}" if short else ""

    def has_all(self, own: int, k: int) -> bool:
        """Whether all threads have a copy, so far from their first one."""
        layout = self.layout
        if not layout.is_turned:
            return k + self.threads // self.across <= layout.depth
        return own + self.lanes * (self.threads // WARP // self.warps_deep) <= layout.own


def shares_of(factor: Factor, layout: Layout, depth: Extent, threads: int) -> Shares:
    """The shares of an operand: of vectors where all are aligned, and inside of the operand or outside together."""
    widths = [factor.width, depth] if layout.is_turned else [factor.width]
    aligned = all(isinstance(extent, int) and extent % layout.vector == 0 for extent in widths)
    contiguous = (factor.depth if layout.is_turned else factor.own) == 1
    return Shares(layout, layout.vector if aligned and contiguous else 1, threads)


@dataclass(frozen=True)
class Range:
    """A block's part of an operand.

    Attributes
    ----------
    first : of its own side.
    extent, depth : of its own side, and of k.
    is_whole, is_deep_whole : no tile, and no stage, reaches beyond.
    """

    first: ir.Expr
    extent: ir.Expr
    depth: ir.Expr
    is_whole: bool
    is_deep_whole: bool

    @staticmethod
    def of(first: ir.Expr, extent: Extent, depth: Extent, layout: Layout) -> Range:
        """The part of a tile."""
        whole, deep = isinstance(extent, int) and extent % layout.own == 0, isinstance(depth, int)
        return Range(first, kernel_extent(extent), kernel_extent(depth), whole, deep and int(depth) % layout.depth == 0)


class Copies:
    """The copies of one operand's tiles, by cp.async.

    Parameters
    ----------
    source : the tensor, as one dimension.
    memory, start : the block's shared memory, one dimension, and where the operand's stages start there.
    """

    def __init__(
        self,
        name: str,
        source: Any,
        factor: Factor,
        shares: Shares,
        memory: Any,
        start: int,
        part: Range,
        thread: ir.Expr,
    ) -> None:
        self.name, self.source, self.factor, self.shares = name, source, factor, shares
        self.layout, self.memory, self.part = shares.layout, memory, part
        own, k = shares.first(thread)
        self.own, self.k = bind(f"{name}_own_copied", own), bind(f"{name}_k_copied", k)
        offset = cast(part.first + self.own, INDEX) * as_index(factor.own, INDEX)
        self.origin = bind(f"{name}_origin", offset + cast(self.k, INDEX) * as_index(factor.depth, INDEX))
        self.target = bind(f"{name}_target", start + self.k * self.layout.row + self.own)
        self._allocate()

    def _allocate(self) -> None:
        """Registers on the way to shared memory: none, of copies that go there directly."""

    def at_step(self, base: ir.Expr, step: ir.Expr) -> ir.Expr:
        """The offset of the thread's first copy.

        Parameters
        ----------
        base : the offset of the batch, and of the outer sums.
        step : the stage's number along k.
        """
        deep = cast(step, INDEX) * (as_index(self.factor.depth, INDEX) * self.layout.depth)
        return bind(f"{self.name}_moved", base + self.origin + deep)

    def start(self, stage: ir.Expr, moved: ir.Expr, step: ir.Expr) -> None:
        """Starts the thread's copies of a stage of k, the first of which is at the offset `moved`."""
        size = self.shares.unit * self.layout.size
        instruction = f"cp.async.{'cg' if size == VECTOR_BYTES else 'ca'}.shared.global"
        for u in range(len(self.shares.steps)):
            inside = self._inside(u, step)
            given = [] if inside is None else [tirx.Select(inside, T.uint32(size), T.uint32(0))]
            with self._has(u):
                target = self.memory.ptr_to([self._target(stage, u)])
                ptx(instruction, target, self.source.ptr_to([self._source(moved, u)]), size, *given)

    def _source(self, moved: ir.Expr, u: int) -> ir.Expr:
        own, k = self.shares.steps[u]
        return moved + as_index(self.factor.own, INDEX) * own + as_index(self.factor.depth, INDEX) * k

    def _target(self, stage: ir.Expr, u: int) -> ir.Expr:
        """Where the thread's u-th copy goes."""
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
        (own, k), part = self.shares.steps[u], self.part
        conditions = []
        if not part.is_whole:
            conditions.append(part.first + self.own + own < part.extent)
        if not part.is_deep_whole:
            conditions.append(step * self.layout.depth + self.k + k < part.depth)
        return tirx.all(*conditions) if conditions else None


def commit() -> None:
    """Commits a thread's copies since the last commit as one group."""
    ptx("cp.async.commit_group")


def wait(pending: int) -> None:
    """Waits until at most so many of a thread's groups are under way."""
    ptx("cp.async.wait_group", pending)
