"""Emits the stream kernel of a wide state: two groups lift in turn and both multiply, each half of the columns.

    producer    for tile: copy its parts, each once its stage is empty
    groups      for tile: see `Half`

The right operand's tile is the values too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tvm import ir
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.operands.feed import Feed, StagedPart, arrivals_of, staged_tiles
from tvm_cascade.tile.attention.pieces import OneEach, PieceWork
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.emit import bind, branches, computed_here, in_register, named, put, registers, when
from tvm_cascade.tile.hopper.barrier import Barriers, Ring
from tvm_cascade.tile.hopper.driver import Driver, Initialised
from tvm_cascade.tile.launch.dependent import Launch
from tvm_cascade.tile.machine.family import steps_of
from tvm_cascade.tile.merge.lanes import WARP, in_no_lane
from tvm_cascade.tile.skeletons.stream.consumer import Consumer
from tvm_cascade.tile.skeletons.stream.epilogue import Epilogue
from tvm_cascade.tile.skeletons.stream.halves.columns import GROUPS, HalfColumns, are_alike, parts_of
from tvm_cascade.tile.skeletons.stream.halves.config import HalvesConfig
from tvm_cascade.tile.skeletons.stream.halves.shares import ClusterShares, Handed
from tvm_cascade.tile.skeletons.stream.halves.sharing import READ, Shared
from tvm_cascade.tile.skeletons.stream.pieces.grid import GridFixUp
from tvm_cascade.tile.skeletons.stream.producer import PagedProducer
from tvm_cascade.tile.skeletons.stream.tiling import Places, Tiling
from tvm_cascade.tile.work import WARP_GROUP, Registers, Threads, Work

_HELD = 80
"""Registers that hold elements of states while a thread merges: with twice as many the code, which runs once and so
comes from the memory, is twice as long (measured, of L5: 31.9 and 33.2 µs; with half as many 32.1)."""


class HalvesKernel(Driver):
    """Emits the kernel."""

    def __init__(self, program: TileProgram, config: HalvesConfig, launch: Launch) -> None:
        super().__init__(program.stream.program.params, config.consumers)
        self.program, self.config, self.stream = program, config, program.stream
        self.early, self.tiling = launch.early, Tiling(program, config, self.buffers, launch.late)

    def describe(self) -> None:
        config, stream, warps = self.config, self.stream, WARP_GROUP // WARP  # all of the producer's: there is one feed
        self.left = self.tiling.copies(stream.left, config.rows, row_warps=warps)
        self.right = self.tiling.copies(stream.right, config.columns, row_warps=warps)
        self.epilogue = Epilogue(self.tiling)

    def place(self) -> None:
        """Blocks with pieces of items, one for each block that columns are spread over; of unequal lengths one each.

        Blocks with pieces of several items of unequal lengths took 83 instead of 60 µs (measured).
        """
        config = self.config
        by_length, sharing = OneEach if config.by_length else None, config.cluster if config.cluster > 1 else None
        self.order = Places(self.tiling, sharing, by_length)
        self.place_threads(named("block", T.cta_id([self.order.grid])))
        if config.cluster > 1:
            named("rank", T.cta_id_in_cluster([config.cluster]))

    def allocate(self, pool: Any) -> None:
        """Tiles of both operands, and where tiles were what blocks of a cluster send; then barriers of their parts."""
        config = self.config
        left_tiles = staged_tiles("left_tiles", pool, config.left_stages, self.left)
        first = pool.offset
        right_tiles = staged_tiles("right_tiles", pool, config.stages, self.right)
        self.fixups = self._fixups_of()
        if config.cluster > 1:
            end = pool.offset
            pool.move_base_to(first)
            self._allocate_fixups(pool)
            pool.move_base_to(end)
        self.shared = Shared(pool, self.program, config.columns)
        self.epilogue.allocate(pool, self.left.boxes)
        if config.cluster == 1:
            self._allocate_fixups(pool)
        self.order.allocate(pool)
        left_empty = Barriers(pool, config.left_stages, config.consumers)
        parts = parts_of(self.stream, config.spread)
        left = tuple(StagedPart(Barriers(pool, config.left_stages, 1), left_empty, *part) for part in parts)
        arrivals = arrivals_of([self.right])
        right = tuple(
            StagedPart(
                Barriers(pool, config.stages, arrivals),
                Barriers(pool, config.stages, max(len(readers), 1)), boxes, readers,
            )
            for boxes, readers in parts
        )  # fmt: skip
        for fixup in self._shares:
            fixup.add_barrier(pool)
        self.left_feed, self.tiles = Feed([self.left], [left_tiles], left), Feed([self.right], [right_tiles], right)

    def barriers(self) -> list[Initialised]:
        left, right = self.left_feed.parts, self.tiles.parts
        of_parts = [*(p.full for p in left), *(b for p in right for b in (p.full, p.empty))]
        return [*self._shares, self.shared.barriers, left[0].empty, *of_parts]

    def registers(self) -> Registers:
        return self.config.shares(self.stream)

    def _fixups_of(self) -> Sequence[GridFixUp | ClusterShares]:
        """That of each group: one of both where groups are alike, so that both run the same code.

        What runs once comes from the memory instruction by instruction: 3 µs for 14 KiB of it (measured).
        """
        if self.config.cluster > 1:
            return [ClusterShares(self.tiling, self.config.cluster, self.epilogue)]
        if are_alike(self.stream):
            return [self._fixup(bind("group_of_two", self.threads.group - 1))]
        return [self._fixup(group) for group in range(GROUPS)]

    def _fixup(self, group: int | ir.Expr) -> GridFixUp:
        columns = HalfColumns(group, self.config.spread)
        return GridFixUp(self.tiling, self.name, self.config.most_pieces, 1, False, GROUPS, group, columns, _HELD)

    def _allocate_fixups(self, pool: Any) -> None:
        for one in self.fixups:
            one.allocate(pool, self.threads)

    def consume(self) -> None:
        first, of_both, handed = self.fixups[0], len(self.fixups) == 1, None
        if isinstance(first, ClusterShares):
            handed = first.handed = Handed(self.tiling, self.threads, first.blocks, self._left_place)
        elif of_both:
            first.begin(0)
        with branches(self.threads.group == 1) as halves:
            for group, half in enumerate(halves):
                with half:
                    self._group(group, None if of_both else self.fixups[group], handed)
        if of_both:
            first.settle(self.each_work)

    def _group(self, group: int, own: GridFixUp | ClusterShares | None, handed: Handed | None) -> None:
        fixup = own or self.fixups[0]
        half = Half(
            self.tiling, self.threads, self.left_feed, self.tiles, self.shared, self.epilogue,
            fixup if isinstance(fixup, GridFixUp) else None, group, self.config.spread, handed,
        )  # fmt: skip
        if isinstance(own, GridFixUp):
            own.begin(0)
        half.run(self.each_work)
        if own is not None:
            own.settle(self.each_work)

    @property
    def _shares(self) -> list[ClusterShares]:
        return [fixup for fixup in self.fixups if isinstance(fixup, ClusterShares)]

    def _left_place(self, box: ir.Expr | int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        return place_of(self.left_feed.tiles[0], T.int32(0), box, row, column)

    def produce(self) -> None:
        """One thread copies the parts that group 0 reads, and one the others; of pages, all warps all parts."""
        if self.stream.paged:
            PagedProducer(self.tiling, self.threads, [self.tiles], self.left_feed).run(self.each_work)
            return
        for warp, share in enumerate(copying_shares(self.tiles)):
            with when(self.threads.warp == warp), when(T.cuda.elect_sync()):
                self._produce_parts(share)

    def _produce_parts(self, numbers: Sequence[int]) -> None:
        """Copies some of the parts, each as soon as it may be, whatever others wait for.

        The second tile waits until the first, which all wait for, is there: 0.98 of the time of 8 tiles (measured).
        """
        for copies in (self.left, self.right):
            copies.prefetch()
        ring, left = self.tiles.filling("produced"), self.left_feed.filling("produced_left")
        with self.each_work() as work:
            rows, places = self.tiling.fixed_of([self.left], work), self.tiling.fixed_of([self.right], work)
            last = (work.tiles.end - 1) * self.config.columns
            for number in numbers:
                self.left_feed.copy_part(self.left_feed.parts[number], left, work.first_row, rows)
                self.tiles.copy_part(self.tiles.parts[number], ring, last, places)
            self.tiles.parts[numbers[-1]].full.wait(ring.stage, ring.parity ^ 1)
            left.advance()
            ring.advance()
            with T.serial(work.tiles.end - work.tiles.first - 1) as step:
                for number in numbers:
                    place = last - (step + 1) * self.config.columns
                    self.tiles.copy_part(self.tiles.parts[number], ring, place, places)
                ring.advance()


# A warp group that has half of the columns: it lifts every other tile, and multiplies with the weights of all.
#
# own tile j      start scores of all parts but the last;  take tile j - 1;  start the rest;  fold;  share
#                 half += weights @ V
# tile j - 1      wait until it is shared;  rows = what is shared;  half = moved;  start half += shared weights @ V
#
# A tile's scores so are under way while the other group folds; and as soon as its products are done, a tile's stage is
# filled again. Source: FlashMLA's "seesaw" (DeepSeek, 2025), where references too go back and forth; here all of a
# row's state does, so that tiles are folded in order, as by one.


class Half(Consumer):
    """Emits it; the first group lifts the first tile.

    Parameters
    ----------
    handed : registers that both groups hand over, where they go on together.
    """

    def __init__(
        self, tiling: Tiling, threads: Threads, left: Feed, tiles: Feed, shared: Shared, epilogue: Epilogue,
        fixup: GridFixUp | None, group: int, spread: int, handed: Handed | None = None,
    ) -> None:  # fmt: skip
        self.shared, self.parts, self.fixup, self.group = shared, tiles.parts, fixup, group
        shared.begin()
        # As they arrive of the tiles that it lifts: it is the first to have read its own before.
        self.order = sorted(tiles.parts, key=lambda part: bool(part.readers) + (group not in part.readers))
        self.moved = registers("moved", 1, "uint32")
        alone = tuple(part for part in tiles.parts if not part.readers)
        scores = replace(tiles, awaited=tiles.parts[:1], released=alone)  # others are released by products
        own, products = tuple(part for part in tiles.parts if group in part.readers), len(tiling.stream.products)
        values = Feed([*tiles.copies] * products, [*tiles.tiles] * products, tiles.parts, own, own)
        super().__init__(tiling, threads, left, scores, values, epilogue, HalfColumns(group, spread))
        if handed is not None:
            self.accumulators, self.row_values = handed.all_accumulators, handed.values
        self.weights = [shared.matrix(one, self.family, threads) for one in self.program.accumulations]

    def left_place(self, box: int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
        return place_of(self.left_feed.tiles[0], self.left.stage, box, row, column)

    def hand_over(self) -> None:
        """Stores its half of a whole axis, or leaves the state of a part; nothing where both groups go on together."""
        if self.fixup is None:
            return
        if not self.fixup.meets:
            self.epilogue.emit(self)
            return
        assert isinstance(self.work, PieceWork)
        with branches(in_no_lane(self.work.piece.is_whole)) as (part, whole):
            with part:
                self.fixup.leave(self, self.work)
                with when(self.threads.leads):
                    self.left_is_read()
            with whole:
                self.epilogue.emit(self)

    def _place(self, work: Work) -> None:
        super()._place(work)
        self.rows.end = self.tiling.end_position(work)
        self.rows.allocate()

    def _stream(self, work: Work) -> None:
        count, end = in_register("tile_count", work.tiles.end - work.tiles.first), work.tiles.end
        if self.group == 0:
            self._first_tile(end - 1)
        else:
            self.left_feed.wait(self.left)
            self.shared.arrive(READ)
            self.right.advance()
        with T.serial((count - 1 + self.group) // GROUPS) as step:
            self._tile(bind("tile", end - (GROUPS + 1 - self.group) - step * GROUPS))
        with when(in_no_lane(count % GROUPS != self.group)):
            self._take(work.tiles.first)
            self._multiplied()
        self.right.join(self.value)
        self.rows.across_lanes()
        self.hand_over()
        self.left.advance()

    def _first_tile(self, tile: ir.Expr) -> None:
        """The first of all tiles, which may reach past the end of the axis."""
        self._start_scores(rows=self.left_feed)
        self.masking.prepare(tile)
        self.family.wait(0)
        self._release(self.right_feed, self.right)
        self._fold_rows(tile, first=True)
        put(self.moved, 0, T.uint32(0))
        self._pack(tile if self.tiling.ragged else None)
        self.shared.wait(READ)
        self._share()
        self._multiply_own()

    def _tile(self, tile: ir.Expr) -> None:
        early = max(len(self.order) - 1, 1)
        self._start_scores(self.order[:early])
        self._take(tile + 1)
        self._start_scores(self.order[early:], add=True)
        self.masking.prepare(tile)
        self._multiplied(pending=1)
        self.family.wait(0)
        put(self.moved, 0, T.uint32(0))
        if self.optimistic:
            self._fold_optimistic(tile)
        else:
            self._release(self.right_feed, self.right)
            self._fold_mapped(tile, partial(self.rows.step, tile, first=False, guarded=False))
            self._shift_accumulators(tile)
            self.shared.meet(self.group, self.threads)
        self._pack(None)
        self._share()
        self._multiply_own()

    def _start_scores(
        self, parts: Sequence[StagedPart] | None = None, rows: Feed | None = None, add: bool = False
    ) -> None:
        """As parts of the tile arrive, all by default, and those of the rows, where these have not been waited for.

        Parameters
        ----------
        add : to what earlier parts gave.
        """
        stream, per_box = self.stream, self.right_feed.copies[0].per_box
        left = self.left_matrices[0].anew(self.family.offset(self.left.stage, self.left_feed.copies[0].tile_bytes))
        right = self.right_matrices[0].anew(self.family.offset(self.right.stage, self.right_feed.copies[0].tile_bytes))
        for staged in self.order if parts is None else parts:
            if rows is not None:
                rows.wait_part(rows.parts[self.parts.index(staged)], self.left)
            self.right_feed.wait_part(staged, self.right)
            self.family.fence()
            boxes = staged.boxes
            assert boxes is not None
            first, end = (steps_of(min(b * per_box, stream.depth), stream.left.dtype)
                          for b in (boxes.start, boxes.stop))  # fmt: skip
            self.family.multiply_shared(
                [[self.scores[0]]], self.columns, left, [right], stream.depth,
                (stream.left.dtype, stream.right.dtype), [T.uint64(0)], [T.uint64(0)],
                range(first, end), add=add,
            )  # fmt: skip
            add = True
        self.family.commit()

    def _take(self, tile: ir.Expr) -> None:
        """Takes the rows as the other group has left them, and starts to add the products of its tile."""
        self.value_feed.wait(self.value)
        self.shared.wait(1 - self.group)
        self.shared.take_rows(self.rows, self.shared.state, self.threads)
        with when(in_no_lane(self.shared.moved[self.threads.warp] == 0)):
            self.shared.take_rows(self.rows, self.shared.shifting, self.threads)
            super()._shift_accumulators(tile)
        self.family.fence()
        for accumulation, left, right in zip(
            self.program.accumulations, self.weights, self.value_matrices, strict=True
        ):
            product = accumulation.product
            self.family.multiply_shared(
                [[self.accumulators[product.component.symbol]]], len(self.own_columns.of(product)), left, [right],
                self.columns, (accumulation.dtype, product.value.dtype), [T.uint64(0)],
                [self._value_offset(product, self.value_feed.copies[0])], add=True,
            )  # fmt: skip
        self.family.commit()

    def _share(self) -> None:
        """Leaves packed weights and rows to the other group, and what it moves its accumulators by."""
        self.shared.leave_weights(self.packing, self.threads)
        self.shared.leave_rows(self.rows, self.shared.state, self.threads)
        with when(in_no_lane(self.moved[0] == 0)):
            self.shared.leave_rows(self.rows, self.shared.shifting, self.threads)
        put(self.shared.moved, self.threads.warp, self.moved[0])  # by all lanes: one alone would be a branch
        self.shared.arrive(self.group)

    def _multiply_own(self) -> None:
        self._start_products()
        self._multiplied()
        for _ in range(GROUPS):
            self.right.advance()

    def _multiplied(self, pending: int = 0) -> None:
        """Waits for the products of a tile, which may be followed by further groups, and releases it."""
        self.family.wait(pending)
        self._release(self.value_feed, self.value)
        self.value.advance()

    def _finish_products(self) -> None:
        """They are finished where they are started."""

    def _release(self, feed: Feed, ring: Ring) -> None:
        with when(self.threads.leads):
            feed.release(ring.stage)

    def _shift_accumulators(self, tile: ir.Expr) -> None:
        super()._shift_accumulators(tile)
        put(self.moved, 0, T.uint32(1))


# What a group reads of a tile that is the right operand and the values at once.


def copying_shares(tiles: Feed) -> list[list[int]]:
    """The numbers of the parts that group 0 reads, and of all others: copied by one thread each."""
    own = [number for number, part in enumerate(tiles.parts) if 0 in part.readers]
    others = [number for number in range(len(tiles.parts)) if number not in own]
    return [share for share in (others, own) if share]


def place_of(tiles: Any, stage: ir.Expr, box: ir.Expr | int, row: ir.Expr, column: ir.Expr | int) -> ir.Expr:
    """An address in a tile that is used once, so that no register is worth keeping it in."""
    at = column if isinstance(column, int) else computed_here(column)
    return tiles.ptr_to([stage, box, computed_here(row), at])
