"""Functions of symbolic extents of int32 count in 64 bits, and their data stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import s_tir, tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.analysis.index_width import counted_in_64_bits
from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.analysis.tir import dtype_of, within

HASWELL = {"kind": "llvm", "mcpu": "haswell", "num-cores": 2}


@T.prim_func(s_tir=True)
def causal_mean_of_picked(x_: T.handle, rows_: T.handle, y_: T.handle):
    """y[i] = Σ_{j ≤ i} x[rows[j] % n] / n: indices that are data, an extent that is a value, a bound of two loops."""
    n = T.int32()
    x = T.match_buffer(x_, (n,), "float32")
    rows = T.match_buffer(rows_, (n,), "int32")
    y = T.match_buffer(y_, (n,), "float32")
    sums = T.sblock_alloc_buffer((n,), "float32")
    for i, j in T.grid(n, n):
        with T.sblock("sums"):
            a, b = T.axis.remap("SR", [i, j])
            with T.init():
                sums[a] = T.float32(0)
            sums[a] = sums[a] + T.if_then_else(b <= a, x[rows[b] % n], T.float32(0))
    for i in range(n):
        with T.sblock("y"):
            a = T.axis.remap("S", [i])
            y[a] = sums[a] / T.Cast("float32", n)


@T.prim_func(s_tir=True)
def positions(x_: T.handle, y_: T.handle):
    """y[i] = 2 i + (x[i] as int32): counters and data in one sum."""
    n = T.int32()
    x = T.match_buffer(x_, (n,), "int32")
    y = T.match_buffer(y_, (n,), "int32")
    for i in range(n):
        with T.sblock("y"):
            a = T.axis.remap("S", [i])
            y[a] = a * 2 + x[a]


@T.prim_func(s_tir=True)
def low_halves(x_: T.handle, y_: T.handle):
    """y[i] = whether the lower 32 bits of x[i] are below i, as numbers with a sign."""
    n = T.int32()
    x = T.match_buffer(x_, (n,), "int64")
    y = T.match_buffer(y_, (n,), "bool")
    for i in range(n):
        with T.sblock("y"):
            a = T.axis.remap("S", [i])
            y[a] = T.Cast("int32", x[a]) < a


@T.prim_func(s_tir=True)
def row_sums(x_: T.handle, y_: T.handle):
    """y[i] = Σ_j x[i, j] of rows that lie apart."""
    n = T.int32()
    apart = T.int32()
    x = T.match_buffer(x_, (n, 4), "float32", strides=(apart, 1))
    y = T.match_buffer(y_, (n,), "float32")
    for i, j in T.grid(n, 4):
        with T.sblock("y"):
            a, b = T.axis.remap("SR", [i, j])
            with T.init():
                y[a] = T.float32(0)
            y[a] = y[a] + x[a, b]


def counters(func: tirx.PrimFunc) -> set[str]:
    found = {dtype_of(loop.loop_var) for loop in within(func.body, tirx.For)}
    return found | {dtype_of(one.var) for block in within(func.body, s_tir.SBlock) for one in block.iter_vars}


@pytest.mark.parametrize("func", [causal_mean_of_picked, positions])
def test_counters_are_of_64_bits_and_data_are_not(func: tirx.PrimFunc) -> None:
    wide = counted_in_64_bits(func)
    assert counters(func) == {"int32"} and counters(wide) == {"int64"}
    assert {dtype_of(extent) for param in wide.params for extent in param.ty.shape} == {"int64"}
    assert [dtype_of(param) for param in wide.params] == [dtype_of(param) for param in func.params]
    assert counted_in_64_bits(wide) is wide


def test_a_function_of_numbers_is_left_alone() -> None:
    static = at_sizes(positions, {"n": 8})
    assert counted_in_64_bits(static) is static


def test_tensors_with_strides_keep_them() -> None:
    assert counted_in_64_bits(row_sums) is row_sums


def test_what_a_program_cuts_off_stays_cut_off() -> None:
    x, y = np.array([1 << 32, -1, 1 << 31, 9], "int64"), np.zeros(4, "bool")
    tvm_cascade.compile(low_halves, HASWELL)(x, y)
    np.testing.assert_array_equal(y, [False, True, True, False])


@pytest.mark.parametrize("n", [1, 7, 64, 130])
def test_what_is_counted_in_64_bits_is_as_it_was(n: int) -> None:
    rng = np.random.default_rng(n)
    x, rows = rng.integers(-8, 8, n).astype("float32"), rng.integers(0, 1 << 30, n).astype("int32")
    built, y = tvm.compile(counted_in_64_bits(causal_mean_of_picked), "llvm"), np.full(n, np.nan, "float32")
    made = tvm.runtime.tensor(y)
    built["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(rows), made)
    np.testing.assert_array_equal(made.numpy(), np.cumsum(x[rows % n]) / np.float32(n))

    built, made = tvm.compile(counted_in_64_bits(positions), "llvm"), tvm.runtime.tensor(rows * 0)
    built["main"](tvm.runtime.tensor(rows), made)
    np.testing.assert_array_equal(made.numpy(), 2 * np.arange(n) + rows)


@pytest.mark.parametrize("func", [causal_mean_of_picked, positions])
def test_they_compile_under_a_schedule(func: tirx.PrimFunc) -> None:
    """No function of int32 is left as TVM has it because a bound of its tiles overflows."""
    (told,) = tvm_cascade.compile(func, HASWELL).report.functions
    assert "TVM generates no code" not in told.lowering
