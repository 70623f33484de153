"""Lengths that no tile divides: products without guards, right numbers at every length, results nobody else reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import ir, s_tir, te, tirx
from tvm.script import tirx as T
from tvm.target import Target

import tvm_cascade
from benchmarks.judge.power import rejects
from tvm_cascade.analysis.statements import ROLE, replaced
from tvm_cascade.devices.host import host_target
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.tile_skip import hoist_guards
from tvm_cascade.schedule.whole_tiles import whole_products, whole_tiles
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.tvm_faults.copies import private_copy

from ..tiers import quick_but, slow_but

Array = NDArray[Any]
HEADS, FEATURES = 2, 32
TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2})
Shown = Callable[[Any, Any, Any], Any]
"""Whether a query sees a key: of both, and of the number of keys."""

MASKS: dict[str, Shown | None] = {
    "full": None,
    "causal": lambda i, j, n: j <= i,
    "window": lambda i, j, n: tirx.all(j <= i, i - j < 9) if isinstance(i, ir.Expr) else (j <= i) & (i - j < 9),
}


def attention(queries: Any, keys: Any, shown: Shown | None = None, group: int = 1) -> tirx.PrimFunc:
    q = te.placeholder((HEADS, queries, FEATURES), "float32", name="q")
    k, v = (te.placeholder((HEADS // group, keys, FEATURES), "float32", name=name) for name in "kv")
    d = te.reduce_axis((0, FEATURES), "d")
    a, b, c = (te.reduce_axis((0, keys), name) for name in "abc")
    rows = (HEADS, queries)
    scores = te.compute((*rows, keys), lambda h, i, j: te.sum(q[h, i, d] * k[h // group, j, d], axis=d), name="scores")

    def masked(h: Any, i: Any, j: Any) -> Any:
        score = scores[h, i, j] * tirx.const(FEATURES**-0.5, "float32")
        return score if shown is None else tirx.if_then_else(shown(i, j, keys), score, tirx.min_value("float32"))

    logits = te.compute((*rows, keys), masked, name="logits")
    top = te.compute(rows, lambda h, i: te.max(logits[h, i, a], axis=a), name="top")
    weights = te.compute((*rows, keys), lambda h, i, j: te.exp(logits[h, i, j] - top[h, i]), name="weights")
    norm = te.compute(rows, lambda h, i: te.sum(weights[h, i, b], axis=b), name="norm")
    out = te.compute(
        (*rows, FEATURES),
        lambda h, i, x: te.sum(weights[h, i, c] / norm[h, i] * v[h // group, c, x], axis=c),
        name="out",
    )
    return te.create_prim_func([q, k, v, out])


def reference(q: Array, k: Array, v: Array, shown: Shown | None, dtype: str = "float64") -> Array:
    group = len(q) // len(k)
    q, k, v = q.astype(dtype), np.repeat(k, group, 0).astype(dtype), np.repeat(v, group, 0).astype(dtype)
    logits = np.einsum("hid,hjd->hij", q, k) * np.array(FEATURES**-0.5, dtype)
    if shown is not None:
        i, j = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])[None]
        logits = np.where(shown(i, j, k.shape[1]), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.einsum("hij,hjd->hid", weights / weights.sum(-1, keepdims=True), v)


def inputs(queries: int, keys: int, group: int = 1) -> list[Array]:
    draw = np.random.default_rng(queries)
    shapes = ((HEADS, queries), (HEADS // group, keys), (HEADS // group, keys))
    return [draw.standard_normal((*shape, FEATURES), dtype=np.float32) for shape in shapes]


def run(compiled: Any, given: list[Array]) -> Array:
    out = tvm.runtime.tensor(np.full(given[0].shape, np.nan, "float32"))
    compiled["main"](*map(tvm.runtime.tensor, given), out)
    return out.numpy()


def assert_right(found: Array, given: list[Array], shown: Shown | None) -> None:
    usual = reference(*given, shown, dtype="float32")
    tolerance.assert_close(found, reference(*given, shown), usual, length=given[1].shape[1], dtype="float32")


@cache
def symbolic(mask: str) -> Any:
    length = tirx.Var("n", "int64")
    return tvm_cascade.compile(attention(length, length, MASKS[mask]), force=True)


LENGTHS = (*range(1, 131), 197, 257)
EDGES = tuple(n for n in LENGTHS if n <= 17 or n % 16 in (0, 1, 15) or n > 128)
"""Of the lengths, those at and beside whole vectors, blocks and tiles."""


@pytest.mark.parametrize("which", slow_but(["edges"], ["edges", "all"]))
@pytest.mark.parametrize("mask", quick_but(["causal"], MASKS))  # one side of a window
def test_one_function_of_a_symbolic_length_is_right_at_all_of_them(mask: str, which: str) -> None:
    for length in EDGES if which == "edges" else LENGTHS:
        given = inputs(length, length)
        assert_right(run(symbolic(mask), given), given, MASKS[mask])


STATIC = [(17, 17, 1), (31, 577, 1), (77, 77, 2), (100, 521, 1), (197, 197, 1), (5, 601, 2)]


@pytest.mark.parametrize(
    ("queries", "keys", "group"), slow_but([(31, 577, 1), (77, 77, 2), (5, 601, 2)], STATIC)
)  # a long last tile, square, and few rows
@pytest.mark.parametrize("build", [tvm_cascade.compile, compile_unfused], ids=["fused", "unfused"])
def test_static_lengths_are_right(build: Callable[..., Any], queries: int, keys: int, group: int) -> None:
    given = inputs(queries, keys, group)
    options = {"force": True} if build is tvm_cascade.compile else {}
    assert_right(run(build(attention(queries, keys, None, group), **options), given), given, None)


def fused(queries: Any, keys: Any, shown: Shown | None = None) -> tirx.PrimFunc:
    return fuse_function(attention(queries, keys, shown), FuseOptions(force=True)).func


def blocks(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, found.append))
    return found


def is_guarded(block: s_tir.SBlock) -> bool:
    found: list[ir.Call] = []
    tvm_ffi.structural_walk(block.body, (ir.Call, found.append))
    return any(isinstance(call.op, ir.Op) and call.op.name.endswith("if_then_else") for call in found)


def products(func: tirx.PrimFunc) -> list[s_tir.SBlock]:
    """The steps of register tiles: blocks that add products of two loads."""

    def multiplies(block: s_tir.SBlock) -> bool:
        found: list[Any] = []
        tvm_ffi.structural_walk(block.body, (ir.prim.Mul, found.append))
        both = [mul for mul in found if isinstance(mul.a, ir.TensorLoad) and isinstance(mul.b, ir.TensorLoad)]
        return block.name_hint.endswith("_update") and bool(both)

    return [block for block in blocks(func) if multiplies(block)]


@pytest.mark.parametrize("queries, keys", [(577, 577), (77, 521), (tirx.Var("n", "int64"), tirx.Var("m", "int64"))])
def test_no_step_of_a_product_is_guarded(queries: Any, keys: Any) -> None:
    compiled = tvm_cascade.compile(attention(queries, keys), TARGET, force=True, buckets=1)
    steps = products(compiled.mod["main"])
    assert len(steps) == 2, "scores, and what they weigh"
    assert not any(is_guarded(step) for step in steps)


@pytest.mark.parametrize("length", [77, 577, 997, 1500])
def test_rows_are_cut_into_blocks_of_whole_vectors(length: int) -> None:
    compiled = tvm_cascade.compile(attention(length, length), TARGET, force=True)
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(compiled.mod["main"].body, (tirx.For, loops.append), order="pre")
    tasks = next(loop for loop in loops if loop.kind == tirx.ForKind.PARALLEL)
    assert int(tasks.extent) <= HEADS * -(-length // 16)
    assert 16 in {int(loop.extent) for loop in loops if loop.kind == tirx.ForKind.VECTORIZED}


def test_lengths_that_are_whole_stay_as_they_are() -> None:
    func = fused(64, 512)
    assert whole_tiles(func, cpu_of(TARGET)) is func


def test_temporaries_hold_one_tile_of_keys_at_any_length() -> None:
    """Padded copies are made tile by tile: what a loop allocates does not grow with the keys."""

    def bytes_of(keys: int) -> int:
        func = tvm_cascade.compile(attention(48, keys), TARGET, force=True, tile=64).mod["main"]
        lower = [s_tir.transform.LowerInitBlock, s_tir.transform.PlanAndUpdateBufferAllocationLocation]
        lower += [s_tir.transform.ConvertBlocksToOpaque, s_tir.transform.CompactBufferAllocation]
        func = tvm.transform.Sequential([step() for step in lower])(private_copy(func))["main"]
        return sum(int(np.prod([int(e) for e in b.ty.shape])) for block in blocks(func) for b in block.alloc_buffers)

    assert bytes_of(130) == bytes_of(1030)


def test_infinite_values_at_the_last_key_stay_infinite() -> None:
    given = inputs(40, 521)
    given[2][:, -1] = np.inf
    found = run(tvm_cascade.compile(attention(40, 521), force=True), given)
    assert np.isposinf(found).all()


def test_a_condition_of_the_program_itself_is_kept() -> None:
    """Scores that are none under a condition of the program's own: it is no guard of a tile."""
    n, k, v, d = 37, *(te.placeholder((m, FEATURES), "float32", name=x) for m, x in ((521, "k"), (521, "v"))), None
    q = te.placeholder((n, FEATURES), "float32", name="q")
    d = te.reduce_axis((0, FEATURES), "d")
    a, c = te.reduce_axis((0, 521), "a"), te.reduce_axis((0, 521), "c")
    zero = tirx.const(0, "float32")
    scores = te.compute(
        (n, 521), lambda i, j: te.sum(tirx.if_then_else(j > d, q[i, d] * k[j, d], zero), axis=d), name="scores"
    )
    top = te.compute((n,), lambda i: te.max(scores[i, a], axis=a), name="top")
    func = te.create_prim_func(
        [q, k, v, te.compute((n, FEATURES), lambda i, x: te.sum(te.exp(scores[i, c] - top[i]) * v[c, x], axis=c))]
    )
    draw = np.random.default_rng(0)
    given = [draw.standard_normal((m, FEATURES), dtype=np.float32) for m in (n, 521, 521)]
    below = np.arange(521)[:, None] > np.arange(FEATURES)[None]

    def exact(dtype: str) -> Array:
        x, y, z = (array.astype(dtype) for array in given)
        logits = x @ (y * below).T
        return np.exp(logits - logits.max(1, keepdims=True)) @ z

    found = run(tvm_cascade.compile(func, force=True), given)
    tolerance.assert_close(found, exact("float64"), exact("float32"), length=521, dtype="float32")


