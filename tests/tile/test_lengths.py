"""Lengths: those that a tensor says, a sequence each, and symbolic ones of 0; rows of nothing are as unfused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import ir, te, tirx

from tvm_cascade.driver.lowering import fused, goal_of, lowered
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate.oracle import evaluate
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons.stream.config import StreamConfig

from ..transform.tuple_programs import index_then_key, nothing_yet
from .checked import assert_right, kernel_of
from .emulator.run import compiler, emulate
from .test_tile_program import tile_program

BATCH, QUERIES, KEYS, DEPTH = 3, 70, 200, 64
COLUMNS = 64
SMALL = StreamConfig(columns=COLUMNS, consumers=1, stages=2, ping_pong=False, blocks=132)

Keeps = Callable[[ir.Expr, ir.Expr, ir.Expr], ir.Expr]

KEEPS: dict[str, Keeps] = {
    "lengths": lambda i, j, length: j < length,
    "causal": lambda i, j, length: te.all(j < length, j <= i + 60),
    "left": lambda i, j, length: j >= length,  # padding in front of the sequence
}


def attention(keeps: Keeps, dtype: str = "float16") -> tirx.PrimFunc:
    """q, k, v, lengths -> attention of [sequence, position, feature] over the keys that a length keeps."""
    q, k, v = (te.placeholder((BATCH, n, DEPTH), dtype, name) for n, name in ((QUERIES, "q"), (KEYS, "k"), (KEYS, "v")))
    lengths, pairs = te.placeholder((BATCH,), "int32", "lengths"), (BATCH, QUERIES, KEYS)
    d, axes = te.reduce_axis((0, DEPTH), "d"), [te.reduce_axis((0, KEYS), f"j{n}") for n in range(3)]
    dots = te.compute(pairs, lambda b, i, j: te.sum(_wide(q[b, i, d]) * _wide(k[b, j, d]), axis=d), "dots")
    lowest = tirx.const(-np.inf, "float32")
    kept = te.compute(
        pairs, lambda b, i, j: tirx.if_then_else(keeps(i, j, lengths[b]), dots[b, i, j] / 8, lowest), "kept"
    )
    top = te.compute(pairs[:2], lambda b, i: te.max(kept[b, i, axes[0]], axis=axes[0]), "top")
    weights = te.compute(pairs, lambda b, i, j: te.exp(kept[b, i, j] - top[b, i]), "weights")
    total = te.compute(pairs[:2], lambda b, i: te.sum(weights[b, i, axes[1]], axis=axes[1]), "total")
    wide = te.compute(
        q.shape, lambda b, i, f: te.sum(weights[b, i, axes[2]] * _wide(v[b, axes[2], f]), axis=axes[2]), "wide"
    )
    out = te.compute(q.shape, lambda b, i, f: (wide[b, i, f] / total[b, i]).astype(dtype), "out")
    return te.create_prim_func([q, k, v, lengths, out])


def _wide(value: ir.Expr) -> ir.Expr:
    return value.astype("float32")


def _drawn(lengths: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    tensors = [rng.standard_normal((BATCH, n, DEPTH)).astype("float16") for n in (QUERIES, KEYS, KEYS)]
    return [*tensors, np.array(lengths, "int32")]


@pytest.mark.parametrize("name", KEEPS)
def test_lengths_bound_the_tiles(name: str) -> None:
    assert any("lengths[" in str(slack) for slack in tile_program(attention(KEEPS[name])).skip)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "name", ["causal", pytest.param("lengths", marks=pytest.mark.slow), pytest.param("left", marks=pytest.mark.slow)]
)
def test_sequences_of_any_length(name: str) -> None:
    """One has all keys, one ends inside of a tile, and one has none: NaN then, as where nothing is fused."""
    assert_right(attention(KEEPS[name]), _drawn([KEYS, 70, 0]), SMALL, length=KEYS)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
def test_tiles_past_the_length_are_not_visited() -> None:
    """What stands there is NaN: a weight of zero would not hide it."""
    func, inputs = attention(KEEPS["lengths"]), _drawn([COLUMNS, 1, 2 * COLUMNS])
    expected = np.asarray(emulate(kernel_of(func, SMALL).func, inputs)[0])
    for sequence, live in enumerate((1, 1, 2)):
        for tensor in inputs[1:3]:
            tensor[sequence, live * COLUMNS :] = np.nan
    assert np.array_equal(np.asarray(emulate(kernel_of(func, SMALL).func, inputs)[0]), expected)
    assert np.isnan(next(iter(evaluate(func, inputs).values()))).all()  # nothing of it is skipped there


def selection(rows: int = 3) -> tirx.PrimFunc:
    """x -> the largest of the softmax of each row, with its position."""
    n = tirx.Var("n", "int64")
    x = te.placeholder((tirx.IntImm("int64", rows), n), "float32", "x")
    axes = [te.reduce_axis((0, n), f"j{k}") for k in range(3)]
    top = te.compute((rows,), lambda i: te.max(x[i, axes[0]], axis=axes[0]), "top")
    total = te.compute((rows,), lambda i: te.sum(te.exp(x[i, axes[1]] - top[i]), axis=axes[1]), "total")
    best = te.comm_reducer(index_then_key, nothing_yet, name="best")
    pair = te.compute(
        (rows,), lambda i: best((axes[2], te.exp(x[i, axes[2]] - top[i]) / total[i]), axis=axes[2]), "pair"
    )
    return te.create_prim_func([x, *pair])


def sums(columns: int = 64) -> tirx.PrimFunc:
    """a, b -> Σ aᵀ b, over a symbolic number of rows."""
    n, width = tirx.Var("n", "int64"), tirx.IntImm("int64", columns)
    a, b = (te.placeholder((n, width), "float16", name) for name in "ab")
    k = te.reduce_axis((0, n), "k")
    return te.create_prim_func(
        [a, b, te.compute((width, width), lambda i, j: te.sum(_wide(a[k, i]) * _wide(b[k, j]), axis=k), "out")]
    )


def weighted(queries: int = QUERIES) -> tirx.PrimFunc:
    """q, k, v -> the maximum of the scores, and the attention, over a symbolic number of keys."""
    n, wide = tirx.Var("n", "int64"), [tirx.IntImm("int64", extent) for extent in (queries, DEPTH)]
    q, (k, v) = te.placeholder(wide, "float16", "q"), (te.placeholder((n, wide[1]), "float16", name) for name in "kv")
    d, axes = te.reduce_axis((0, DEPTH), "d"), [te.reduce_axis((0, n), f"j{m}") for m in range(3)]
    dots = te.compute((wide[0], n), lambda i, j: te.sum(_wide(q[i, d]) * _wide(k[j, d]), axis=d), "dots")
    top = te.compute(wide[:1], lambda i: te.max(dots[i, axes[0]], axis=axes[0]), "top")
    total = te.compute(wide[:1], lambda i: te.sum(te.exp(dots[i, axes[1]] - top[i]), axis=axes[1]), "total")

    def element(i: tirx.Var, f: tirx.Var) -> ir.Expr:
        return te.sum(te.exp(dots[i, axes[2]] - top[i]) / total[i] * _wide(v[axes[2], f]), axis=axes[2])

    return te.create_prim_func([q, k, v, top, te.compute(wide, element, "out")])


LOWEST = np.finfo("float32").min
OF_NONE = {
    "row": (selection(), [(3, 0)], [-1, LOWEST]),
    "product": (sums(), [(0, 64), (0, 64)], [0]),
    "stream": (weighted(), [(QUERIES, DEPTH), (0, DEPTH), (0, DEPTH)], [LOWEST, 0]),
    "pieces": (weighted(1), [(1, DEPTH), (0, DEPTH), (0, DEPTH)], [LOWEST, 0]),
}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", OF_NONE)
def test_results_of_no_positions_are_what_their_reductions_start_from(name: str) -> None:
    func, shapes, expected = OF_NONE[name]
    goal = goal_of(resolve_target({"kind": "cuda", "arch": "sm_90a"}), FuseOptions(buckets=1))
    _, kernel = lowered(fused({"main": func}, goal), goal)["main"]
    assert isinstance(kernel.chosen, Kernel)
    given = [np.zeros(shape, str(param.ty.dtype)) for shape, param in zip(shapes, func.params, strict=False)]
    for output, value in zip(emulate(kernel.func, given), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(output), np.full(output.shape, value, output.dtype))
