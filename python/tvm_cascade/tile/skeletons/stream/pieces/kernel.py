"""Emits the stream kernel of few rows: blocks share the concatenation of all rows' cascade axes in equal parts.

producer    for piece, for tile: wait until the stage is empty; copy B; copy each V
consumer    for piece: load A into registers; fold its tiles as the stream kernel does
the whole axis: finish; store
a part of it: leave the state; after all pieces, merge a share of what meets, in order; finish; store
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Feed
from tvm_cascade.tile.attention.operands.widen import FeedPair, Widener
from tvm_cascade.tile.attention.pieces import EachWork, PieceWork
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.emit import bind, branches, named, ptx, put, when
from tvm_cascade.tile.fragment import DTYPE, QUAD
from tvm_cascade.tile.hopper.barrier import Barriers, cluster_arrive, cluster_wait, fence_barriers
from tvm_cascade.tile.hopper.driver import Driver
from tvm_cascade.tile.launch.dependent import Launch, wait_for_others
from tvm_cascade.tile.memory import WORD_BYTES
from tvm_cascade.tile.merge.cluster import send_four_to_rank
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.merge.places import (
    BYTES,
    FOUR,
    OCTET,
    SPAN,
    Patches,
    as_float,
    from_float,
    take_four,
    whole_fours,
)
from tvm_cascade.tile.operand import STEP_BYTES
from tvm_cascade.tile.skeletons.stream.consumer import WARP_ROWS, GroupFold
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue, Folded
from tvm_cascade.tile.skeletons.stream.pieces.config import (
    PiecesConfig,
    blocks_of_item,
    is_spread,
    left_words,
    pieces_of_item,
)
from tvm_cascade.tile.skeletons.stream.pieces.fixup import HELD, FixUp, SpreadFinish, Unit
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridFixUp
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Places, Tiling
from tvm_cascade.tile.work import WARPS, Registers, Threads, Work

_INITIALISING = 4
"""Warps that initialise barriers."""

_FIXUP_WARP = 3
"""The last warp of the producer's group, which sees to fix-ups where it does not copy."""


class PiecesKernel(Driver):
    """Emits the kernel of a tile program with few rows.

    Attributes
    ----------
    fixup_apart : the fix-up that a warp of the producer's group sees to; None where consumers do.
    sharing : blocks that share each item, and have nothing else; None where blocks have parts of several.
    """

    fixup_apart: GridFixUp | None = None

    def __init__(self, program: TileProgram, config: PiecesConfig, launch: Launch) -> None:
        super().__init__(program.stream.program.params, config.consumers, config.widening)
        self.program, self.config, self.stream = program, config, program.stream
        self.early, self.given, self.resident = launch.early, launch.given, config.neighbours
        self.tiling = Tiling(program, config, self.buffers, launch.late)
        self.sharing = blocks_of_item(config, program)

    def describe(self) -> None:
        self.right = self.tiling.copies(self.stream.right, self.config.columns)
        self.values = [self.tiling.value_copies(product) for product in self.stream.products]
        self.fixup = self._fixup()
        self.spread_finish = SpreadFinish(self.tiling, self.config.kept) if is_spread(self.stream) else None

    def _fixup(self) -> FixUp:
        if self.config.cluster > 1:
            return ClusterFixUp(self.tiling, self.config.cluster)
        pieces = pieces_of_item(self.config, self.program)
        apart = not any(copies.by_threads for copies in (self.right, *self.values))  # a warp has nothing to copy
        fixup = GridFixUp(self.tiling, self.name, pieces, self.config.consumers, apart)
        fixup.is_of_all = self.sharing is not None and self.sharing > 1
        self.fixup_apart = fixup if fixup.apart else None
        return fixup

    def place(self) -> None:
        config = self.config
        self.order = self.places = Places(self.tiling, self.sharing)
        self.place_threads(named("block", T.cta_id([self.order.grid])))
        if config.cluster > 1:
            named("rank", T.cta_id_in_cluster([config.cluster]))

    def allocate(self, pool: Any) -> None:
        """Tiles, as they are copied and as products read them, and what fix-ups leave; then barriers."""
        self.right_feed = FeedPair(pool, "right_tiles", self.config.stages, [self.right])
        self.value_feed = FeedPair(pool, "value_tiles", self.config.stages, self.values)
        self.fixup.allocate(pool, self.threads)
        if self.spread_finish is not None:
            self.spread_finish.allocate(pool, self.threads)
        self.order.allocate(pool)
        readers = self.consumers * self.config.family.arrivals
        for pair in (self.right_feed, self.value_feed):
            pair.add_barriers(pool, readers)

    def barriers(self) -> list[Barriers]:
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
            self.fixup.initialise()

    def meet(self) -> None:
        super().meet()
        self.fixup.start()

    def registers(self) -> Registers:
        return self.config.shares(self.stream)

    @property
    def begins_early(self) -> bool:
        """Whether tiles are copied before the kernel waits for those before it, which consumers and fix-ups do."""
        return self.given and not self.stream.paged and not self.places.differ

    def produce(self) -> None:
        """One thread copies, or warps for each feed of pages; another sees to fix-ups."""
        if self.stream.paged:
            shared = [pair.stored for pair in self._filled]
            PagedProducer(self.tiling, self.threads, shared).run(self.each_work)
        else:
            with when(self.threads.warp == 0), when(T.cuda.elect_sync()):
                self._produce_rows()
        if self.fixup_apart is not None:
            with when(self.threads.warp == _FIXUP_WARP), when(T.cuda.elect_sync()):
                if self.begins_early:
                    wait_for_others()
                self.fixup_apart.run_apart(self.each_work)

    def convert(self) -> None:
        """Each warp group converts a feed, or one converts both, a tile of each in turn."""
        widened = [pair for pair in (self.right_feed, self.value_feed) if pair.is_widened]
        for number in range(self.config.widening):
            with when(self.threads.group == self.consumers + 1 + number):
                own = [Widener(pair, self.threads) for pair in widened[number :: self.config.widening]]
                with self.each_work() as work, T.serial(work.tiles.end - work.tiles.first):
                    for widener in own:
                        widener.tile()

    def consume(self) -> None:
        right, value = self.right_feed.wide, self.value_feed.wide
        consumer = PiecesConsumer(self.tiling, self.threads, right, value, self.fixup, self.spread_finish)
        consumer.run(self.each_work)

    @property
    def _starts_at_once(self) -> bool:
        """Whether the first tile is copied before all threads of the block have met."""
        return self.places.has_one_piece and not self.stream.paged

    @property
    def _filled(self) -> list[FeedPair]:
        return [self.right_feed, *([self.value_feed] if self.values else [])]

    def _produce_first(self) -> None:
        with self.each_work() as work:
            for pair in self._filled:
                places = self.tiling.fixed_of(pair.copies, work)
                (part,) = pair.stored.parts
                pair.stored.copy_to(0, part, (work.tiles.end - 1) * self.config.columns, places)

    def _produce_rows(self) -> None:
        ring = self.right_feed.stored.filling("produced")
        with self.each_work() as work, T.serial(work.tiles.end - work.tiles.first) as step:
            row = (work.tiles.end - 1 - step) * self.config.columns
            with when(step > 0) if self._starts_at_once else nullcontext():
                for pair in self._filled:
                    pair.stored.copy(ring, row, self.tiling.fixed_of(pair.copies, work))
            ring.advance()


