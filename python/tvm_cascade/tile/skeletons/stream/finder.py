"""Live tiles of rows whose bounds are loaded: one warp finds them ahead of those that copy and fold.

    finder      for item: wait until a slot is empty; read the bounds of its rows; write the tiles of every warp group
    others      for item: wait until its slot is full; read it; release it

Whoever needs them would else wait for memory before each tile of rows, while the tensor cores have nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.scheduler import LongestFirst
from tvm_cascade.tile.emit import bind, in_register, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.live import TileRange
from tvm_cascade.tile.skeletons.stream.tiling import Tiling
from tvm_cascade.tile.work import GROUP_ROWS, Threads, Work

_SLOTS = 4
"""Items that are found ahead."""

_RANGES = 2
"""Of a warp group: the tiles that hold a live position, and those that need no mask."""

_WARPS = 4
"""Of a warp group."""


class TileFinder:
    """Emits the warp that finds the tiles, and the loops of those that read them.

    Parameters
    ----------
    scheduler : of the tiles of rows, by about how many tiles each visits.
    """

    def __init__(self, tiling: Tiling, threads: Threads, scheduler: LongestFirst) -> None:
        self.tiling, self.threads, self.scheduler = tiling, threads, scheduler
        self.groups = tiling.config.row_groups

    def allocate(self, pool: Any) -> None:
        """Takes shared memory: for the ranges of each group, and barriers that one producer and all consumers read."""
        self.slots = pool.alloc((_SLOTS, self.groups, 2 * _RANGES), "int32", align=16)
        self.full = Barriers(pool, _SLOTS, 1)
        self.empty = Barriers(pool, _SLOTS, 1 + _WARPS * self.groups)
        self.scheduler.allocate(pool)

    def initialise(self) -> None:
        """Initialises the barriers, by one thread."""
        self.full.initialise()
        self.empty.initialise()

    def sort(self) -> None:
        """Sorts tiles of rows, with all threads; a barrier of the block has to follow."""
        self.scheduler.sort(self.threads.thread, self.tiling.likely_tiles)

    def find(self) -> None:
        """Finds the tiles of the block's items, by a whole warp."""
        ring = Ring("found", _SLOTS, 1)
        with self.scheduler.each(self.threads.block) as item:
            first_row, batch = bind("first_row", item.row_tile * self.tiling.config.rows), self.tiling.batch(item.place)
            self.empty.wait(ring.stage, ring.parity)
            for group in range(self.groups):
                found = self._ranges(batch, first_row + group * GROUP_ROWS)
                with when(self.threads.lane == 0):
                    for place, bound in enumerate(bound for one in found for bound in (one.first, one.end)):
                        T.buffer_store(self.slots, bound, [ring.stage, group, place])
            with when(self.threads.lane == 0):
                self.full.arrive(ring.stage)
            ring.advance()

    @contextmanager
    def each_work(self, group: ir.Expr | None = None) -> Iterator[Work]:
        """The block's items with their tiles.

        Parameters
        ----------
        group : the number of the consumer that reads them, by all of its threads; None for one thread that copies.
        """
        ring = Ring("reading", _SLOTS, 0)
        with self.scheduler.each(self.threads.block) as item:
            first_row, batch = bind("first_row", item.row_tile * self.tiling.config.rows), self.tiling.batch(item.place)
            self.full.wait(ring.stage, ring.parity)
            visited = self._hull(ring)
            own, whole = (None, None) if group is None else (self._range(ring, group, k) for k in range(_RANGES))
            if group is None:
                self.empty.arrive(ring.stage)
            else:
                T.evaluate(T.cuda.warp_sync())
                with when(self.threads.lane == 0):
                    self.empty.arrive(ring.stage)
            ring.advance()
            yield Work(first_row, batch, visited, own=own, whole=whole)

    def _ranges(self, batch: dict[tirx.Var, ir.Expr], first_row: ir.Expr) -> tuple[TileRange, TileRange]:
        live = self.tiling.visited(batch, first_row, GROUP_ROWS)
        nothing = TileRange(T.int32(0), T.int32(0))
        return live, self.tiling.whole(batch, first_row, GROUP_ROWS) or nothing

    def _hull(self, ring: Ring) -> TileRange:
        """The tiles of all groups: one at least."""
        tiles, each = self.tiling.tile_count(), [(ring.stage, group) for group in range(self.groups)]
        least = reduce(tirx.min, [self.slots[stage, group, 0] for stage, group in each])
        most = reduce(tirx.max, [self.slots[stage, group, 1] for stage, group in each])
        first = in_register("first_tile", tirx.max(tirx.min(least, tiles - 1), 0))
        return TileRange(first, in_register("end_tile", tirx.max(tirx.min(most, tiles), first + 1)))

    def _range(self, ring: Ring, group: ir.Expr, number: int) -> TileRange:
        bounds = (self.slots[ring.stage, group, 2 * number + end] for end in range(2))
        return TileRange(*(in_register("found_tile", bound) for bound in bounds))
