"""float8 in buffers: every one of its values is read and written as ml_dtypes has it."""

from __future__ import annotations

from functools import partial

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

import tvm_cascade
from tvm_cascade.analysis.tir import substitute
from tvm_cascade.evaluate import tolerance
from tvm_cascade.tvm_faults.float8 import FLOAT8, decoded, encoded, rounded

KINDS = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("dtype", KINDS)
def test_every_value_is_read_and_written_as_it_is(dtype: str) -> None:
    stored = np.arange(256, dtype="uint8").view(KINDS[dtype])
    x, w = te.placeholder((256,), dtype, name="x"), te.placeholder((256,), "float32", name="w")
    wide = te.compute((256,), lambda i: x[i].astype("float32"), name="wide")
    narrow = te.compute((256,), lambda i: w[i].astype(dtype), name="narrow")
    compiled = tvm_cascade.compile(te.create_prim_func([x, w, wide, narrow]))
    outputs = [tvm.runtime.tensor(np.ones(256, kind)) for kind in ("float32", KINDS[dtype])]
    compiled(tvm.runtime.tensor(stored), stored.astype("float32"), *outputs)
    np.testing.assert_array_equal(outputs[0].numpy(), stored.astype("float32"))
    np.testing.assert_array_equal(outputs[1].numpy().astype("float32"), stored.astype("float32"))
    numbers = ~np.isnan(stored.astype("float32"))
    np.testing.assert_array_equal(outputs[1].numpy().view("uint8")[numbers], np.arange(256)[numbers])


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("dtype", KINDS)
def test_a_value_that_only_passes_through_is_rounded(dtype: str, apart: bool) -> None:
    """In one expression, or by way of a buffer of the function's own, which TVM keeps in float32."""
    w = te.placeholder((256,), "float32", name="w")
    narrow = te.compute((256,), lambda i: w[i].astype(dtype), name="narrow")
    passed = te.compute((256,), lambda i: (narrow[i] if apart else w[i].astype(dtype)).astype("float32") * w[i])
    compiled = tvm_cascade.compile(te.create_prim_func([w, passed]))
    values = (np.random.default_rng(0).standard_normal(256) * 10.0 ** np.arange(-3, 1).repeat(64)).astype("float32")
    found = np.full(256, np.nan, "float32")
    compiled(values, found)
    np.testing.assert_array_equal(found, values.astype(KINDS[dtype]).astype("float32") * values)


def rounded_by_program(values: np.ndarray, dtype: str) -> np.ndarray:
    w = te.placeholder(values.shape, values.dtype.name, name="w")
    narrow = te.compute(values.shape, lambda i: w[i].astype(dtype), name="narrow")
    twice = te.compute(
        values.shape, lambda i: narrow[i].astype("float32") * tvm.tirx.const(2.0, "float32"), name="twice"
    )
    found = np.full(values.shape, np.nan, "float32")
    tvm_cascade.compile(te.create_prim_func([w, twice]))(values, found)
    return found / 2


