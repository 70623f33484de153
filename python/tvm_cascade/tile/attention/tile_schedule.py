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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import ir, sym, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import loads_of, substitute, variables_of
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.emit import bind, device_functions, in_register, put, registers, variable, when
from tvm_cascade.tile.live import Rows, live_tiles, of_whole_tiles
from tvm_cascade.tile.merge.grid import LaunchMemory
from tvm_cascade.tile.merge.lanes import from_lane
from tvm_cascade.tile.work import Order, Threads

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

    Where it depends on the place too, or on data, what is visited at most.
    """
    stream = program.stream
    length, extent = stream.extent(stream.position), stream.extent(stream.row)
    if not isinstance(length, int) or not isinstance(extent, int):
        return None
    tiles, first = -(-length // columns), tirx.Var("first_row", "int32")
    known = tuple(slack for slack in program.skip if not loads_of(slack))
    ranges = live_tiles(known, stream.position, Rows(stream.row, first, rows), columns, tirx.const(tiles, "int32"))
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
    tiles, share = -(-length // columns), share_of_lengths(program)
    stream = program.stream
    if not program.skip and of_whole_tiles(program.needed, stream.row, rows, stream.position, columns):
        share *= _KEPT
    return share * float(visited.mean()) / tiles, share * float(visited.max()) / tiles


_KEPT = 0.5
"""The share of blocks that is guessed where data alone say which take part."""


def share_of_lengths(program: TileProgram) -> float:
    """The share of the longest that is guessed of lengths: of those that data or numbers tell a half."""
    loops = {*program.stream.group.frame.extents}
    told = (loads_of(slack) or {*variables_of(slack)} - loops for slack in program.skip)
    return 0.5 if any(told) else 1.0


def schedule_tiles(costs: NDArray[np.float64], places: int, blocks: int, uneven: bool) -> TileSchedule:
    """The better of the order by formula and a list, longest first."""
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
    return [sorted({row_tiles - 1 - p, p}, reverse=True) for p in range((row_tiles + 1) // 2)]


def _busiest(shares: NDArray[np.float64], places: int, blocks: int) -> float:
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


# The loop of a persistent block over its tiles of rows, in that order. Tiles of rows run faster than places, so that
# blocks that run together share the right operands in the L2 cache.
#
#     even     row tiles 0, 1, 2, 3, …          uneven     a list, or (n−1, 0), (n−2, 1), (n−3, 2), …


@dataclass(frozen=True)
class Item:
    """One tile of rows at one batch index."""

    row_tile: ir.Expr
    place: ir.Expr


@dataclass(frozen=True)
class Scheduler(Order[Item]):
    """Assigns tiles of rows to blocks.

    Attributes
    ----------
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
        return (self.row_tiles + 1) // 2 if self.uneven else self.row_tiles

    @property
    def shares(self) -> ir.Expr:
        return self.per_place * self.places

    @property
    def grid(self) -> ir.Expr:
        if self.items is not None:
            return tirx.const(len(self.items), "int32")
        return tirx.min(self.shares, self.blocks)

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Item]:
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
        following = variable("following_item", self._read(block * turns))
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


# Longest first where only the device knows how long tiles of rows take: every block sorts them before its first, and
# has the next one when it is free.
#
#     costs        7 2 9 4          tiles that a tile of rows visits at the first place, by bounds or blocks in memory
#     order        2 0 3 1          in shared memory; some places of a tile of rows follow one another, then all of the
#                                   next; the other places come after these, so that the L2 cache has what blocks read
#     blocks       each begins with the item of its own number; the next one is of who takes it first
#
# A wrong cost makes blocks uneven, and no result wrong; nor does it matter which block has an item.


_STORED, _LARGEST = "uint16", 0xFFFF
"""What costs and numbers are kept in, and the largest of those."""


