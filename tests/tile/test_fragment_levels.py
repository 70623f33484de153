"""Every merge level takes states with fragments: those of an attention, whose accumulators are several registers.

Each holder has a state of its own positions, drawn at random and one of them empty; all are merged, and compared with
the merge in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.evaluate.tolerance import check
from tvm_cascade.steps.program import program_of
from tvm_cascade.tile.attention.shape import read_stream
from tvm_cascade.tile.emit import named, put, when
from tvm_cascade.tile.merge.block import ColumnStates, SharedStates, ThreadStates
from tvm_cascade.tile.merge.cluster import ClusterStates
from tvm_cascade.tile.merge.combine import merge
from tvm_cascade.tile.merge.grid import GridStates
from tvm_cascade.tile.merge.lanes import WARP, Lanes
from tvm_cascade.tile.state import State

from .emulator.run import compiler, emulate
from .test_tile_program import attention_of, group_of

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

WIDTH, EMPTY = 4, 2
"""Registers of the fragment, and the holder that has no positions."""

WARPS = 4
"""Of a block."""


class Rig:
    """A kernel in which holders read their states, merge them and write what they then have.

    Attributes
    ----------
    given, found : [holder, count | reference | maximum | sum | fragment …], before and after.
    """

    def __init__(self, holders: int) -> None:
        stream = read_stream(*group_of(attention_of("full")))
        self.holders, self.program, self.fold = holders, program_of(stream.fold), stream.fold
        self.wide = stream.products[0].component.symbol
        shape = (holders, 4 + WIDTH)
        self.given = T.arg("given", T.Buffer(shape, "float32"))
        self.found = T.arg("found", T.Buffer(shape, "float32"))

    def state(self) -> State:
        """Registers for a state."""
        dtypes = dict.fromkeys((c.symbol for c in self.fold.components), "float32")
        return State.in_registers(self.fold, dtypes, "float32", "", {self.wide: WIDTH})

    def _parts(self, state: State) -> list[Any]:
        scalars = [part for symbol, part in state.components.items() if symbol != self.wide]
        return [*state.references.values(), *scalars, state.components[self.wide]]

    def read(self, state: State, holder: ir.Expr) -> None:
        """The holder's own state."""
        state.clear()
        with when(self.given[holder, 0] > 0):
            state.counter.put(self.given[holder, 0].astype("int32"))
            first = 1
            for part in self._parts(state):
                with part.each() as number:
                    part.put(self.given[holder, first + number], number)
                first += part.width

    def write(self, state: State, holder: ir.Expr) -> None:
        """What a holder has."""
        T.buffer_store(self.found, state.count.astype("float32"), [holder, 0])
        first = 1
        for part in self._parts(state):
            with part.each() as number:
                T.buffer_store(self.found, part[number], [holder, first + number])
            first += part.width

    def merge(self, state: State, exchange: Any) -> None:
        """Merges at a level."""
        merge(self.program, state, exchange, {})


def places() -> tuple[ir.Expr, ir.Expr, ir.Expr]:
    """Warp, lane and thread in a block of a warp group."""
    warp, lane = named("warp", T.warp_id([WARPS])), named("lane", T.lane_id([WARP]))
    return warp, lane, named("thread", T.thread_id([WARPS * WARP]))


def lanes(rig: Rig) -> None:
    """The lanes of a warp have one state each."""
    T.cta_id([1])
    warp, lane, _ = places()
    state = rig.state()
    rig.read(state, lane)
    rig.merge(state, Lanes(lane))
    with when(warp == 1):
        rig.write(state, lane)


def warps(rig: Rig) -> None:
    """Every lane of a warp has the warp's state."""
    T.cta_id([1])
    warp, lane, _ = places()
    state, pool = rig.state(), T.SMEMPool()
    shared = SharedStates(pool, state, rig.holders)
    pool.commit()
    rig.read(state, warp)
    rig.merge(state, shared.exchange(state, warp, lane))
    with when(lane == 0):
        rig.write(state, warp)


def cluster(rig: Rig) -> None:
    """The blocks of a cluster have one state each."""
    T.cta_id([rig.holders])
    part = named("part", T.cta_id_in_cluster([rig.holders]))
    _, lane, thread = places()
    state, pool = rig.state(), T.SMEMPool()
    states = ClusterStates(pool, state, rig.holders)
    pool.commit()
    states.start()
    rig.read(state, part)
    rig.merge(state, states.exchange(state, part, thread, lane))
    with when(thread == 0):
        rig.write(state, part)


def grid(rig: Rig) -> None:
    """The blocks of a grid have one state each; the last to arrive merges them, and writes for all."""
    block = named("block", T.cta_id([rig.holders]))
    _, lane, thread = places()
    state, pool = rig.state(), T.SMEMPool()
    last = named("is_last", pool.alloc((1,), "int32", align=16))
    pool.commit()
    states, row = GridStates("main", rig.holders, 1, state.form), tirx.const(0, "int32")
    states.set = tirx.const(0, "int32")  # no other launch is in flight
    rig.read(state, block)
    with when(thread == 0):
        states.put(state, block, row)
        put(last, 0, states.arrive(row))
    T.evaluate(T.cuda.cta_sync())
    with when(last[0] != 0):
        states.get(state, lane, row)
        rig.merge(state, Lanes(lane))
        with when(thread < rig.holders):
            rig.write(state, lane)


def columns(rig: Rig) -> None:
    """Groups of lanes have a state for each of several rows; here all rows have the same holders."""
    rows = WARPS * WARP // rig.holders
    T.cta_id([1])
    _, _, thread = places()
    group, row = thread // rows, thread % rows
    state, pool = rig.state(), T.SMEMPool()
    shared, own = ColumnStates(pool, state, rig.holders, rows, 1), ThreadStates(state, 1)
    pool.commit()
    rig.read(state, group)
    own.leave(tirx.const(0, "int32"))
    shared.leave(own, group, row)
    T.evaluate(T.cuda.cta_sync())
    member, mine = thread % rig.holders, thread // rig.holders
    rig.merge(state, shared.exchange(state, tirx.const(0, "int32"), mine, member))
    with when(mine == rows - 1):
        rig.write(state, member)


LEVELS: dict[str, tuple[Callable[[Rig], None], int]] = {
    "lanes": (lanes, WARP),
    "warps": (warps, WARPS),
    "cluster": (cluster, 4),
    "grid": (grid, 5),
    "columns": (columns, 8),
}
"""How holders come together, and how many there are."""


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_merges_fragments(level: str) -> None:
    body, holders = LEVELS[level]
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"global_symbol": "main"})
        rig = Rig(holders)
        T.device_entry()
        body(rig)
    rng = np.random.default_rng(0)
    given = rng.normal(size=(holders, 4 + WIDTH)).astype("float32")
    given[:, 0] = rng.integers(1, 9, holders)
    given[:, 2] = given[:, 1]  # the reference follows the maximum
    given[EMPTY] = np.nan
    given[EMPTY, 0] = 0
    (found,) = emulate(builder.get(), [given])
    exact, usual = (np.broadcast_to(merged(given, dtype), found.shape) for dtype in ("float64", "float32"))
    result = check(found, exact, usual, length=holders, dtype="float32")
    assert result.ok, result.message


def merged(given: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    """The state of all holders in the arithmetic of a dtype."""
    whole = np.delete(given, EMPTY, 0).astype(dtype)
    top = whole[:, 1].max()
    return np.concatenate([[whole[:, 0].sum(), top, top], np.exp(whole[:, 1] - top) @ whole[:, 3:]])
