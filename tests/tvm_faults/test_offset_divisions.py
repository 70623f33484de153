"""Divisions of indices with an offset: read where they say, though TVM's flattening of buffers is off by a constant."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

from tvm_cascade.devices.host import host_target
from tvm_cascade.tvm_faults.divisions import divisions_apart


def picked(count: int, divisor: int, offset: int) -> tirx.PrimFunc:
    """y[i, j, k] = x[i, (j + offset) // divisor, k], 0 beside x; i and j are one loop, k is two."""
    rows = count // divisor
    x = te.placeholder((2, rows, 16), "float32", name="x")

    def element(i: tirx.Var, j: tirx.Var, k: tirx.Var) -> tirx.Expr:
        row = (j + offset) // divisor
        return tirx.if_then_else(tirx.all(j + offset >= 0, j + offset < count), x[i, row, k], tirx.const(0, "float32"))

    schedule = s_tir.Schedule(te.create_prim_func([x, te.compute((2, count, 16), element, name="y")]))
    first, second, third = schedule.get_loops("y")
    schedule.fuse(first, second)
    schedule.vectorize(schedule.split(third, [None, 8])[1])
    return schedule.mod["main"]


@pytest.mark.parametrize(("count", "divisor", "offset"), [(6, 2, -1), (6, 2, 1), (6, 6, -1), (8, 4, 3), (6, 2, 2)])
def test_what_is_read_is_what_the_index_says(count: int, divisor: int, offset: int) -> None:
    func = divisions_apart(picked(count, divisor, offset))
    given = np.random.default_rng(0).normal(size=(2, count // divisor, 16)).astype("float32")
    found = tvm.runtime.tensor(np.zeros((2, count, 16), "float32"))
    tvm.compile(func, target=host_target())["main"](tvm.runtime.tensor(given), found)
    places = np.arange(count) + offset
    inside = (places >= 0) & (places < count)
    expected = np.where(inside[:, None], given[:, np.where(inside, places, 0) // divisor], 0)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_other_divisions_stay_as_they_are() -> None:
    for offset, stays in ((2, True), (1, False)):
        func = picked(6, 2, offset)
        assert tvm_ffi.structural_equal(divisions_apart(func).body, func.body) is stays
