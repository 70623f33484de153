"""The oracle agrees with direct NumPy float64, whichever front end the program comes from."""

import functools
import math
import operator
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx, topi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_cascade.errors import InputError, OracleError
from tvm_cascade.evaluate.oracle import evaluate, signature

CLOSE = {"rtol": 1e-12, "atol": 1e-13}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _wide(load):
    return load.astype("float32")


def _attention(heads, queries, keys, head_dim, dtype="float32", causal=False):
    q = te.placeholder((heads, queries, head_dim), dtype, "q")
    k = te.placeholder((heads, keys, head_dim), dtype, "k")
    v = te.placeholder((heads, keys, head_dim), dtype, "v")
    d, j0, j1, j2 = (te.reduce_axis((0, extent)) for extent in (head_dim, keys, keys, keys))
    s = te.compute((heads, queries, keys), lambda h, i, j: te.sum(_wide(q[h, i, d]) * _wide(k[h, j, d]), d), "s")
    if causal:
        full, low = s, tirx.min_value("float32")
        s = te.compute(full.shape, lambda h, i, j: tirx.if_then_else(j <= i, full[h, i, j], low), "masked")
    m = te.compute((heads, queries), lambda h, i: te.max(s[h, i, j0], j0), "m")
    p = te.compute(s.shape, lambda h, i, j: te.exp(s[h, i, j] - m[h, i]), "p")
    total = te.compute((heads, queries), lambda h, i: te.sum(p[h, i, j1], j1), "l")
    pv = te.compute((heads, queries, head_dim), lambda h, i, e: te.sum(p[h, i, j2] * _wide(v[h, j2, e]), j2), "pv")
    o = te.compute(pv.shape, lambda h, i, e: (pv[h, i, e] / total[h, i]).astype(dtype), "o")
    return te.create_prim_func([q, k, v, o])


def _softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _normal_cdf(x):
    return 0.5 + 0.5 * np.vectorize(math.erf)(x)


def _numpy_attention(q, k, v, causal=False):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = q @ k.swapaxes(-1, -2)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return _softmax(scores) @ v


