"""Every merge level, with states that have fragments: those of an attention, whose accumulators are several registers.

However a row's positions are split over holders, some without any, the merge of their states is the state of the row.
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
from tvm_cascade.tile.emit import named, when
from tvm_cascade.tile.hopper.barrier import cluster_arrive
from tvm_cascade.tile.merge.block import ColumnStates, SharedStates, ThreadStates
from tvm_cascade.tile.merge.cluster import ClusterStates
from tvm_cascade.tile.merge.combine import merge
from tvm_cascade.tile.merge.grid import GridStates
from tvm_cascade.tile.merge.lanes import WARP, Lanes
from tvm_cascade.tile.state import State

from .emulator.run import compiler, emulate
from .test_tile_program import attention_of, group_of

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

WIDTH = 4
"""Registers of the fragment."""

ROWS, LENGTH = 16, 40
"""Rows, each split in another way, and their positions."""

WARPS = 4
"""Of a block."""


class Rig:
    """A kernel in which holders read their states, merge them and write what they then have.

    Attributes
    ----------
    given, found : [row, holder, count | reference | maximum | sum | fragment …], before and after.
    """

    def __init__(self, holders: int) -> None:
        stream = read_stream(*group_of(attention_of("full")))
        self.holders, self.program, self.fold = holders, program_of(stream.fold), stream.fold
        self.wide = stream.products[0].component.symbol
        shape = (ROWS, holders, 4 + WIDTH)
        self.given = T.arg("given", T.Buffer(shape, "float32"))
        self.found = T.arg("found", T.Buffer(shape, "float32"))

    def state(self) -> State:
        """Registers for a state."""
        dtypes = dict.fromkeys((c.symbol for c in self.fold.components), "float32")
        return State.in_registers(self.fold, dtypes, "float32", "", {self.wide: WIDTH})

    def _parts(self, state: State) -> list[Any]:
        scalars = [part for symbol, part in state.components.items() if symbol != self.wide]
        return [*state.references.values(), *scalars, state.components[self.wide]]

    def read(self, state: State, row: ir.Expr, holder: ir.Expr) -> None:
        """The holder's own state of a row."""
        state.clear()
        with when(self.given[row, holder, 0] > 0):
            state.counter.put(self.given[row, holder, 0].astype("int32"))
            first = 1
            for part in self._parts(state):
                with part.each() as number:
                    part.put(self.given[row, holder, first + number], number)
                first += part.width

    def write(self, state: State, row: ir.Expr, holder: ir.Expr) -> None:
        """What a holder has."""
        T.buffer_store(self.found, state.count.astype("float32"), [row, holder, 0])
        first = 1
        for part in self._parts(state):
            with part.each() as number:
                T.buffer_store(self.found, part[number], [row, holder, first + number])
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
    row = named("block", T.cta_id([ROWS]))
    warp, lane, _ = places()
    state = rig.state()
    rig.read(state, row, lane)
    rig.merge(state, Lanes(lane))
    with when(warp == 1):
        rig.write(state, row, lane)


def warps(rig: Rig) -> None:
    """Every lane of a warp has the warp's state."""
    row = named("block", T.cta_id([ROWS]))
    warp, lane, _ = places()
    state, pool = rig.state(), T.SMEMPool()
    shared = SharedStates(pool, state, rig.holders)
    pool.commit()
    rig.read(state, row, warp)
    rig.merge(state, shared.exchange(state, warp, lane))
    with when(lane == 0):
        rig.write(state, row, warp)


def cluster(rig: Rig) -> None:
    """The blocks of a cluster have one state each."""
    row = named("block", T.cta_id([ROWS * rig.holders])) // rig.holders
    part = named("part", T.cta_id_in_cluster([rig.holders]))
    _, lane, thread = places()
    state, pool = rig.state(), T.SMEMPool()
    states = ClusterStates(pool, state, rig.holders)
    pool.commit()
    cluster_arrive()
    rig.read(state, row, part)
    rig.merge(state, states.exchange(state, part, thread, lane))
    with when(thread == 0):
        rig.write(state, row, part)


