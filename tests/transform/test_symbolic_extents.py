"""One fused kernel for all lengths: extents that are shape variables, in rows and along the cascade axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx

import tvm_cascade
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.evaluate import oracle, tolerance

from ..tiers import slow_but
from .tuple_programs import index_then_key, nothing_yet

Array = NDArray[Any]
HEADS, FEATURES, TILE, ROWS = 2, 16, 16, 5
LENGTHS = (1, TILE - 1, TILE, TILE + 1, 37)


def reduce_axes(count: int, extent: Any) -> list[Any]:
    return [te.reduce_axis((0, extent), name) for name in "jkla"[:count]]


def softmax_stats(dtype: str) -> tirx.PrimFunc:
    rows, length = tirx.Var("rows", dtype), tirx.Var("length", dtype)
    x, (j, k) = te.placeholder((rows, length), "float32", name="x"), reduce_axes(2, length)
    top = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="top")
    return te.create_prim_func([x, top, te.compute((rows,), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k))])


def moments(dtype: str) -> tirx.PrimFunc:
    """The variance, which divides by the length itself."""
    rows, length = tirx.Var("rows", dtype), tirx.Var("length", dtype)
    x, (j, k) = te.placeholder((rows, length), "float32", name="x"), reduce_axes(2, length)
    total = te.compute((rows,), lambda i: te.sum(x[i, j], axis=j), name="total")

    def centred(i: Any, l: Any) -> Any:  # noqa: E741
        return x[i, l] - total[i] / length.astype("float32")

    return te.create_prim_func(
        [x, te.compute((rows,), lambda i: te.sum(centred(i, k) * centred(i, k), axis=k), name="out")]
    )


def attention(dtype: str, causal: bool = True) -> tirx.PrimFunc:
    queries, keys = tirx.Var("queries", dtype), tirx.Var("keys", dtype)
    q = te.placeholder((HEADS, queries, FEATURES), "float32", name="q")
    k, v = (te.placeholder((HEADS, keys, FEATURES), "float32", name=name) for name in "kv")
    inner, (a, b, c) = te.reduce_axis((0, FEATURES), "d"), reduce_axes(3, keys)
    rows = (HEADS, queries)
    scores = te.compute((*rows, keys), lambda h, i, j: te.sum(q[h, i, inner] * k[h, j, inner], axis=inner), name="s")
    hidden = tirx.min_value("float32")
    masked = te.compute(
        (*rows, keys), lambda h, i, j: tirx.if_then_else(j <= i, scores[h, i, j], hidden) if causal else scores[h, i, j]
    )
    top = te.compute(rows, lambda h, i: te.max(masked[h, i, a], axis=a), name="top")
    norm = te.compute(rows, lambda h, i: te.sum(te.exp(masked[h, i, b] - top[h, i]), axis=b), name="norm")

    def element(h: Any, i: Any, d: Any) -> Any:
        return te.sum(te.exp(masked[h, i, c] - top[h, i]) / norm[h, i] * v[h, c, d], axis=c)

    return te.create_prim_func([q, k, v, te.compute((*rows, FEATURES), element, name="out")])


def likeliest(dtype: str) -> tirx.PrimFunc:
    """Index and probability of the largest of each row: a reduction of tuples after a softmax."""
    rows, length = tirx.Var("rows", dtype), tirx.Var("length", dtype)
    x, (j, k, a) = te.placeholder((rows, length), "float32", name="x"), reduce_axes(3, length)
    top = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="top")
    norm = te.compute((rows,), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k), name="norm")
    best = te.comm_reducer(index_then_key, nothing_yet, name="best")
    pair = te.compute((rows,), lambda i: best((a, te.exp(x[i, a] - top[i]) / norm[i]), axis=a), name="pair")
    return te.create_prim_func([x, *pair])


def expected_likeliest(x: Array) -> list[Array]:
    weights = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    return [x.argmax(1), (weights / weights.sum(1, keepdims=True)).max(1)]


def expected_attention(q: Array, k: Array, v: Array, causal: bool = True) -> list[Array]:
    scores = np.einsum("hid,hjd->hij", q.astype("f8"), k.astype("f8"))
    if causal:
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return [np.einsum("hij,hjd->hid", weights / weights.sum(-1, keepdims=True), v.astype("f8"))]


def expected_stats(x: Array) -> list[Array]:
    return [x.max(1), np.exp(x - x.max(1, keepdims=True)).astype("f8").sum(1)]


def expected_moments(x: Array) -> list[Array]:
    return [x.astype("f8").var(axis=1) * x.shape[1]]


def mean_and_log_sum_exp(dtype: str) -> tirx.PrimFunc:
    """Results that others are computed from, at a position each, and that are divided by the length."""
    rows, length = tirx.Var("rows", dtype), tirx.Var("length", dtype)
    x, (j, k, a, b) = te.placeholder((rows, length), "float32", name="x"), reduce_axes(4, length)
    top = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="top")
    norm = te.compute((rows,), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k), name="norm")
    both = te.compute((rows,), lambda i: top[i] + te.log(norm[i]), name="both")
    total = te.compute((rows,), lambda i: te.sum(x[i, a], axis=a), name="total")
    mean = te.compute((rows,), lambda i: total[i] / length.astype("float32"), name="mean")
    variance = te.compute((rows,), lambda i: te.sum((x[i, b] - mean[i]) * (x[i, b] - mean[i]), axis=b), name="variance")
    return te.create_prim_func([x, both, mean, variance])


CASES: dict[str, tuple[Callable[[str], tirx.PrimFunc], Callable[..., list[Array]], list[tuple[Any, ...]]]] = {
    "softmax_stats": (softmax_stats, expected_stats, [(5, "n")]),
    "moments": (moments, expected_moments, [(5, "n")]),
    "attention": (
        lambda dtype: attention(dtype, causal=False),
        lambda q, k, v: expected_attention(q, k, v, causal=False),
        [(HEADS, "m", FEATURES), (HEADS, "n", FEATURES), (HEADS, "n", FEATURES)],
    ),
    "likeliest": (likeliest, expected_likeliest, [(5, "n")]),
    "causal_attention": (attention, expected_attention, [(HEADS, "n", FEATURES)] * 3),
}


@cache
def unfused(name: str, index: str) -> Any:
    return tvm.compile(CASES[name][0](index), target="llvm")["main"]


def run(function: Any, given: list[Array], like: list[Array], index: str) -> list[Array]:
    blank = [np.full(e.shape, -7, index) if e.dtype == "int64" else np.full(e.shape, np.nan, "f4") for e in like]
    tensors = [tvm.runtime.tensor(array) for array in blank]
    function(*(tvm.runtime.tensor(array) for array in given), *tensors)
    return [tensor.numpy() for tensor in tensors]


def check(compiled: Any, name: str, index: str = "int64") -> None:
    _, expected, shapes = CASES[name]
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        sizes = {"n": length, "m": 3}
        given = [rng.standard_normal([sizes.get(e, e) for e in shape]).astype("float32") for shape in shapes]
        exact = expected(*given)
        found, usual = (run(f, given, exact, index) for f in (compiled, unfused(name, index)))
        for output, value, baseline in zip(found, exact, usual, strict=True):
            tolerance.assert_close(output, value, baseline, length=length, dtype=str(output.dtype))


# Causal attention of any length under our schedule is in tests/schedule/test_whole_tiles.py too.
@pytest.mark.parametrize("dtype", slow_but(["int64"], ["int64", "int32"]))
@pytest.mark.parametrize("name", slow_but(["softmax_stats", "moments", "likeliest"], CASES))
def test_one_kernel_is_right_at_every_length(name: str, dtype: str) -> None:
    compiled = tvm_cascade.compile(CASES[name][0](dtype), tile=TILE, force=True)
    assert [group.verdict for group in compiled.report.groups] == [Verdict.FUSED]
    assert "T.parallel" in compiled.mod.script()
    check(compiled, name, dtype)


@pytest.mark.parametrize("name", slow_but(["moments", "likeliest"], ["moments", "causal_attention", "likeliest"]))
def test_segments_of_an_unknown_length_are_merged(name: str) -> None:
    """With fewer tiles than segments there are fewer segments, so that none is empty."""
    compiled = tvm_cascade.compile(CASES[name][0]("int64"), tile=TILE, segments=3)
    assert compiled.report.fused
    check(compiled, name)


def test_it_fuses_without_our_schedule_and_with_the_default_tile() -> None:
    compiled = tvm_cascade.compile(CASES["causal_attention"][0]("int64"), schedule=False)
    assert compiled.report.fused
    check(compiled, "causal_attention")


def test_axes_of_different_length_are_not_one() -> None:
    rows, a, b = (tirx.Var(name, "int64") for name in "rab")
    x, y = te.placeholder((rows, a), "float32", name="x"), te.placeholder((rows, b), "float32", name="y")
    j, k = te.reduce_axis((0, a), "j"), te.reduce_axis((0, b), "k")
    top = te.compute((rows,), lambda i: te.max(x[i, j], axis=j), name="top")
    func = te.create_prim_func([x, y, te.compute((rows,), lambda i: te.sum(te.exp(y[i, k] - top[i]), axis=k))])
    (group,) = tvm_cascade.explain(func).groups
    assert group.reason.code == "axis_mismatch"


LOWEST = np.finfo("float32").min
OF_NONE: dict[str, tuple[Callable[[str], tirx.PrimFunc], list[tuple[Any, ...]], list[float]]] = {
    "softmax_stats": (softmax_stats, [(ROWS, 0)], [LOWEST, 0]),
    "moments": (moments, [(ROWS, 0)], [0]),
    "likeliest": (likeliest, [(ROWS, 0)], [-1, LOWEST]),
    "others read results": (mean_and_log_sum_exp, [(ROWS, 0)], [-np.inf, np.nan, 0]),
    "attention": (CASES["attention"][0], [(HEADS, ROWS, FEATURES), (HEADS, 0, FEATURES), (HEADS, 0, FEATURES)], [0]),
}
"""Functions, the shapes of their inputs, and what every element of each output is where the axis has no positions."""

WAYS: dict[str, Callable[[tirx.PrimFunc], Any]] = {
    "unfused": lambda func: tvm_cascade.compile_unfused(func).runtime_module["main"],
    "compiled": lambda func: tvm_cascade.compile(func, force=True).runtime_module["main"],
    "one kernel": lambda func: tvm_cascade.compile(func, force=True, buckets=1).runtime_module["main"],
    "segments": lambda func: tvm_cascade.compile(func, force=True, tile=TILE, segments=3).runtime_module["main"],
    "the pass": lambda func: tvm.compile(passed(func), target="llvm")["main"],
    "the pass, segments": lambda func: tvm.compile(passed(func, tile=TILE, segments=2), target="llvm")["main"],
}


def passed(func: tirx.PrimFunc, **options: Any) -> tvm.IRModule:
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    found = tvm_cascade.FuseCascadedReductions(force=True, **options)(module)
    assert not found["main"].same_as(module["main"])
    return found


QUICK = [("softmax_stats", way) for way in WAYS]
QUICK += [(name, way) for name in OF_NONE for way in ("unfused", "the pass, segments")]
"""One program by every way, and every program by the ways that compile one function; buckets and kernels call it."""


@pytest.mark.parametrize(("name", "way"), slow_but(QUICK, [(name, way) for name in OF_NONE for way in WAYS]))
def test_results_of_no_positions_are_what_their_reductions_start_from(name: str, way: str) -> None:
    build, shapes, expected = OF_NONE[name]
    func = build("int64")
    given = [np.zeros(shape, "float32") for shape in shapes]
    sizes = {"rows": ROWS, "queries": ROWS}
    outputs = [
        np.full([sizes.get(str(n)) or int(n) for n in param.ty.shape], 7, str(param.ty.dtype))
        for param in func.params[len(given) :]
    ]
    tensors = [tvm.runtime.tensor(array) for array in (*given, *outputs)]
    WAYS[way](func)(*tensors)
    for tensor, value in zip(tensors[len(given) :], expected, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), np.full(tensor.shape, value, tensor.dtype))


def test_a_cache_of_as_many_pages_as_the_caller_has_where_no_loop_is_symbolic() -> None:
    """Attention over pages[table[b, l // 8], …]: a buffer is larger than what is read of it."""
    batch, visited, size = 2, 4, 8

    def paged(pages: Any) -> tirx.PrimFunc:
        q, cache = te.placeholder((batch, FEATURES), name="q"), te.placeholder((pages, 2, size, FEATURES), name="pages")
        table = te.placeholder((batch, visited), "int32", name="table")
        inner, (a, b, c) = te.reduce_axis((0, FEATURES), "d"), reduce_axes(3, visited * size)

        def entry(row: Any, kind: int, position: Any, feature: Any) -> Any:
            return cache[table[row, position // size], kind, position % size, feature]

        shape = (batch, visited * size)
        s = te.compute(shape, lambda r, j: te.sum(q[r, inner] * entry(r, 0, j, inner), axis=inner), name="s")
        top = te.compute((batch,), lambda r: te.max(s[r, a], axis=a), name="top")
        t = te.compute((batch,), lambda r: te.sum(te.exp(s[r, b] - top[r]), axis=b), name="t")
        out = te.compute(
            (batch, FEATURES),
            lambda r, f: te.sum(te.exp(s[r, c] - top[r]) / t[r] * entry(r, 1, c, f), axis=c),
            name="out",
        )
        return te.create_prim_func([q, cache, table, out])

    compiled = tvm_cascade.compile(paged(tirx.Var("pages", "int64")))
    assert [group.reason.verdict for group in compiled.report.groups] == [Verdict.FUSED]
    rng, pages = np.random.default_rng(0), 9
    q, cache = rng.standard_normal((batch, FEATURES)), rng.standard_normal((pages, 2, size, FEATURES))
    inputs = [q.astype("float32"), cache.astype("float32"), rng.integers(0, pages, (batch, visited)).astype("int32")]
    found = np.full((batch, FEATURES), np.nan, "float32")
    compiled(*inputs, found)
    exact = oracle.evaluate(paged(pages), inputs)["out"]
    assert tolerance.check(found, exact, length=visited * size, dtype="float32").ok