def product(rows: int, columns: int, depth: int) -> tirx.PrimFunc:
    x = te.placeholder((rows, depth), "float32", name="x")
    y = te.placeholder((columns, depth), "float32", name="y")
    k = te.reduce_axis((0, depth), "k")
    return te.create_prim_func([x, y, te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k))])


@pytest.mark.parametrize("shape", [(577, 577, 24), (131, 40, 7), (16, 197, 33), (97, 15, 8)])
def test_a_product_on_its_own_is_right_at_any_shape(shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal((n, depth), dtype=np.float32) for n in (rows, columns))
    out = tvm.runtime.tensor(np.full((rows, columns), np.nan, "float32"))
    compile_unfused(product(*shape))["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), out)
    tolerance.assert_close(out.numpy(), x.astype("f8") @ y.astype("f8").T, x @ y.T, length=depth, dtype="float32")


def test_a_product_on_its_own_fills_vectors_and_blocks() -> None:
    func = product(577, 577, 24)
    whole = whole_products(func, cpu_of(TARGET))
    extents = {int(e) for b in whole.body.block.alloc_buffers for e in b.ty.shape}
    assert any(extent % 16 == 0 and 577 < extent < 640 for extent in extents)
    plain = product(64, 64, 64)
    assert whole_products(plain, cpu_of(TARGET)) is plain


@pytest.mark.parametrize("columns, whole", [(49, {64, 72}), (196, {200, 208, 216})])
def test_lanes_are_rounded_to_what_register_tiles_divide(columns: int, whole: set[int]) -> None:
    """Not to 56: seven vectors and one row read each vector of a long sum from a far cache for one product."""
    cpu = cpu_of(Target({"kind": "llvm", "mcpu": "znver3"}))
    longer = whole_products(product(320, columns, 1280), cpu)
    (lanes,) = {int(b.ty.shape[-1]) for b in longer.body.block.alloc_buffers if int(b.ty.shape[-1]) != 1280}
    assert lanes in whole


def test_an_operand_that_many_rows_read_lies_in_panels_of_register_tiles() -> None:
    x, y = (te.placeholder(shape, "float32", name=name) for shape, name in (((320, 1280), "x"), ((1280, 196), "y")))
    k = te.reduce_axis((0, 1280), "k")
    func = te.create_prim_func([x, y, te.compute((320, 196), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k))])
    lowered = compile_unfused(func, Target({"kind": "llvm", "mcpu": "znver3", "num-cores": 2})).mod["main"]
    (panels,) = (one.ty.shape for one in lowered.body.block.alloc_buffers if one.name == "y_whole")
    assert len(panels) == 3 and int(panels[2]) in (16, 24, 40)


