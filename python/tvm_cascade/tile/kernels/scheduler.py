"""Which tiles of rows a block does, and in which order: persistent blocks, balanced where the tiles are uneven.

Work runs over tiles of rows and over *places* (points of the batch). Where every tile of rows takes as long, tiles of
rows run fastest: blocks that run together then share the right operands in the L2 cache. Where masks make them uneven,
the longest come first, in sections of as many places as the cache holds, and blocks are dealt work there and back:

    turn 0   block 0 1 2 3        turn 1   block 3 2 1 0
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.hopper.script import bind

CACHE_BYTES = 32 << 20
"""The part of the L2 cache of an H100 or H200 that right operands may fill."""


@dataclass(frozen=True)
class Item:
    """One tile of rows at one place.

    Attributes
    ----------
    row_tile, place : which.
    turn : how many the block has done before.
    """

    row_tile: ir.Expr
    place: ir.Expr
    turn: ir.Expr


@dataclass(frozen=True)
class Scheduler:
    """Deals tiles of rows to blocks.

    Attributes
    ----------
    row_tiles, places : how many there are of each.
    blocks : of a persistent kernel; 0 for one block a tile of rows.
    section : places that are worked on together where tiles of rows are uneven; None where they are even.
    """

    row_tiles: ir.Expr
    places: ir.Expr
    blocks: int
    section: ir.Expr | None

    @property
    def items(self) -> ir.Expr:
        """How much work there is."""
        return self.row_tiles * self.places

    @property
    def grid(self) -> ir.Expr:
        """Blocks that are launched."""
        return tirx.min(self.items, self.blocks) if self.blocks else self.items

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Item]:
        """What is written within is done for every item that a block has."""
        if not self.blocks:
            yield self._item(block, tirx.const(0, "int32"))
            return
        rounds, rest = self.items // self.grid, self.items % self.grid
        with T.serial(rounds + T.cast(self._seat(block, rounds) < rest, "int32")) as turn:
            yield self._item(bind("item", turn * self.grid + self._seat(block, turn)), turn)

    def _seat(self, block: ir.Expr, turn: ir.Expr) -> ir.Expr:
        """A block's place among the others in a turn."""
        return block if self.section is None else tirx.Select(turn % 2 == 0, block, self.grid - 1 - block)

    def _item(self, index: ir.Expr, turn: ir.Expr) -> Item:
        if self.section is None:
            return Item(index % self.row_tiles, index // self.row_tiles, turn)
        whole = self.section * self.row_tiles
        first = bind("first_place", index // whole * self.section)
        here = bind("places_here", tirx.min(self.section, self.places - first))
        within = bind("within", index % whole)
        return Item(self.row_tiles - 1 - within // here, first + within % here, turn)
