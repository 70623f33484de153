"""Lengths and pages given as tensors: predicates and element inputs that load other buffers at indices of the row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.evaluate import oracle

from .running import assert_close, build, run

Array = NDArray[Any]
BATCH, QUERIES, KEYS, FEATURES, PAGE, POOL = 3, 4, 40, 8, 8, 16
LOWEST = float(np.finfo("float32").min)


def attention(paged: bool, hidden: float = LOWEST) -> tirx.PrimFunc:
    """Attention over the first lengths[b] keys, which lie in pages of a pool where `paged`."""
    shape = (POOL, PAGE, FEATURES) if paged else (BATCH, KEYS, FEATURES)
    q = te.placeholder((BATCH, QUERIES, FEATURES), "float32", name="q")
    k, v = (te.placeholder(shape, "float32", name=name) for name in "kv")
    pages = te.placeholder((BATCH, KEYS // PAGE), "int32", name="pages")
    lengths = te.placeholder((BATCH,), "int32", name="lengths")
    inner, (a, b, c) = te.reduce_axis((0, FEATURES), "d"), (te.reduce_axis((0, KEYS), "j") for _ in range(3))

    def at(tensor: te.Tensor, h: Any, j: Any, d: Any) -> Any:
        return tensor[pages[h, tirx.floordiv(j, PAGE)], tirx.floormod(j, PAGE), d] if paged else tensor[h, j, d]

    square, rows = (BATCH, QUERIES, KEYS), (BATCH, QUERIES)
    scores = te.compute(square, lambda h, i, j: te.sum(q[h, i, inner] * at(k, h, j, inner), axis=inner), name="scores")
    constant = tirx.const(hidden, "float32")
    masked = te.compute(square, lambda h, i, j: tirx.if_then_else(j < lengths[h], scores[h, i, j], constant))
    top = te.compute(rows, lambda h, i: te.max(masked[h, i, a], axis=a), name="top")
    norm = te.compute(rows, lambda h, i: te.sum(te.exp(masked[h, i, b] - top[h, i]), axis=b), name="norm")

    def element(h: Any, i: Any, d: Any) -> Any:
        return te.sum(te.exp(masked[h, i, c] - top[h, i]) / norm[h, i] * at(v, h, c, d), axis=c)

    out = te.compute((BATCH, QUERIES, FEATURES), element, name="out")
    return te.create_prim_func([q, k, v, *([pages] if paged else []), lengths, out]).with_attr("global_symbol", "main")


def gathered(axis: bool) -> tirx.PrimFunc:
    """Softmax statistics of gathered rows, or of gathered columns."""
    x, index = te.placeholder((6, 37), "float32", name="x"), te.placeholder((5,), "int32", name="index")
    rows, length = (6, 5) if axis else (5, 37)
    a, b = (te.reduce_axis((0, length), "l") for _ in range(2))

    def at(i: Any, j: Any) -> Any:
        return x[i, index[j]] if axis else x[index[i], j]

    top = te.compute((rows,), lambda i: te.max(at(i, a), axis=a), name="top")
    norm = te.compute((rows,), lambda i: te.sum(te.exp(at(i, b) - top[i]), axis=b), name="norm")
    return te.create_prim_func([x, index, top, norm]).with_attr("global_symbol", "main")


def inputs(func: tirx.PrimFunc, **integers: Array) -> list[Array]:
    rng = np.random.default_rng(0)

    def one(param: tirx.Var) -> Array:
        if param.name in integers:
            return integers[param.name].astype("int32")
        return rng.standard_normal([int(extent) for extent in param.ty.shape]).astype("float32")

    return [one(param) for param in oracle.signature(func).inputs]


def assert_fused_and_right(func: tirx.PrimFunc, tile: int | None, *cases: list[Array]) -> None:
    compiled = tvm_cascade.compile(func, force=True, tile=tile)
    assert [group.verdict for group in compiled.report.groups] == [Verdict.FUSED]
    unfused = build(func)
    for arrays in cases:
        assert_close(run(compiled.runtime_module, func, arrays), func, arrays, run(unfused, func, arrays), KEYS)


@pytest.mark.parametrize("hidden", [LOWEST, -math.inf], ids=["lowest", "infinite"])
@pytest.mark.parametrize("tile", [None, 16])
def test_lengths_in_a_tensor(tile: int | None, hidden: float) -> None:
    """A length of 0 gives what the unfused program gives: the mean of v, or NaN."""
    func = attention(paged=False, hidden=hidden)
    assert_fused_and_right(func, tile, *(inputs(func, lengths=np.array(n)) for n in ([1, 13, KEYS], [0, KEYS, 16])))


@pytest.mark.parametrize("tile", [None, 16, PAGE])
def test_keys_and_values_in_pages(tile: int | None) -> None:
    func = attention(paged=True)
    pages = np.random.default_rng(1).permutation(POOL)[:15].reshape(BATCH, -1)
    assert_fused_and_right(func, tile, *(inputs(func, pages=pages, lengths=np.array(n)) for n in ([1, 13, 40],)))


@pytest.mark.parametrize("axis", [False, True], ids=["rows", "columns"])
def test_gathered_rows_and_columns(axis: bool) -> None:
    func = gathered(axis)
    assert_fused_and_right(func, None, inputs(func, index=np.array([4, 0, 0, 5, 2])))