@pytest.mark.parametrize("batch, rows, columns, terms", [(3, 16, 384, 640), (2, 33, 256, 70), (5, 7, 128, 64)])
def test_weights_that_all_of_a_batch_read_are_packed_once(batch: int, rows: int, columns: int, terms: int) -> None:
    x, w = (te.placeholder(s, "float32", name=n) for s, n in (((batch, rows, terms), "x"), ((columns, terms), "w")))
    k = te.reduce_axis((0, terms), "k")
    out = te.compute((batch, rows, columns), lambda b, i, j: te.sum(x[b, i, k] * w[j, k], axis=k), name="out")
    compiled = compile_unfused(te.create_prim_func([x, w, out]), TARGET)
    tasks: list[set[str]] = []

    def visit(loop: tirx.For) -> None:
        written: set[str] = set()
        tvm_ffi.structural_walk(loop, (tirx.BufferStore, lambda place: written.add(str(place.buffer.name))))
        tasks.extend([written] if loop.kind == tirx.ForKind.PARALLEL else [])

    tvm_ffi.structural_walk(compiled.mod["main"].body, (tirx.For, visit))
    (packing,) = (written for written in tasks if "w_global" in written)
    assert any(name.startswith("out") for name in packing), "where its column is summed"
    draw = np.random.default_rng(0)
    a, b = draw.standard_normal((batch, rows, terms), "float32"), draw.standard_normal((columns, terms), "float32")
    found = tvm.runtime.tensor(np.full((batch, rows, columns), np.nan, "float32"))
    compile_unfused(te.create_prim_func([x, w, out]))(tvm.runtime.tensor(a), tvm.runtime.tensor(b), found)
    exact = a.astype("f8") @ b.astype("f8").T
    tolerance.assert_close(found.numpy(), exact, a @ b.T, length=terms, dtype="float32")
    assert rejects(exact, terms, "float32") == []