@pytest.mark.parametrize("source", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("dtype", KINDS)
def test_floats_of_other_widths_are_rounded(dtype: str, source: str) -> None:
    values = np.random.default_rng(0).standard_normal(1024) * 10.0 ** np.arange(-4, 4).repeat(128)
    values = values.astype(source)
    with np.errstate(over="ignore"):
        expected = values.astype(KINDS[dtype]).astype("float32")
    np.testing.assert_array_equal(rounded_by_program(values, dtype), expected)


def test_a_float64_beside_a_tie_is_rounded_once() -> None:
    """Rounded to float32 first these would be ties, 1.0625 and 1.1875, which go to 1 and 1.25."""
    beside = np.outer([1.0, -1.0], [1.0625 + 2.0**-40, 1.1875 - 2.0**-40]).ravel()
    np.testing.assert_array_equal(rounded_by_program(beside, "float8_e4m3fn"), np.sign(beside) * 1.125)


@pytest.mark.parametrize("dtype", KINDS)
def test_a_reference_stored_in_float8_is_read_wherever_it_is_used(dtype: str) -> None:
    """TVM does not lower float8 in what a let is bound to: the maximum that others are measured from stands in one."""
    x = te.placeholder((4, 37), dtype, name="x")
    axes = [te.reduce_axis((0, 37), name) for name in "jk"]
    top = te.compute((4,), lambda i: te.max(x[i, axes[0]], axis=axes[0]), name="top")
    total = te.compute((4,), lambda i: te.sum(te.exp((x[i, axes[1]] - top[i]).astype("float32")), axis=axes[1]))
    compiled = tvm_cascade.compile(te.create_prim_func([x, total]), force=True)
    assert [group.reason.code for group in compiled.report.groups] in (["fold"], ["rounding"])
    values = np.random.default_rng(0).integers(-4, 5, (4, 37)).astype(KINDS[dtype])
    found = tvm.runtime.tensor(np.full(4, np.nan, "float32"))
    compiled(tvm.runtime.tensor(values), found)
    wide = values.astype("float64")
    exact = np.exp(wide - wide.max(1, keepdims=True)).sum(1)
    tolerance.assert_close(found.numpy(), exact, length=37, dtype="float32")


@pytest.mark.parametrize("dtype", KINDS)
def test_sums_of_float8_are_kept_in_float32(dtype: str) -> None:
    x = te.placeholder((4, 37), dtype, name="x")
    axes = [te.reduce_axis((0, 37), name) for name in "jk"]
    top = te.compute((4,), lambda i: te.max(x[i, axes[0]], axis=axes[0]), name="top")
    total = te.compute((4,), lambda i: te.sum(te.exp(x[i, axes[1]] - top[i]), axis=axes[1]), name="total")
    compiled = tvm_cascade.compile(te.create_prim_func([x, total]), force=True)
    assert compiled.report.fused
    values = np.random.default_rng(0).integers(-4, 5, (4, 37)).astype(KINDS[dtype])
    found = tvm.runtime.tensor(np.zeros(4, KINDS[dtype]))
    compiled(tvm.runtime.tensor(values), found)
    wide = values.astype("float64")
    exact = np.exp(wide - wide.max(1, keepdims=True)).sum(1)
    tolerance.assert_close(found.numpy(), exact, length=37, dtype=dtype)


@pytest.mark.parametrize("dtype", KINDS)
def test_no_float32_on_the_way_is_subnormal(dtype: str) -> None:
    """So that kernels with fast mathematics, which take such for zero, read and write every float8."""
    stored = np.arange(256, dtype="uint8")
    values = stored.view(KINDS[dtype]).astype("float32")
    bits, value = te.placeholder((256,), "uint8", name="bits"), te.placeholder((256,), "float32", name="value")
    at = tvm.tirx.Var("at", "int32")
    whole = decoded(bits(at), FLOAT8[dtype]), encoded(rounded(value(at), FLOAT8[dtype]), FLOAT8[dtype])
    parts: list[tvm.ir.Expr] = []
    for expression in whole:
        tvm_ffi.structural_walk(expression, [(kind, parts.append) for kind in (tvm.ir.prim.Mul, tvm.ir.Call)])
    parts = list({str(part): part for part in parts if str(part.ty.dtype) == "float32"}.values())
    results = [te.compute((256,), partial(at_index, part, at)) for part in parts]
    assert len(results) > 5
    built = tvm.compile(te.create_prim_func([bits, value, *results]), target="llvm")
    outputs = [tvm.runtime.tensor(np.zeros(256, "float32")) for _ in results]
    built["main"](tvm.runtime.tensor(stored), tvm.runtime.tensor(values), *outputs)
    for output in outputs:
        found = np.abs(output.numpy())
        assert not ((found > 0) & (found < np.finfo("float32").tiny)).any()


def at_index(expression: tvm.ir.Expr, variable: tvm.tirx.Var, index: tvm.ir.Expr) -> tvm.ir.Expr:
    return substitute(expression, {variable: index})
