"""Quantisation to float8 before a product: kernels of rows, and the plan of two kernels on tensor cores."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

import tvm_cascade
from corpus.programs.program import Precision
from corpus.programs.quantised import Quantised, quantised
from tvm_cascade.tile.row.config import RowConfig

from .emulator.run import Array, compiler, emulate
from .test_row_kernels import row_kernel

LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}

TARGET = {"kind": "cuda", "arch": "sm_90a"}
WARP = RowConfig(128, 32, 4, 2)
KEPT = RowConfig(128, 128, 8, 1, kept=True)

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


def quantise(dtype: str, rows: int, length: int) -> tirx.PrimFunc:
    """x[row, k] in float16 -> its scale[row], and x / scale in float8."""
    x = te.placeholder((rows, length), "float16", name="x")
    k = te.reduce_axis((0, length), "k")
    absmax = te.compute((rows,), lambda i: te.max(te.abs(x[i, k].astype("float32")), axis=k), name="absmax")
    floor, largest = tirx.const(1e-12, "float32"), tirx.const(LARGEST[dtype], "float32")
    scale = te.compute((rows,), lambda i: te.max(absmax[i], floor) / largest, name="scale")
    narrow = te.compute(
        (rows, length), lambda i, j: (x[i, j].astype("float32") / scale[i]).astype(dtype), name="quantised"
    )
    return te.create_prim_func([x, scale, narrow])


def hard(rows: int, length: int) -> Array:
    """Rows of zeros, of zeros first, with one huge value at the end, of the least and of the largest of float16."""
    x = np.random.default_rng(0).standard_normal((rows, length)).astype("float16")
    x[0] = 0
    x[1, : length // 2] = 0
    x[2, -1] = 60000
    x[3] = np.float16(6e-8)
    x[4] = np.where(x[4] > 0, 65504, -65504)
    return x


@emulated
@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("config", [WARP, KEPT], ids=["words", "two words"])
def test_rows_are_rounded_as_float8_numbers_are(config: RowConfig, dtype: str) -> None:
    """To the bit: the row's scale, and every quotient by way of the scale's reciprocal."""
    kernel = row_kernel(quantise(dtype, 9, 512), config)
    x = hard(9, 512)
    scale, narrow = emulate(kernel.func, [x])
    expected = np.maximum(np.abs(x.astype("float32")).max(1), np.float32(1e-12)) / np.float32(LARGEST[dtype])
    assert np.array_equal(scale, expected)
    exact = (x.astype("float32") * (np.float32(1) / expected)[:, None]).astype(getattr(ml_dtypes, dtype))
    assert np.array_equal(narrow.view("uint8"), exact.view("uint8"))
    assert not narrow[0].view("uint8").any(), "a row of zeros stays one"


@pytest.mark.parametrize("length", [2560, 8192])
def test_blocks_of_rows_in_float8_are_told_how_many_find_room(length: int) -> None:
    """Elements are converted two and two: none is stored by itself."""
    kernel = row_kernel(quantise("float8_e4m3fn", 4096, length))
    assert kernel.config.kept and kernel.config.threads == 128 and kernel.config.resident >= 5
    assert "e4m3x2" in kernel.func.script() and "quantised_stored" not in kernel.func.script()


def plan_of(form: Quantised, narrow_sums: bool = True, **shape: int) -> list[Any]:
    """The kernels that a quantised product becomes."""
    program = quantised(form)(shape, Precision("float16", "float32"))
    compiled = tvm_cascade.explain(program.prim_func(), target=TARGET, narrow_sums=narrow_sums)
    return [line.split("kernel `")[1].split("`")[0] for line in str(compiled).splitlines() if "kernel `" in line]


@pytest.mark.parametrize("dtype", LARGEST)
def test_a_plan_of_two_kernels(dtype: str) -> None:
    """One reads activations once and writes them in float8, the other undoes scales in its results."""
    assert plan_of(Quantised(dtype), tokens=4096, features=2048, columns=7168) == ["row", "product"]


def test_blocks_with_scales_of_their_own_are_a_plan_of_two_kernels_too() -> None:
    assert plan_of(Quantised(blocks=True), tokens=4096, features=7168, column_blocks=16) == ["row", "product"]