def _qkv(rng, heads, queries, keys, head_dim, dtype="float32"):
    shapes = ((heads, queries, head_dim), (heads, keys, head_dim), (heads, keys, head_dim))
    return [rng.standard_normal(shape).astype(np.dtype(dtype)) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(rng, causal, dtype):
    arrays = _qkv(rng, 2, 17, 23, 8, dtype)
    outputs = evaluate(_attention(2, 17, 23, 8, dtype, causal), arrays)
    assert list(outputs) == ["o"]
    assert outputs["o"].dtype == np.float64
    np.testing.assert_allclose(outputs["o"], _numpy_attention(*arrays, causal), **CLOSE)


def test_attention_never_builds_the_product_grid(rng):
    func = _attention(8, 512, 512, 64, causal=True)
    arrays = _qkv(rng, 8, 512, 512, 64)
    tracemalloc.start()
    outputs = evaluate(func, arrays)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 8 * 512 * 512 * 64 * np.dtype(np.float64).itemsize / 4
    np.testing.assert_allclose(outputs["o"], _numpy_attention(*arrays, causal=True), **CLOSE)


def test_topi_softmax(rng):
    x = te.placeholder((5, 33), "float32", "x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    array = rng.standard_normal((5, 33)).astype(np.float32)
    (out,) = evaluate(func, [array]).values()
    np.testing.assert_allclose(out, _softmax(array.astype(np.float64)), **CLOSE)


def test_variance_does_not_cancel_and_intermediates_are_returned(rng):
    n = 257
    x = te.placeholder((3, n), "float32", "x")
    k0, k1 = te.reduce_axis((0, n)), te.reduce_axis((0, n))
    mean = te.compute((3,), lambda i: te.sum(x[i, k0] / tirx.const(n, "float32"), k0), "mean")
    square = te.compute((3, n), lambda i, j: (x[i, j] - mean[i]) * (x[i, j] - mean[i]), "square")
    variance = te.compute((3,), lambda i: te.sum(square[i, k1] / tirx.const(n, "float32"), k1), "variance")
    array = (1000 + rng.standard_normal((3, n))).astype(np.float32)
    outputs = evaluate(te.create_prim_func([x, mean, variance]), [array])
    np.testing.assert_allclose(outputs["mean"], array.astype(np.float64).mean(axis=1), **CLOSE)
    np.testing.assert_allclose(outputs["variance"], array.astype(np.float64).var(axis=1), rtol=1e-10)


@I.ir_module
class _Relax:
    @R.function
    def main(
        q: R.Tensor((2, 9, 3, 8), "float32"),
        k: R.Tensor((2, 11, 3, 8), "float32"),
        v: R.Tensor((2, 11, 3, 8), "float32"),
        x: R.Tensor((4, 40), "float32"),
        gamma: R.Tensor((40,), "float32"),
        beta: R.Tensor((40,), "float32"),
        y: R.Tensor((4, 40), "float16"),
    ):
        with R.dataflow():
            attention = R.nn.attention(q, k, v)
            layer_norm = R.nn.layer_norm(x, gamma, beta, axes=[-1])
            argmax = R.argmax(x, axis=1)
            gelu = R.nn.gelu(y)
            R.output(attention, layer_norm, argmax, gelu)
        return (attention, layer_norm, argmax, gelu)


@pytest.fixture(scope="module")
def legalized():
    module = relax.transform.LegalizeOps()(_Relax)
    return {var.name_hint: func for var, func in module.functions.items() if isinstance(func, tirx.PrimFunc)}


def test_relax_attention(legalized, rng):
    arrays = [rng.standard_normal((2, n, 3, 8)).astype(np.float32) for n in (9, 11, 11)]
    (out,) = evaluate(legalized["attention"], arrays).values()
    q, k, v = (array.astype(np.float64).swapaxes(1, 2) for array in arrays)
    expected = (_softmax(q @ k.swapaxes(-1, -2) / np.sqrt(8.0)) @ v).swapaxes(1, 2)
    np.testing.assert_allclose(out, expected, **CLOSE)


def test_relax_layer_norm(legalized, rng):
    x, gamma, beta = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 40), (40,), (40,)))
    (out,) = evaluate(legalized["layer_norm"], [x, gamma, beta]).values()
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(axis=1, keepdims=True) + np.float64(np.float32(1e-5)))
    expected = (wide - wide.mean(axis=1, keepdims=True)) / deviation * gamma + beta
    np.testing.assert_allclose(out, expected, **CLOSE)


def test_relax_argmax_takes_the_first_of_equals(legalized, rng):
    x = rng.integers(-2, 3, (4, 40)).astype(np.float32)
    (out,) = evaluate(legalized["argmax"], [x]).values()
    assert out.dtype == np.int64
    np.testing.assert_array_equal(out, x.argmax(axis=1))


def test_casts_between_floats_are_the_identity_unless_rounding(legalized, rng):
    y = rng.standard_normal((4, 40)).astype(np.float16)
    (exact,) = evaluate(legalized["gelu"], [y]).values()
    (rounded,) = evaluate(legalized["gelu"], [y], rounding=True).values()
    normal_cdf = _normal_cdf(y.astype(np.float64) * np.float64(np.float16(np.sqrt(0.5))))
    np.testing.assert_allclose(exact, y * normal_cdf, **CLOSE)
    np.testing.assert_array_equal(rounded, rounded.astype(np.float16))
    assert 1e-5 < np.abs(rounded - exact).max() < 4e-3


def test_rounding_gives_what_the_compiled_program_gives(rng):
    func = _attention(2, 17, 23, 8, "bfloat16")
    arrays = _qkv(rng, 2, 17, 23, 8, "bfloat16")
    out = tvm.runtime.tensor(np.zeros((2, 17, 8), ml_dtypes.bfloat16))
    tvm.compile(func, "llvm")["main"](*(tvm.runtime.tensor(array) for array in arrays), out)
    rounded = evaluate(func, arrays, rounding=True)["o"]
    np.testing.assert_array_equal(rounded, rounded.astype(ml_dtypes.bfloat16).astype(np.float64))
    # They may fall on either side of a tie, so a last bit may differ, but hardly ever does.
    assert (out.numpy().astype(np.float64) == rounded).mean() > 0.98


