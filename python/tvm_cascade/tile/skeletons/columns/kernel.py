"""Emits the column kernel: lanes over neighbouring rows, groups of threads over the axis, then the merge.

    for chunk of positions: load a vector of rows at each; fold it, row by row      every thread by itself
    leave the states; take those of one row from all groups; merge them             block, where there are groups
    the same of all blocks that share rows                                          a cluster's, or the last of the grid
    finish;  store what has one value a row
    for chunk of positions: store what has an element a position                    from registers, or read again

Everything between loads and stores comes from the fold.
"""

from __future__ import annotations

from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.extent import product
from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.tile.emit import bind, kernel_extent, named, put, shared_pool, sync_block, when
from tvm_cascade.tile.merge.block import ColumnStates, ThreadStates
from tvm_cascade.tile.merge.cluster import ClusterStates
from tvm_cascade.tile.merge.grid import GridStates
from tvm_cascade.tile.merge.lanes import WARP, Lanes
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.row.again import Guards, Sharing
from tvm_cascade.tile.row.kernel import MemoryKernel
from tvm_cascade.tile.row.results import result_dtype
from tvm_cascade.tile.row.store import Store
from tvm_cascade.tile.row.sweep import Point
from tvm_cascade.tile.row.written import PositionOutputs
from tvm_cascade.tile.skeletons.columns.config import ColumnConfig
from tvm_cascade.tile.skeletons.columns.sweep import ColumnSweep
from tvm_cascade.tile.state import State


