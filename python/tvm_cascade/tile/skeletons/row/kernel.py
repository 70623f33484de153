"""Emits the row kernel: each thread folds its part of a row; states are merged level by level.

    for chunk of the row: load vectors; fold them                  every thread by itself
    merge over lanes; over warps; over the blocks of a cluster, or of the grid by the last of them
    finish;  where a guarded result fails, fold the row again as the program has it;  store what has one value a row
    for chunk of the row: store what has an element a position     from registers, or read again

Everything between loads and stores comes from the fold.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.tile.emit import bind, kernel_extent, named, put, shared_pool, sync_block, when
from tvm_cascade.tile.merge.block import SharedStates, SharedValues
from tvm_cascade.tile.merge.cluster import ClusterStates
from tvm_cascade.tile.merge.combine import Reducing
from tvm_cascade.tile.merge.grid import GridStates
from tvm_cascade.tile.merge.lanes import WARP, Lanes
from tvm_cascade.tile.row.again import Guards, Sharing, exchanged_dtypes
from tvm_cascade.tile.row.config import RowConfig, ThreadGroup
from tvm_cascade.tile.row.kernel import MemoryKernel
from tvm_cascade.tile.row.peel import peel_of
from tvm_cascade.tile.row.rim import Rim
from tvm_cascade.tile.row.staging import Staging
from tvm_cascade.tile.row.store import Store
from tvm_cascade.tile.row.sweep import Point, Sweep
from tvm_cascade.tile.row.written import PositionOutputs
from tvm_cascade.tile.skeletons.row.fits import staged_positions
from tvm_cascade.tile.state import State


class RowKernel(MemoryKernel[RowConfig]):
    """Emits the kernel of a row program whose neighbours in memory are positions."""

    def _places(self) -> None:
        config = self.config
        self.peel = peel_of(self.row, config.vector) if config.peeled else None
        rows = kernel_extent(self.row.count)
        per_block = config.threads // WARP if config.thread_group is ThreadGroup.WARP else 1
        self.block = named("block", T.cta_id([(rows + (per_block - 1)) // per_block * config.segments]))
        if config.thread_group is ThreadGroup.CLUSTER:
            self.part = named("part", T.cta_id_in_cluster([config.segments]))
        self.warp = named("warp", T.warp_id([config.threads // WARP]))
        self.lane = named("lane", T.lane_id([WARP]))
        self.thread = named("thread", T.thread_id([config.threads]))
        self.rows, self.per_block = rows, per_block
        self.shared: SharedStates | None = None
        self.values: Reducing = Lanes(self.lane)
        self.cluster: ClusterStates | None = None
        self.staging: Staging | None = None

    def _body(self) -> None:
        config, state = self.config, self._state()
        if self.peel is None:
            self.segment = self._segment()
        if config.thread_group is ThreadGroup.WARP:
            index = bind("row_index", self.block * self.per_block + self.warp)
            with when(index < self.rows):
                self._find_body(index)
                self._one_row(index, state)
            return
        pool = shared_pool()
        self.shared = SharedStates(pool, state, config.threads // WARP)
        self._share_values(pool)
        if config.thread_group is ThreadGroup.GRID:
            self.flag = named("is_last", pool.alloc((1,), "int32", align=16))
        if config.thread_group is ThreadGroup.CLUSTER:
            self.cluster = ClusterStates(pool, state, config.segments)
        self.staging = self._staging(pool)
        pool.commit()
        if self.cluster is not None:
            self.cluster.start()
        if config.thread_group is ThreadGroup.GRID:
            self._ask_for_set(state)
        index = bind("row_index", self.block // config.segments)
        self._find_body(index)
        if self.staging is not None:
            self.staging.start(self.tensors, self._at(index), self.segment, self.thread)
        self._one_row(index, state)

    def _staging(self, pool: Any) -> Staging | None:
        """Shared memory for the block's share."""
        if not self.config.staged:
            return None
        positions = staged_positions(self.row, self.config, self.peel)
        assert positions is not None
        return Staging(pool, self.row, positions, self.config.chunk)

    def _share_values(self, pool: Any) -> None:
        """Shared memory for what a row is folded again with."""
        dtypes = exchanged_dtypes(self.row)
        self.values = SharedValues(pool, dtypes, self.config.threads // WARP, self.warp, self.lane)

    def _guards(self, point: Point) -> Guards | None:
        """The guards of a row; a block by itself folds it again."""
        if not self.row.folded_again:
            return None
        return Guards(self.program, self.tensors, point, Sharing(self._member(), self.config.sharing, self.values))

    def _find_body(self, index: ir.Expr) -> None:
        """Where the block's share of the row's vectors is, if that depends on the row."""
        if self.peel is None:
            return
        segments = self.config.segments
        self.head = self.peel.head(self.tensors.place(self.peel.origin.base, self._at(index)))
        self.end = self.peel.end(self.head)
        self.segment = self.peel.share(self.head, self.end, self.block % segments, segments)

    def _rim(self, point: Point) -> Rim | None:
        """What of the row is in none of its vectors."""
        if self.peel is None:
            return None
        member = self.block % self.config.segments * self.config.threads + self._member()
        return Rim(self.program, self.config, self.tensors, point, self.peel, self.head, self.end, member)

    def _one_row(self, index: ir.Expr, state: State) -> None:
        config, point = self.config, self._point(index)
        state.clear()
        rim = self._rim(point)
        body = Sweep(self.program, config, self.tensors, point, self.segment, self._member(), self.staging, self.peel)
        self.sweeps = [body] if rim is None else [body, rim]
        for sweep in self.sweeps:
            sweep.fold(state)
        self._merge(state, Lanes(self.lane), point)
        if self.shared is not None:
            self._merge(state, self.shared.exchange(state, self.warp, self.lane), point)
        if config.thread_group is ThreadGroup.GRID:
            assert self.shared is not None
            self._over_blocks(state, self.shared, index, point)
            return
        if self.cluster is not None:
            self._merge(state, self.cluster.exchange(state, self.part, self.thread, self.lane), point)
        self._store(state, point)

    def _member(self) -> ir.Expr:
        """The thread's number among those that share the row."""
        return self.lane if self.config.thread_group is ThreadGroup.WARP else self.thread

    def _over_blocks(self, state: State, shared: SharedStates, index: ir.Expr, point: Point) -> None:
        """The last block of a row to arrive merges the states of all."""
        segments, grid = self.config.segments, self.grid
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
            self._merge(state, Lanes(self.lane), point)
            if segments > WARP:
                self._merge(state, shared.exchange(state, self.warp, self.lane), point)
            self._store(state, point)
            sync_block()
            with when(self.thread == 0):
                grid.release(grid.set)

    def _ask_for_set(self, state: State) -> None:
        """Which the block's state goes to by its end."""
        rows = self.row.count
        assert isinstance(rows, int)
        self.grid = GridStates(self.name, self.config.segments, rows, state.form)
        self.grid.start(self.thread == 0)

    def _store(self, state: State, point: Point) -> None:
        member = self._member()
        if self.config.thread_group is ThreadGroup.CLUSTER:
            member = self.part * self.config.threads + member
        store = Store(self.program, self.tensors, point, self.config.sharing, self._guards(point))
        store.emit(state, member)
        for sweep in self.sweeps if self.row.position_outputs else ():
            PositionOutputs(sweep, store.results).emit()
