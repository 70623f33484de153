"""Guards of S-TIR schedules for GPUs: tuples, and what reads inner reductions, have fallbacks there too."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from tvm import te, tirx

from tvm_cascade.analysis.statements import read_nests
from tvm_cascade.evaluate.tolerance import kinds

from ..analysis.programs import LENGTH as LENGTH_OF_X
from ..analysis.programs import ROWS as ROWS_OF_X
from ..analysis.programs import array, fold, number, program
from ..tile.test_selection_guards import data, shares
from ..transform.running import Arrays, build, run
from .gpu_programs import cuda_source, fused, kernels, run_in_turn, scheduled

ROWS, LENGTH, INNER = 12, 80, 8


def shares_of_products() -> tirx.PrimFunc:
    """x, k, v -> Σ v·(x·k)/Σ (x·k): the elements are inner products, and their sum may have any size."""
    x, k, v = array("x", ROWS, INNER), array("k", LENGTH, INNER), array("v", LENGTH)
    p = te.reduce_axis((0, INNER), "p")
    score = te.compute((ROWS, LENGTH), lambda i, j: te.sum(x[i, p] * k[j, p], axis=p), name="score")
    s = fold("s", lambda i, j: score[i, j], te.sum, LENGTH, (ROWS,))
    return program(x, k, v, fold("out", lambda i, j: score[i, j] / s[i] * v[j], te.sum, LENGTH, (ROWS,)))


def spread() -> tirx.PrimFunc:
    """x -> Σ (x − mean)²: infinite where an x is so large, and not NaN, though its digits need no guard."""
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    return program(x, fold("out", lambda i, j: te.power(x[i, j] - s[i] / number(LENGTH_OF_X), number(2))))


def of_large_numbers() -> Arrays:
    x = np.random.default_rng(5).standard_normal((ROWS_OF_X, LENGTH_OF_X)).astype("float32")
    x[0], x[1, 0], x[2, 3] = x[0] * np.float32(1e30), 1e30, np.inf
    return [x]


def of_products() -> Arrays:
    rng = np.random.default_rng(6)
    x, k, v = (rng.standard_normal(shape).astype("float32") for shape in ((ROWS, INNER), (LENGTH, INNER), (LENGTH,)))
    x[1], x[2, 3], x[3] = x[1] * np.float32(1e37), np.inf, 0.0
    return [x, k, v]


@pytest.mark.parametrize(
    ("func", "inputs"),
    [(shares, data), (shares_of_products, of_products), (spread, of_large_numbers)],
    ids=["top-k", "inner", "class"],
)
def test_rows_that_fail_are_the_programs(func: Callable[[], tirx.PrimFunc], inputs: Callable[[], Arrays]) -> None:
    plain, given = func(), inputs()
    lowered = scheduled(fused(plain).func)
    assert any(
        name.startswith("out_guard") for name in (nest.block.name_hint for nest in read_nests(fused(plain).func))
    )
    source = cuda_source(lowered)
    assert kernels(source)
    assert not re.search(r"__global__[^;{]*_again_ptr", source)  # else all threads would reduce into one cell
    found, wanted = run_in_turn(lowered, given), run(build(plain), plain, given)
    for name, expected in wanted.items():
        np.testing.assert_array_equal(kinds(found[name]), kinds(expected))
        if expected.dtype.kind == "i":
            np.testing.assert_array_equal(found[name], expected)
