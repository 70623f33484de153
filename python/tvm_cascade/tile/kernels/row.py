"""The row skeleton: threads that share a row each fold their own positions; their states are merged, level by level.

    for chunk of the row: load vectors; fold them                  every thread by itself
    merge over lanes; over warps; over the blocks of a cluster, or of the grid by the last of them
    finish;  store what has one value a row
    for chunk of the row: store what has an element a position     from registers, or read again

Everything between loads and stores comes from the fold.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.analysis.domain import dtype_of
from tvm_cascade.analysis.frame import lookup
from tvm_cascade.tile.hopper.script import bind, named, put, when, whole
from tvm_cascade.tile.merge.blocks import GridStates
from tvm_cascade.tile.merge.cluster import ClusterStates
from tvm_cascade.tile.merge.combine import Exchange, merge
from tvm_cascade.tile.merge.lanes import WARP, Lanes
from tvm_cascade.tile.merge.warps import SharedStates
from tvm_cascade.tile.row.config import RowConfig, Team
from tvm_cascade.tile.row.elements import Tensors
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.row.store import Store
from tvm_cascade.tile.row.sweep import Segment, Sweep
from tvm_cascade.tile.state import State
from tvm_cascade.transform.printer import cast


class RowKernel:
    """Emits the kernel of a row program."""

    def __init__(self, program: RowProgram, config: RowConfig) -> None:
        self.program, self.config, self.row = program, config, program.row
        self.buffers: dict[tirx.Var, Any] = {}
        self.scalars: dict[tirx.Var, Any] = {}

    def build(self, name: str) -> tirx.PrimFunc:
        """The kernel with its launch, over the parameters of the unfused function."""
        self.name = "".join(c if c.isalnum() else "_" for c in name)
        with IRBuilder() as builder, T.prim_func():
            T.func_name(name)
            T.func_attr({"global_symbol": name})
            for param in self.row.program.params:
                self._parameter(param)
            T.device_entry()
            self.tensors = Tensors(self.row, self.buffers, self.scalars)
            self.tensors.declare()
            with T.attr({"tirx.launch_bounds_min_blocks_per_sm": 1}):
                self._places()
                self._body()
        return builder.get()

    def _parameter(self, param: tirx.Var) -> None:
        if tirx.is_buffer_var(param):
            self.buffers[param] = T.arg(param.name, T.Buffer(tuple(param.ty.shape), str(param.ty.dtype)))
        else:
            self.scalars[param] = T.arg(param.name, tirx.Var(param.name, param.ty))

    def _places(self) -> None:
        config = self.config
        rows = whole(self.row.count)
        per_block = config.threads // WARP if config.team is Team.WARP else 1
        self.block = named("block", T.cta_id([(rows + (per_block - 1)) // per_block * config.segments]))
        if config.team is Team.CLUSTER:
            self.part = named("part", T.cta_id_in_cluster([config.segments]))
        self.warp = named("warp", T.warp_id([config.threads // WARP]))
        self.lane = named("lane", T.lane_id([WARP]))
        self.thread = named("thread", T.thread_id([config.threads]))
        self.rows, self.per_block = rows, per_block

    def _body(self) -> None:
        config = self.config
        if config.team is Team.WARP:
            self.index = bind("row_index", self.block * self.per_block + self.warp)
            with when(self.index < self.rows):
                self._one_row(None)
            return
        pool = T.SMEMPool()
        self.index = bind("row_index", self.block // config.segments) if config.segments > 1 else self.block
        self._one_row(pool)

    def _at(self) -> dict[tirx.Var, ir.Expr]:
        """The variables of rows at the block's or warp's row."""
        rest, found = self.index, {}
        for var in reversed(self.row.rows):
            extent = whole(lookup(self.row.group.frame.extents, var))
            found[var] = bind(var.name, cast(rest % extent, dtype_of(var)))
            rest = rest // extent
        return found

    def _one_row(self, pool: Any) -> None:
        config, program = self.config, self.program
        self.length = whole(self.row.length)
        at = self._at()
        state = State(self.row.fold, program.dtypes, program.reference_dtype)
        shared, cluster = None, None
        if pool is not None:
            shared = SharedStates(pool, state, config.threads // WARP)
            if config.team is Team.GRID:
                self.flag = named("is_last", pool.alloc((1,), "int32", align=16))
            if config.team is Team.CLUSTER:
                cluster = ClusterStates(pool, state, config.segments)
            pool.commit()
        if cluster is not None:
            cluster.start()
        state.clear()
        sweep = Sweep(program, config, self.tensors, at, self._segment(), self._member())
        sweep.fold(state)
        self._merge(state, Lanes(self.lane), sweep)
        if shared is not None:
            self._merge(state, shared.exchange(state, self.warp, self.lane), sweep)
        if config.team is Team.GRID:
            assert shared is not None
            self._over_blocks(state, shared, sweep)
            return
        if cluster is not None:
            self._merge(state, cluster.exchange(state, self.part, self.thread, self.lane), sweep)
        self._store(state, sweep)

    def _member(self) -> ir.Expr:
        """The thread's number among those that share the row."""
        return self.lane if self.config.team is Team.WARP else self.thread

    def _segment(self) -> Segment:
        """The positions of the row that the block folds."""
        config, length = self.config, self.row.length
        if config.segments == 1:
            return Segment(tirx.const(0, "int32"), self.length, length)
        assert isinstance(length, int)
        step = -(-length // (config.segments * config.vector)) * config.vector
        start = bind("start", self.block % config.segments * step)
        if step * config.segments == length:
            return Segment(start, start + step, step)
        return Segment(start, bind("end", tirx.min(start + step, self.length)), None)

    def _merge(self, state: State, exchange: Exchange, sweep: Sweep) -> None:
        merge(state, exchange, {**sweep.row_values, LENGTH: sweep.length}, self.program.decay)

    def _over_blocks(self, state: State, shared: SharedStates, sweep: Sweep) -> None:
        """The last block of a row to arrive merges the states of all."""
        config = self.config
        rows = self.row.count
        assert isinstance(rows, int)
        grid = GridStates(self.name, config.segments, rows, len(state.parts))
        with when(self.thread == 0):
            grid.put(state, self.block % config.segments, self.index)
            put(self.flag, 0, grid.arrive(self.index))
        T.evaluate(T.cuda.cta_sync())
        with when(self.flag[0] != 0):
            grid.get(state, self.lane if config.segments <= WARP else self.thread, self.index)
            self._merge(state, Lanes(self.lane), sweep)
            if config.segments > WARP:
                self._merge(state, shared.exchange(state, self.warp, self.lane), sweep)
            self._store(state, sweep)

    def _store(self, state: State, sweep: Sweep) -> None:
        member = self._member()
        if self.config.team is Team.CLUSTER:
            member = self.part * self.config.threads + member
        Store(self.program, self.config, self.tensors, sweep).emit(state, member)
