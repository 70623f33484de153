"""Emits kernels of row programs: each thread folds its part of rows; states are merged level by level.

    contiguous rows: for chunk of the row: load vectors of positions; fold them         every thread by itself
        merge over lanes; over warps
    strided rows: for chunk of positions: load a vector of rows at each; fold each row  every thread by itself
        leave the states in shared memory; take those of one row from all groups of lanes; merge them
    merge over the blocks that share rows: all of a cluster, or the last of the grid
    finish;  where a guarded result fails, fold the row again as the program has it;  store what has one value a row
    for chunk of the row: store what has an element a position                          from registers, or read again

Everything between loads and stores comes from the fold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.analysis.tir import dtype_of, loads_of, product
from tvm_cascade.tile.emit import bind, digits, kernel_extent, named, put, shared_pool, sync_block, when
from tvm_cascade.tile.hopper.barrier import cluster_arrive, cluster_sync, cluster_wait
from tvm_cascade.tile.memory import Tensors
from tvm_cascade.tile.merge.block import ColumnStates, SharedStates, SharedValues, ThreadStates
from tvm_cascade.tile.merge.cluster import ClusterStates
from tvm_cascade.tile.merge.combine import Reducing
from tvm_cascade.tile.merge.grid import GridStates
from tvm_cascade.tile.merge.lanes import WARP, Lanes
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.row.again import Guards, Sharing, exchanged_dtypes
from tvm_cascade.tile.row.config import RowConfig
from tvm_cascade.tile.row.elements import Staging
from tvm_cascade.tile.row.program import RowProgram, result_dtype
from tvm_cascade.tile.row.segment import Segment, even_share, peel_of
from tvm_cascade.tile.row.store import PositionOutputs, Store
from tvm_cascade.tile.row.sweep import Point, Rest, Rim, Sweep
from tvm_cascade.tile.state import State
from tvm_cascade.transform.printer import cast

ZERO = tirx.const(0, "int32")


class RowKernel(ABC):
    """What kernels of contiguous and of strided rows have in common: launch, rows, segments, levels of the merge."""

    def __init__(self, program: RowProgram, config: RowConfig) -> None:
        self.program, self.config, self.row = program, config, program.row
        self.cluster: ClusterStates | None = None
        self.grid: GridStates | None = None

    def build(self, name: str) -> tirx.PrimFunc:
        self.name = "".join(c if c.isalnum() else "_" for c in name)
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            self.tensors = Tensors.declared(self.row.program.params)
            T.device_entry()
            self.tensors.flatten()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": self.config.resident}):
                self._places()
                self._body(self.program.state())
        return builder.get()

    def _places(self) -> None:
        config, self.rows = self.config, kernel_extent(self.row.count)
        self.block = named("block", T.cta_id([(self.rows + (config.rows - 1)) // config.rows * config.segments]))
        if config.clustered:
            self.part = named("part", T.cta_id_in_cluster([config.segments]))
        self.warp = named("warp", T.warp_id([config.threads // WARP]))
        self.lane = named("lane_of_warp" if config.strided else "lane", T.lane_id([WARP]))
        self.thread = named("thread", T.thread_id([config.threads]))

    @abstractmethod
    def _body(self, state: State) -> None:
        """What a thread does."""

    def _share_levels(self, pool: Any, state: State) -> None:
        config = self.config
        if config.clustered:
            self.cluster = ClusterStates(pool, state, config.segments, config.rows)
        elif config.segments > 1:
            assert isinstance(self.row.count, int)
            self.grid = GridStates(self.name, config.segments, self.row.count, state.form)
            self.flag = named("is_last", pool.alloc((1,), "int32", align=16))

    def _begin_levels(self) -> None:
        """Says that the block has started; asks for the launch's set of states, which its own go to by its end."""
        if self.cluster is not None:
            cluster_arrive()
        if self.grid is not None:
            self.grid.start(self.thread == 0)

    def _point(self, index: ir.Expr) -> Point:
        return Point(self.program, self.tensors, self._at(index))

    def _at(self, index: ir.Expr) -> dict[tirx.Var, ir.Expr]:
        places = digits(index, self.row.rows, self.row.group.frame.extents.__getitem__, lambda _, value: value)
        return {var: bind(var.name, cast(value, dtype_of(var))) for var, value in places.items()}

    def _segment(self) -> Segment:
        config, length = self.config, self.row.length
        if config.segments == 1:
            return Segment.whole(length)
        assert isinstance(length, int)
        return Segment.share(length, self.block % config.segments, config.segments, config.positions)

    def _finished(self, state: State, point: Point, sharing: Sharing) -> Store:
        """The stores of a row; guarded results are finished here, where all threads still take part."""
        guards = Guards(point, sharing) if self.row.folded_again else None
        store = Store(point, sharing.count, guards)
        if guards is not None:
            store.finish(state)
        return store


