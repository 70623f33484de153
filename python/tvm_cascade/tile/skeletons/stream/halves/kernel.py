"""Emits the stream kernel of a wide state: two groups lift in turn and both multiply, each half of the columns.

    producer    for tile: copy its parts, each once its stage is empty
    groups      for tile: see `half`

The right operand's tile is the values too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import arrivals_of, staged_tiles
from tvm_cascade.tile.attention.ragged import RaggedCut
from tvm_cascade.tile.attention.ragged_items import OneEach
from tvm_cascade.tile.emit import bind, branches, ptx, shared_pool, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, Part, are_alike, parts_of
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.halves.feed import PartedFeed, StagedPart, place_of
from tvm_cascade.tile.skeletons.stream.halves.half import Half
from tvm_cascade.tile.skeletons.stream.halves.meeting import HalfMeeting, PieceWork, Settling
from tvm_cascade.tile.skeletons.stream.halves.shares import ClusterShares, Handed
from tvm_cascade.tile.skeletons.stream.halves.sharing import Shared
from tvm_cascade.tile.skeletons.stream.pieces.kernel import PiecesKernel
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.work import WARP_GROUP


class HalvesKernel(PiecesKernel):
    """Emits the kernel."""

    config: HalvesConfig
    row_warps = WARP_GROUP // WARP  # all of the producer's: there is one feed

    def _maps(self) -> None:
        config, stream = self.config, self.stream
        self.left, self.right = self._map(stream.left, config.rows), self._map(stream.right, config.columns)
        self.epilogue = self._epilogue()

    def _shared(self) -> None:
        config, pool = self.config, shared_pool()
        left_tiles = staged_tiles("left_tiles", pool, config.left_stages, self.left)
        first = pool.offset
        right_tiles = staged_tiles("right_tiles", pool, config.stages, self.right)
        self.meetings = self._meetings_of()
        if config.cluster > 1:
            end = pool.offset
            pool.move_base_to(first)
            self._allocate_meetings(pool)
            pool.move_base_to(end)
        self.shared = Shared(pool, self.program, config.columns)
        self.epilogue.allocate(pool, self.left.boxes)
        if config.cluster == 1:
            self._allocate_meetings(pool)
        self.places.cut.allocate(pool)
        left_empty = Barriers(pool, config.left_stages, config.consumers)
        parts = parts_of(self.stream, config.spread)
        left = tuple(StagedPart(part, Barriers(pool, config.left_stages, 1), left_empty) for part in parts)
        right = tuple(self._staged(pool, part) for part in parts)
        for meeting in self._shares:
            meeting.add_barrier(pool)
        pool.commit()
        with when(self.threads.thread == 0):
            for meeting in self._shares:
                meeting.initialise()
            for barriers in (
                self.shared.barriers,
                left_empty,
                *(p.full for p in left),
                *(b for p in right for b in (p.full, p.empty)),
            ):
                barriers.initialise()
        ptx("fence.proxy.async.shared::cta")
        self.places.cut.count(self.threads, config.threads)
        T.evaluate(T.cuda.cta_sync())
        self.left_feed, self.tiles = PartedFeed(self.left, left_tiles, left), PartedFeed(self.right, right_tiles, right)

    def _meetings_of(self) -> Sequence[HalfMeeting | ClusterShares]:
        """That of each group: the same one where groups are alike, so that both run the same code.

        What runs once comes from the memory instruction by instruction: 3 µs for 14 KiB of it (measured).
        """
        if self.config.cluster > 1:
            return [ClusterShares(self.tiling, self.config.cluster, self.epilogue)] * GROUPS
        if are_alike(self.stream):
            return [HalfMeeting(self.tiling, self.name, bind("group_of_two", self.threads.group - 1))] * GROUPS
        return [HalfMeeting(self.tiling, self.name, group) for group in range(GROUPS)]

    def _allocate_meetings(self, pool: Any) -> None:
        for one in dict.fromkeys(self.meetings):
            one.allocate(pool)

    def _staged(self, pool: Any, part: Part) -> StagedPart:
        full = Barriers(pool, self.config.stages, arrivals_of([self.right]))
        return StagedPart(part, full, Barriers(pool, self.config.stages, max(len(part.readers), 1)))

    def _consume(self) -> None:
        ptx("setmaxnreg.inc.sync.aligned.u32", self.config.consumer_registers)
        first, self.handed = self.meetings[0], None
        if isinstance(first, ClusterShares):
            self.handed = first.handed = Handed(self.tiling, self.threads, first.blocks, self._left_place)
        if first.is_of_both:
            first.begin(Settling.of(self.threads))
        with branches(self.threads.group == 1) as halves:
            for group, half in enumerate(halves):
                with half:
                    self._group(group)
        if first.is_of_both:
            first.settle_all(self.threads, self._each_work)

    def _group(self, group: int) -> None:
        meeting = self.meetings[group]
        half = Half(
            self.tiling, self.threads, self.left_feed, self.tiles, self.shared, self.epilogue, meeting, group,
            self.handed,
        )  # fmt: skip
        if not meeting.is_of_both:
            meeting.begin(half)
        half.run(self._each_work)
        if not meeting.is_of_both:
            meeting.settle_all(self.threads, self._each_work)

    @property
    def _shares(self) -> list[ClusterShares]:
        return [meeting for meeting in dict.fromkeys(self.meetings) if isinstance(meeting, ClusterShares)]

    def _left_place(self, box: ir.Expr | int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the only stage of the left operand."""
        return place_of(self.left_feed.tiles, T.int32(0), box, row, column)

    @contextmanager
    def _each_work(self) -> Iterator[PieceWork]:
        """What is written within is done for every piece that the block has."""
        with self._each_piece() as (piece, work):
            yield PieceWork(work.first_row, work.batch, work.tiles, piece, piece.item % self.spread)

    @property
    def by_length(self) -> type[RaggedCut] | None:
        """Pieces of one item each: blocks with pieces of several took 83 instead of 60 µs (measured)."""
        return OneEach if self.config.by_length else None

    @property
    def spread(self) -> int:
        """Items of a tile of rows: one for each block that its columns are spread over."""
        return self.config.spread

    def _produce(self) -> None:
        if self.stream.paged:
            PagedProducer(self.tiling, self.threads, [self.tiles], self.left_feed).run(self._each_work)
            return
        for warp, share in enumerate(self.tiles.shares()):
            with when(self.threads.warp == warp), when(T.cuda.elect_sync()):
                self._produce_parts(share)

    def _produce_parts(self, numbers: Sequence[int]) -> None:
        """Copies some of the parts, each as soon as it may be, whatever others wait for.

        The second tile waits until the first, which all wait for, is there: 0.98 of the time of 8 tiles (measured).
        """
        for copies in (self.left, self.right):
            copies.prefetch()
        ring, left = self.tiles.filling("produced"), self.left_feed.filling("produced_left")
        with self._each_work() as work:
            rows, places = self._fixed(self.left_feed, work), self._fixed(self.tiles, work)
            last = (work.tiles.end - 1) * self.config.columns
            for number in numbers:
                self.left_feed.copy_part(self.left_feed.parts[number], left, work.first_row, rows)
                self.tiles.copy_part(self.tiles.parts[number], ring, last, places)
            self.tiles.parts[numbers[-1]].full.wait(ring.stage, ring.parity ^ 1)
            left.advance()
            ring.advance()
            with T.serial(work.tiles.end - work.tiles.first - 1) as step:
                for number in numbers:
                    place = last - (step + 1) * self.config.columns
                    self.tiles.copy_part(self.tiles.parts[number], ring, place, places)
                ring.advance()