# The consumer of few rows: it folds a piece of the axis at a time, with the left operand in registers.


class PiecesConsumer(GroupFold):
    """Emits one consumer warp group."""

    def __init__(
        self, tiling: Tiling, threads: Threads, right: Feed, value: Feed, fixup: FixUp, spread: SpreadFinish | None
    ) -> None:
        super().__init__(tiling, threads, None, right, value)
        self.fixup, self.spread, self.epilogue = fixup, spread, Epilogue(tiling, bulk=False)

    def run(self, each_work: EachWork) -> None:
        fixups = [self.fixup] if self.spread is None else [self.fixup, self.spread]
        for fixup in fixups:
            fixup.begin(self.index)
        self._fold_pieces(each_work)
        for fixup in fixups:
            fixup.settle(each_work)

    def _fold_pieces(self, each_work: EachWork) -> None:
        with each_work() as work:
            self._place(work)
            self.rows.allocate()
            self.rows.end = bind("piece_end_position", tirx.min(work.tiles.end * self.columns, self.tiling.length))
            first_row = self.first_row + self.threads.warp * WARP_ROWS
            self.has_rows = bind("has_rows", first_row < self.tiling.row_count)
            self._fetch_left()
            self._fold_tiles(work.tiles)
            if self.fixup.is_of_all:
                self.fixup.leave(self, work)
                return
            with branches(work.piece.is_whole) as (whole, part):
                with whole:
                    if self.spread is not None:
                        self.spread.leave(self, work)
                    else:
                        with when(self.has_rows):
                            self.epilogue.finish_and_store(self)
                with part:
                    self.fixup.leave(self, work)

    def _fetch_left(self) -> None:
        """Loads the thread's rows as the tensor cores read them; zeros past the depth."""
        size = self.stream.left.size
        for word in range(left_words(self.stream)):
            row, half, step = word % 2, word // 2 % 2, word // 4
            first = (step * STEP_BYTES + half * STEP_BYTES // 2) // size
            if first >= self.stream.depth:
                put(self.left_words, word, T.uint32(0))
                continue
            column = self.threads.lane % QUAD * (WORD_BYTES // size) + first
            address = self.rows.address(self.stream.score.left, row, {self.stream.score.axis[0]: column})
            ptx("ld.global.b32", self.left_words[word], address)


# A fix-up of the blocks of a cluster, all of which have a piece of one item, in distributed shared memory.
#
# Each sends to every other the patches that that one merges, and the scalars of their rows. Stores are asynchronous and
# arrive at a barrier of their target, which knows how many bytes it gets. The memory of a block is written by none
# before that block has started; and none ends before all that others send to it has arrived.


class ClusterFixUp(FixUp):
    """Emits it."""

    is_of_all = True

    def __init__(self, tiling: Tiling, blocks: int) -> None:
        super().__init__(tiling, blocks)
        self.blocks, self.patches = blocks, Patches(self.most_rows, blocks)
        if self.patches.stride == blocks:  # a block has all spans of the rows that it has any of
            most = min(self.patches.most(self.spans * SPAN) // WARPS, HELD // (FOUR * (blocks + 1)))
            self.at_a_time = max(n for n in range(1, self.spans + 1) if self.spans % n == 0 and n <= max(most, 1))

    def allocate(self, pool: Any, threads: Threads) -> None:
        self.threads = threads
        self.places: dict[int, Any] = {}
        for k, part in enumerate(self.form):
            if part.width > 1:
                own = self.blocks, self.patches.most(part.width), OCTET, SPAN
                self.places[k] = named("met", pool.alloc(own, part.dtype, align=16))
        rows = self.patches.octets * OCTET
        shape = self.blocks, rows, whole_fours(len(self.scalars))
        self.met_scalars = named("met_scalars", pool.alloc(shape, DTYPE, align=16))
        self.arrived = Barriers(pool, 1, 1)

    def initialise(self) -> None:
        self.arrived.initialise()
        fence_barriers()
        ptx("fence.proxy.async.shared::cta")

    def start(self) -> None:
        cluster_arrive(relaxed=True)

    def leave(self, fold: Folded, work: PieceWork) -> None:
        self.rank = bind("own_rank", self.threads.block % self.blocks)
        with when(self.threads.leads):
            self.arrived.announce(0, self._bytes())
        cluster_wait()
        self._leave_state(fold)
        self.arrived.wait(0, 0)

    def settle(self, each_work: EachWork) -> None:
        self.rank = bind("own_rank", self.threads.block % self.blocks)
        count = bind("own_patches", self.patches.count(self.spans // self.at_a_time, self.rank))
        octets, lane = self.patches.octets, self.threads.lane
        with each_work() as work:
            rows = bind("merged_rows", self._rows(work))
            with T.serial((count + (WARPS - 1)) // WARPS) as step:
                patch = bind("patch", (step * WARPS + self.threads.warp) * self.blocks + self.rank)
                row = bind("unit_row", patch % octets * OCTET + lane // QUAD)
                with when(tirx.And(step * WARPS + self.threads.warp < count, row < rows)):
                    first = bind("first_span", patch // octets * self.at_a_time)
                    self._merge(Unit(work, row, [first + i for i in range(self.at_a_time)], lane % QUAD))

    def _bytes(self) -> ir.Expr:
        vectors = sum((self.patches.count(part.width // SPAN, self.rank) for part in self.form if part.width > 1),
                      T.int32(0))  # fmt: skip
        rows = self.patches.octets // self.patches.stride * OCTET
        words = vectors * (OCTET * SPAN) + rows * whole_fours(len(self.scalars))
        return T.cast(words * (BYTES * self.blocks), "uint32")

    def _has_row(self, work: Work, row: ir.Expr) -> ir.Expr:
        """Whole patches are sent, whatever rows they have."""
        return row < self.patches.octets * OCTET

    def _put_scalars(self, row: ir.Expr, values: list[ir.Expr]) -> None:
        """To the blocks that have patches of the row, a lane to every fourth of those."""
        stride, lane = self.patches.stride, self.threads.lane % QUAD
        words = [as_float(value) for value in values]
        words += [T.float32(0)] * (whole_fours(len(words)) - len(words))
        for first in range(0, self.blocks // stride, QUAD):
            with when(first + lane < self.blocks // stride):
                rank = (first + lane) * stride + row // OCTET % stride
                for k in range(0, len(words), FOUR):
                    self._send(self.met_scalars.ptr_to([self.rank, row, k]), rank, words[k : k + FOUR])

    def _put_four(self, part: int, row: ir.Expr, span: ir.Expr | int, values: list[ir.Expr]) -> None:
        patch, lane = bind("patch", self.patches.number(row, span)), self.threads.lane % QUAD
        place = self.places[part].ptr_to([self.rank, patch // self.blocks, row % OCTET, lane * FOUR])
        self._send(place, patch % self.blocks, values)

    def _send(self, place: ir.Expr, rank: ir.Expr, four: list[ir.Expr]) -> None:
        send_four_to_rank(place, self.arrived.pointer(0), rank, *four)

    def _get(self, unit: Unit, number: ir.Expr, part: int) -> ir.Expr:
        return from_float(self.met_scalars[number, unit.row, self.scalars.index(part)], self.form[part].dtype)

    def _get_four(self, unit: Unit, number: ir.Expr, part: int, span: ir.Expr, into: Any, first: int) -> None:
        own = self.patches.number(unit.row, span) // self.blocks
        place = self.places[part].ptr_to([number, own, unit.row % OCTET, unit.lane * FOUR])
        take_four(place, T.address_of(into[first]))
