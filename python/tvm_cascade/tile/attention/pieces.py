"""Equal-work pieces: the concatenation of all items' cascade axes, cut into one contiguous share a block (stream-K).

    items        a a a a a a a a | b b b b b b b b | c c c c c c c c      tiles of each
    blocks       0 0 0 0 0 1 1 1 | 1 1 2 2 2 2 2 3 | 3 3 3 3 4 4 4 4
    pieces       whole, or a part of an item whose state meets the other parts'

A block leaves the state of its first piece where that continues an item, and of its last where that does not end one:
two states at most, whatever the lengths. Osama et al., "Stream-K" (2023).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, in_register, put, registers, variable, when
from tvm_cascade.tile.merge.lanes import WARP, from_lane, from_lane_at
from tvm_cascade.tile.work import Order, Threads, Work


@dataclass(frozen=True)
class Piece:
    """Consecutive tiles of one item.

    Attributes
    ----------
    first, end : its tiles [first, end) among the item's visited ones.
    starts, ends : whether it has the first, and the last of them.
    first_block, blocks : the first of the blocks that have pieces of the item, and how many there are.
    """

    item: ir.Expr
    first: ir.Expr
    end: ir.Expr
    starts: ir.Expr
    ends: ir.Expr
    first_block: ir.Expr
    blocks: ir.Expr

    @property
    def is_whole(self) -> ir.Expr:
        return tirx.And(self.starts, self.ends)

    def slot(self, number: ir.Expr) -> ir.Expr:
        """Where the state of one of the item's pieces is kept, by its number along the axis: two slots a block."""
        return (self.first_block + number) * SLOTS + tirx.Select(number == 0, 1, 0)

    @property
    def side(self) -> ir.Expr:
        """Which of the two states of its block: 0 of a piece that continues an item, 1 of one that starts it."""
        return tirx.Select(self.starts, 1, 0)


@dataclass(frozen=True)
class PieceWork(Work):
    """A piece of a tile of rows."""

    piece: Piece


EachWork = Callable[[], AbstractContextManager[PieceWork]]
"""A loop over the pieces of a block."""

SLOTS = 2
"""States that a block leaves at most."""


