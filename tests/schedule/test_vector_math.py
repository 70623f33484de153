"""Vector mathematics: errors, special values, vectorised assembly, and functions that must not change."""

from __future__ import annotations

import functools
import math
import re
from itertools import product

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.target.codegen import llvm_get_system_cpu

import tvm_cascade
from tvm_cascade.evaluate import tolerance
from tvm_cascade.schedule.vector_math import ULP_BOUNDS, VectorMath, powers_as_products, vectorise_math

from ..tiers import slow_but

pytestmark = pytest.mark.usefixtures("optimised")

LENGTH = 1 << 16
GENERIC = ""  # the least CPU of this architecture: on x86-64 it has no fused multiply-add
CPUS = (GENERIC, llvm_get_system_cpu())

REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
}
LEAST_NORMAL, GREATEST = 2.0**-126, float(np.finfo(np.float32).max)
# Arguments whose result is a normal float32 that is not flushed to 0; (dense part, whole domain).
DOMAINS = {
    "exp": ((-20.0, 5.0), (-86.98, 88.72283)),
    "exp2": ((-30.0, 8.0), (-125.49, 127.99999)),
    "log": ((0.5, 2.0), (LEAST_NORMAL * 2.0**-20, GREATEST)),
    "log2": ((0.5, 2.0), (LEAST_NORMAL * 2.0**-20, GREATEST)),
    "tanh": ((-10.0, 10.0), (-GREATEST, GREATEST)),
    "sigmoid": ((-20.0, 20.0), (-87.3, GREATEST)),
    "erf": ((-4.5, 4.5), (-GREATEST, GREATEST)),
}
LIBM_NAMES = {
    "exp": "expf",
    "exp2": "exp2f",
    "log": "logf",
    "log2": "log2f",
    "tanh": "expf",  # TVM lowers tanh and sigmoid to exp
    "sigmoid": "expf",
    "erf": "erff",
}


def elementwise(operator, length=LENGTH, dtype="float32"):
    x = te.placeholder((length,), dtype, name="x")
    y = te.compute((length,), lambda i: operator(x[i]), name="y")
    return te.create_prim_func([x, y]).with_attr("global_symbol", "main")


def vectorised(func, block="y"):
    schedule = s_tir.Schedule(func)
    *_, loop = schedule.get_loops(block)
    _, lanes = schedule.split(loop, [None, 16])
    schedule.vectorize(lanes)
    return schedule.mod["main"]


def build(func, cpu):
    return tvm.compile(func, tvm.target.Target({"kind": "llvm", "mcpu": cpu} if cpu else {"kind": "llvm"}))


@functools.cache
def compiled(name, cpu):
    func, replaced = vectorise_math(elementwise(getattr(tirx, name)))
    assert replaced == (name,)
    return build(vectorised(func), cpu)["main"]


def call(function, x, shape=None):
    y = tvm.runtime.tensor(np.full(shape or x.shape, 123.0, x.dtype))
    function(tvm.runtime.tensor(x), y)
    return y.numpy()


def evaluate(name, cpu, values):
    padded = np.zeros(LENGTH, "float32")
    padded[: len(values)] = values
    return call(compiled(name, cpu), padded)[: len(values)]