def test_another_body_of_a_block_keeps_the_buffers_that_it_allocates() -> None:
    @T.prim_func(s_tir=True)
    def held(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("y"):
                vi = T.axis.spatial(8, i)
                own = T.sblock_alloc_buffer((1,), scope="local")
                own[0] = x[vi]
                y[vi] = own[0]

    block = next(block for block in blocks(held) if block.name_hint == "y")
    (kept,) = replaced(block, block.body, block.init).alloc_buffers
    assert kept.same_as(block.alloc_buffers[0])


def product_of_unknown(lengths: dict[str, int], beside: bool) -> tirx.PrimFunc:
    """x[b, i, k] · y[b, k, j], or y[b, j, k]; lengths that are not given are symbolic."""
    b, m, n, k = (lengths.get(name, te.var(name)) for name in "bmnk")
    x = te.placeholder((b, m, k), "float32", name="x")
    y = te.placeholder((b, k, n) if beside else (b, n, k), "float32", name="y")
    d = te.reduce_axis((0, k), "d")

    def value(h: Any, i: Any, j: Any) -> Any:
        return te.sum(x[h, i, d] * (y[h, d, j] if beside else y[h, j, d]), axis=d)

    return te.create_prim_func([x, y, te.compute((b, m, n), value, name="out")])


UNKNOWN: dict[str, tuple[dict[str, int], bool]] = {
    "rows": ({"b": 1, "n": 50, "k": 24}, False),
    "rows and columns": ({"b": 2, "k": 24}, False),
    "columns": ({"b": 2, "m": 37, "k": 24}, False),
    "depth": ({"b": 2, "m": 24, "n": 32}, True),
    "all": ({}, True),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_product_of_unknown_lengths_has_the_register_tiles_of_known_ones(name: str) -> None:
    func = product_of_unknown(*UNKNOWN[name])
    loops: list[tirx.For] = []

    def within(loop: tirx.For) -> None:
        inner = loop.body.block if isinstance(loop.body, s_tir.SBlockRealize) else None
        loops.extend([loop] if inner is not None and inner.name_hint == "out_update" else [])

    lowered = tvm_cascade.compile(func, TARGET).mod["main"].body
    tvm_ffi.structural_walk(lowered, (tirx.For, within))
    assert [(loop.kind, int(loop.extent)) for loop in loops] == [(tirx.ForKind.VECTORIZED, 16)]
    (told,) = tvm_cascade.explain(func, TARGET).functions
    assert "out: a product in register tiles" in told.lowering


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_product_of_unknown_lengths_is_right_at_the_edges_of_tiles(name: str) -> None:
    lengths, beside = UNKNOWN[name]
    compiled, draw = compile_unfused(product_of_unknown(lengths, beside))["main"], np.random.default_rng(0)
    for one, other in [(0, 7), (1, 1), (5, 0), (11, 33), (12, 32), (13, 31), (48, 65), (97, 16)]:
        at = {"b": 2, "m": one, "n": other, "k": one + other} | lengths
        x = draw.standard_normal((at["b"], at["m"], at["k"]), dtype=np.float32)
        y = draw.standard_normal((at["b"], at["k"], at["n"]), dtype=np.float32)
        out = tvm.runtime.tensor(np.full((at["b"], at["m"], at["n"]), np.nan, "float32"))
        laid = np.ascontiguousarray(y if beside else y.swapaxes(1, 2))
        compiled(tvm.runtime.tensor(x), tvm.runtime.tensor(laid), out)
        tolerance.assert_close(out.numpy(), x.astype("f8") @ y.astype("f8"), x @ y, length=at["k"], dtype="float32")


@T.prim_func(s_tir=True)
def _summed(x: T.Buffer((70, 8), "float32"), o: T.Buffer((8,), "float32")):
    for t, j in T.grid(3, 32):
        for l in T.vectorized(8):  # noqa: E741
            with T.sblock("o"):
                vt, vj, vl = T.axis.remap("RRS", [t, j, l])
                T.reads(x[vt * 32 + vj, vl], o[vl])
                T.writes(o[vl])
                o[vl] = o[vl] + T.if_then_else(vt * 32 + vj < 70, x[vt * 32 + vj, vl], T.float32(0))


def test_a_guard_ends_the_loop_that_it_speaks_of() -> None:
    func = hoist_guards(_summed)
    (block,) = [block for block in blocks(func) if block.name_hint == "o"]
    assert not is_guarded(block)
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, loops.append), order="pre")
    ends = [loop.extent for loop in loops]
    assert not isinstance(ends[1], ir.prim.IntImm), "the loop inside is as long as the tile"
    x = np.random.default_rng(0).standard_normal((70, 8), dtype=np.float32)
    out = tvm.runtime.tensor(np.zeros(8, "float32"))
    tvm.compile(func, target=host_target())["main"](tvm.runtime.tensor(x), out)
    tolerance.assert_close(out.numpy(), x.astype("f8").sum(0), x.sum(0), length=70, dtype="float32")


