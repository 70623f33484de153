"""bfloat16 on a CPU: rounded wherever the program says so, to nearest, and computed in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import relax, s_tir, te, tirx

import tvm_cascade
from tvm_cascade.devices.host import host_target
from tvm_cascade.evaluate import tolerance
from tvm_cascade.schedule.vector_math import ULP_BOUNDS, vectorise_math
from tvm_cascade.tvm_faults.bfloat16 import lower_bfloat16

from ..tiers import slow_but

LENGTH = 256
EXACT: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
}
NARROW = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def elementwise(source: str, element: Callable[[tirx.Expr], tirx.Expr], length: int = LENGTH) -> tirx.PrimFunc:
    x = te.placeholder((length,), source, name="x")
    return te.create_prim_func([x, te.compute((length,), lambda i: element(x[i]), name="y")])


def result(compiled: Callable[..., object], dtype: str, *inputs: NDArray[np.generic]) -> NDArray[np.generic]:
    written = tvm.runtime.tensor(np.full(inputs[0].shape, 7, NARROW.get(dtype, dtype)))
    compiled(*(tvm.runtime.tensor(array) for array in inputs), written)
    return written.numpy()


def assert_rounded(found: NDArray[np.generic], exact: NDArray[np.float64], ulps: float) -> None:
    """That what was found is a float32 within some ulp of the exact values, rounded to nearest in the dtype found."""
    ends = [exact * (1 + sign * ulps * 2.0**-23) for sign in (-1, 1)]
    least, greatest = np.sort([end.astype("float32").astype(found.dtype).astype("float64") for end in ends], axis=0)
    assert np.all((found.astype("float64") >= least) & (found.astype("float64") <= greatest))


@pytest.mark.parametrize(
    ("name", "dtype"),
    # Every function, and every dtype: what rounds a result knows of no function.
    slow_but(
        [*((name, "bfloat16") for name in ULP_BOUNDS), *(("exp", dtype) for dtype in NARROW), ("erf", "float8_e5m2")],
        product(ULP_BOUNDS, NARROW),
    ),
)
def test_the_result_of_a_function_is_rounded_to_nearest(name: str, dtype: str) -> None:
    func = elementwise("float32", lambda x: getattr(tirx, name)(x).astype(dtype))
    compiled = tvm_cascade.compile(func)
    assert list(compiled.replaced_math) == [name]
    x = np.linspace(0.05, 5, LENGTH, dtype="float32")
    assert_rounded(result(compiled, dtype, x), EXACT[name](x.astype("float64")), ULP_BOUNDS[name])


@pytest.mark.parametrize("name", ULP_BOUNDS)
def test_a_function_of_bfloat16_is_that_of_float32_rounded(name: str) -> None:
    compiled = tvm_cascade.compile(elementwise("bfloat16", getattr(tirx, name)))
    assert list(compiled.replaced_math) == [name]
    x = np.linspace(0.05, 5, LENGTH).astype(ml_dtypes.bfloat16)
    assert_rounded(result(compiled, "bfloat16", x), EXACT[name](x.astype("float64")), ULP_BOUNDS[name])


@pytest.mark.parametrize("vector_math", [True, False])
def test_every_bfloat16_is_written_as_it_was_read(vector_math: bool) -> None:
    stored = np.arange(1 << 16, dtype="uint16").view(ml_dtypes.bfloat16)
    compiled = tvm_cascade.compile(
        elementwise("bfloat16", lambda x: (x.astype("float32") * 1.0).astype("bfloat16"), 1 << 16),
        vector_math=vector_math,
    )
    found = result(compiled, "bfloat16", stored)
    numbers = ~np.isnan(stored.astype("float32"))
    np.testing.assert_array_equal(found.view("uint16")[numbers], stored.view("uint16")[numbers])
    assert np.isnan(found[~numbers].astype("float32")).all()


def test_every_float32_is_rounded_to_nearest_even_and_nan_stays_nan() -> None:
    upper = np.arange(1 << 16, dtype="uint32").repeat(4) << np.uint32(16)
    x = (upper | np.tile(np.array([1, 0x7FFF, 0x8000, 0xFFFF], "uint32"), 1 << 16)).view("float32")
    compiled = tvm_cascade.compile(elementwise("float32", lambda x: x.astype("bfloat16"), len(x)))
    found = result(compiled, "bfloat16", x)
    assert np.isnan(found[np.isnan(x)].astype("float32")).all()
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = x.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(found[~np.isnan(x)].view("uint16"), rounded[~np.isnan(x)].view("uint16"))


@pytest.mark.parametrize("function", [lambda x: x, tirx.exp])
def test_a_value_that_only_passes_through_is_rounded(function: Callable[[tirx.Expr], tirx.Expr]) -> None:
    compiled = tvm_cascade.compile(
        elementwise("float32", lambda x: function((x * x).astype("bfloat16").astype("float32")))
    )
    x = np.linspace(-3, 3, LENGTH, dtype="float32")
    passed = (x * x).astype(ml_dtypes.bfloat16).astype("float64")
    exact, ulps = (np.exp(passed), ULP_BOUNDS["exp"]) if function is tirx.exp else (passed, 0)
    assert_rounded(result(compiled, "float32", x), exact, ulps)


def _bf16(value: float) -> tirx.Expr:
    return tirx.const(value, "bfloat16")


B16 = ml_dtypes.bfloat16

# Each with the same in NumPy, whose bfloat16 is rounded after every operation.
ARITHMETIC = {
    "sum and product": (lambda x: x * x + x, lambda x: x * x + x),
    "quotient": (lambda x: x / (x * x + _bf16(1)), lambda x: x / (x * x + ml_dtypes.bfloat16(1))),
    "extrema": (lambda x: tirx.max(tirx.min(x + x, _bf16(0.3)), x), lambda x: np.maximum(np.minimum(x + x, 0.3), x)),
    "selection": (lambda x: tirx.Select(x < _bf16(0.5), x, x + x), lambda x: np.where(x < 0.5, x, x + x)),
    "lazy": (lambda x: tirx.if_then_else(x < _bf16(0.5), x, x + x), lambda x: np.where(x < 0.5, x, x + x)),
    "square root": (lambda x: tirx.sqrt(x * x), lambda x: np.sqrt(x * x)),
    "lazy chain of three": (
        lambda x: tirx.if_then_else(x < _bf16(0.5), (x * _bf16(3) + _bf16(1)) * _bf16(0.3), x),
        lambda x: np.where(x < 0.5, (x * B16(3) + B16(1)) * B16(0.3), x),
    ),
    "lazy chain": (
        lambda x: tirx.if_then_else(x < _bf16(0.5), ((x * _bf16(3) + _bf16(1)) * _bf16(0.3) - _bf16(2)) * _bf16(7), x),
        lambda x: np.where(x < 0.5, ((x * B16(3) + B16(1)) * B16(0.3) - B16(2)) * B16(7), x),
    ),
    "integer": (lambda x: x.astype("int32").astype("bfloat16") + x, lambda x: np.trunc(x) + x),
}


@pytest.mark.parametrize("program", ARITHMETIC)
def test_arithmetic_in_bfloat16_is_rounded_after_every_operation(program: str) -> None:
    ours, numpy = ARITHMETIC[program]
    x = np.random.default_rng(0).normal(0, 3, LENGTH).astype(ml_dtypes.bfloat16)
    found = result(tvm_cascade.compile(elementwise("bfloat16", ours)), "bfloat16", x)
    np.testing.assert_array_equal(found, numpy(x).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("program", slow_but([one for one in ARITHMETIC if one != "lazy chain"], ARITHMETIC))
def test_arithmetic_in_bfloat16_inside_an_argument(program: str) -> None:
    """Where the argument stands in a let, whose value TVM does not lower: of five roundings in a half a minute."""
    ours, numpy = ARITHMETIC[program]
    func = elementwise("bfloat16", lambda x: tirx.tanh(ours(x).astype("float32")))
    replaced, names = vectorise_math(func)
    assert names == ("tanh",)
    x = np.random.default_rng(0).normal(0, 3, LENGTH).astype(ml_dtypes.bfloat16)
    found = result(tvm.compile(replaced, target=host_target())["main"], "float32", x)
    argument = numpy(x).astype(ml_dtypes.bfloat16).astype("float64")
    assert_rounded(found, np.tanh(argument), ULP_BOUNDS["tanh"])


def test_one_value_for_all_lanes_of_a_vector() -> None:
    x = te.placeholder((4,), "bfloat16", name="x")
    constant = te.compute((4, 64), lambda i, j: tirx.const(-3.14, "bfloat16"), name="constant")
    spread = te.compute((4, 64), lambda i, j: x[i] * tirx.const(0.3, "bfloat16"), name="spread")
    schedule = s_tir.Schedule(te.create_prim_func([x, constant, spread]))
    for name in ("constant", "spread"):
        schedule.vectorize(schedule.get_loops(name)[1])
    func = lower_bfloat16(schedule.mod["main"])
    assert func is not None
    given = np.array([1.5, -7, 0, 300], ml_dtypes.bfloat16)
    found = [tvm.runtime.tensor(np.zeros((4, 64), ml_dtypes.bfloat16)) for _ in range(2)]
    tvm.compile(func, target=host_target())(tvm.runtime.tensor(given), *found)
    assert (found[0].numpy() == ml_dtypes.bfloat16(-3.14)).all()
    assert (found[1].numpy() == (given * ml_dtypes.bfloat16(0.3))[:, None]).all()


def test_a_function_without_bfloat16_is_the_same_object() -> None:
    func = elementwise("float32", tirx.exp)
    assert lower_bfloat16(func).same_as(func)


def test_what_is_not_known_to_be_arithmetic_is_left_to_tvm() -> None:
    def element(x: tirx.Expr) -> tirx.Expr:
        return tirx.exp(tirx.call_extern("bfloat16", "next", x).astype("float32"))

    func = elementwise("bfloat16", element)
    assert lower_bfloat16(func) is None
    assert vectorise_math(func)[0].same_as(func)


def softmax(x: NDArray[np.generic]) -> NDArray[np.float64]:
    exponentials = np.exp(x.astype("float64") - x.astype("float64").max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_a_relax_softmax_in_float32_of_bfloat16() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 640), "bfloat16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            wide = builder.emit(relax.op.nn.softmax(relax.op.astype(x, "float32"), axis=-1))
            output = builder.emit_output(relax.op.astype(wide, "bfloat16"))
        builder.emit_func_output(output)
    passes = ("LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR")
    module = tvm.ir.transform.Sequential([getattr(relax.transform, name)() for name in passes])(builder.get())
    fused = tvm_cascade.FuseCascadedReductions(force=True)(module)
    machine = relax.VirtualMachine(tvm.compile(fused, target=host_target()), tvm.cpu())
    given = np.random.default_rng(0).normal(0, 3, (8, 640)).astype(ml_dtypes.bfloat16)
    tolerance.assert_close(
        machine["main"](tvm.runtime.tensor(given)).numpy(), softmax(given), length=640, dtype="bfloat16"
    )
    (stored,) = (name.name_hint for name in module.get_global_vars() if "softmax" in name.name_hint)
    compiled = tvm_cascade.compile(module[stored], force=True)
    assert compiled.report.fused and list(compiled.replaced_math) == ["exp"]
    found = result(compiled, "bfloat16", given.astype("float32"))
    tolerance.assert_close(found, softmax(given), length=640, dtype="bfloat16")


def test_a_maximum_starts_below_all_numbers() -> None:
    """TVM's lowest number of the dtype is that of float32, which rounds to −∞."""
    x, k = te.placeholder((7, 64), "bfloat16", name="x"), te.reduce_axis((0, 64), "k")
    compiled = tvm_cascade.compile(te.create_prim_func([x, te.compute((7,), lambda i: te.max(x[i, k], k), name="m")]))
    given = np.random.default_rng(0).standard_normal((7, 64)).astype(ml_dtypes.bfloat16)
    given[3] = -np.inf
    found = np.zeros(7, ml_dtypes.bfloat16)
    compiled(given, found)
    np.testing.assert_array_equal(found, given.max(1))
