"""Operands whose lanes lie apart are packed in squares that registers transpose, and products of them are right."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import prim

import tvm_cascade
from tvm_cascade.devices.device import Cpu
from tvm_cascade.schedule.packing import squares_in_registers
from tvm_cascade.schedule.unfused import schedule_unfused_cpu


def product(rows: int, columns: int, terms: int, dtype: str = "float32") -> tirx.PrimFunc:
    """Of x and the transpose of w, as linear layers have it."""
    x, w = te.placeholder((rows, terms), dtype, name="x"), te.placeholder((columns, terms), dtype, name="w")
    k = te.reduce_axis((0, terms), name="k")
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[j, k], k), name="y")
    return te.create_prim_func([x, w, y])


def shuffles(func: tirx.PrimFunc, vector_bytes: int) -> list[int]:
    """The lanes of each shuffle of a product under its schedule."""
    schedule = s_tir.Schedule(func)
    schedule_unfused_cpu(schedule, Cpu("", 2, vector_bytes, 32))
    found: list[prim.Shuffle] = []
    tvm_ffi.structural_walk(squares_in_registers(schedule.mod["main"]).body, (prim.Shuffle, found.append))
    return [len(one.indices) for one in found]


@pytest.mark.parametrize(
    ("terms", "vector_bytes", "size"), [(64, 64, 16), (64, 32, 8), (24, 64, 8), (20, 32, 4), (64, 16, 4)]
)
def test_a_square_takes_a_shuffle_of_each_row_for_each_bit_of_its_size(
    terms: int, vector_bytes: int, size: int
) -> None:
    assert shuffles(product(16, 64, terms), vector_bytes) == [size] * (size * (size.bit_length() - 1))


def test_operands_that_are_no_squares_of_float32_stay_as_they_are() -> None:
    assert shuffles(product(16, 64, 37), 32) == []
    assert shuffles(product(16, 64, 64, "float64"), 32) == []


@pytest.mark.parametrize(
    ("rows", "columns", "terms"), [(8, 64, 64), (16, 96, 24), (64, 48, 20), (9, 32, 37), (200, 32, 16), (8, 96, 768)]
)
def test_products_of_packed_operands_are_right(rows: int, columns: int, terms: int) -> None:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal((extent, terms)).astype("float32") for extent in (rows, columns))
    found = np.full((rows, columns), np.nan, "float32")
    tvm_cascade.compile(product(rows, columns, terms))(x, w, found)
    exact = x.astype("float64") @ w.T.astype("float64")
    assert np.abs(found - exact).max() <= terms * np.finfo("float32").eps * np.abs(exact).max()