@T.prim_func(s_tir=True)
def _masks(A: T.Buffer((4, 8), "int32"), M: T.Buffer((4, 8), "bool"), C: T.Buffer((4,), "int32"),
           E: T.Buffer((4,), "bool"), N: T.Buffer((4,), "bool"), L: T.Buffer((4,), "int32")):  # fmt: skip
    for i, k in T.grid(4, 8):
        with T.sblock("count"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + T.Cast("int32", M[vi, vk] and A[vi, vk] % 3 == 1)
    for i, k in T.grid(4, 8):
        with T.sblock("every"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                E[vi] = T.bool(True)
            E[vi] = E[vi] and (not M[vi, vk] or A[vi, vk] > -9)
    for i, k in T.grid(4, 8):
        with T.sblock("any"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                N[vi] = T.bool(False)
            N[vi] = N[vi] or (M[vi, vk] and A[vi, vk] // 4 == -2)
    for i, k in T.grid(4, 8):
        with T.sblock("least"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                L[vi] = T.max_value("int32")
            L[vi] = T.min(L[vi], T.Select(M[vi, vk], A[vi, vk], T.max_value("int32")))


def test_integers_and_booleans_keep_their_dtypes(rng):
    a, mask = rng.integers(-10, 10, (4, 8)).astype(np.int32), rng.random((4, 8)) < 0.5
    mask[2] = False
    outputs = evaluate(_masks, [a, mask])
    assert {name: array.dtype.name for name, array in outputs.items()} == {
        "C": "int32",
        "E": "bool",
        "N": "bool",
        "L": "int32",
    }
    np.testing.assert_array_equal(outputs["C"], (mask & (a % 3 == 1)).sum(axis=1))
    np.testing.assert_array_equal(outputs["E"], (~mask | (a > -9)).all(axis=1))
    np.testing.assert_array_equal(outputs["N"], (mask & (a // 4 == -2)).any(axis=1))
    np.testing.assert_array_equal(outputs["L"], np.where(mask, a, np.iinfo(np.int32).max).min(axis=1))


@T.prim_func(s_tir=True)
def _online(X: T.Buffer((3, 20), "float32"), S: T.Buffer((3,), "float32"), Y: T.Buffer((3, 10), "float32")):
    state = T.sblock_alloc_buffer((3, 2), "float32")
    for i, k in T.grid(3, 20):
        with T.sblock("online"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                state[vi, 0] = T.min_value("float32")
                state[vi, 1] = T.float32(0)
            moved: T.let[T.float32] = T.max(state[vi, 0], X[vi, vk])
            total: T.let[T.float32] = state[vi, 1] * T.exp(state[vi, 0] - moved) + T.exp(X[vi, vk] - moved)
            state[vi, 0] = moved
            state[vi, 1] = total
    for i in range(3):
        with T.sblock("logsumexp"):
            vi = T.axis.spatial(3, i)
            S[vi] = state[vi, 0] + T.log(state[vi, 1])
    for i, j in T.grid(3, 10):
        with T.sblock("window"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T.if_then_else(vj >= 2, X[vi, 2 * vj - 3], T.float32(-1)) + X[2 - vi, vj // 3 * 3]


def test_tvmscript_with_lets_a_tuple_state_and_computed_indices(rng):
    x = rng.standard_normal((3, 20)).astype(np.float32)
    outputs = evaluate(_online, [x])
    np.testing.assert_allclose(outputs["S"], np.log(np.exp(x.astype(np.float64)).sum(axis=1)), **CLOSE)
    j = np.arange(10)
    expected = np.where(j >= 2, x.astype(np.float64)[:, 2 * j - 3], -1.0) + x[::-1].astype(np.float64)[:, j // 3 * 3]
    np.testing.assert_array_equal(outputs["Y"], expected)


@pytest.mark.parametrize("hole", [range(0, 5), range(5, 12), range(15, 20)])
def test_a_part_of_the_axis_that_is_left_out_is_missing_from_every_kind_of_reduction(rng, hole):
    x = rng.standard_normal((3, 20)).astype(np.float32)
    kept = np.delete(x.astype(np.float64), hole, axis=1)
    (k,) = _reduction_variables(_online)
    outputs = evaluate(_online, [x], left_out={k: hole})
    np.testing.assert_allclose(outputs["S"], np.log(np.exp(kept).sum(axis=1)), **CLOSE)
    np.testing.assert_array_equal(outputs["Y"], evaluate(_online, [x])["Y"])

    a, j, k = te.placeholder((3, 20), "float32", "a"), te.reduce_axis((0, 20)), te.reduce_axis((0, 20))
    total = te.compute((3,), lambda i: te.sum(a[i, j], j), "s")
    largest = te.compute((3,), lambda i: te.max(a[i, k], k), "m")
    func = te.create_prim_func([a, total, largest])
    outputs = evaluate(func, [x], left_out=dict.fromkeys(_reduction_variables(func), hole))
    np.testing.assert_allclose(outputs["s"], kept.sum(axis=1), **CLOSE)
    np.testing.assert_allclose(outputs["m"], kept.max(axis=1), **CLOSE)


@pytest.mark.parametrize("operation", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_reductions_bit_by_bit(rng, operation, dtype):
    x, k = te.placeholder((3, 20), dtype, "x"), te.reduce_axis((0, 20))
    start = tirx.const(-1 if operation == "bitwise_and" and dtype == "int32" else operation == "bitwise_and", dtype)
    combine = te.comm_reducer(lambda a, b: getattr(tirx, operation)(a, b), lambda _: start, name="bits")
    data = rng.integers(0, 2 if dtype == "bool" else 1000, (3, 20)).astype(dtype)
    found = evaluate(te.create_prim_func([x, te.compute((3,), lambda i: combine(x[i, k], axis=k), "out")]), [data])
    np.testing.assert_array_equal(found["out"], getattr(np, operation).reduce(data, axis=1))


def _reduction_variables(func):
    found = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, lambda block: found.extend(block.iter_vars)))
    return [one.var for one in found if one.iter_type == tirx.IterVar.CommReduce]


@T.prim_func(s_tir=True)
def _updates_in_place(X: T.Buffer((3, 5), "float32"), Y: T.Buffer((3, 5), "float32")):
    for i, k in T.grid(3, 5):
        with T.sblock("fill"):
            vi, vk = T.axis.remap("SS", [i, k])
            Y[vi, vk] = T.float32(1)
    for i, k in T.grid(3, 5):
        with T.sblock("update"):
            vi, vk = T.axis.remap("SR", [i, k])
            Y[vi, vk] = Y[vi, vk] + X[vi, vk]


def test_an_update_of_each_element_is_not_mistaken_for_a_sum(rng):
    x = rng.standard_normal((3, 5)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(_updates_in_place, [x])["Y"], 1.0 + x.astype(np.float64))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (tirx.rsqrt, lambda x: x**-0.5),
        (tirx.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
        (tirx.tanh, np.tanh),
        (tirx.log, np.log),
        (tirx.round, np.rint),
        (tirx.floor, np.floor),
        (tirx.abs, np.abs),
        (lambda x: tirx.power(x, x), lambda x: x**x),
        (lambda x: tirx.Select(tirx.isnan(x), tirx.const(0.0, "float32"), x), lambda x: x),
        (lambda x: tirx.Cast("float32", tirx.Cast("int32", -x)), lambda x: np.trunc(-x)),
        (lambda x: tirx.max(x, tirx.const(1.0, "float32")) / tirx.sqrt(x), lambda x: np.maximum(x, 1) / np.sqrt(x)),
    ],
)
def test_scalar_functions(rng, build, expected):
    x = te.placeholder((64,), "float32", "x")
    array = rng.uniform(0.1, 4.0, 64).astype(np.float32)
    array[:4] = 0.5, 1.5, 2.5, 3.5
    func = te.create_prim_func([x, te.compute((64,), lambda i: build(x[i]), "y")])
    out = evaluate(func, [array])["y"]
    np.testing.assert_allclose(out, expected(array.astype(np.float64)), **CLOSE)


def _sum_of_products(extent, factors, reduced):
    """out[a, b] = the sum over the axes `reduced` of the product of one load for each string of axes in `factors`."""
    loads = [te.placeholder([extent[axis] for axis in axes], "float32", f"t{k}") for k, axes in enumerate(factors)]
    reduce_axes = {axis: te.reduce_axis((0, extent[axis]), axis) for axis in reduced}

    def total(a, b):
        point = {"a": a, "b": b, **reduce_axes}
        terms = [load[tuple(point[axis] for axis in axes)] for load, axes in zip(loads, factors, strict=True)]
        return te.sum(functools.reduce(operator.mul, terms), list(reduce_axes.values()))

    return te.create_prim_func([*loads, te.compute((extent["a"], extent["b"]), total, "out")])


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize(
    "factors",
    [
        ["ac", "cb"],
        ["acd", "bdc"],
        ["abcd"],
        ["ac", "bc", "c"],
        ["a", "bc", "d"],
        ["ac", "bd"],
        ["ab", "ab"],
        ["c", "d"],
    ],
)
def test_sums_of_products(rng, factors, d):
    extent = {"a": 3, "b": 4, "c": 5, "d": d}
    arrays = [rng.standard_normal([extent[axis] for axis in axes]).astype(np.float32) for axes in factors]
    out = evaluate(_sum_of_products(extent, factors, "cd"), arrays)["out"]
    every_axis = np.ones(list(extent.values()))
    operands = [array.astype(np.float64) for array in arrays]
    expected = np.einsum(",".join([*factors, "abcd"]) + "->ab", *operands, every_axis)
    np.testing.assert_allclose(out, expected, **CLOSE)


def test_a_factor_outside_the_sum_stays_inside_it():
    """The sum of inf·2 and inf·(−1) is NaN, although inf times their sum is not."""
    func = _sum_of_products({"a": 2, "b": 2, "c": 2}, ["a", "bc"], "c")
    scale, terms = np.array([np.inf, 1.0], np.float32), np.array([[2.0, -1.0], [1.0, 1.0]], np.float32)
    out = evaluate(func, [scale, terms])["out"]
    np.testing.assert_array_equal(out, [[np.nan, np.inf], [1.0, 2.0]])


def test_domains_larger_than_memory_allows_are_evaluated_in_boxes(rng, monkeypatch):
    monkeypatch.setattr("tvm_cascade.evaluate.oracle._POINTS", 50)
    arrays = _qkv(rng, 2, 17, 23, 8)
    out = evaluate(_attention(2, 17, 23, 8, causal=True), arrays)["o"]
    np.testing.assert_allclose(out, _numpy_attention(*arrays, causal=True), **CLOSE)


def test_an_empty_sum_is_its_identity():
    x = te.placeholder((4, 0), "float32", "x")
    k0, k1 = te.reduce_axis((0, 0)), te.reduce_axis((0, 0))
    total = te.compute((4,), lambda i: te.sum(x[i, k0], k0), "total")
    top = te.compute((4,), lambda i: te.max(x[i, k1], k1), "top")
    outputs = evaluate(te.create_prim_func([x, total, top]), [np.zeros((4, 0), np.float32)])
    np.testing.assert_array_equal(outputs["total"], np.zeros(4))
    np.testing.assert_array_equal(outputs["top"], np.full(4, np.finfo(np.float32).min))


def test_a_fully_masked_row_gives_what_the_program_gives(rng):
    x = te.placeholder((2, 8), "float32", "x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    array = rng.standard_normal((2, 8)).astype(np.float32)
    array[0] = -np.inf
    compiled = tvm.runtime.tensor(np.zeros((2, 8), np.float32))
    tvm.compile(func, "llvm")["main"](tvm.runtime.tensor(array), compiled)
    (out,) = evaluate(func, [array]).values()
    np.testing.assert_array_equal(np.isnan(out), np.isnan(compiled.numpy()))


def test_the_signature_splits_the_parameters():
    params = signature(_masks)
    assert [param.name for param in params.inputs] == ["A", "M"]
    assert [param.name for param in params.outputs] == ["C", "E", "N", "L"]


def test_the_inputs_are_left_as_they_were(rng):
    x = rng.standard_normal((3, 20)).astype(np.float64)
    before = x.copy()
    evaluate(_online, [x])
    np.testing.assert_array_equal(x, before)


def _elementwise(expression):
    x = te.placeholder((8,), "float32", "x")
    return te.create_prim_func([x, te.compute((8,), lambda i: expression(x, i), "y")])


def test_an_unknown_intrinsic_is_named():
    func = _elementwise(lambda x, i: tirx.call_intrin("float32", "tirx.nextafter", x[i], x[i]))
    with pytest.raises(OracleError, match="nextafter") as error:
        evaluate(func, [np.zeros(8, np.float32)])
    assert error.value.where == "block `y`"


def test_a_read_outside_a_buffer_is_an_error_only_where_it_is_made():
    array = np.arange(8, dtype=np.float32)
    guarded = _elementwise(lambda x, i: tirx.if_then_else(i > 0, x[i - 1], tirx.const(9, "float32")))
    np.testing.assert_array_equal(evaluate(guarded, [array])["y"], [9, *range(7)])
    with pytest.raises(OracleError, match=r"index of `x` in \[0, 8\)"):
        evaluate(_elementwise(lambda x, i: x[i - 1]), [array])


def test_a_scheduled_function_is_refused():
    schedule = tvm.s_tir.Schedule(_elementwise(lambda x, i: x[i] * x[i]))
    (loop,) = schedule.get_loops(schedule.get_sblock("y"))
    schedule.split(loop, [2, 4])
    with pytest.raises(OracleError, match="unscheduled") as error:
        evaluate(schedule.mod["main"], [np.zeros(8, np.float32)])
    assert error.value.where == "block `y`"


def test_several_blocks_in_one_loop_are_refused():
    schedule = tvm.s_tir.Schedule(te.create_prim_func(_chain()))
    schedule.compute_at(schedule.get_sblock("first"), schedule.get_loops(schedule.get_sblock("second"))[0])
    with pytest.raises(OracleError, match="unscheduled"):
        evaluate(schedule.mod["main"], [np.zeros((4, 8), np.float32)])


def _chain():
    x = te.placeholder((4, 8), "float32", "x")
    first = te.compute((4, 8), lambda i, j: te.exp(x[i, j]), "first")
    return [x, te.compute((4, 8), lambda i, j: first[i, j] + x[i, j], "second")]


def test_symbolic_shapes_are_refused():
    n = te.var("n")
    x = te.placeholder((n,), "float32", "x")
    func = te.create_prim_func([x, te.compute((n,), lambda i: x[i] + x[i], "y")])
    with pytest.raises(OracleError, match="static"):
        evaluate(func, [np.zeros(8, np.float32)])


def test_a_function_without_blocks_is_refused():
    func = _elementwise(lambda x, i: x[i] + x[i]).with_body(tirx.Evaluate(0))
    with pytest.raises(OracleError, match="root block"):
        evaluate(func, [np.zeros(8, np.float32)])


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ([], "0"),
        ([np.zeros(9, np.float32)], r"shape \(9,\)"),
        ([np.zeros(8, np.int32)], "int32"),
    ],
)
def test_arrays_have_to_fit(inputs, found):
    with pytest.raises(InputError, match=found):
        evaluate(_elementwise(lambda x, i: x[i] + x[i]), inputs)


def test_a_module_is_not_a_function():
    with pytest.raises(InputError, match="PrimFunc"):
        evaluate(tvm.IRModule(), [])


def test_what_the_caller_left_in_an_output_is_not_known():
    @T.prim_func(s_tir=True)
    def in_place(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("y"):
                v = T.axis.spatial(8, i)
                y[v] = y[v] + x[v]

    with pytest.raises(OracleError, match="written before they are read"):
        evaluate(in_place, [np.zeros(8, np.float32)])