def test_copies_of_operands_say_so() -> None:
    copies = [
        block
        for block in blocks(whole_tiles(fused(77, 521), cpu_of(TARGET)))
        if block.annotations.get(ROLE) == "operand"
    ]
    assert sorted(block.name_hint for block in copies) == ["k_whole", "q_whole"], "what is weighed is read where it is"


def test_products_beside_a_fused_loop_run_in_whole_tiles() -> None:
    """No block of rows divides 197; a row for each task would read the whole matrix again and again."""
    rows, columns, depth = 197, 64, 32
    x, w = te.placeholder((rows, depth), "float32", name="x"), te.placeholder((columns, depth), "float32", name="w")
    k, a, b = (te.reduce_axis((0, n), name) for n, name in ((depth, "k"), (columns, "a"), (columns, "b")))
    y = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    total = te.compute((rows,), lambda i: te.sum(y[i, a], axis=a), name="total")

    def off(i: Any) -> Any:
        return y[i, b] - total[i] / columns

    spread = te.compute((rows,), lambda i: te.sum(off(i) * off(i), axis=b), name="spread")
    compiled = tvm_cascade.compile(te.create_prim_func([x, w, y, spread]), "llvm", force=True)
    (function,) = compiled.report.functions
    assert "the fused loop" in function.lowering and "x_whole: vectors of" in function.lowering
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(one).astype("float32") for one in ((rows, depth), (columns, depth))]
    found = [np.empty((rows, columns), "float32"), np.empty(rows, "float32")]
    compiled(*given, *found)
    exact = given[0].astype("float64") @ given[1].astype("float64").T
    tolerance.assert_close(found[0], exact, length=depth, dtype="float32")
    tolerance.assert_close(found[1], exact.var(1) * columns, length=columns, dtype="float32")
