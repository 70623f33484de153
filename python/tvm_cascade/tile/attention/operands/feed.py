"""The pipeline of operand tiles in shared memory: producers fill the stages of a ring, consumers release them.

A tile may come in parts. A copy of a part then starts as soon as its last reader is done, and products begin with the
part that is there first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.paged import PageNumbers, RowCopies, target_of, warps_of
from tvm_cascade.tile.emit import named, ptx, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import BOX_BYTES, RowParts
from tvm_cascade.tile.merge.lanes import WARP

Fixed = Sequence[Mapping[int, ir.Expr]]
"""Of each operand, the places of the dimensions that its tile does not run along."""


@dataclass(frozen=True)
class StagedPart:
    """Boxes of a tile that are copied, waited for and released together.

    Attributes
    ----------
    full, empty : a barrier for each stage.
    boxes : of the tile; None for all.
    readers : the consumers whose products read them, where those differ.
    """

    full: Barriers
    empty: Barriers
    boxes: range | None = None
    readers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Feed:
    """Tiles of operands with a pipeline of their own.

    Attributes
    ----------
    copies : of each operand, or the form of tiles that something else than copies fills (`attention.operands.widen`).
    tiles : its shared memory, [stage, box, row, column].
    parts : in the order in which stages become free; of several operands there is one.
    awaited, released : by a consumer that sees some parts alone: those that it waits for, and those that it is the last
        to read, or one of the last. All are released together by default.
    """

    copies: Sequence[Any]
    tiles: Sequence[Any]
    parts: tuple[StagedPart, ...]
    awaited: tuple[StagedPart, ...] | None = None
    released: tuple[StagedPart, ...] | None = None

    def reading(self, name: str) -> Ring:
        return Ring(name, self.parts[0].full.count, 0)

    def wait(self, ring: Ring) -> None:
        for part in self.parts if self.awaited is None else self.awaited:
            self.wait_part(part, ring)

    def wait_part(self, part: StagedPart, ring: Ring) -> None:
        part.full.wait(ring.stage, ring.parity)
        if by_threads(self.copies):  # what threads write, products read through another proxy
            ptx("fence.proxy.async.shared::cta")

    def release(self, stage: ir.Expr | int) -> None:
        for part in self.parts[:1] if self.released is None else self.released:
            part.empty.arrive(stage)

    def filling(self, name: str) -> Ring:
        """The producer's position: every stage is empty at first."""
        return Ring(name, self.parts[0].full.count, 1)

    def copy(self, ring: Ring, at: ir.Expr, fixed: Fixed) -> None:
        """Issues TMA copies of a tile of each operand into the next stage, once that is empty."""
        for part in self.parts:
            self.copy_part(part, ring, at, fixed)

    def copy_part(self, part: StagedPart, ring: Ring, at: ir.Expr, fixed: Fixed) -> None:
        part.empty.wait(ring.stage, ring.parity)
        self.copy_to(ring.stage, part, at, fixed)

    def copy_to(self, stage: ir.Expr | int, part: StagedPart, at: ir.Expr, fixed: Fixed) -> None:
        """As `copy_part`, into a stage that is known to be empty."""
        part.full.announce(stage, _bytes(self.copies, part, at))
        for copies, tiles, places in zip(self.copies, self.tiles, fixed, strict=True):
            copies.load(target_of(tiles, stage), at, dict(places), part.full.pointer(stage), part.boxes)

    def copy_paged(self, ring: Ring, at: ir.Expr, fixed: Fixed, pages: PageNumbers) -> None:
        """As `copy`, by all lanes of the warps that fill the feed, which share out operands in pages.

        What comes in bulk comes by the first of the warps. Threads that copy rows copy all parts together: one by one
        took 90 instead of 85 µs (measured, pages of one).
        """
        leads, threads = pages.leads, by_threads(self.copies)
        for part in self.parts:
            part.empty.wait(ring.stage, ring.parity)
            with when(leads):
                part.full.announce(ring.stage, _bytes([one for one in self.copies if not one.by_threads], part, at))
            T.evaluate(T.cuda.warp_sync())
            for copies, tiles, places in zip(self.copies, self.tiles, fixed, strict=True):
                target, barrier, own = target_of(tiles, ring.stage), part.full.pointer(ring.stage), pages.of(copies)
                if isinstance(own, RowCopies):
                    if part is self.parts[-1]:
                        own.load(copies, target, at, places)
                elif own is not None:
                    own.load(copies, target, at, places, barrier, part.boxes)
                else:
                    with when(leads):
                        copies.load(target, at, dict(places), barrier, part.boxes)
        for part in self.parts if threads else ():
            ptx("cp.async.mbarrier.arrive.noinc.shared.b64", part.full.pointer(ring.stage))


def _bytes(copies: Sequence[Any], part: StagedPart, at: ir.Expr) -> ir.Expr | int:
    return sum(one.bytes_from(at, part.boxes) for one in copies)


def by_threads(copies: Sequence[Any]) -> bool:
    return any(one.by_threads for one in copies)


def arrivals_of(copies: Sequence[Any]) -> int:
    """Arrivals that fill a stage of operands: of who announces bulk copies, and of all threads that copy rows."""
    return 1 + (WARP * warps_of(copies) if by_threads(copies) else 0)


def staged_parts(name: str, pool: Any, stages: int, copies: RowParts) -> Any:
    return named(name, pool.alloc((stages, 1, 1, copies.columns), copies.operand.stored, align=BOX_BYTES))


def staged_tiles(name: str, pool: Any, stages: int, copies: Any) -> Any:
    return named(name, pool.alloc((stages, copies.boxes, copies.rows, copies.per_box), copies.element, align=1024))
