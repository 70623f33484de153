"""Products whose rows pick matrices by data: right for any picks, read once for each run of equal ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.evaluate.tolerance import assert_close
from tvm_cascade.schedule.row_runs import with_runs_marked

MATRICES, DEPTH = 5, 24
Pick = Callable[[te.Tensor, Any], Any]


def program(
    rows: int, columns: int, dtype: str, transposed: bool, pick: Pick = lambda g, i: g(i), kept: str = "float32"
) -> tirx.PrimFunc:
    x, g = te.placeholder((rows, DEPTH), kept, "x"), te.placeholder((rows,), "int32", "g")
    shape = (MATRICES, columns, DEPTH) if transposed else (MATRICES, DEPTH, columns)
    w, k = te.placeholder(shape, kept, "w"), te.reduce_axis((0, DEPTH), "k")

    def element(i: Any, n: Any) -> Any:
        one = w(pick(g, i), n, k) if transposed else w(pick(g, i), k, n)
        return te.sum(x(i, k).astype(dtype) * one.astype(dtype), axis=k)

    return te.create_prim_func([x, w, g, te.compute((rows, columns), element, name="y")])


@pytest.mark.parametrize(
    "picks",
    [[0] * 30, [4] * 13 + [2] * 16 + [1], [0, 1, 2, 3, 4, 3] * 5, [1, 1, 0, 0, 4] * 6, [2, 2, 2, 0, 4, 4] + [3] * 24],
    ids=["one", "runs", "none alike", "pairs", "a long tail"],
)
@pytest.mark.parametrize(
    ("columns", "dtype", "transposed"),
    [(40, "float32", True), (64, "float64", False), (7, "float32", False), (33, "float64", True)],
)
def test_rows_take_the_matrix_that_they_pick(picks: list[int], columns: int, dtype: str, transposed: bool) -> None:
    compiled = tvm_cascade.compile(program(30, columns, dtype, transposed), target="llvm")
    random, g = np.random.default_rng(0), np.array(picks, "int32")
    x = random.standard_normal((30, DEPTH)).astype("float32")
    w = random.standard_normal((MATRICES, *((columns, DEPTH) if transposed else (DEPTH, columns)))).astype("float32")
    y = np.full((30, columns), np.nan, dtype)
    arrays = [tvm.runtime.tensor(one) for one in (x, w, g, y)]
    compiled(*arrays)
    wide = w.astype("float64")
    exact = np.stack([row @ (wide[at].T if transposed else wide[at]) for row, at in zip(x, g, strict=True)])
    assert_close(arrays[3].numpy(), exact, length=DEPTH, dtype=dtype)


def test_only_rows_that_pick_by_data_are_in_runs() -> None:
    assert "tiles of rows" in str(tvm_cascade.explain(program(30, 40, "float32", True), target="llvm"))
    # A matrix by the row itself, and one by data and the row: no two rows share these.
    for pick in (lambda g, i: i % MATRICES, lambda g, i: (g(i) + i) % MATRICES):
        func = program(30, 40, "float32", True, pick)
        assert with_runs_marked(func).same_as(func)