class ContiguousKernel(RowKernel):
    """Emits the kernel of a row program whose neighbours in memory are positions."""

    def _body(self, state: State) -> None:
        config = self.config
        self.peel = peel_of(self.row, config.vector) if config.peeled else None
        if self.peel is None:
            self.segment = self._segment()
        self.lanes = Lanes(self.lane)
        self.values: Reducing = self.lanes
        self.staging: Staging | None = None
        self.shared: SharedStates | None = None
        if config.is_of_warps:
            self.member, row = self.lane, self.warp
            if config.sharing < WARP:
                self.member, row = bind("member", self.lane % config.sharing), self.thread // config.sharing
                self.values = self.lanes = Lanes(self.member, config.sharing)
            index = bind("row_index", self.block * config.rows + row)
            with when(index < self.rows):
                self._find_body(index)
                self._one_row(index, state)
            return
        self.member = self.thread
        pool, warps = shared_pool(), config.threads // WARP
        self.shared = SharedStates(pool, state, warps)
        self.values = SharedValues(pool, exchanged_dtypes(self.row), warps, self.warp, self.lane)
        self._share_levels(pool, state)
        self.staging = self._staging(pool)
        pool.commit()
        self._begin_levels()
        index = bind("row_index", self.block // config.segments)
        self._find_body(index)
        if self.staging is not None:
            self.staging.start(self.tensors, self._at(index), self.segment, self.thread)
        self._one_row(index, state)

    def _staging(self, pool: Any) -> Staging | None:
        config, length = self.config, self.row.length
        if not config.staged:
            return None
        assert isinstance(length, int)
        positions = even_share(length, config.segments, config.vector, self.peel)
        assert positions is not None
        return Staging(pool, self.row, positions, config.chunk)

    def _find_body(self, index: ir.Expr) -> None:
        """Where the block's share of the row's vectors is, if that depends on the row."""
        if self.peel is None:
            return
        segments = self.config.segments
        self.head = self.peel.head(self.tensors.place(self.peel.origin.base, self._at(index)))
        self.end = self.peel.end(self.head)
        self.segment = self.peel.share(self.head, self.end, self.block % segments, segments)

    def _one_row(self, index: ir.Expr, state: State) -> None:
        config, point = self.config, self._point(index)
        state.clear()
        rims = []
        if self.peel is not None:
            member = self.block % config.segments * config.threads + self.member
            rims = [Rim(config, point, self.peel, self.head, self.end, member)]
        self.sweeps = [*self._bodies(point), *rims]
        for sweep in self.sweeps:
            sweep.fold(state)
        point.merge(state, self.lanes)
        if self.shared is not None:
            point.merge(state, self.shared.exchange(state, self.warp, self.lane))
            if self.grid is not None:
                self._over_blocks(state, self.shared, self.grid, index, point)
                return
        if self.cluster is not None:
            point.merge(state, self.cluster.exchange(state, self.part, self.thread, self.lane))
        self._store(state, point)

    def _bodies(self, point: Point) -> list[Sweep]:
        """The sweep over the block's share; of kept rows of any length, over what registers keep, and over the rest."""

        def sweep(kind: type[Sweep], config: RowConfig, segment: Segment, piece: int | None = None) -> Sweep:
            return kind(config, point, segment, self.member, self.staging, self.peel, piece=piece)

        if not self.config.kept or self.segment.most is not None:
            return [sweep(Sweep, self.config, self.segment)]
        found, rest = [], self.segment
        for number, config in enumerate(self.config.pieces):
            piece, rest = rest.cut(config.chunk)
            found.append(sweep(Sweep, config, piece, number))
        return [*found, sweep(Rest, self.config.of_the_rest, rest)]

    def _over_blocks(self, state: State, shared: SharedStates, grid: GridStates, index: ir.Expr, point: Point) -> None:
        segments = self.config.segments
        with when(self.thread == 0):
            grid.set = bind("set_of_states", grid.obtain())
            grid.put(state, self.block % segments, index)
            put(self.flag, 0, tirx.Select(grid.arrive(index) != 0, grid.set, -1))
            with when(self.flag[0] < 0):
                grid.release(grid.set)
        sync_block()
        with when(self.flag[0] >= 0):
            grid.set = bind("set_of_all", self.flag[0])
            grid.get(state, self.lane if segments <= WARP else self.thread, index)
            point.merge(state, self.lanes)
            if segments > WARP:
                point.merge(state, shared.exchange(state, self.warp, self.lane))
            self._store(state, point)
            sync_block()
            with when(self.thread == 0):
                grid.release(grid.set)

    def _store(self, state: State, point: Point) -> None:
        member = self.member
        if self.cluster is not None:
            member = self.part * self.config.threads + member
        sharing = self.config.sharing
        store = self._finished(state, point, Sharing(self.member, sharing, self.values, several=sharing < WARP))
        store.emit(state, member)
        for sweep in self.sweeps if self.row.position_outputs else ():
            PositionOutputs(sweep, store.results).emit()


class StridedKernel(RowKernel):
    """Emits the kernel of a row program whose neighbours in memory are rows."""

    def _body(self, state: State) -> None:
        if self.config.is_alone and not self.row.position_outputs:
            self._alone(state)
        else:
            self._together(state)

    def _alone(self, state: State) -> None:
        states = ThreadStates(state, self.config.vector)
        self.tile = self.block
        first, sweep = self._sweep(self.thread, ZERO)
        sweep.fold_rows(states)
        with when(self._row(self.thread, 0) < self.rows), T.unroll(self.config.vector) as number:
            states.take(state, number)
            point, alone = self._point(first + number), Sharing.alone()
            self._finished(state, point, alone).emit(state, alone.member)

    def _sweep(self, lane: ir.Expr, group: ir.Expr) -> tuple[ir.Expr, Sweep]:
        # Rows past the last are folded as the last are: all threads take part in what follows.
        # Both are multiples of a vector, where the launch alone knows how many rows there are too.
        vector = self.config.vector
        first = bind("first_row", tirx.min(self._row(lane, 0), (self.rows // vector - 1) * vector))
        place = bind("place", first % kernel_extent(product(self.row.lanes.extents)))
        point, segment = self._point(first), self._segment()
        return first, Sweep(self.config, point, segment, group, place=place)

    def _together(self, state: State) -> None:
        """Groups of threads, and blocks, have parts of the axis, and merge their states."""
        config = self.config
        states, pool = ThreadStates(state, config.vector), shared_pool()
        shared = ColumnStates(pool, state, config.sharing, config.lanes, config.vector)
        self.results = self._shared_results(pool)
        self._share_levels(pool, state)
        pool.commit()
        self._begin_levels()
        self.tile = bind("tile", self.block // config.segments)
        group, lane = bind("group", self.thread // config.lanes), bind("lane", self.thread % config.lanes)
        _first, sweep = self._sweep(lane, group)
        sweep.fold_rows(states)
        shared.leave(states, group, lane)
        if self.grid is not None:
            self.grid.tell(self.thread == 0, self.flag, sync_block)
        else:
            sync_block()
        if self.cluster is not None:
            cluster_wait()
        self._over_groups(state, shared)
        if self.grid is not None:
            self._over_blocks(state, self.grid)
        if self.cluster is not None:
            self._over_cluster(state, self.cluster)
        if self.row.position_outputs:
            sync_block()
            with when(self._row(lane, 0) < self.rows):
                self._position_outputs(sweep, lane)

    def _row(self, lane: ir.Expr, number: ir.Expr | int) -> ir.Expr:
        return self.tile * self.config.rows + lane * self.config.vector + number

    def _shared_results(self, pool: Any) -> dict[sp.Symbol, Any]:
        read = [member_at(self.row.group, load) for o in self.row.position_outputs for load in loads_of(o.value)]
        names = dict.fromkeys(member.result for member in read if member is not None)
        return {r: named("results", pool.alloc((self.config.rows,), result_dtype(self.row, r), align=8)) for r in names}

    def _over_groups(self, state: State, shared: ColumnStates) -> None:
        """Merges the rows of the block, one of each lane at a time; stores them where no other block shares them."""
        config, segment = self.config, self.block % self.config.segments
        member, lane = bind("member", self.thread % config.sharing), bind("lane_of_row", self.thread // config.sharing)
        with T.serial(config.vector) as number:
            row = bind("row_index", self._row(lane, number))
            point = self._point(tirx.min(row, self.rows - 1))
            point.merge(state, shared.exchange(state, number, lane, member))
            if self.cluster is not None:
                self.cluster.leave(state, self.part, member, number * config.lanes + lane)
            elif self.grid is not None:
                with when(tirx.And(row < self.rows, tirx.EQ(member, ZERO))):
                    self.grid.put(state, segment, row)
            else:
                self._store(state, point, member, config.sharing, row < self.rows, number * config.lanes + lane)

    def _over_cluster(self, state: State, cluster: ClusterStates) -> None:
        config, blocks = self.config, self.config.segments
        at_once = config.threads // blocks
        cluster_sync()
        member = bind("block_of_cluster", self.thread % blocks)
        with T.serial(-(-config.rows // at_once)) as step:
            place = bind("place_of_row", step * at_once + self.thread // blocks)
            # Threads beyond the last row take part with it, as lanes of a warp have to.
            known = bind("known_place", tirx.min(place, config.rows - 1))
            number, lane = bind("number", known // config.lanes), bind("lane_of_place", known % config.lanes)
            row = bind("row_index", self._row(lane, number))
            point = self._point(tirx.min(row, self.rows - 1))
            point.merge(state, cluster.take(state, member, known))
            exists = tirx.And(place < config.rows, row < self.rows)
            self._store(state, point, member, blocks, exists, number * config.lanes + lane)

    def _over_blocks(self, state: State, grid: GridStates) -> None:
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
                point.merge(state, Lanes(member, members))
                self._store(state, point, member, members, tirx.And(number < config.rows, row < self.rows), number)

    def _store(self, state: State, point: Point, member: ir.Expr, count: int, exists: ir.Expr, place: ir.Expr) -> None:
        """Stores a row, if there is one, and leaves its results where outputs along the axis read them.

        Parameters
        ----------
        member, count : of the neighbouring lanes that have its state, with others beside them.
        place : of the row among those of the block.
        """
        store = self._finished(state, point, Sharing(member, count, Lanes(member, count), several=True))
        with when(exists):
            store.emit(state, member)
            for result, values in self.results.items():
                with when(tirx.EQ(member, ZERO)):
                    put(values, place, store.results[result])

    def _position_outputs(self, sweep: Sweep, lane: ir.Expr) -> None:
        of_rows: dict[sp.Symbol, ir.Expr] = {}
        for result, values in self.results.items():

            def of_row(number: ir.Expr, values: Any = values) -> ir.Expr:
                return values[number * self.config.lanes + lane]

            of_rows[result] = sweep.hold(str(result), of_row)
        PositionOutputs(sweep, of_rows).emit()
