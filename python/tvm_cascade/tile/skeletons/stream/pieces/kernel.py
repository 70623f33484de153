"""Emits the stream kernel of few rows: blocks share the concatenation of all rows' cascade axes in equal parts.

producer    for piece, for tile: wait until the stage is empty; copy B; copy each V
consumer    for piece: load A into registers; fold its tiles as the stream kernel does
the whole axis: finish; store
a part of it: leave the state; after all pieces, merge a share of what meets, in order; finish; store
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.widen import Widener
from tvm_cascade.tile.attention.pieces import Piece
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.ragged import RaggedCut
from tvm_cascade.tile.emit import branches, named, ptx, shared_pool, when
from tvm_cascade.tile.launch.dependent import let_others_start, wait_for_others
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.clustered import ClusterMeeting
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, blocks_of_item, pieces_of_item
from tvm_cascade.tile.skeletons.stream.pieces.consumer import PiecesConsumer
from tvm_cascade.tile.skeletons.stream.pieces.feeds import FeedPair
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridMeeting
from tvm_cascade.tile.skeletons.stream.pieces.meeting import Meeting
from tvm_cascade.tile.skeletons.stream.pieces.places import Places
from tvm_cascade.tile.skeletons.stream.pieces.spread import SpreadFinish, is_spread
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.work import Threads, Work

_INITIALISING = 4
"""Warps that initialise barriers."""

_GROUP_WARPS = 4

_MEETING_WARP = 3
"""The last warp of the producer's group, which sees to meetings where it neither copies nor converts."""