def samples(name):
    """Dense arguments, arguments of every exponent, and the ends of the domain with their neighbours."""
    (dense_least, dense_greatest), (least, greatest) = DOMAINS[name]
    random = np.random.default_rng(20)
    dense = random.uniform(dense_least, dense_greatest, LENGTH // 2).astype("float32")
    every = random.integers(0, 2**32, 4 * LENGTH, dtype="uint64").astype("uint32").view("float32")
    whole = np.array([least, greatest], "float32")
    near_ends, near_one = np.nextafter(whole, np.float32(0)), np.nextafter(np.float32(1), whole)
    inside = [part[(part >= least) & (part <= greatest)] for part in (whole, near_ends, near_one, dense, every)]
    return np.concatenate(inside)[:LENGTH]


def ulp_errors(got, expected):
    """Errors in units in the last place that float32 has at the exact result."""
    exponent = np.frexp(expected)[1]
    return np.abs(got.astype("float64") - expected) / np.ldexp(1.0, np.maximum(exponent - 24, -149))


@pytest.mark.parametrize("cpu", CPUS, ids=["generic", "host"])
@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_error_stays_within_the_stated_bound(name, cpu):
    x = samples(name)
    assert len(x) > LENGTH // 2
    errors = ulp_errors(evaluate(name, cpu, x), REFERENCES[name](x.astype("float64")))
    assert errors.max() <= ULP_BOUNDS[name], (x[errors.argmax()], errors.max())


INF, NAN = math.inf, math.nan
SPECIALS = {
    "exp": [(-INF, 0), (INF, INF), (NAN, NAN), (0, 1), (-0.0, 1), (88.73, INF), (1e30, INF), (-88, 0), (-1e30, 0)],
    "exp2": [(-INF, 0), (INF, INF), (NAN, NAN), (0, 1), (-0.0, 1), (128, INF), (1e30, INF), (-127, 0), (-1e30, 0)],
    "log": [(0, -INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (-1e-45, NAN), (INF, INF), (NAN, NAN), (1, 0)],
    "log2": [(0, -INF), (-0.0, -INF), (-1, NAN), (-INF, NAN), (-1e-45, NAN), (INF, INF), (NAN, NAN), (1, 0)],
    "tanh": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (1e30, 1), (-9.5, -1), (1e-45, 1e-45)],
    "sigmoid": [(-INF, 0), (INF, 1), (NAN, NAN), (0, 0.5), (-0.0, 0.5), (-1e30, 0), (1e30, 1)],
    "erf": [(0, 0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (1e30, 1), (-4.5, -1), (1e-45, 1e-45)],
}


@pytest.mark.parametrize("cpu", CPUS, ids=["generic", "host"])
@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_special_values_are_exact(name, cpu):
    x, expected = np.array(SPECIALS[name], "float32").T
    got = evaluate(name, cpu, x)
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_every_nan_gives_nan(name):
    payloads = np.arange(1, 1 << 12, dtype="uint32") * np.uint32(2047)
    x = np.concatenate([payloads | np.uint32(0x7F800000), payloads | np.uint32(0xFF800000)]).view("float32")
    assert np.isnan(x).all()
    assert np.isnan(evaluate(name, CPUS[1], x)).all()


@pytest.mark.parametrize("cpu", CPUS, ids=["generic", "host"])
def test_exp_overflows_and_flushes_where_it_says(cpu):
    last_finite = np.float32(88.72283)
    edges = np.array([last_finite, np.nextafter(last_finite, np.float32(INF)), -86.985, -86.99, -87.3], "float32")
    finite, infinite, least, *_ = got = evaluate("exp", cpu, edges)
    assert np.isfinite(finite) and np.isinf(infinite)
    assert 2.0**-125.5 <= least < 2.0**-125.4
    np.testing.assert_array_equal(got[4:], 0)


@pytest.mark.parametrize("cpu", CPUS, ids=["generic", "host"])
def test_powers_of_two_are_exact(cpu):
    exponents = np.arange(-125, 128).astype("float32")
    np.testing.assert_array_equal(evaluate("exp2", cpu, exponents), np.ldexp(np.float32(1), exponents.astype(int)))
    exponents = np.arange(-149, 128).astype("float32")
    powers = np.ldexp(np.float32(1), exponents.astype(int))
    np.testing.assert_array_equal(evaluate("log2", cpu, powers), exponents)


@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_is_monotone_beyond_its_error(name):
    # Steps wide enough to move the result by far more than the bound: a wrong joint between two pieces would show.
    least, greatest = {"tanh": (-3, 3), "sigmoid": (-15, 5), "erf": (-2, 2), "exp": (-86, 88), "exp2": (-125, 127)}.get(
        name, (0.01, 50)
    )
    x = np.linspace(least, greatest, LENGTH // 2, dtype="float32")
    assert (np.diff(evaluate(name, CPUS[1], x)) > 0).all()


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_functions_are_odd_and_stay_within_one(name):
    x = np.random.default_rng(3).normal(0, 4, LENGTH).astype("float32")
    y = evaluate(name, CPUS[1], x)
    np.testing.assert_array_equal(evaluate(name, CPUS[1], -x), -y)
    assert np.abs(y).max() == 1.0


def assembly(func, cpu):
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": cpu})
    return tvm.compile(func, target).mod.inspect_source("s")


@pytest.mark.parametrize("cpu, register", [("znver3", "ymm"), ("znver4", "zmm")])
@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_compiles_to_vector_instructions_only(name, cpu, register):
    func = elementwise(getattr(tirx, name), 1024)
    libm_call = re.compile(rf"\b{LIBM_NAMES[name]}\b")
    assert libm_call.search(assembly(vectorised(func), cpu))
    ours = assembly(vectorised(vectorise_math(func)[0]), cpu)
    assert not libm_call.search(ours)
    fused = [line for line in ours.splitlines() if re.search(r"\bvf(n?m)(add|sub)\d+ps\b", line)]
    assert len(fused) >= 5 and all(register in line for line in fused)


@pytest.mark.parametrize(
    "operator, dtype",
    [
        (lambda x: x * x + 1.0, "float32"),
        (tirx.sqrt, "float32"),
        (tirx.exp, "float64"),
        (tirx.log, "float64"),
        (tirx.tanh, "float16"),
    ],
)
def test_functions_without_such_calls_are_the_same_object(operator, dtype):
    func = elementwise(operator, 64, dtype)
    result, replaced = vectorise_math(func)
    assert result.same_as(func) and replaced == ()


def test_only_float32_calls_of_a_mixed_function_change():
    func = elementwise(lambda x: tirx.exp(tirx.exp(x).astype("float64")).astype("float32"), 64)
    result, replaced = vectorise_math(func)
    assert replaced == ("exp",)
    assert result.script().count("T.exp(") == 1
    x = np.linspace(-3, 2, 64, dtype="float32")
    found = call(build(result, GENERIC)["main"], x)
    usual = call(build(func, GENERIC)["main"], x)
    tolerance.assert_close(found, np.exp(np.exp(x.astype("f8"))), usual, length=1, dtype="float32")


@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_a_constant_argument_survives_constant_folding(name):
    func = elementwise(lambda x: x + getattr(tirx, name)(tirx.const(0.7, "float32")), 64)
    result, replaced = vectorise_math(func)
    assert replaced == (name,)
    got = call(build(result, GENERIC)["main"], np.zeros(64, "float32"))
    errors = ulp_errors(got, np.broadcast_to(REFERENCES[name](np.float64(np.float32(0.7))), (64,)))
    assert errors.max() <= ULP_BOUNDS[name]


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_rounding_survives_inlining_and_simplification(name):
    # TVM's simplifier turns (x + c) - c into x, which would cancel the rounding of the argument to an integer.
    def inlined(let):
        return tvm_ffi.structural_map(let.body, (tirx.Var, lambda var: let.value if var.same_as(let.var) else var))

    rewritten = vectorise_math(elementwise(getattr(tirx, name), 256))[0]
    func = rewritten.with_body(tvm_ffi.structural_map(rewritten.body, (tirx.Let, inlined)))
    module = s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))
    assert "T.Let(" in rewritten.script() and "T.Let(" not in module.script()
    x = np.linspace(-20, 20, 256, dtype="float32")
    errors = ulp_errors(call(build(module, GENERIC)["main"], x), REFERENCES[name](x.astype("float64")))
    assert errors.max() <= ULP_BOUNDS[name]


def test_does_not_modify_its_argument_and_is_well_formed():
    func = elementwise(lambda x: tirx.log(tirx.exp(x) + tirx.exp(x)), 64)
    before = func.script()
    result, replaced = vectorise_math(func)
    assert replaced == ("exp", "log")
    assert func.script() == before and not tvm_ffi.structural_equal(func, result)
    assert s_tir.analysis.verify_well_formed(result)
    assert vectorise_math(result)[0].same_as(result)


def log_sum_exp():
    x = te.placeholder((32, 128), name="x")
    k = te.reduce_axis((0, 128), name="k")
    e = te.compute((32, 128), lambda i, j: te.exp(x[i, j]), name="e")
    s = te.compute((32,), lambda i: te.sum(e[i, k] + e[i, 127 - k], axis=k), name="s")
    y = te.compute((32,), lambda i: te.log(s[i]), name="y")
    return te.create_prim_func([x, y]).with_attr("global_symbol", "main")


def test_result_can_be_inlined_unrolled_and_split():
    schedule = s_tir.Schedule(vectorise_math(log_sum_exp())[0])
    schedule.compute_inline("e")  # twice into one expression
    _, k = schedule.get_loops("s")
    _, lanes = schedule.split(k, [None, 16])
    partial = schedule.rfactor(lanes, 1)
    i, outer, inner = schedule.get_loops(partial)
    schedule.reorder(i, outer, inner)
    schedule.vectorize(inner)
    schedule.decompose_reduction(partial, outer)
    schedule.unroll(outer)
    x = np.random.default_rng(4).normal(size=(32, 128)).astype("float32")
    got = call(build(schedule.mod, CPUS[1])["main"], x, shape=(32,))
    tolerance.assert_close(got, np.log(2 * np.exp(x.astype("float64")).sum(1)), length=128, dtype="float32")


def test_pass_rewrites_every_function_of_a_module():
    plain = elementwise(lambda x: x + 1.0, 64).with_attr("global_symbol", "plain")
    module = tvm.IRModule({"main": log_sum_exp(), "plain": plain})
    result = VectorMath()(module)
    assert not re.search(r"T\.(exp|log)\(", result["main"].script())
    assert tvm_ffi.structural_equal(result["plain"], module["plain"])
    assert "T.exp(" in module["main"].script()


EXPONENTS = [1, 2, 3, 7, 16, -1, -2, -5]


@pytest.mark.parametrize(
    ("exponent", "dtype"),
    slow_but(
        [
            *((exponent, "float32") for exponent in EXPONENTS),
            (7, "float16"),
            (-2, "float16"),
            (7, "float64"),
            (-2, "float64"),
        ],
        product(EXPONENTS, ["float16", "float32", "float64"]),
    ),
)
def test_whole_powers_are_products_at_the_error_of_these(exponent, dtype):
    func = elementwise(lambda x: tirx.power(x, tirx.const(float(exponent), dtype)), 4096, dtype)
    products = powers_as_products(func)
    assert "T.pow(" in func.script() and "T.pow(" not in products.script()
    x = np.random.default_rng(7).uniform(0.6, 1.6, 4096).astype(dtype) * np.tile([1, -1], 2048).astype(dtype)
    expected = x.astype("longdouble") ** exponent
    errors = np.abs(call(build(products, GENERIC)["main"], x) - expected) / np.abs(expected) / np.finfo(dtype).eps
    assert errors.max() <= (0.51 if dtype == "float16" else (abs(exponent) + 1) / 2)
    special, whole = np.resize(np.array([0.0, -0.0, INF, -INF, NAN, 1.0], dtype), 4096), np.dtype(dtype).type(exponent)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(call(build(products, GENERIC)["main"], special), special**whole)


@pytest.mark.parametrize("exponent", [0.5, 2.5, 17.0, 0.0])
def test_other_powers_stay(exponent):
    func = elementwise(lambda x: tirx.power(x, tirx.const(exponent, "float32")), 64)
    assert powers_as_products(func).script() == func.script()


@pytest.mark.parametrize("build_as", [tvm_cascade.compile, tvm_cascade.compile_unfused])
@pytest.mark.parametrize("vector_math", [True, False])
def test_no_form_calls_the_library_for_a_whole_power(build_as, vector_math):
    """Else a program with powers would gain from fusing what it gains from products."""
    x, j, k = te.placeholder((8, 512), name="x"), te.reduce_axis((0, 512), "j"), te.reduce_axis((0, 512), "k")
    s = te.compute((8,), lambda i: te.sum(x[i, j], axis=j), name="s")
    skew = te.compute((8,), lambda i: te.sum(te.power(x[i, k] - s[i] / 512.0, 3.0), axis=k), name="skew")
    target = {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": "znver4"}
    compiled = build_as(te.create_prim_func([x, s, skew]), target, vector_math=vector_math)
    assert not re.search(r"\bpowf?\b", compiled.runtime_module.mod.inspect_source("s"))
