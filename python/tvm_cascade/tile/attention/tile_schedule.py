"""The static tile schedule of persistent blocks: longest first (LPT) where extents are known, by formulas elsewhere.

Work runs over tiles of rows and over *places* (points of the batch). Where masks make tiles of rows uneven, they go in
pairs, the p-th from the end and the p-th from the start of a place: (n−1, 0), (n−2, 1), … Pairs take alike, and a light
tile follows a heavy one, so that loads from memory are spread over time. But the last wave of pairs may be
partial, and an odd number of tiles leaves one without its pair. So a list is made where it takes less time: the next
free block takes the next pair, and of the last places the next tile, the longest first.

Longest processing time first: Graham, "Bounds on multiprocessing timing anomalies" (1969).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.tir import substitute
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.live import Rows, live_tiles

MOST_SCHEDULED = 32768
"""Tiles of rows that a list may have; it is part of the kernel."""

_WORTH = 0.995
"""A list is taken where it takes at most this share of the other's time."""

_LAST_ITEMS = 4
"""Tiles of rows that each block has on its own, or half as many, so that all end together."""

NOTHING = -1
"""In a list: the block has no further work."""


@dataclass(frozen=True)
class TileSchedule:
    """The tiles of rows of each block.

    Attributes
    ----------
    span : the cost of the busiest block.
    items : [block, step], place · (tiles of rows) + tile of rows, or `NOTHING`; None where pairs are as good.
    """

    span: float
    items: NDArray[np.int32] | None


def visited_tiles(program: TileProgram, rows: int, columns: int) -> NDArray[np.int64] | None:
    """How many tiles of the axis each tile of rows visits; None where extents are symbolic.

    Where it depends on the place too, what is visited at most.
    """
    stream = program.stream
    length, extent = stream.extent(stream.position), stream.extent(stream.row)
    if not isinstance(length, int) or not isinstance(extent, int):
        return None
    tiles, first = -(-length // columns), tirx.Var("first_row", "int32")
    ranges = live_tiles(
        program.skip, stream.position, Rows(stream.row, first, rows), columns, tirx.const(tiles, "int32")
    )
    count = tirx.max(tirx.min(ranges.end, tiles) - tirx.max(ranges.first, 0), 1)
    analyzer, found = sym.Analyzer(), []
    for row in range(0, extent, rows):
        at_row = analyzer.simplify(substitute(count, {first: tirx.const(row, "int32")}))
        found.append(int(at_row) if isinstance(at_row, prim.IntImm) else tiles)
    return np.array(found)


def live_shares(program: TileProgram, rows: int, columns: int) -> tuple[float, float]:
    """The shares of the axis that tiles of rows visit, on average and at most; 1 where extents are symbolic."""
    visited, length = visited_tiles(program, rows, columns), program.stream.extent(program.stream.position)
    if visited is None or not isinstance(length, int) or not length:
        return 1.0, 1.0
    tiles = -(-length // columns)
    return float(visited.mean()) / tiles, float(visited.max()) / tiles


def schedule_tiles(costs: NDArray[np.float64], places: int, blocks: int, uneven: bool) -> TileSchedule:
    """The better of the order by formula and a list, longest first.

    Parameters
    ----------
    costs : of each tile of rows.
    places, blocks : how many there are of each.
    uneven : whether the formula pairs tiles of rows.
    """
    shares = _pairs(len(costs)) if uneven else [[row_tile] for row_tile in range(len(costs))]
    best = TileSchedule(_busiest(np.array([costs[share].sum() for share in shares]), places, blocks), None)
    if not uneven or len(costs) * places > MOST_SCHEDULED:
        return best
    enough = -(-_LAST_ITEMS * blocks // len(costs))
    for unpaired in {min(enough, places), min(-(-enough // 2), places)}:
        span, items = _greedily(costs, _order(costs, places, unpaired), blocks)
        if span < _WORTH * best.span:
            best = TileSchedule(span, items)
    return best


def _pairs(row_tiles: int) -> list[list[int]]:
    """The shares of a place; the middle one of an odd number is its own."""
    return [sorted({row_tiles - 1 - p, p}, reverse=True) for p in range((row_tiles + 1) // 2)]


def _busiest(shares: NDArray[np.float64], places: int, blocks: int) -> float:
    """The cost of the busiest block, if shares are assigned round-robin."""
    numbers = np.arange(len(shares) * places)
    return float(np.bincount(numbers % blocks, weights=np.tile(shares, places)).max())


def _order(costs: NDArray[np.float64], places: int, unpaired: int) -> list[list[int]]:
    """Shares as place · (tiles of rows) + tile of rows: pairs of the first places, single tiles of the last ones."""
    row_tiles, first = len(costs), places - unpaired
    pairs = [[place * row_tiles + tile for tile in pair] for place in range(first) for pair in _pairs(row_tiles)]
    longest = np.argsort(-costs, kind="stable")
    return pairs + [[place * row_tiles + int(tile)] for tile in longest for place in range(first, places)]


def _greedily(costs: NDArray[np.float64], order: list[list[int]], blocks: int) -> tuple[float, NDArray[np.int32]]:
    """List scheduling: when the last block ends if the next free block takes the next share, and what each takes."""
    taken: list[list[int]] = [[] for _ in range(blocks)]
    taking = costs.tolist()
    free = [(0.0, block) for block in range(blocks)]
    for share in order:
        ends, block = free[0]
        taken[block] += share
        heapq.heapreplace(free, (ends + sum(taking[item % len(taking)] for item in share), block))
    table = np.full((blocks, max(map(len, taken))), NOTHING, np.int32)
    for block, own in enumerate(taken):
        table[block, : len(own)] = own
    return max(ends for ends, _ in free), table
