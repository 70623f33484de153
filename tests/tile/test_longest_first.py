"""The order in which blocks take tiles of rows whose costs the device alone knows."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.tile_schedule import LongestFirst
from tvm_cascade.tile.emit import named, parameter, put, when
from tvm_cascade.tile.merge.grid import LAUNCHES
from tvm_cascade.tile.merge.lanes import WARP
from tvm_cascade.tile.work import Threads

from .emulator.run import compiler, emulate

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

THREADS, PLACES, TOGETHER = 128, 3, 2
COSTS = [7, 2, 9, 4, 9]


def taken(most: int, blocks: int, together: bool = False) -> np.ndarray:
    """[tile of rows, place, 0]: how often it is taken, and by one block how many it took before."""
    costs = tirx.decl_buffer([len(COSTS)], "int32", name="costs")
    outputs = [tirx.decl_buffer([len(COSTS), PLACES], "int32", name=name) for name in ("times", "turns")]
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"global_symbol": "main"})
        own, times, turns = (parameter(one) for one in (costs, *outputs))
        T.device_entry()
        sizes = T.int32(len(COSTS)), T.int32(PLACES), blocks, most
        scheduler = LongestFirst("main", *sizes, lambda row_tile: own[row_tile], T.int32(TOGETHER))
        block, lane = named("block", T.cta_id([blocks])), named("lane", T.lane_id([WARP]))
        thread = named("thread", T.thread_id([THREADS]))
        pool = T.SMEMPool()
        scheduler.allocate(pool)
        pool.commit()
        scheduler.find(Threads(block, *[T.int32(0)] * 2, lane, thread, THREADS))
        T.evaluate(T.cuda.cta_sync())
        count = named("count", T.alloc_local((1,), "int32"))
        put(count, 0, T.int32(0))
        with when(thread < WARP), scheduler.each(block) as item, when(lane == 0):
            place = [item.row_tile, item.place]
            T.buffer_store(times, times[place[0], place[1]] + 1, place)
            T.buffer_store(turns, count[0] if blocks == 1 else T.int32(0), place)
            put(count, 0, count[0] + 1)
    found = np.stack(emulate(builder.get(), [np.array(COSTS, "int32")], together=together), -1)
    found[..., 0] += 1  # outputs are all ones before
    return found


@pytest.mark.parametrize("together", [False, True], ids=["in_turn", "together"])
@pytest.mark.parametrize("blocks", [1, 3, 10])
@pytest.mark.parametrize("most", [THREADS, 3], ids=["sorted", "too_many_to_sort"])
def test_every_tile_of_rows_is_taken_once(most: int, blocks: int, together: bool) -> None:
    for _ in range(LAUNCHES):  # a set of memory is that of a later launch again, and as it was
        assert (taken(most, blocks, together)[..., 0] == 1).all()


def test_the_longest_come_first() -> None:
    turns = taken(THREADS, 1)[..., 1]
    order = sorted(np.ndindex(turns.shape), key=lambda one: turns[one])
    by_cost = [2, 4, 0, 3, 1]  # then by number
    assert order == [(tile, place) for places in ((0, 1), (2,)) for tile in by_cost for place in places]
