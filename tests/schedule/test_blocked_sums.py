"""Long sums of products round as sums of blocks do, and are right whatever their lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import ir, s_tir, te, tirx
from tvm.script import tirx as T

import tvm_cascade
from tvm_cascade.analysis.expression import call_name
from tvm_cascade.analysis.tir import within
from tvm_cascade.driver import llvm
from tvm_cascade.schedule.blocked_sums import blocked_sums


def product(rows: int, columns: int, terms: tuple[int, ...]) -> tirx.PrimFunc:
    a, b = te.placeholder((rows, *terms), name="a"), te.placeholder((*terms, columns), name="b")
    reduced = [te.reduce_axis((0, extent), name=f"k{place}") for place, extent in enumerate(terms)]
    c = te.compute((rows, columns), lambda i, j: te.sum(a[(i, *reduced)] * b[(*reduced, j)], reduced), name="c")
    return te.create_prim_func([a, b, c])


def error(rows: int, columns: int, terms: tuple[int, ...]) -> float:
    """The typical error of a compiled product, relative to the typical element."""
    random = np.random.default_rng(0)
    a, b = random.uniform(0, 1, (rows, *terms)), random.uniform(0, 1, (*terms, columns))
    a, b = a.astype("float32"), b.astype("float32")
    found = np.zeros((rows, columns), "float32")
    tvm_cascade.compile(product(rows, columns, terms))(a, b, found)
    exact = a.reshape(rows, -1).astype("float64") @ b.reshape(-1, columns).astype("float64")
    return float(np.sqrt(np.mean((found - exact) ** 2)) / np.sqrt(np.mean(exact**2)))


@pytest.mark.parametrize(
    ("rows", "columns", "terms"),
    [
        (24, 64, (4096,)),
        (16, 48, (256, 3, 5)),
        (13, 40, (5, 1024)),
        (8, 64, (2, 3001)),  # a prime: the last block is shorter
        (100, 40, (4099,)),
        (8, 64, (733,)),  # less than two blocks
        (300, 96, (6000,)),
    ],
)
def test_a_long_sum_rounds_as_one_of_blocks(
    rows: int, columns: int, terms: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = error(rows, columns, terms)
    monkeypatch.setattr(llvm, "blocked_sums", lambda func: func)
    in_order = error(rows, columns, terms)
    assert in_order < 1e-5
    assert blocked == in_order if 733 in terms else blocked < 0.6 * in_order


def lowered(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function as `blocked_sums` leaves it."""
    seen: list[tirx.PrimFunc] = []

    def note(given: tirx.PrimFunc) -> tirx.PrimFunc:
        seen.extend([given, blocked_sums(given)])
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "blocked_sums", note)
        tvm_cascade.compile(func)
    before, after = seen
    assert before.same_as(after) == (requests(after) == [])
    return after


def requests(func: tirx.PrimFunc) -> list[str]:
    """The buffers whose lines are asked for, one for each request."""
    calls = [call for call in within(func.body, ir.Call) if call_name(call) == "prefetch"]
    return [call.args[0].args[0].source.name for call in calls]


def test_short_sums_stay_as_they_are() -> None:
    assert requests(lowered(product(16, 64, (64,)))) == []


@pytest.mark.parametrize("terms", [256, 768])
def test_a_tile_asks_for_its_panels_and_its_result_and_starts_without_zeros(terms: int) -> None:
    func = lowered(product(96, 64, (terms,)))
    lines = Counter(requests(func))
    assert set(lines) == {"b", "c"}
    assert lines["c"] >= 8 * lines["b"]  # of each row of a tile, and of the panel at one term
    assert not [block for block in within(func.body, s_tir.SBlock) if block.name_hint.endswith("_init")]
    assert error(96, 64, (terms,)) < 3e-7


def test_a_matrix_that_is_stored_transposed_is_asked_for_where_it_was_packed() -> None:
    a, b = te.placeholder((1024, 512), name="a"), te.placeholder((1024, 512), name="b")
    k = te.reduce_axis((0, 1024), name="k")
    c = te.compute((512, 512), lambda i, j: te.sum(a[k, i] * b[k, j], k), name="c")
    assert set(requests(lowered(te.create_prim_func([a, b, c])))) == {"a_global", "b_global", "c"}


@T.prim_func(s_tir=True)
def from_the_diagonal(a: T.Buffer((1024, 1024)), b: T.Buffer((1024, 64)), c: T.Buffer((1024, 64))) -> None:
    for i, j in T.grid(1024, 64):
        with T.sblock("start"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = T.float32(0)
    for i, j, k in T.grid(1024, 64, 1024):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.where(i <= k)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


@T.prim_func(s_tir=True)
def up_to_the_diagonal(a: T.Buffer((1024, 1024)), b: T.Buffer((1024, 64)), c: T.Buffer((1024, 64))) -> None:
    for i, j in T.grid(1024, 64):
        with T.sblock("start"):
            vi, vj = T.axis.remap("SS", [i, j])
            c[vi, vj] = T.float32(0)
    for i, j, k in T.grid(1024, 64, 1024):
        with T.sblock("c"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.where(k <= i)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


@pytest.mark.parametrize(("func", "kept"), [(from_the_diagonal, np.triu), (up_to_the_diagonal, np.tril)])
def test_sums_whose_first_blocks_may_have_no_terms(func: tirx.PrimFunc, kept: Callable[..., Any]) -> None:
    random = np.random.default_rng(0)
    a, b = random.uniform(0, 1, (1024, 1024)).astype("float32"), random.uniform(0, 1, (1024, 64)).astype("float32")
    found = np.full((1024, 64), np.nan, "float32")
    tvm_cascade.compile(func)(a, b, found)
    exact = kept(a).astype("float64") @ b
    assert float(np.max(np.abs(found - exact)) / np.max(exact)) < 3e-6