def grid(rig: Rig) -> None:
    """The blocks of a grid have one state of a row each; the last to arrive merges them, and writes for all."""
    block = named("block", T.cta_id([ROWS * rig.holders]))
    _, lane, thread = places()
    state, pool = rig.state(), T.SMEMPool()
    last = named("is_last", pool.alloc((1,), "int32", align=16))
    pool.commit()
    states, row = GridStates("main", rig.holders, ROWS, state.form), block // rig.holders
    states.set = tirx.const(0, "int32")  # no other launch is in flight
    rig.read(state, row, block % rig.holders)
    with when(thread == 0):
        states.put(state, block % rig.holders, row)
    with states.last(row, thread == 0, last, lambda: T.evaluate(T.cuda.cta_sync()), ends=False):
        states.get(state, lane, row)
        rig.merge(state, Lanes(lane))
        with when(thread < rig.holders):
            rig.write(state, row, lane)


def columns(rig: Rig) -> None:
    """Groups of lanes have a state for each of several rows."""
    assert WARPS * WARP // rig.holders == ROWS
    T.cta_id([1])
    _, _, thread = places()
    group, row = thread // ROWS, thread % ROWS
    state, pool = rig.state(), T.SMEMPool()
    shared, own = ColumnStates(pool, state, rig.holders, ROWS, 1), ThreadStates(state, 1)
    pool.commit()
    rig.read(state, row, group)
    own.leave(state, tirx.const(0, "int32"))
    shared.leave(own, group, row)
    T.evaluate(T.cuda.cta_sync())
    member, mine = thread % rig.holders, thread // rig.holders
    rig.merge(state, shared.exchange(state, tirx.const(0, "int32"), mine, member))
    rig.write(state, mine, member)


LEVELS: dict[str, tuple[Callable[[Rig], None], int]] = {
    "lanes": (lanes, WARP),
    "warps": (warps, WARPS),
    "cluster": (cluster, 4),
    "grid": (grid, 5),
    "columns": (columns, 8),
}
"""How holders come together, and how many there are."""


@pytest.mark.parametrize("level", LEVELS)
def test_the_merge_of_any_split_of_a_row_is_the_state_of_the_row(level: str) -> None:
    body, holders = LEVELS[level]
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"global_symbol": "main"})
        rig = Rig(holders)
        T.device_entry()
        body(rig)
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.integers(0, LENGTH + 1, (ROWS, holders - 1)), axis=1)
    cuts[0], cuts[1] = 0, LENGTH  # the last holder has all positions, or the first
    x = rng.normal(0, 20, (ROWS, LENGTH)).astype("float32")
    v = rng.normal(size=(ROWS, LENGTH, WIDTH)).astype("float32")
    parts = [zip(np.split(x[row], cut), np.split(v[row], cut), strict=True) for row, cut in enumerate(cuts)]
    (found,) = emulate(builder.get(), [np.asarray([[state_of(*one) for one in own] for own in parts], "float32")])
    whole = [[state_of(*row) for row in zip(x.astype(t), v.astype(t), strict=True)] for t in ("float64", "float32")]
    exact, usual = (np.broadcast_to(np.asarray(rows)[:, None], found.shape) for rows in whole)
    result = check(found, exact, usual, length=LENGTH, dtype="float32")
    assert result.ok, result.message


def state_of(x: NDArray[Any], v: NDArray[Any]) -> list[float]:
    """The state of some positions, in their arithmetic; of none it has no numbers."""
    if not len(x):
        return [0.0, *[np.nan] * (3 + WIDTH)]
    weights = np.exp(x - x.max())
    return [len(x), x.max(), x.max(), weights.sum(), *(weights @ v)]
