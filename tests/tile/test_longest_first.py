"""The order in which blocks take tiles of rows whose costs the device alone knows."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from tvm_cascade.tile.attention.tile_schedule import LongestFirst
from tvm_cascade.tile.emit import named, parameter, put, when
from tvm_cascade.tile.work import Threads

from .emulator.run import compiler, emulate

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")

THREADS, PLACES, BLOCKS = 128, 2, 3
COSTS = [7, 2, 9, 4, 9]


def taken(most: int) -> np.ndarray:
    """[tile of rows, place, 0]: the block that takes it, and how many it took before."""
    costs = tirx.decl_buffer([len(COSTS)], "int32", name="costs")
    blocks, turns = (tirx.decl_buffer([len(COSTS), PLACES], "int32", name=name) for name in ("blocks", "turns"))
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        T.func_attr({"global_symbol": "main"})
        own, by, order = (parameter(one) for one in (costs, blocks, turns))
        T.device_entry()
        scheduler = LongestFirst(T.int32(len(COSTS)), T.int32(PLACES), BLOCKS, most, lambda row_tile: own[row_tile])
        block = named("block", T.cta_id([BLOCKS]))
        thread = named("thread", T.thread_id([THREADS]))
        pool = T.SMEMPool()
        scheduler.allocate(pool)
        pool.commit()
        scheduler.find(Threads(block, *[T.int32(0)] * 3, thread, THREADS))
        T.evaluate(T.cuda.cta_sync())
        count = named("count", T.alloc_local((1,), "int32"))
        put(count, 0, T.int32(0))
        with scheduler.each(block) as item, when(thread == 0):
            T.buffer_store(by, block, [item.row_tile, item.place])
            T.buffer_store(order, count[0], [item.row_tile, item.place])
            put(count, 0, count[0] + 1)
    return np.stack(emulate(builder.get(), [np.array(COSTS, "int32")]), -1)


@pytest.mark.parametrize("most", [THREADS, 3], ids=["sorted", "too_many_to_sort"])
def test_every_tile_of_rows_is_taken_once(most: int) -> None:
    found = taken(most).reshape(-1, 2)
    assert len({tuple(one) for one in found.tolist()}) == len(COSTS) * PLACES
    assert found.min() == 0 and found[:, 0].max() == BLOCKS - 1


def test_the_longest_come_first_and_turns_go_to_and_fro() -> None:
    found = taken(THREADS)
    order = [2, 4, 0, 3, 1]  # by cost, then by number
    numbers = [(tile, place) for tile in order for place in range(PLACES)]
    expected = [(n % 3 if n // 3 % 2 == 0 else 2 - n % 3, n // 3) for n in range(len(numbers))]
    assert [tuple(found[one]) for one in numbers] == expected
