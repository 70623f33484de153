"""Transposing maps on a GPU: squares through shared memory, contiguous on both sides, at any extents and dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tvm import te, tirx

from tvm_cascade.evaluate import tolerance

from .gpu_programs import cuda_source, kernels, run_in_turn, scheduled


def transposed(shape: tuple[int, ...], dtype: str) -> tirx.PrimFunc:
    """x[…, j, i] → out[…, i, j]."""
    x = te.placeholder(shape, dtype, name="x")
    *outer, j, i = shape
    out = te.compute((*outer, i, j), lambda *at: x[(*at[:-2], at[-1], at[-2])], name="out")
    return te.create_prim_func([x, out])


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    return np.random.default_rng(0).standard_normal(shape).astype(kind)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((128, 256), "float8_e4m3fn"),
        ((100, 68), "float8_e5m2"),
        ((3, 100, 200), "float16"),
        ((70, 65), "bfloat16"),
        ((130, 333), "float32"),
        ((33, 40), "float64"),
    ],
    ids=str,
)
def test_transposed_matrices(shape: tuple[int, ...], dtype: str) -> None:
    lowered, x = scheduled(transposed(shape, dtype)), numbers(shape, dtype)
    source = cuda_source(lowered)
    assert len(kernels(source)) == 1 and "__shared__" in source
    (out,) = run_in_turn(lowered, [x]).values()
    np.testing.assert_array_equal(out, np.swapaxes(x, -1, -2))


def test_a_map_that_reads_along_and_across() -> None:
    x, y = te.placeholder((96, 64), name="x"), te.placeholder((64, 96), name="y")
    out = te.compute((64, 96), lambda i, j: x[j, i] * y[i, j] + y[i, j], name="out")
    lowered, given = (
        scheduled(te.create_prim_func([x, y, out])),
        [numbers((96, 64), "float32"), numbers((64, 96), "float32")],
    )
    source = cuda_source(lowered)
    assert "x_shared" in source and "y_shared" not in source
    (found,) = run_in_turn(lowered, given).values()
    exact = given[0].T.astype("float64") * given[1] + given[1]
    tolerance.assert_close(found, exact, length=1, dtype="float32")


@pytest.mark.parametrize("shape", [(16, 4096), (4096, 16)], ids=str)
def test_sides_shorter_than_a_square_stay_in_registers(shape: tuple[int, int]) -> None:
    assert "__shared__" not in cuda_source(scheduled(transposed(shape, "float32")))


def test_neighbours_two_apart_are_no_transposition() -> None:
    x = te.placeholder((64, 128), name="x")
    out = te.compute((64, 64), lambda i, j: x[i, 2 * j], name="out")
    assert "__shared__" not in cuda_source(scheduled(te.create_prim_func([x, out])))