def most_pieces(items: int, tiles: int, blocks: int) -> int:
    """Pieces of an item at most, of items of so many tiles each: see `Cut`."""
    longest = -(-items * tiles // blocks)
    grid = -(-items * tiles // longest)
    least, longer = divmod(items * tiles, grid)
    starts = [block * least + min(block, longer) for block in range(grid)]
    inner = [start // tiles for start in starts if start % tiles]
    return 1 + max(Counter(inner).values(), default=0)


class Cut(Order[Piece]):
    """Shares of equal numbers of tiles.

    Parameters
    ----------
    items, tiles : how many items there are, and how many tiles each visits; one at least.
    """

    def __init__(self, items: ir.Expr, tiles: ir.Expr, blocks: int) -> None:
        self.items, self.tiles, self.blocks = items, tiles, blocks

    @property
    def total(self) -> ir.Expr:
        return self.items * self.tiles

    @property
    def longest(self) -> ir.Expr:
        return (self.total + (self.blocks - 1)) // self.blocks

    @property
    def grid(self) -> ir.Expr:
        """No more blocks than the longest share asks for."""
        return (self.total + (self.longest - 1)) // self.longest

    def apart(self, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The sequence of an item, and its number among the sequence's: here all are of one."""
        return tirx.const(0, "int32"), item

    def item_at(self, tile: ir.Expr) -> ir.Expr:
        return tile // self.tiles

    def span(self, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """Where an item's tiles begin in the concatenation, and how many they are."""
        return item * self.tiles, self.tiles

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        # Registers, since TVM looks through bound variables: symbolic extents would be written out everywhere.
        total, grid = in_register("all_tiles", self.total), in_register("grid", self.grid)
        least, longer = in_register("share", total // grid), in_register("longer_shares", total % grid)
        start, end = (in_register("share_bound", b * least + tirx.min(b, longer)) for b in (block, block + 1))

        def owner(tile: ir.Expr) -> ir.Expr:
            rest = tile - longer * (least + 1)
            return tirx.Select(rest < 0, tile // (least + 1), longer + rest // tirx.max(least, 1))

        first_item = in_register("first_item", self.item_at(start))
        last_item = in_register("last_item", self.item_at(tirx.max(end - 1, start)))
        with T.serial(tirx.Select(end > start, last_item - first_item + 1, 0)) as step:
            item = bind("item", first_item + step)
            origin, tiles = (in_register(name, n) for name, n in zip(("origin", "tiles"), self.span(item), strict=True))
            first = in_register("piece_first", tirx.max(start - origin, 0))
            last = in_register("piece_end", tirx.min(end - origin, tiles))
            first_block = in_register("first_block", owner(origin))
            blocks = in_register("item_blocks", owner(origin + tiles - 1) - first_block + 1)
            yield Piece(item, first, last, first == 0, last == tiles, first_block, blocks)


class WholeItems(Cut):
    """Shares of whole items, about as many of each block."""

    @property
    def grid(self) -> ir.Expr:
        return tirx.min(self.items, self.blocks)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        first, end = (in_register("item_bound", b * self.items // self.grid) for b in (block, block + 1))
        with T.serial(end - first) as step:
            whole = T.int32(0), self.tiles, T.bool(True), T.bool(True)
            yield Piece(bind("item", first + step), *whole, block, T.int32(1))


class SharedItems(Cut):
    """So many blocks for each item, of a cluster or of the grid, which share its tiles in order."""

    @property
    def grid(self) -> ir.Expr:
        return self.items * self.blocks

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        if self.blocks == 1:
            yield Piece(block, T.int32(0), self.tiles, T.bool(True), T.bool(True), block, T.int32(1))
            return
        item, rank = bind("item", block // self.blocks), block % self.blocks
        first, end = (in_register("piece_bound", r * self.tiles // self.blocks) for r in (rank, rank + 1))
        yield Piece(item, first, end, rank == 0, rank == self.blocks - 1, item * self.blocks, T.int32(self.blocks))


# Equal-work pieces of sequences of different lengths: the device counts their tiles before it shares them out.
#
#     lengths      5 2 3            tiles of an item of each sequence
#     origins      0 5 7 10         in shared memory; the items of a sequence follow one another
#     blocks       find the sequence that has their first tile, and go on from there
#
# Every block does so by itself: what it takes is to read the lengths, and to add them up in one warp.


MOST_SEQUENCES = 8192
"""Whose origins are kept in shared memory; of more, shares are of the longest length."""


def origin_bytes(sequences: int) -> int:
    return (sequences + 1) * 4


class RaggedCut(Cut):
    """Shares of equal numbers of tiles of sequences of different lengths.

    Parameters
    ----------
    items : of all sequences, as many of each.
    most : tiles of an item at most.
    tiles_of : the tiles of an item of a sequence; one at least.
    """

    def __init__(
        self, items: ir.Expr, most: ir.Expr, blocks: int, sequences: int, tiles_of: Callable[[ir.Expr], ir.Expr]
    ) -> None:
        super().__init__(items, most, blocks)
        self.sequences, self.tiles_of = sequences, tiles_of

    @property
    def repeats(self) -> ir.Expr:
        return self.items // self.sequences

    @property
    def total(self) -> ir.Expr:
        return self._origin(self.sequences) * self.repeats

    @property
    def grid(self) -> ir.Expr:
        return tirx.min(self.items * self.tiles, self.blocks)

    def allocate(self, pool: Any) -> None:
        self.origins = pool.alloc((self.sequences + 1,), "int32", align=16)

    def find(self, threads: Threads) -> None:
        """Counts tiles and adds them up."""
        self._count_tiles(threads, self.origins, 1)
        with when(threads.thread < WARP):
            self._add_up(threads.lane)

    def _count_tiles(self, threads: Threads, into: Any, first: int) -> None:
        """Counts the tiles of every sequence into shared memory from a place on, and waits for all threads."""
        with T.serial(-(-self.sequences // threads.count)) as turn:
            sequence = bind("sequence", turn * threads.count + threads.thread)
            with when(sequence < self.sequences):
                put(into, sequence + first, self.tiles_of(sequence))
        T.evaluate(T.cuda.cta_sync())

    def apart(self, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        return item // self.repeats, item % self.repeats

    def item_at(self, tile: ir.Expr) -> ir.Expr:
        own = in_register("tile_at", tirx.min(tile, self.total - 1))
        found = variable("sequence_at", T.int32(0))
        step = 1 << max((self.sequences - 1).bit_length() - 1, 0)
        while step:
            further = tirx.min(found[0] + step, self.sequences)
            put(found, 0, tirx.Select(self._origin(further) * self.repeats <= own, further, found[0]))
            step //= 2
        first, tiles = self._of_sequence(found[0])
        return found[0] * self.repeats + (own - first) // tiles

    def span(self, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        sequence, number = self.apart(item)
        first, tiles = self._of_sequence(sequence)
        return first + number * tiles, tiles

    def _add_up(self, lane: ir.Expr) -> None:
        sums = registers("origin_sums", 3, "int32")
        put(sums, 0, T.int32(0))
        with when(lane == 0):
            put(self.origins, 0, T.int32(0))
        with T.serial(-(-self.sequences // WARP)) as turn:
            sequence = bind("sequence", turn * WARP + lane)
            put(sums, 1, tirx.if_then_else(sequence < self.sequences, self._origin(sequence + 1), T.int32(0)))
            for distance in (1, 2, 4, 8, 16):
                put(sums, 2, from_lane(tirx.max(lane - distance, 0), sums[1]))
                put(sums, 1, sums[1] + tirx.Select(lane >= distance, sums[2], T.int32(0)))
            put(sums, 1, sums[1] + sums[0])
            with when(sequence < self.sequences):
                put(self.origins, sequence + 1, sums[1])
            put(sums, 0, from_lane(WARP - 1, sums[1]))

    def _of_sequence(self, sequence: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """Where a sequence's tiles begin, and how many each of its items has."""
        origin = self._origin(sequence)
        return origin * self.repeats, self._origin(sequence + 1) - origin

    def _origin(self, sequence: ir.Expr | int) -> ir.Expr:
        return self.origins[sequence]


# One piece a block: the items of longer sequences have more blocks, and no block has parts of two items.
#
#     lengths      10 3 7           tiles of an item of each sequence, of 8 blocks
#     share        3                the least that 8 blocks suffice for: 4 + 1 + 3
#     origins      0 4 5 8          blocks before each sequence's
#     pieces       2 3 2 3 | 3 | 2 2 3
#
# Where the start of a piece and its fix-up take as long as many tiles, pieces of unequal length lose less than blocks
# with several pieces of `RaggedCut`. Items are no more than blocks.


def counted_bytes(sequences: int) -> int:
    return 2 * origin_bytes(sequences)


class OneEach(RaggedCut):
    """Blocks of one piece each, more of an item that has more tiles."""

    def allocate(self, pool: Any) -> None:
        super().allocate(pool)
        self.counted = pool.alloc((self.sequences,), "int32", align=16)

    def find(self, threads: Threads) -> None:
        """Counts tiles, and then blocks."""
        self._count_tiles(threads, self.counted, 0)
        with when(threads.thread < WARP):
            share = self._least_share(threads.lane)
            with T.serial(-(-self.sequences // WARP)) as turn:
                sequence = bind("sequence", turn * WARP + threads.lane)
                with when(sequence < self.sequences):
                    put(self.origins, sequence + 1, self._parts(self.counted[sequence], share))
            T.evaluate(T.cuda.warp_sync())
            self._add_up(threads.lane)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        has_one = tirx.Select(block < self.total, 1, 0)
        item = in_register("item", self.item_at(block))
        sequence, _ = self.apart(item)
        before, parts = self.span(item)
        first_block, blocks = in_register("first_block", before), in_register("item_blocks", parts)
        with T.serial(in_register("has_piece", has_one)):
            tiles = in_register("item_tiles", self.counted[sequence])
            rank = bind("rank_of_item", block - first_block)
            first, end = (in_register("piece_bound", r * tiles // blocks) for r in (rank, rank + 1))
            yield Piece(item, first, end, rank == 0, rank == blocks - 1, first_block, blocks)

    @staticmethod
    def _parts(tiles: ir.Expr, share: ir.Expr) -> ir.Expr:
        return (tiles + (share - 1)) // share

    def _least_share(self, lane: ir.Expr) -> ir.Expr:
        """The least number of tiles of a piece with which the blocks suffice, found by halving; by one warp."""
        bounds = registers("share_bounds", 2, "int32")
        put(bounds, 0, T.int32(1))
        put(bounds, 1, tirx.max(self.tiles, 1))
        used = registers("blocks_used", 1, "int32")
        with T.serial(int(self.tiles).bit_length()):  # after which one number of 1 to the most tiles is left
            middle = in_register("share_between", (bounds[0] + bounds[1]) // 2)
            put(used, 0, T.int32(0))
            with T.serial(-(-self.sequences // WARP)) as turn:
                sequence = bind("sequence", turn * WARP + lane)
                with when(sequence < self.sequences):
                    put(used, 0, used[0] + self._parts(self.counted[sequence], middle))
            for distance in (16, 8, 4, 2, 1):
                put(used, 0, used[0] + from_lane_at(used[0], distance))
            enough = in_register("share_suffices", tirx.Select(used[0] * self.repeats <= self.blocks, 1, 0))
            put(bounds, 1, tirx.Select(enough != 0, middle, bounds[1]))
            put(bounds, 0, tirx.Select(enough != 0, bounds[0], tirx.min(middle + 1, bounds[1])))
        return bounds[1]
