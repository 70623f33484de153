"""Which block does which tiles of rows: dealt ahead where all extents are known, by formulas where they are not.

Work runs over tiles of rows and over *places* (points of the batch). Where masks make tiles of rows uneven, the order
decides how long the busiest block takes:

    pairs    the p-th tile from the end and the p-th from the start of a place go together: (n−1, 0), (n−2, 1), …
    dealt    a block that is free takes the next of a list, the longest tiles of some places first

What is dealt ahead follows the costs that tiles have by the number of tiles of the axis that they visit. The blocks
that run together share right operands in the L2 cache, so that a list takes only as many places together as fit there.

Source of dealing the longest first: Graham, "Bounds on multiprocessing timing anomalies" (1969).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tvm import sym, tirx
from tvm.ir import prim

from tvm_cascade.analysis.domain import substitute
from tvm_cascade.tile.live import Rows, live_tiles
from tvm_cascade.tile.program import TileProgram

L2_SHARE = 24 * 2**20
"""Bytes of right operands that blocks which run together may read: two fifths of the L2 cache of an H100 or H200."""

MOST_DEALT = 32768
"""Tiles of rows that a list may have; it is part of the kernel."""

_WORTH = 0.995
"""A list, or one of more places, is taken where it takes at most this share of the time."""

NOTHING = -1
"""In a list: the block has no further work."""


@dataclass(frozen=True)
class Deal:
    """Who does what.

    Attributes
    ----------
    span : the cost of the busiest block.
    items : [block, turn], place · (tiles of rows) + tile of rows, or `NOTHING`; None where pairs are as good.
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


def deal(costs: NDArray[np.float64], places: int, blocks: int, place_bytes: int, uneven: bool) -> Deal:
    """The better of the formula's order and of a list.

    Parameters
    ----------
    costs : of each tile of rows.
    places, blocks : how many there are of each.
    place_bytes : of the right operands of a place.
    uneven : what the formula takes the tiles of rows for.
    """
    best = Deal(_busiest(_shares(costs, uneven), places, blocks), None)
    if not uneven or len(costs) * places > MOST_DEALT:
        return best
    most = min(places, max(1, L2_SHARE // place_bytes))
    for together in (1 << power for power in range(most.bit_length())):
        order = _longest_first(costs, places, together)
        span, turns = _greedily(np.tile(costs, places)[order], blocks)
        if span < _WORTH * best.span:
            best = Deal(span, _as_table(turns, order))
    return best


def _busiest(shares: NDArray[np.float64], places: int, blocks: int) -> float:
    turns = np.arange(len(shares) * places)
    return float(np.bincount(turns % blocks, weights=np.tile(shares, places)).max())


def _shares(costs: NDArray[np.float64], uneven: bool) -> NDArray[np.float64]:
    """The cost of each share of work at one place, as the formula deals them."""
    if not uneven:
        return costs
    half = (len(costs) + 1) // 2
    pairs = costs[::-1][:half] + costs[:half]
    if len(costs) % 2:
        pairs[-1] = costs[half - 1]
    return pairs


def _longest_first(costs: NDArray[np.float64], places: int, together: int) -> NDArray[np.int64]:
    """All items, some places after the others; of those that go together the longest first."""
    by_cost = np.argsort(-costs, kind="stable")
    groups = [np.arange(first, min(first + together, places)) for first in range(0, places, together)]
    return np.concatenate([(group[None, :] * len(costs) + by_cost[:, None]).ravel() for group in groups])


def _greedily(costs: NDArray[np.float64], blocks: int) -> tuple[float, list[list[int]]]:
    """When the last block ends, and which of the items each takes, if whoever is free takes the next."""
    turns: list[list[int]] = [[] for _ in range(blocks)]
    free = [(0.0, block) for block in range(blocks)]
    for index, cost in enumerate(costs):
        ends, block = free[0]
        turns[block].append(index)
        heapq.heapreplace(free, (ends + float(cost), block))
    return max(ends for ends, _ in free), turns


def _as_table(turns: list[list[int]], order: NDArray[np.int64]) -> NDArray[np.int32]:
    table = np.full((len(turns), max(map(len, turns))), NOTHING, np.int32)
    for block, own in enumerate(turns):
        table[block, : len(own)] = order[own]
    return table
