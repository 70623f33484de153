"""Which tiles of rows a block does, and in which order: persistent blocks, balanced where the tiles are uneven.

Work runs over tiles of rows and over *places* (points of the batch), tiles of rows fastest: blocks that run together
then share the right operands in the L2 cache. Where masks make tiles uneven, a block does them in pairs, the p-th from
the end and then the p-th from the start of the same place, which together take as long as any other pair:

    even     row tiles 0, 1, 2, 3, …          uneven     (n−1, 0), (n−2, 1), (n−3, 2), …
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.hopper.script import bind, when


@dataclass(frozen=True)
class Item:
    """One tile of rows at one place."""

    row_tile: ir.Expr
    place: ir.Expr


@dataclass(frozen=True)
class Scheduler:
    """Deals tiles of rows to blocks.

    Attributes
    ----------
    row_tiles, places : how many there are of each.
    blocks : that are launched, at most.
    uneven : tiles of rows take longer the further down they are.
    """

    row_tiles: ir.Expr
    places: ir.Expr
    blocks: int
    uneven: bool

    @property
    def per_place(self) -> ir.Expr:
        """Shares of work at one place."""
        return (self.row_tiles + 1) // 2 if self.uneven else self.row_tiles

    @property
    def shares(self) -> ir.Expr:
        """All shares of work."""
        return self.per_place * self.places

    @property
    def grid(self) -> ir.Expr:
        """Blocks that are launched."""
        return tirx.min(self.shares, self.blocks)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Item]:
        """What is written within is done for every tile of rows that a block has."""
        turns = (self.shares - block + (self.grid - 1)) // self.grid
        with T.serial(turns * 2 if self.uneven else turns) as step:
            turn = step // 2 if self.uneven else step
            share = bind("share", block + turn * self.grid)
            index, place = bind("index", share % self.per_place), share // self.per_place
            if not self.uneven:
                yield Item(index, place)
                return
            other = self.row_tiles - 1 - index
            row_tile = bind("row_tile", tirx.Select(step % 2 == 0, other, index))
            with when(tirx.Or(step % 2 == 0, index != other)):  # the middle one of an odd number is its own pair
                yield Item(row_tile, place)