class ColumnKernel(MemoryKernel[ColumnConfig]):
    """Emits the kernel of a row program whose neighbours in memory are rows."""

    def _places(self) -> None:
        config = self.config
        self.rows = kernel_extent(self.row.count)
        tiles = (self.rows + (config.rows - 1)) // config.rows
        self.block = named("block", T.cta_id([tiles * config.segments]))
        self.clustered = bool(self.row.position_outputs) and config.segments > 1
        if self.clustered:  # every block has to know the whole for what it writes
            self.part = named("part", T.cta_id_in_cluster([config.segments]))
        named("warp", T.warp_id([config.threads // WARP]))
        named("lane_of_warp", T.lane_id([WARP]))
        self.thread = named("thread", T.thread_id([config.threads]))

    def _body(self) -> None:
        if self.config.is_alone and not self.row.position_outputs:
            self._alone()
        else:
            self._together()

    def _alone(self) -> None:
        """Every thread has whole rows: there is nothing to merge."""
        config, state = self.config, self._state()
        states = ThreadStates(state, config.vector)
        self.tile = self.block
        first, sweep = self._sweep(self.thread, tirx.const(0, "int32"))
        states.clear()
        sweep.fold_rows(states)
        with when(self._row(self.thread, 0) < self.rows), T.unroll(config.vector) as number:
            states.take(number)
            point, alone = self._point(first + number), Sharing.alone()
            self._finished(state, point, alone).emit(state, alone.member)

    def _sweep(self, lane: ir.Expr, group: ir.Expr) -> tuple[ir.Expr, ColumnSweep]:
        """The first row of a thread, and its passes over its rows."""
        # Rows past the last are folded as the last are: all threads take part in what follows.
        # Both are multiples of a vector, where the launch alone knows how many rows there are too.
        vector = self.config.vector
        first = bind("first_row", tirx.min(self._row(lane, 0), (self.rows // vector - 1) * vector))
        place = bind("place", first % kernel_extent(product(self.row.lanes.extents)))
        point, segment = self._point(first), self._segment()
        sweep = ColumnSweep(self.program, self.config, self.tensors, point, place, segment, group)
        sweep.load_rows()
        return first, sweep

    def _together(self) -> None:
        """Groups of threads, and blocks, have parts of the axis, and merge their states."""
        config, state = self.config, self._state()
        states, pool = ThreadStates(state, config.vector), shared_pool()
        shared = ColumnStates(pool, state, config.groups, config.lanes, config.vector)
        results = self._shared_results(pool)
        cluster = ClusterStates(pool, state, config.segments, config.rows) if self.clustered else None
        grid = self._grid(state)
        if grid is not None:
            self.flag = named("is_last", pool.alloc((1,), "int32", align=16))
        pool.commit()
        if grid is not None:
            grid.start(self.thread == 0)
        if cluster is not None:
            cluster.start()
        self.tile = bind("tile", self.block // config.segments)
        group, lane = bind("group", self.thread // config.lanes), bind("lane", self.thread % config.lanes)
        _first, sweep = self._sweep(lane, group)
        states.clear()
        sweep.fold_rows(states)
        shared.leave(states, group, lane)
        if grid is not None:
            grid.tell(self.thread == 0, self.flag, sync_block)
        else:
            sync_block()
        if cluster is not None:
            cluster.started()
        self._over_groups(state, shared, results, cluster, grid)
        if cluster is not None:
            self._over_cluster(state, cluster, results)
        if self.row.position_outputs:
            sync_block()
            with when(self._row(lane, 0) < self.rows):
                self._position_outputs(sweep, results, lane)

    def _row(self, lane: ir.Expr, number: ir.Expr | int) -> ir.Expr:
        """A row of the block by the lane and its number there."""
        return self.tile * self.config.rows + lane * self.config.vector + number

    def _shared_results(self, pool: Any) -> dict[sp.Symbol, Any]:
        """Shared memory for the results that outputs along the axis read."""
        read = [member_at(self.row.group, load) for o in self.row.position_outputs for load in loads_of(o.value)]
        names = dict.fromkeys(member.result for member in read if member is not None)
        return {r: named("results", pool.alloc((self.config.rows,), result_dtype(self.row, r), align=8)) for r in names}

    def _over_groups(
        self, state: State, shared: ColumnStates, results: dict[sp.Symbol, Any], cluster: ClusterStates | None,
        grid: GridStates | None,
    ) -> None:  # fmt: skip
        """Merges the rows of the block, one of each lane at a time; stores them where no other block shares them."""
        config, segment = self.config, self.block % self.config.segments
        member, lane = bind("member", self.thread % config.groups), bind("lane_of_row", self.thread // config.groups)
        is_first = tirx.EQ(member, tirx.const(0, "int32"))
        with T.serial(config.vector) as number:
            row = bind("row_index", self._row(lane, number))
            point = self._point(tirx.min(row, self.rows - 1))
            self._merge(state, shared.exchange(state, number, lane, member), point)
            if cluster is not None:
                cluster.leave(state, self.part, member, number * config.lanes + lane)
            elif grid is not None:
                with when(tirx.And(row < self.rows, is_first)):
                    grid.put(state, segment, row)
            else:
                store = self._finished(state, point, self._sharing(member, config.groups))
                with when(row < self.rows):
                    store.emit(state, member)
                    self._keep(store.results, results, is_first, number, lane)
        if grid is not None:
            self._over_blocks(state, grid)

    def _over_cluster(self, state: State, cluster: ClusterStates, results: dict[sp.Symbol, Any]) -> None:
        """Every block merges the states of all, of each of its rows."""
        config, blocks = self.config, self.config.segments
        at_once = config.threads // blocks
        cluster.meet()
        member = bind("block_of_cluster", self.thread % blocks)
        is_first = tirx.EQ(member, tirx.const(0, "int32"))
        with T.serial(-(-config.rows // at_once)) as step:
            place = bind("place_of_row", step * at_once + self.thread // blocks)
            # Threads beyond the last row take part with it, as lanes of a warp have to.
            known = bind("known_place", tirx.min(place, config.rows - 1))
            number, lane = bind("number", known // config.lanes), bind("lane_of_place", known % config.lanes)
            row = bind("row_index", self._row(lane, number))
            point = self._point(tirx.min(row, self.rows - 1))
            self._merge(state, cluster.take(state, member, known), point)
            store = self._finished(state, point, self._sharing(member, blocks))
            with when(tirx.And(place < config.rows, row < self.rows)):
                store.emit(state, member)
                self._keep(store.results, results, is_first, number, lane)

    def _keep(
        self, stored: dict[sp.Symbol, ir.Expr], results: dict[sp.Symbol, Any], is_first: ir.Expr, number: ir.Expr,
        lane: ir.Expr,
    ) -> None:  # fmt: skip
        """Leaves the results of a row where outputs along the axis read them."""
        for result, values in results.items():
            with when(is_first):
                put(values, number * self.config.lanes + lane, stored[result])

    def _grid(self, state: State) -> GridStates | None:
        if self.config.segments == 1 or self.clustered:
            return None
        assert isinstance(self.row.count, int)
        return GridStates(self.name, self.config.segments, self.row.count, state.form)

    def _over_blocks(self, state: State, grid: GridStates) -> None:
        """The last block of the rows to arrive merges the states of all."""
        config = self.config
        members = 1 << (config.segments - 1).bit_length()
        at_once = config.threads // members
        with grid.last(self.tile, self.thread == 0, self.flag, sync_block):
            member = bind("segment", self.thread % members)
            with T.serial(-(-config.rows // at_once)) as step:
                number = bind("number", step * at_once + self.thread // members)
                row = bind("row_index", self.tile * config.rows + number)
                known = bind("known_row", tirx.min(row, self.rows - 1))
                point = self._point(known)
                grid.get(state, member, known)
                self._merge(state, Lanes(member, members), point)
                store = self._finished(state, point, self._sharing(member, members))
                with when(tirx.And(number < config.rows, row < self.rows)):
                    store.emit(state, member)

    def _sharing(self, member: ir.Expr, count: int) -> Sharing:
        """Neighbouring lanes that share a row, others beside them."""
        return Sharing(member, count, Lanes(member, count), several=True)

    def _finished(self, state: State, point: Point, sharing: Sharing) -> Store:
        """The stores of a row; guarded results are finished here, where all threads still take part."""
        guards = Guards(self.program, self.tensors, point, sharing) if self.row.folded_again else None
        store = Store(self.program, self.tensors, point, sharing.count, guards)
        if guards is not None:
            store.finish(state)
        return store

    def _position_outputs(self, sweep: ColumnSweep, results: dict[sp.Symbol, Any], lane: ir.Expr) -> None:
        of_rows: dict[sp.Symbol, ir.Expr] = {}
        for result, values in results.items():

            def of_row(number: ir.Expr, values: Any = values) -> ir.Expr:
                return values[number * self.config.lanes + lane]

            of_rows[result] = sweep.hold(str(result), of_row)
        PositionOutputs(sweep, of_rows).emit()
