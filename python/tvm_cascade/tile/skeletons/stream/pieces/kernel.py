"""Emits the stream kernel of few rows: blocks share the concatenation of all rows' cascade axes in equal parts.

producer    for piece, for tile: wait until the stage is empty; copy B; copy each V
consumer    for piece: load A into registers; fold its tiles as the stream kernel does
the whole axis: finish; store
a part of it: leave the state; after all pieces, merge a share of what meets, in order; finish; store
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import branches, named, ptx, when
from tvm_cascade.tile.hopper.widen import Widener
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.pieces import Piece
from tvm_cascade.tile.program import TileProgram
from tvm_cascade.tile.skeletons.stream.kernel import StreamKernel
from tvm_cascade.tile.skeletons.stream.pieces.clustered import ClusterMeeting
from tvm_cascade.tile.skeletons.stream.pieces.config import PiecesConfig, pieces_of_item
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


class PiecesKernel(StreamKernel):
    """Emits the kernel of a tile program with few rows."""

    config: PiecesConfig

    counts_lengths = True
    """Whether shares are of what is alive at each place, however many pieces an item then has."""

    def __init__(self, program: TileProgram, config: PiecesConfig) -> None:
        super().__init__(program, config)

    def _maps(self) -> None:
        self.right = self._map(self.stream.right, self.config.columns)
        self.values = [self._value_map(product) for product in self.stream.products]
        self.meeting = self._meeting()
        self.spread_finish = SpreadFinish(self.tiling, self.config.kept) if is_spread(self.stream) else None

    def _meeting(self) -> Meeting:
        blocks = self.config.cluster
        if blocks > 1:
            return ClusterMeeting(self.tiling, blocks)
        pieces = pieces_of_item(self.config, self.program)
        return GridMeeting(self.tiling, self.name, pieces, self.config.consumers, meets=pieces != 1)

    def _places(self) -> None:
        config = self.config
        self.places = Places(self.tiling, self.spread, config.cluster, self.counts_lengths, whole=config.kept > 1)
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
        config, pool = self.config, T.SMEMPool()
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
        """Barriers by one thread of each of some warps; descriptors by that of another, which waits for no fence."""
        every = [barriers for pair in (self.right_feed, self.value_feed) for barriers in pair.barriers]
        for number, barriers in enumerate(every):
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

    def _convert(self) -> None:
        """Each warp group converts a feed, or one converts both, a tile of each in turn."""
        pairs = [pair for pair in (self.right_feed, self.value_feed) if pair.is_widened]
        for number in range(self.config.converters):
            with when(self.threads.group == self.config.consumers + 1 + number):
                own = [
                    Widener(pair.stored, pair.wide, self.threads) for pair in pairs[number :: self.config.converters]
                ]
                with self._each_piece() as (_, work), T.serial(work.tiles.end - work.tiles.first):
                    for widener in own:
                        widener.tile()

    def _consume(self) -> None:
        if self.config.has_register_shares:
            ptx("setmaxnreg.inc.sync.aligned.u32", self.config.register_shares(self.stream)[1])
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

    def _produce_rows(self) -> None:
        right, value = self.right_feed.stored, self.value_feed.stored
        ring = right.filling("produced")
        with self._each_piece() as (_, work), T.serial(work.tiles.end - work.tiles.first) as step:
            row = (work.tiles.end - 1 - step) * self.config.columns
            right.copy(ring, row, self._fixed(right, work))
            if self.values:
                value.copy(ring, row, self._fixed(value, work))
            ring.advance()
