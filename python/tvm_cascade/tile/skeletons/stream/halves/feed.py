"""The pipeline of a tile that is the right operand and the values at once, copied and released in parts.

A copy of a part starts as soon as its last reader is done, and the scores begin with the part that is there first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.copied_rows import RowCopies
from tvm_cascade.tile.attention.operands.feed import by_threads
from tvm_cascade.tile.attention.operands.paged import PageCopies, PageNumbers, target_of
from tvm_cascade.tile.emit import computed_here, ptx, when
from tvm_cascade.tile.hopper import wgmma
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.copy import TensorMap
from tvm_cascade.tile.skeletons.stream.halves.columns import Part


@dataclass(frozen=True)
class StagedPart:
    """A part of a tile with a barrier for each stage."""

    part: Part
    full: Barriers
    empty: Barriers


@dataclass(frozen=True)
class Released:
    """The parts whose stage a reader releases, as one barrier."""

    parts: tuple[StagedPart, ...]

    def arrive(self, stage: ir.Expr | int) -> None:
        """Arrives for each of them."""
        for staged in self.parts:
            staged.empty.arrive(stage)


@dataclass(frozen=True)
class Reader:
    """What one reader has of the pipeline; as `attention.operands.feed.Feed` to it.

    Attributes
    ----------
    copies, tiles : the operand, as often as the reader has products, and its shared memory.
    awaited : the parts that it waits for.
    empty : the parts that it is the last to read, or one of the last.
    """

    copies: tuple[TensorMap, ...]
    tiles: tuple[Any, ...]
    awaited: tuple[StagedPart, ...]
    empty: Released

    def reading(self, name: str) -> Ring:
        """A position in the ring."""
        return Ring(name, self.awaited[0].full.count, 0)

    def wait(self, ring: Ring) -> None:
        """Waits until the parts are full."""
        for staged in self.awaited:
            self.wait_part(staged, ring)

    def wait_part(self, staged: StagedPart, ring: Ring) -> None:
        """Waits until a part is full."""
        staged.full.wait(ring.stage, ring.parity)
        if by_threads(self.copies):  # what threads write, products read through another proxy
            ptx("fence.proxy.async.shared::cta")


@dataclass(frozen=True)
class PartedFeed:
    """The whole pipeline.

    Attributes
    ----------
    operand : its copies.
    tiles : its shared memory, [stage, box, row, column].
    parts : in the order in which stages become free.
    """

    operand: TensorMap
    tiles: Any
    parts: tuple[StagedPart, ...]

    @property
    def copies(self) -> tuple[TensorMap]:
        """Of the one operand."""
        return (self.operand,)

    def order_of(self, group: int) -> list[StagedPart]:
        """The parts as they arrive of the tiles that a group lifts: it is the first to have read its own before."""
        return sorted(self.parts, key=lambda staged: bool(staged.part.readers) + (group not in staged.part.readers))

    def shares(self) -> list[list[int]]:
        """The numbers of the parts that group 0 reads, and of all others: copied by one thread each."""
        own = [number for number, staged in enumerate(self.parts) if 0 in staged.part.readers]
        others = [number for number in range(len(self.parts)) if number not in own]
        return [share for share in (others, own) if share]

    def filling(self, name: str) -> Ring:
        """The producer's position: every stage is empty at first."""
        return Ring(name, self.parts[0].full.count, 1)

    def scores(self) -> Reader:
        """The reader of the scores; of parts that products read too these are the last."""
        alone = tuple(staged for staged in self.parts if not staged.part.readers)
        return Reader(self.copies, (self.tiles,), self.parts[:1], Released(alone))

    def values(self, group: int, products: int) -> Reader:
        """The products of a group."""
        own = tuple(staged for staged in self.parts if group in staged.part.readers)
        return Reader(self.copies * products, (self.tiles,) * products, own, Released(own))

    def whole(self) -> Reader:
        """The reader of all parts, which are released together."""
        return Reader(self.copies, (self.tiles,), self.parts, Released(self.parts[:1]))

    def copy(self, ring: Ring, at: ir.Expr, fixed: Sequence[Mapping[int, ir.Expr]]) -> None:
        """Issues TMA copies of a tile into the next stage, each part once its stage is empty."""
        for staged in self.parts:
            self.copy_part(staged, ring, at, fixed)

    def copy_part(self, staged: StagedPart, ring: Ring, at: ir.Expr, fixed: Sequence[Mapping[int, ir.Expr]]) -> None:
        """As `copy`, of one part."""
        (places,), boxes, full = fixed, staged.part.boxes, staged.full
        target = target_of(self.tiles, ring.stage)
        staged.empty.wait(ring.stage, ring.parity)
        full.announce(ring.stage, len(boxes) * self.operand.box_bytes)
        for box in boxes:
            self.operand.load_box(target(box), box, at, dict(places), full.pointer(ring.stage))

    def copy_paged(self, ring: Ring, at: ir.Expr, fixed: Sequence[Mapping[int, ir.Expr]], pages: PageNumbers) -> None:
        """As `copy`, by all lanes of the warps that fill the feed.

        Threads that copy rows copy all parts together: one by one took 90 instead of 85 µs (measured, pages of one).
        """
        own, (places,), threads = pages.of(self.operand), fixed, by_threads(self.copies)
        assert own is not None
        target = target_of(self.tiles, ring.stage)
        for staged in self.parts:
            staged.empty.wait(ring.stage, ring.parity)
            with when(pages.place.leads):
                staged.full.announce(ring.stage, 0 if threads else len(staged.part.boxes) * self.operand.box_bytes)
            T.evaluate(T.cuda.warp_sync())
            if isinstance(own, PageCopies):
                own.load(self.operand, target, at, places, staged.full.pointer(ring.stage), staged.part.boxes)
        if isinstance(own, RowCopies):
            own.load(self.operand, target, at, places, self.parts[0].full.pointer(ring.stage))
            for staged in self.parts:
                ptx("cp.async.mbarrier.arrive.noinc.shared.b64", staged.full.pointer(ring.stage))


def column_offset(first: ir.Expr | int, ring: Ring, copies: TensorMap) -> ir.Expr:
    """Where a column that begins a box lies in a reader's stage, in descriptor units."""
    stage = wgmma.stage_offset(ring.stage, copies.tile_bytes)
    if isinstance(first, int):
        return stage
    return stage + wgmma.stage_offset(first // copies.per_box, copies.box_bytes)


def place_of(tiles: Any, stage: ir.Expr, box: ir.Expr | int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
    """An address in a tile that is used once, so that no register is worth keeping it in."""
    at = column if isinstance(column, int) else computed_here(column)
    return tiles.ptr_to([stage, box, computed_here(row), at])
