"""Ragged tile loops that TVM takes apart: the storage of what they carry stays its own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx

from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.roles import read_fused_loops
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.tvm_faults.partition import PARTITION_HINT

from ..analysis.programs import array, fold, program, total
from ..schedule.fused_programs import attention
from ..schedule.test_cpu import TARGET, scheduled

LENGTH, TILE = 37, 8


def unfused(rows: int) -> tirx.PrimFunc:
    """Σ exp(y − Σx), whose state moves with a running reference; 8 does not divide 37."""
    x, y = array("x", rows, LENGTH), array("y", rows, LENGTH)
    first = fold("d0", lambda i, j: x[i, j], total, LENGTH, (rows,))
    return program(x, y, fold("d1", lambda i, j: te.exp(y[i, j] - first[i]), total, LENGTH, (rows,)))


def fused(rows: int) -> tirx.PrimFunc:
    outcome = fuse_function(unfused(rows), FuseOptions(tile=TILE, force=True))
    assert outcome.fused
    return outcome.func


def is_taken_apart(func: tirx.PrimFunc) -> bool:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, found.append))
    return any(PARTITION_HINT in loop.annotations for loop in found)


@pytest.mark.parametrize("rows", [1, 5, 32])
def test_a_ragged_loop_with_a_running_reference_is_taken_apart_and_right(rows: int) -> None:
    func = scheduled(fused(rows))
    assert is_taken_apart(func)
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal((rows, LENGTH)).astype("float32") for _ in range(2))
    out = tvm.runtime.tensor(np.full((rows,), np.nan, "float32"))
    tvm.compile(func, target=TARGET)["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), out)
    expected = np.exp(y.astype("f8") - x.astype("f8").sum(1, keepdims=True)).sum(1)
    usual = tvm.runtime.tensor(np.full((rows,), np.nan, "float32"))
    tvm.compile(unfused(rows), target=TARGET)["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), usual)
    tolerance.assert_close(out.numpy(), expected, usual.numpy(), length=LENGTH, dtype="float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loop_that_carries_what_tvm_may_share_stays_whole(dtype: str) -> None:
    """Four sums of waves, of which nothing reads three after the loop: of 64 bits, two would have one storage."""
    x, y = (array(name, 33, LENGTH, dtype=dtype) for name in "xy")
    first = fold("d0", lambda i, j: x[i, j], total, LENGTH, (33,))

    def element(i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        apart = x[i, j] - first[i] / LENGTH
        return apart * te.sin(apart) + y[i, j]

    func = program(x, y, fold("d1", element, total, LENGTH, (33,)))
    outcome = fuse_function(func, FuseOptions(tile=16, lanes=4, force=True))
    assert outcome.fused and is_taken_apart(scheduled(outcome.func)) == (dtype == "float32")
    draw = np.random.default_rng(0)
    values = [draw.standard_normal((33, LENGTH)).astype(dtype) for _ in range(2)]
    out = tvm.runtime.tensor(np.full((33,), np.nan, dtype))
    tvm.compile(scheduled(outcome.func), target=TARGET)["main"](*map(tvm.runtime.tensor, values), out)
    wide = [value.astype("float64") for value in values]
    apart = wide[0] - wide[0].mean(1, keepdims=True)
    expected = (apart * np.sin(apart) + wide[1]).sum(1)
    tolerance.assert_close(out.numpy(), expected, length=LENGTH, dtype=dtype)


def test_a_buffer_that_is_last_used_without_the_tile_keeps_its_loop_whole() -> None:
    named = attention(1, 4, 20, 8, 8)
    assert is_taken_apart(scheduled(named))

    def forget(select: tirx.Select) -> tirx.Select:
        return tirx.Select(tirx.EQ(tirx.const(0), tirx.const(0)), select.true_value, select.false_value)

    unnamed = tvm_ffi.structural_map(named, (tirx.Select, forget))
    (loop,) = read_fused_loops(unnamed)
    assert loop.guarded and not loop.separable
    assert not is_taken_apart(scheduled(unnamed))
