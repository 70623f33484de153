"""Emits the stream kernel of few rows: blocks share the concatenation of all rows' cascade axes in equal parts.

producer    for piece, for tile: wait until the stage is empty; copy B; copy each V
consumer    for piece: load A into registers; fold its tiles as the stream kernel does
the whole axis: finish; store
a part of it: leave the state; after all pieces, merge a share of what meets, in order; finish; store
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.widen import FeedPair, Widener
from tvm_cascade.tile.attention.pieces import Piece
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.ragged import RaggedCut
from tvm_cascade.tile.emit import named, ptx, when
from tvm_cascade.tile.hopper.barrier import Barriers
from tvm_cascade.tile.hopper.driver import Driver
from tvm_cascade.tile.launch.dependent import wait_for_others
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.skeletons.stream.pieces.clustered import ClusterMeeting
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, blocks_of_item, pieces_of_item
from tvm_cascade.tile.skeletons.stream.pieces.consumer import PiecesConsumer
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Meeting
from tvm_cascade.tile.skeletons.stream.pieces.meeting_warp import MeetingWarp
from tvm_cascade.tile.skeletons.stream.pieces.places import Places
from tvm_cascade.tile.skeletons.stream.pieces.spread import SpreadFinish, is_spread
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import Registers, Work

_INITIALISING = 4
"""Warps that initialise barriers."""

_GROUP_WARPS = 4

_MEETING_WARP = 3
"""The last warp of the producer's group, which sees to meetings where it neither copies nor converts."""


