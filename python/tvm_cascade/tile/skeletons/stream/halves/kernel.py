"""Emits the stream kernel of a wide state: two groups lift in turn and both multiply, each half of the columns.

    producer    for tile: copy its parts, each once its stage is empty
    groups      for tile: see `half`

The right operand's tile is the values too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Feed, StagedPart, arrivals_of, staged_tiles
from tvm_cascade.tile.attention.pieces import OneEach, PieceWork
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.emit import bind, branches, named, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.driver import Driver, Initialised
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, HalfColumns, are_alike, parts_of
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.halves.half import Half, copying_shares, place_of
from tvm_cascade.tile.skeletons.stream.halves.shares import ClusterShares, Handed
from tvm_cascade.tile.skeletons.stream.halves.sharing import Shared
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Places, Tiling
from tvm_cascade.tile.work import WARP_GROUP, Registers

_HELD = 80
"""Registers that hold elements of states while a thread merges: with twice as many the code, which runs once and so
comes from the memory, is twice as long (measured, of L5: 31.9 and 33.2 µs; with half as many 32.1)."""


class HalvesKernel(Driver):
    """Emits the kernel."""

    def __init__(self, program: TileProgram, config: HalvesConfig, launch: Launch) -> None:
        super().__init__(program.stream.program.params, config.consumers)
        self.program, self.config, self.stream = program, config, program.stream
        self.early, self.tiling = launch.early, Tiling(program, config, self.buffers, launch.late)

    def describe(self) -> None:
        """Tensor maps of both operands and of what bulk copies store."""
        config, stream, warps = self.config, self.stream, WARP_GROUP // WARP  # all of the producer's: there is one feed
        self.left = self.tiling.copies(stream.left, config.rows, row_warps=warps)
        self.right = self.tiling.copies(stream.right, config.columns, row_warps=warps)
        self.epilogue = Epilogue(self.tiling)

    def place(self) -> None:
        """Blocks with pieces of items, one for each block that columns are spread over; of unequal lengths one each.

        Blocks with pieces of several items of unequal lengths took 83 instead of 60 µs (measured).
        """
        config = self.config
        by_length, sharing = OneEach if config.by_length else None, config.cluster if config.cluster > 1 else None
        self.places = Places(self.tiling, config.spread, sharing, by_length)
        self.place_threads(named("block", T.cta_id([self.places.cut.grid])))
        if config.cluster > 1:
            named("rank", T.cta_id_in_cluster([config.cluster]))

    def allocate(self, pool: Any) -> None:
        """Tiles of both operands, and where tiles were what blocks of a cluster send; then barriers of their parts."""
        config = self.config
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
        left = tuple(
            StagedPart(Barriers(pool, config.left_stages, 1), left_empty, part.boxes, part.readers) for part in parts
        )
        right = tuple(
            StagedPart(
                Barriers(pool, config.stages, arrivals_of([self.right])),
                Barriers(pool, config.stages, max(len(part.readers), 1)), part.boxes, part.readers,
            )
            for part in parts
        )  # fmt: skip
        for meeting in self._shares:
            meeting.add_barrier(pool)
        self.left_feed, self.tiles = Feed([self.left], [left_tiles], left), Feed([self.right], [right_tiles], right)

    def barriers(self) -> list[Initialised]:
        """Those of meetings, of what groups share, and of all parts."""
        left, right = self.left_feed.parts, self.tiles.parts
        of_parts = [*(p.full for p in left), *(b for p in right for b in (p.full, p.empty))]
        return [*self._shares, self.shared.barriers, left[0].empty, *of_parts]

    def meet(self) -> None:
        """All threads wait for each other, once they have counted what shares are computed from."""
        self.places.cut.count(self.threads, self.config.threads)
        super().meet()

    def registers(self) -> Registers:
        """See `HalvesConfig.shares`."""
        return self.config.shares(self.stream)

    def _meetings_of(self) -> Sequence[GridMeeting | ClusterShares]:
        """That of each group: one of both where groups are alike, so that both run the same code.

        What runs once comes from the memory instruction by instruction: 3 µs for 14 KiB of it (measured).
        """
        if self.config.cluster > 1:
            return [ClusterShares(self.tiling, self.config.cluster, self.epilogue)]
        if are_alike(self.stream):
            return [self._meeting(bind("group_of_two", self.threads.group - 1))]
        return [self._meeting(group) for group in range(GROUPS)]

    def _meeting(self, group: int | ir.Expr) -> GridMeeting:
        columns = HalfColumns(group, self.config.spread)
        return GridMeeting(self.tiling, self.name, self.config.most_pieces, 1, False, GROUPS, group, columns, _HELD)

    def _allocate_meetings(self, pool: Any) -> None:
        for one in self.meetings:
            one.allocate(pool, self.threads)

    def consume(self) -> None:
        """See `Half`."""
        first, of_both, handed = self.meetings[0], len(self.meetings) == 1, None
        if isinstance(first, ClusterShares):
            handed = first.handed = Handed(self.tiling, self.threads, first.blocks, self._left_place)
        elif of_both:
            first.begin(0)
        with branches(self.threads.group == 1) as halves:
            for group, half in enumerate(halves):
                with half:
                    self._group(group, None if of_both else self.meetings[group], handed)
        if of_both:
            first.settle(self._each_work)

    def _group(self, group: int, own: GridMeeting | ClusterShares | None, handed: Handed | None) -> None:
        meeting = own or self.meetings[0]
        half = Half(
            self.tiling, self.threads, self.left_feed, self.tiles, self.shared, self.epilogue,
            meeting if isinstance(meeting, GridMeeting) else None, group, self.config.spread, handed,
        )  # fmt: skip
        if isinstance(own, GridMeeting):
            own.begin(0)
        half.run(self._each_work)
        if own is not None:
            own.settle(self._each_work)

    @property
    def _shares(self) -> list[ClusterShares]:
        return [meeting for meeting in self.meetings if isinstance(meeting, ClusterShares)]

    def _left_place(self, box: ir.Expr | int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        """An address in the only stage of the left operand."""
        return place_of(self.left_feed.tiles[0], T.int32(0), box, row, column)

    def _each_work(self) -> AbstractContextManager[PieceWork]:
        """What is written within is done for every piece that the block has."""
        return self.places.each(self.threads.block)

    def produce(self) -> None:
        """One thread copies the parts that group 0 reads, and one the others; of pages, all warps all parts."""
        if self.stream.paged:
            PagedProducer(self.tiling, self.threads, [self.tiles], self.left_feed).run(self._each_work)
            return
        for warp, share in enumerate(copying_shares(self.tiles)):
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
            rows, places = self.tiling.fixed_of([self.left], work), self.tiling.fixed_of([self.right], work)
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
