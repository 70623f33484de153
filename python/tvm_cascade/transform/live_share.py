"""How much of a masked loop is computed: the tiles that hold a live position of some row of a block, of all tiles.

    j ≤ i of 512 rows and positions, in blocks of 32 rows:   tiles of 64 → 72 of 128;   tiles of 256 → 24 of 32

Slacks that are affine in one row variable and the position are greatest at a corner of a block of rows and a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import ir, sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.frame import Frame, lookup
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute, variables_of
from tvm_cascade.transform.dead_tiles import DeadPositions

BLOCK_ROWS = (16, 32, 64)
"""Rows of a block, which visit the same tiles, about: a schedule takes divisors of the rows."""

BLOCK_OVERHEAD = 0.7
"""Rows whose time a block takes beyond that of its own (measured: attention of 1000 and 2048 positions takes 2 and 3 to
7 % more in blocks of 32 and 16 rows than of 64)."""

TILE_POSITIONS = 5
"""What a tile takes beyond its positions, in positions, where it feeds a contraction: references and sums are moved
(measured: causal attention of 512 and 1000 positions takes 6 % more for each in tiles of 64 and 50 than of 256)."""


@dataclass(frozen=True)
class _Affine:
    """start + row·(row's step) + position·(position's step)."""

    start: int
    row: int
    position: int

    def greatest(self, rows: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The greatest value in each block of rows and each tile, of which the first and the last are given."""
        return self.start + (self.row * rows).max(0)[:, None] + (self.position * positions).max(0)[None, :]


@dataclass(frozen=True)
class LiveTiles:
    """What is known of a loop's live tiles.

    Attributes
    ----------
    length : of the axis.
    rows : of the variable that slacks depend on.
    slacks : those that are known.
    known : whether all are.
    """

    length: int
    rows: int
    slacks: tuple[_Affine, ...]
    known: bool

    def share(self, tile: int, block: int) -> float:
        """The share of the tiles of a length that blocks of so many rows visit."""
        first_rows, first = np.arange(0, self.rows, block), np.arange(0, self.length, tile)
        rows = np.stack([first_rows, np.minimum(first_rows + block, self.rows) - 1])
        positions = np.stack([first, np.minimum(first + tile, self.length) - 1])
        live = np.ones((first_rows.size, first.size), bool)
        for slack in self.slacks:
            live &= slack.greatest(rows, positions) >= 0
        return float(live.mean()) if live.size else 1.0

    def block(self, tile: int, blocks: Sequence[int] = BLOCK_ROWS) -> int:
        """The rows of a block, of those, that take the least time; of equal ones the most."""
        return min(sorted(blocks, reverse=True), key=lambda block: self._time(tile, block))

    def time(self, tile: int) -> float:
        """The time of tiles of a length, in blocks of the best number of rows, over that of all positions."""
        return self._time(tile, self.block(tile)) * (1.0 + TILE_POSITIONS / tile)

    def _time(self, tile: int, block: int) -> float:
        return self.share(tile, block) * (1.0 + BLOCK_OVERHEAD / block)


def live_tiles_of(dead: DeadPositions | None, frame: Frame) -> LiveTiles | None:
    """The live tiles of a loop by its masks; None where it has none, or an extent is symbolic."""
    axis = frame.axis[-1]
    length = lookup(frame.extents, axis)
    if dead is None or not isinstance(length, int):
        return None
    used = [var for slack in dead.slacks for var in variables_of(slack) if not tirx.is_buffer_var(var)]
    others = [var for var in used if not among(var, frame.axis)]
    row = others[0] if others else None
    extent = 1 if row is None or not _is_of(row, frame) else lookup(frame.extents, row)
    if not isinstance(extent, int):
        return None
    return live_tiles(dead.slacks, axis, length, row, extent)


def live_tiles(
    slacks: Sequence[ir.Expr], position: tirx.Var, length: int, row: tirx.Var | None, rows: int
) -> LiveTiles:
    """The live tiles of slacks in a position and a row; those in any other variable are not known."""
    found = [_affine(slack, row, position) for slack in slacks]
    return LiveTiles(length, rows, tuple(one for one in found if one is not None), all(found))


def _is_of(var: tirx.Var, frame: Frame) -> bool:
    return any(var.same_as(own) for own in frame.extents)


def _affine(slack: ir.Expr, row: tirx.Var | None, axis: tirx.Var) -> _Affine | None:
    """A slack in the row and the position alone; None of one that is not affine in them, or reads data."""
    own = [axis] if row is None else [axis, row]
    if loads_of(slack) or not all(among(var, own) for var in variables_of(slack)):
        return None
    analyzer = sym.Analyzer()

    def at(row_value: int, position: int) -> int | None:
        values = dict(zip(own, (position, row_value), strict=False))
        known = {var: tirx.const(value, dtype_of(var)) for var, value in values.items()}
        found = analyzer.simplify(substitute(slack, known))
        return int(found) if isinstance(found, prim.IntImm) else None

    points = [(0, 0), (1, 0), (0, 1), (3, 7), (1000, 10), (17, 911)]
    values = [at(*point) for point in points]
    if any(value is None for value in values):
        return None
    start, by_row, by_position = (int(value) for value in values[:3] if value is not None)
    affine = _Affine(start, by_row - start, by_position - start)
    same = all(
        value == start + affine.row * r + affine.position * p for value, (r, p) in zip(values, points, strict=True)
    )
    return affine if same else None
