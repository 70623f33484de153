"""The pipeline of operand tiles in shared memory: producers fill the stages of a ring, consumers release them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.paged import PageNumbers, target_of, warps_of
from tvm_cascade.tile.emit import named, ptx, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.merge.lanes import WARP


class Arrivals(Protocol):
    """What tells a producer that a stage has been read."""

    def arrive(self, stage: ir.Expr | int) -> None:
        """Arrive."""


class Reading(Protocol):
    """What a consumer has of a pipeline: `Feed`, or a part of one."""

    @property
    def copies(self) -> Sequence[Any]:
        """Of each operand."""

    @property
    def tiles(self) -> Sequence[Any]:
        """Its shared memory, [stage, box, row, column]."""

    @property
    def empty(self) -> Arrivals:
        """Where to arrive once a stage has been read."""

    def reading(self, name: str) -> Ring:
        """A position in the ring."""

    def wait(self, ring: Ring) -> None:
        """Waits until its stage is full."""


@dataclass(frozen=True)
class Feed:
    """Tiles of operands that are copied, waited for and released together.

    Attributes
    ----------
    copies : of each operand, or the form of tiles that something else than copies fills (`attention.operands.widen`).
    tiles : its shared memory, [stage, box, row, column].
    full, empty : a barrier for each stage.
    """

    copies: Sequence[Any]
    tiles: Sequence[Any]
    full: Barriers
    empty: Barriers

    def filling(self, name: str) -> Ring:
        """The producer's position: every stage is empty at first."""
        return Ring(name, self.full.count, 1)

    def reading(self, name: str) -> Ring:
        """A consumer's position."""
        return Ring(name, self.full.count, 0)

    def wait(self, ring: Ring) -> None:
        """A consumer waits until its stage is full."""
        self.full.wait(ring.stage, ring.parity)
        if by_threads(self.copies):  # what threads write, products read through another proxy
            ptx("fence.proxy.async.shared::cta")

    def copy(self, ring: Ring, at: ir.Expr, fixed: Sequence[Mapping[int, ir.Expr]]) -> None:
        """Issues TMA copies of a tile of each tensor into the next stage, once that is empty.

        Parameters
        ----------
        fixed : of each tensor, the places of the dimensions that its tile does not run along.
        """
        self.empty.wait(ring.stage, ring.parity)
        self.copy_to(ring.stage, at, fixed)

    def copy_to(self, stage: ir.Expr | int, at: ir.Expr, fixed: Sequence[Mapping[int, ir.Expr]]) -> None:
        """As `copy`, into a stage that is known to be empty."""
        self.full.announce(stage, sum(copies.tile_bytes for copies in self.copies))
        for copies, tiles, places in zip(self.copies, self.tiles, fixed, strict=True):

            def target(box: int, tiles: Any = tiles) -> ir.Expr:
                return tiles.ptr_to([stage, box, 0, 0])

            copies.load(target, at, dict(places), self.full.pointer(stage))

    def copy_paged(self, ring: Ring, at: ir.Expr, fixed: Sequence[Mapping[int, ir.Expr]], pages: PageNumbers) -> None:
        """As `copy`, by all lanes of the warps that fill the feed, which share out operands in pages.

        What comes in bulk comes by the first of the warps.
        """
        leads = pages.place.leads
        self.empty.wait(ring.stage, ring.parity)
        with when(leads):
            self.full.announce(ring.stage, sum(copies.tile_bytes for copies in self.copies if not copies.by_threads))
        T.evaluate(T.cuda.warp_sync())
        for copies, tiles, places in zip(self.copies, self.tiles, fixed, strict=True):
            target, barrier, own = target_of(tiles, ring.stage), self.full.pointer(ring.stage), pages.of(copies)
            if own is not None:
                own.load(copies, target, at, places, barrier)
                continue
            with when(leads):
                copies.load(target, at, dict(places), barrier)
        if by_threads(self.copies):
            ptx("cp.async.mbarrier.arrive.noinc.shared.b64", self.full.pointer(ring.stage))


@dataclass(frozen=True)
class Readings:
    """The operands of a consumer.

    Attributes
    ----------
    left : a tile of rows, which stays while tiles of the others pass.
    right : what it is multiplied with.
    value : what the weights are multiplied with, one operand a product; none where there are no products.
    """

    left: Reading
    right: Reading
    value: Reading


@dataclass(frozen=True)
class Feeds(Readings):
    """The operands of a stream kernel, each with a pipeline of its own."""

    left: Feed
    right: Feed
    value: Feed


def by_threads(copies: Sequence[Any]) -> bool:
    """Whether threads copy rows of an operand."""
    return any(one.by_threads for one in copies)


def arrivals_of(copies: Sequence[Any]) -> int:
    """Arrivals that fill a stage of operands: of who announces bulk copies, and of all threads that copy rows."""
    return 1 + (WARP * warps_of(copies) if by_threads(copies) else 0)


def staged_tiles(name: str, pool: Any, stages: int, copies: Any) -> Any:
    """Shared memory for the tiles of an operand, [stage, box, row, column]."""
    return named(name, pool.alloc((stages, copies.boxes, copies.rows, copies.per_box), copies.element, align=1024))