class Counter(LaunchMemory):
    """A number of a launch that its blocks take one after the other."""

    functions = device_functions(Path(__file__).with_name("counter.cuh"))

    def __init__(self, name: str) -> None:
        super().__init__(name, 4)

    def take(self, count: ir.Expr) -> ir.Expr:
        """The next of 0, 1, …, `count` − 1, of which a launch takes as many as there are; by one thread of a block."""
        return self.call("take", self.obtain(), count, returned="int32")


class LongestFirst(Order[Item]):
    """Gives tiles of rows to blocks that are free: one warp of a block takes them, and tells the others.

    Parameters
    ----------
    most : tiles of rows that are sorted, one by each thread of a block; of more, the last come first.
    cost_of : a tile of rows -> its cost.
    together : places that follow one another.
    """

    def __init__(
        self, name: str, row_tiles: ir.Expr, places: ir.Expr, blocks: int, most: int,
        cost_of: Callable[[ir.Expr], ir.Expr], together: ir.Expr,
    ) -> None:  # fmt: skip
        self.row_tiles, self.places, self.blocks, self.cost_of = row_tiles, places, blocks, cost_of
        self.together = tirx.min(together, places)
        self.most = min(int(row_tiles), most) if isinstance(row_tiles, prim.IntImm) else most
        self.counter = Counter(name)

    @property
    def items(self) -> ir.Expr:
        return self.row_tiles * self.places

    @property
    def grid(self) -> ir.Expr:
        return tirx.min(self.items, self.blocks)

    @property
    def is_sorted(self) -> ir.Expr:
        return self.row_tiles <= self.most

    def allocate(self, pool: Any) -> None:
        self.costs, self.order = (pool.alloc((self.most,), _STORED, align=16) for _ in range(2))

    def find(self, threads: Threads) -> None:
        """Sorts tiles of rows by their costs."""
        self.leads = threads.lane == 0
        thread, own = threads.thread, registers("own_cost", 1, "int32")
        with when(tirx.And(self.is_sorted, thread < self.row_tiles)):
            put(own, 0, tirx.min(self.cost_of(thread), _LARGEST))
            put(self.costs, thread, T.cast(own[0], _STORED))
        T.evaluate(T.cuda.cta_sync())
        with when(tirx.And(self.is_sorted, thread < self.row_tiles)):
            before = variable("longer", T.int32(0))
            with T.serial(self.row_tiles) as other:
                cost = bind("other_cost", T.cast(self.costs[other], "int32"))
                comes_before = tirx.Or(cost > own[0], tirx.And(cost == own[0], other < thread))
                put(before, 0, before[0] + tirx.Select(comes_before, 1, 0))
            put(self.order, before[0], T.cast(thread, _STORED))

    @contextmanager
    def each(self, block: ir.Expr) -> Iterator[Item]:
        """The tiles of rows that one warp takes for its block, in all of its lanes."""
        self.counter.start(self.leads)
        number = variable("taken", block)
        with T.While(number[0] < self.items):
            first = bind("first_place", number[0] // (self.row_tiles * self.together) * self.together)
            count = bind("places_together", tirx.min(self.together, self.places - first))
            within = bind("within", number[0] - first * self.row_tiles)
            row_tile = in_register("row_tile", self._row_tile(bind("in_order", within // count)))
            yield Item(row_tile, first + within % count)
            with when(self.leads):
                put(number, 0, self.grid + self.counter.take(self.items))
            put(number, 0, from_lane(0, number[0]))
        with when(self.leads):
            self.counter.release(self.counter.obtain())

    def _row_tile(self, in_order: ir.Expr) -> ir.Expr:
        if isinstance(self.row_tiles, prim.IntImm) and int(self.row_tiles) == self.most:
            return T.cast(self.order[in_order], "int32")
        own = T.cast(self.order[tirx.min(in_order, self.most - 1)], "int32")
        return tirx.Select(self.is_sorted, own, self.row_tiles - 1 - in_order)