class PiecesKernel(Driver):
    """Emits the kernel of a tile program with few rows.

    Attributes
    ----------
    meeting_apart : the meeting that a warp of the producer's group sees to; None where consumers do.
    sharing : blocks that share each item, and have nothing else; None where blocks have parts of several.
    """

    meeting_apart: GridMeeting | None = None

    def __init__(self, program: TileProgram, config: PiecesConfig) -> None:
        super().__init__(program.stream.program.params, config.consumers, config.widening)
        self.program, self.config, self.stream = program, config, program.stream
        self.early, self.resident = program.early, config.neighbours
        self.tiling = Tiling(program, config, self.buffers)
        self.sharing = blocks_of_item(config, program)

    def describe(self) -> None:
        """Tensor maps of the right operands, and the meeting of what blocks have parts of."""
        self.right = self.tiling.copies(self.stream.right, self.config.columns)
        self.values = [self.tiling.value_copies(product) for product in self.stream.products]
        self.meeting = self._meeting()
        self.spread_finish = SpreadFinish(self.tiling, self.config.kept) if is_spread(self.stream) else None

    def _meeting(self) -> Meeting:
        if self.config.cluster > 1:
            return ClusterMeeting(self.tiling, self.config.cluster)
        pieces = pieces_of_item(self.config, self.program)
        apart, meets = self._has_free_warps, pieces != 1
        meeting = GridMeeting(self.tiling, self.name, pieces, self.config.consumers, meets=meets, apart=apart)
        meeting.is_of_all = self.sharing is not None and self.sharing > 1
        self.meeting_apart = meeting if meeting.apart else None
        return meeting

    @property
    def _has_free_warps(self) -> bool:
        """Whether the producer's group has warps that neither copy nor convert."""
        if self.config.converting_warps:
            return not self.stream.paged
        return not any(copies.by_threads for copies in (self.right, *self.values))

    def place(self) -> None:
        """Blocks with equal shares of the tiles of all items, and their threads."""
        config = self.config
        self.places = Places(self.tiling, 1, self.sharing, RaggedCut, whole=config.kept > 1)
        self.place_threads(named("block", T.cta_id([self.places.cut.grid])))
        if config.cluster > 1:
            named("rank", T.cta_id_in_cluster([config.cluster]))

    def _each_piece(self) -> AbstractContextManager[tuple[Piece, Work]]:
        """What is written within is done for every piece that the block has."""
        return self.places.each(self.threads.block)

    @contextmanager
    def _each_work(self) -> Iterator[Work]:
        """The block's pieces as work."""
        with self._each_piece() as (_, work):
            yield work

    def allocate(self, pool: Any) -> None:
        """Tiles, as they are copied and as products read them, and what meetings leave; then barriers."""
        self.right_feed = FeedPair(pool, "right_tiles", self.config.stages, [self.right])
        self.value_feed = FeedPair(pool, "value_tiles", self.config.stages, self.values)
        self.meeting.allocate(pool)
        if self.spread_finish is not None:
            self.spread_finish.allocate(pool)
        self.places.cut.allocate(pool)
        for pair in (self.right_feed, self.value_feed):
            pair.add_barriers(pool, self.consumers, self.config.converting_warps or _GROUP_WARPS)

    def barriers(self) -> list[Barriers]:
        """Those of both feeds."""
        return [barriers for pair in (self.right_feed, self.value_feed) for barriers in pair.barriers]

    def initialise(self) -> None:
        """Barriers by one thread of each of some warps; descriptors by that of another, which waits for no fence.

        Where a block has one piece, the first of them starts the copies of its first tile at once.
        """
        every, first = self.barriers(), int(self._starts_at_once)
        if self._starts_at_once:
            filled = [part.full for pair in self._filled for part in pair.stored.parts]
            with when(self.threads.thread == 0):
                for barriers in filled:
                    barriers.initialise()
                ptx("fence.proxy.async.shared::cta")
                self._produce_first()
            every = [barriers for barriers in every if not any(barriers is own for own in filled)]
        for number, barriers in enumerate(every, start=first):
            with when(self.threads.thread == number % _INITIALISING * WARP):
                barriers.initialise()
                ptx("fence.proxy.async.shared::cta")
        with when(self.threads.thread == _INITIALISING * WARP):
            for copies in (self.right, *self.values):
                copies.prefetch()
            self.meeting.initialise()

    def meet(self) -> None:
        """All threads wait for each other, once they have counted what shares are computed from."""
        self.places.cut.count(self.threads, self.config.threads)
        super().meet()
        self.meeting.start()

    def registers(self) -> Registers:
        """See `PiecesConfig.shares`."""
        return self.config.shares(self.stream)

    @property
    def begins_early(self) -> bool:
        """Whether tiles are copied before the kernel waits for those before it, which consumers and meetings do."""
        return self.program.given and not self.stream.paged and not self.places.differ

    def produce(self) -> None:
        """One thread copies, or warps for each feed of pages; others convert, and see to meetings."""
        if self.stream.paged:
            shared = [pair.stored for pair in self._filled]
            PagedProducer(self.tiling, self.threads, shared).run(self._each_work)
        else:
            with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
                self._produce_rows()
        if warps := self.config.converting_warps:
            with when(self.threads.warp >= _GROUP_WARPS - warps):
                self._widen(self._widened, _GROUP_WARPS - warps, warps)
        self._meet()

    def _meet(self) -> None:
        """What the warp of the meetings does."""
        if self.meeting_apart is not None:
            own = _MEETING_WARP - self.config.converting_warps
            with when(self.threads.warp == own), when(T.cuda.elect_sync()):
                if self.begins_early:
                    wait_for_others()
                MeetingWarp(self.meeting_apart).run(self._each_piece)

    def convert(self) -> None:
        """Each warp group converts a feed, or one converts both, a tile of each in turn."""
        for number in range(self.config.widening):
            with when(self.threads.group == self.consumers + 1 + number):
                self._widen(self._widened[number :: self.config.widening], 0, _GROUP_WARPS)

    @property
    def _widened(self) -> list[FeedPair]:
        return [pair for pair in (self.right_feed, self.value_feed) if pair.is_widened]

    def _widen(self, pairs: list[FeedPair], first: int, warps: int) -> None:
        """Some warps of a group convert feeds."""
        own = [Widener(pair, self.threads, first, warps) for pair in pairs]
        with self._each_piece() as (_, work), T.serial(work.tiles.end - work.tiles.first):
            for widener in own:
                widener.tile()

    def consume(self) -> None:
        """See `PiecesConsumer`."""
        right, value = self.right_feed.wide.whole, self.value_feed.wide.whole
        consumer = PiecesConsumer(self.tiling, self.threads, right, value, self.meeting, self.spread_finish)
        consumer.run(self._each_piece)

    @property
    def _starts_at_once(self) -> bool:
        """Whether the first tile is copied before all threads of the block have met."""
        return self.places.has_one_piece and not self.stream.paged

    @property
    def _filled(self) -> list[FeedPair]:
        """The feeds that have operands."""
        return [self.right_feed, *([self.value_feed] if self.values else [])]

    def _produce_first(self) -> None:
        with self._each_work() as work:
            for pair in self._filled:
                places = self.tiling.fixed_of(pair.copies, work)
                (part,) = pair.stored.parts
                pair.stored.copy_to(0, part, (work.tiles.end - 1) * self.config.columns, places)

    def _produce_rows(self) -> None:
        ring = self.right_feed.stored.filling("produced")
        with self._each_work() as work, T.serial(work.tiles.end - work.tiles.first) as step:
            row = (work.tiles.end - 1 - step) * self.config.columns
            with when(step > 0) if self._starts_at_once else nullcontext():
                for pair in self._filled:
                    pair.stored.copy(ring, row, self.tiling.fixed_of(pair.copies, work))
            ring.advance()
