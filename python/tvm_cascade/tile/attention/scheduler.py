"""The tile scheduler: the loop of a persistent block over its tiles of rows, in the order of `tile_schedule`.

Work runs over tiles of rows and over *places* (points of the batch), tiles of rows fastest: blocks that run together
then share the right operands in the L2 cache. Where masks make tiles uneven, a block reads its list, or where that is
none does them in pairs, the p-th from the end and then the p-th from the start of the same place:

    even     row tiles 0, 1, 2, 3, …          uneven     (n−1, 0), (n−2, 1), (n−3, 2), …
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.tile_schedule import NOTHING
from tvm_cascade.tile.emit import bind, put, registers, when


@dataclass(frozen=True)
class Item:
    """One tile of rows at one batch index."""

    row_tile: ir.Expr
    place: ir.Expr


@dataclass(frozen=True)
class Scheduler:
    """Assigns tiles of rows to blocks.

    Attributes
    ----------
    row_tiles, places : how many there are of each.
    blocks : that are launched, at most.
    uneven : tiles of rows take longer the further down they are.
    items : a list for each block, see `TileSchedule`; None for the order by formulas.
    name : of the kernel, which the list's is made of.
    """

    row_tiles: ir.Expr
    places: ir.Expr
    blocks: int
    uneven: bool
    items: NDArray[np.int32] | None = None
    name: str = "main"

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
        if self.items is not None:
            return tirx.const(len(self.items), "int32")
        return tirx.min(self.shares, self.blocks)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Item]:
        """A loop over the block's tiles of rows around the statements of the block."""
        if self.items is not None:
            with self._listed(block, self.items) as item:
                yield item
            return
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

    @contextmanager
    def _listed(self, block: ir.Expr, items: NDArray[np.int32]) -> Iterator[Item]:
        """Every item of the block's list; the one after it is read while an item is done."""
        turns = items.shape[1]
        following = registers("following_item", 1, "int32")
        put(following, 0, self._read(block * turns))
        with T.serial(turns) as turn:
            item = bind("item", following[0])
            put(following, 0, self._read(block * turns + tirx.min(turn + 1, turns - 1)))
            with when(item != NOTHING):
                yield Item(bind("row_tile", item % self.row_tiles), item // self.row_tiles)

    def _read(self, index: ir.Expr) -> ir.Expr:
        """An element of the list, which is a constant of the kernel's text."""
        assert self.items is not None
        values, reader = ", ".join(map(str, self.items.ravel())), f"{self.name}_item"
        text = f"""
static __device__ const int {reader}s[] = {{{values}}};
__device__ __forceinline__ int {reader}(int index) {{ return {reader}s[index]; }}
"""
        return T.cuda.func_call(reader, index, source_code=text, return_type="int32")