class PiecesKernel(StreamKernel):
    """Emits the kernel of a tile program with few rows."""

    config: PiecesConfig

    meeting_apart: GridMeeting | None = None
    """The meeting that a warp of the producer's group sees to."""

    sharing: int | None = None
    """Blocks that share each item, and have nothing else; None where blocks have parts of several."""

    @property
    def by_length(self) -> type[RaggedCut] | None:
        """How shares follow what is alive at each place; None where they do not."""
        return RaggedCut

    def __init__(self, program: TileProgram, config: PiecesConfig) -> None:
        super().__init__(program, config)

    def _maps(self) -> None:
        self.right = self._map(self.stream.right, self.config.columns)
        self.values = [self._value_map(product) for product in self.stream.products]
        self.sharing = blocks_of_item(self.config, self.program)
        self.meeting = self._meeting()
        self.spread_finish = SpreadFinish(self.tiling, self.config.kept) if is_spread(self.stream) else None

    def _meeting(self) -> Meeting:
        if self.config.cluster > 1:
            return ClusterMeeting(self.tiling, self.config.cluster)
        pieces = pieces_of_item(self.config, self.program)
        meeting = GridMeeting(self.tiling, self.name, pieces, self.config.consumers, apart=self._has_free_warps)
        meeting.is_of_all = self.sharing is not None and self.sharing > 1
        self.meeting_apart = meeting if meeting.apart else None
        return meeting

    @property
    def _has_free_warps(self) -> bool:
        """Whether the producer's group has warps that neither copy nor convert."""
        if self.config.converting_warps:
            return not self.stream.paged
        return not any(copies.by_threads for copies in (self.right, *self.values))

    def _places(self) -> None:
        config = self.config
        sharing = config.cluster if config.cluster > 1 else self.sharing
        self.places = Places(self.tiling, self.spread, sharing, self.by_length, whole=config.kept > 1)
        self.threads = Threads(
            named("block", T.cta_id([self.places.cut.grid])),
            named("group", T.warpgroup_id([config.consumers + 1 + config.converters])),
            named("warp", T.warp_id_in_wg([4])),
            named("lane", T.lane_id([32])),
            named("thread", T.thread_id([config.threads])),
        )
        if config.cluster > 1:
            named("rank", T.cta_id_in_cluster([config.cluster]))

    @property
    def spread(self) -> int:
        """Items of each tile of rows, one after the other."""
        return 1

    def _each_piece(self) -> AbstractContextManager[tuple[Piece, Work]]:
        """What is written within is done for every piece that the block has."""
        return self.places.each(self.threads.block)

    def _shared(self) -> None:
        config, pool = self.config, shared_pool()
        self.right_feed = FeedPair(pool, config, "right_tiles", [self.right])
        self.value_feed = FeedPair(pool, config, "value_tiles", self.values)
        self.meeting.allocate(pool)
        if self.spread_finish is not None:
            self.spread_finish.allocate(pool)
        self.places.cut.allocate(pool)
        for pair in (self.right_feed, self.value_feed):
            pair.add_barriers(pool)
        pool.commit()
        self._initialise()
        self.places.cut.count(self.threads, config.threads)
        T.evaluate(T.cuda.cta_sync())
        self.meeting.start()

    def _initialise(self) -> None:
        """Barriers by one thread of each of some warps; descriptors by that of another, which waits for no fence.

        Where a block has one piece, the first of them starts the copies of its first tile at once.
        """
        every = [barriers for pair in (self.right_feed, self.value_feed) for barriers in pair.barriers]
        if self._starts_at_once:
            first = [pair.stored.full for pair in self._filled]
            with when(self.threads.thread == 0):
                for barriers in first:
                    barriers.initialise()
                ptx("fence.proxy.async.shared::cta")
                self._produce_first()
            every = [barriers for barriers in every if not any(barriers is own for own in first)]
        for number, barriers in enumerate(every, start=1 if self._starts_at_once else 0):
            with when(self.threads.thread == number % _INITIALISING * WARP):
                barriers.initialise()
                ptx("fence.proxy.async.shared::cta")
        with when(self.threads.thread == _INITIALISING * WARP):
            for copies in (self.right, *self.values):
                copies.prefetch()
            self.meeting.initialise()

    def _roles(self) -> None:
        config = self.config
        with branches(self.threads.group == 0) as (producer, others):
            with producer:
                if config.has_register_shares:
                    ptx("setmaxnreg.dec.sync.aligned.u32", config.register_shares(self.stream)[0])
                self._produce()
                self._convert_beside()
                self._meet()
            with others:
                if not config.converters:
                    self._consume()
                    return
                with branches(self.threads.group <= config.consumers) as (consumer, converter):
                    with consumer:
                        self._consume()
                    with converter:
                        ptx("setmaxnreg.dec.sync.aligned.u32", self.config.converter_registers)
                        self._convert()

    @property
    def _begins_early(self) -> bool:
        """Whether tiles are copied before the kernel waits for those before it, which consumers and meetings do."""
        return self.program.given and not self.stream.paged and not self.places.differ

    def _meet(self) -> None:
        """What the warp of the meetings does."""
        if self.meeting_apart is not None:
            own = _MEETING_WARP - self.config.converting_warps
            with when(self.threads.warp == own), when(T.cuda.elect_sync()):
                if self._begins_early:
                    wait_for_others()
                self.meeting_apart.run_apart(self._each_piece)

    def _convert(self) -> None:
        """Each warp group converts a feed, or one converts both, a tile of each in turn."""
        for number in range(self.config.converters):
            with when(self.threads.group == self.config.consumers + 1 + number):
                self._widen(self._widened[number :: self.config.converters], 0, _GROUP_WARPS)

    def _convert_beside(self) -> None:
        """What warps of the producer's group convert."""
        if warps := self.config.converting_warps:
            with when(self.threads.warp >= _GROUP_WARPS - warps):
                self._widen(self._widened, _GROUP_WARPS - warps, warps)

    @property
    def _widened(self) -> list[FeedPair]:
        return [pair for pair in (self.right_feed, self.value_feed) if pair.is_widened]

    def _widen(self, pairs: list[FeedPair], first: int, warps: int) -> None:
        """Some warps of a group convert feeds."""
        own = [Widener(pair.stored, pair.wide, self.threads, first, warps) for pair in pairs]
        with self._each_piece() as (_, work), T.serial(work.tiles.end - work.tiles.first):
            for widener in own:
                widener.tile()

    def _consume(self) -> None:
        if self.config.has_register_shares:
            ptx("setmaxnreg.inc.sync.aligned.u32", self.config.register_shares(self.stream)[1])
        if self._begins_early:
            wait_for_others()
            with when(self.threads.leads):
                let_others_start()
        right, value = self.right_feed.wide, self.value_feed.wide
        consumer = PiecesConsumer(self.tiling, self.threads, right, value, self.meeting, self.spread_finish)
        consumer.run(self._each_piece)

    @contextmanager
    def _each_work(self) -> Iterator[Work]:
        """The block's pieces as work."""
        with self._each_piece() as (_, work):
            yield work

    def _produce(self) -> None:
        if self.stream.paged:
            shared = [self.right_feed.stored, *([self.value_feed.stored] if self.values else [])]
            PagedProducer(self.tiling, self.threads, shared).run(self._each_work)
            return
        with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
            self._produce_rows()

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
            for feed in (pair.stored for pair in self._filled):
                feed.copy_to(0, (work.tiles.end - 1) * self.config.columns, self._fixed(feed, work))

    def _produce_rows(self) -> None:
        feeds = [pair.stored for pair in self._filled]
        ring = feeds[0].filling("produced")
        with self._each_piece() as (_, work), T.serial(work.tiles.end - work.tiles.first) as step:
            row = (work.tiles.end - 1 - step) * self.config.columns
            with when(step > 0) if self._starts_at_once else nullcontext():
                for feed in feeds:
                    feed.copy(ring, row, self._fixed(feed, work))
            ring.advance()
