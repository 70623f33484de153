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

from tvm_cascade.tile.emit import bind, in_register
from tvm_cascade.tile.work import Threads, Work


@dataclass(frozen=True)
class Piece:
    """Consecutive tiles of one item.

    Attributes
    ----------
    item : its number.
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
        """Whether the item has no other piece."""
        return tirx.And(self.starts, self.ends)

    def slot(self, number: ir.Expr) -> ir.Expr:
        """Where the state of one of the item's pieces is kept, by its number along the axis: two slots a block."""
        return (self.first_block + number) * SLOTS + tirx.Select(number == 0, 1, 0)

    def own_slot(self, block: ir.Expr) -> ir.Expr:
        """Where its own state is kept."""
        return block * SLOTS + self.side

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


class Cut:
    """Shares of equal numbers of tiles.

    Parameters
    ----------
    items, tiles : how many items there are, and how many tiles each visits; one at least.
    blocks : that are launched, at most.
    """

    def __init__(self, items: ir.Expr, tiles: ir.Expr, blocks: int) -> None:
        self.items, self.tiles, self.blocks = items, tiles, blocks

    @property
    def total(self) -> ir.Expr:
        """All tiles."""
        return self.items * self.tiles

    @property
    def longest(self) -> ir.Expr:
        """Tiles of the longest share."""
        return (self.total + (self.blocks - 1)) // self.blocks

    @property
    def grid(self) -> ir.Expr:
        """Blocks that are launched: no more than the longest share asks for."""
        return (self.total + (self.longest - 1)) // self.longest

    def allocate(self, pool: Any) -> None:
        """Takes the shared memory that shares are computed in, if any."""

    def count(self, threads: Threads, block_threads: int) -> None:
        """Counts what shares are computed from, if anything, with all threads of a block, before a barrier of it."""

    def apart(self, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The sequence of an item, and its number among the sequence's: here all are of one."""
        return tirx.const(0, "int32"), item

    def item_at(self, tile: ir.Expr) -> ir.Expr:
        """The item that has a tile of the concatenation."""
        return tile // self.tiles

    def span(self, item: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """Where an item's tiles begin in the concatenation, and how many they are."""
        return item * self.tiles, self.tiles

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        """A loop over the pieces of a block around the statements of the block."""
        # Registers, since TVM looks through bound variables: symbolic extents would be written out everywhere.
        total, grid = in_register("all_tiles", self.total), in_register("grid", self.grid)
        least, longer = in_register("share", total // grid), in_register("longer_shares", total % grid)
        start, end = (in_register("share_bound", b * least + tirx.min(b, longer)) for b in (block, block + 1))

        def owner(tile: ir.Expr) -> ir.Expr:
            """The block whose share has a tile."""
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
        """Blocks that are launched."""
        return tirx.min(self.items, self.blocks)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        """A loop over the items of a block around the statements of the block."""
        first, end = (in_register("item_bound", b * self.items // self.grid) for b in (block, block + 1))
        with T.serial(end - first) as step:
            whole = T.int32(0), self.tiles, T.bool(True), T.bool(True)
            yield Piece(bind("item", first + step), *whole, block, T.int32(1))


class SharedItems(Cut):
    """As many blocks for each item, of a cluster or of the grid, which share its tiles in order.

    Parameters
    ----------
    items, tiles : how many there are; as many tiles as blocks of an item, at least.
    sharing : blocks of each.
    """

    def __init__(self, items: ir.Expr, tiles: ir.Expr, sharing: int) -> None:
        super().__init__(items, tiles, sharing)
        self.sharing = sharing

    @property
    def grid(self) -> ir.Expr:
        """Blocks that are launched."""
        return self.items * self.sharing

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Piece]:
        """The one piece of a block."""
        if self.sharing == 1:
            yield Piece(block, T.int32(0), self.tiles, T.bool(True), T.bool(True), block, T.int32(1))
            return
        item, rank = bind("item", block // self.sharing), block % self.sharing
        first, end = (in_register("piece_bound", r * self.tiles // self.sharing) for r in (rank, rank + 1))
        yield Piece(item, first, end, rank == 0, rank == self.sharing - 1, item * self.sharing, T.int32(self.sharing))
