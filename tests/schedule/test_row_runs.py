"""Products whose rows pick matrices by data: right for any picks, read once for each run of equal ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.devices.device import Cpu
from tvm_cascade.evaluate.tolerance import assert_close
from tvm_cascade.schedule.row_picks import with_runs_marked
from tvm_cascade.schedule.row_runs import products_in_runs

from ..tiers import slow_but

MATRICES, ROWS = 5, 30
Pick = Callable[[te.Tensor, Any], Any]


def program(columns: int, depth: int, dtype: str, transposed: bool, pick: Pick = lambda g, i: g(i)) -> tirx.PrimFunc:
    x, g = te.placeholder((ROWS, depth), "float32", "x"), te.placeholder((ROWS,), "int32", "g")
    shape = (MATRICES, columns, depth) if transposed else (MATRICES, depth, columns)
    w, k = te.placeholder(shape, "float32", "w"), te.reduce_axis((0, depth), "k")

    def element(i: Any, n: Any) -> Any:
        one = w(pick(g, i), n, k) if transposed else w(pick(g, i), k, n)
        return te.sum(x(i, k).astype(dtype) * one.astype(dtype), axis=k)

    return te.create_prim_func([x, w, g, te.compute((ROWS, columns), element, name="y")])


PICKS: Mapping[str, list[int]] = {
    "one": [0] * 30,
    "runs": [4] * 13 + [2] * 16 + [1],
    "none alike": [0, 1, 2, 3, 4, 3] * 5,
    "a long tail": [2, 2, 2, 0, 4, 4] + [3] * 24,
}


def assert_right(build: Callable[[tirx.PrimFunc], Any], columns: int, depth: int, dtype: str, transposed: bool) -> None:
    compiled, random = build(program(columns, depth, dtype, transposed)), np.random.default_rng(0)
    x = random.standard_normal((ROWS, depth)).astype("float32")
    w = random.standard_normal((MATRICES, *((columns, depth) if transposed else (depth, columns)))).astype("float32")
    wide = w.astype("float64")
    for picks in PICKS.values():
        arrays = [np.array(picks, "int32"), np.full((ROWS, columns), np.nan, dtype)]
        given = [tvm.runtime.tensor(one) for one in (x, w, *arrays)]
        compiled(*given)
        exact = np.stack([row @ (wide[at].T if transposed else wide[at]) for row, at in zip(x, picks, strict=True)])
        assert_close(given[3].numpy(), exact, length=depth, dtype=dtype)


@pytest.mark.parametrize(
    ("columns", "depth", "dtype", "transposed"),
    slow_but(
        [(33, 24, "float64", True), (7, 24, "float32", False)],
        [(40, 32, "float32", True), (64, 24, "float64", False), (7, 24, "float32", False), (33, 24, "float64", True)],
    ),
)
def test_rows_take_the_matrix_that_they_pick(columns: int, depth: int, dtype: str, transposed: bool) -> None:
    assert_right(partial(tvm_cascade.compile, target="llvm"), columns, depth, dtype, transposed)


@pytest.mark.parametrize("transposed", [False, True])
def test_what_no_cache_has_room_for_is_summed_in_parts(transposed: bool) -> None:
    """Several panels of a task too, of which the last task has fewer."""
    cpu = Cpu(vector_bytes=16, cores=1, l2_bytes=4096)

    def build(func: tirx.PrimFunc) -> Any:
        return tvm.compile(products_in_runs(with_runs_marked(func), cpu), target="llvm")

    assert_right(build, 300, 101, "float32", transposed)


def test_only_rows_that_pick_by_data_are_in_runs() -> None:
    assert "tiles of rows" in str(tvm_cascade.explain(program(40, 32, "float32", True), target="llvm"))
    # A matrix by the row itself, and one by data and the row: no two rows share these.
    for pick in (lambda g, i: i % MATRICES, lambda g, i: (g(i) + i) % MATRICES):
        func = program(40, 32, "float32", True, pick)
        assert with_runs_marked(func).same_as(func)
