"""Reductions of rows, of known and of unknown extents: what lies side by side in memory is in lanes, and right."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax, te, tirx
from tvm.target import Target

import tvm_cascade
from tvm_cascade.devices.read import cpu_of
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.evaluate import tolerance
from tvm_cascade.schedule.row_lanes import rows_in_lanes
from tvm_cascade.transform.fuse_function import read_function
from tvm_cascade.transform.tiling import GATHERED_LANES

from ..tiers import slow_but

CPU = {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}
LANES = 64
N, M = te.var("n"), te.var("m")
Array = NDArray[Any]

REDUCERS: dict[str, tuple[Callable[..., Any], Callable[[Array], Array]]] = {
    "sum": (te.sum, lambda x: x.sum(-1)),
    "max": (te.max, lambda x: x.max(-1)),
    "min": (te.min, lambda x: x.min(-1)),
    "product": (te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype)), lambda x: x.prod(-1)),
}


def rows(name: str, dtype: str = "float32", length: Any = M) -> tirx.PrimFunc:
    x, j = te.placeholder((N, length), dtype, name="x"), te.reduce_axis((0, length), name="j")
    return te.create_prim_func([x, te.compute((N,), lambda i: REDUCERS[name][0](x[i, j], axis=j), name="y")])


def here(func: tirx.PrimFunc) -> Compiled:
    return tvm_cascade.compile(func)


def rule_of(func: tirx.PrimFunc) -> str:
    (told,) = tvm_cascade.explain(func, CPU, buckets=1).functions
    return told.lowering


def called(compiled: Compiled, shape: tuple[int, ...], *inputs: Array) -> Array:
    """The output of a call on poisoned memory."""
    out = np.full(shape, 7, inputs[0].dtype)
    compiled(*inputs, out)
    return out


@pytest.mark.parametrize(
    ("name", "dtype"),
    slow_but(
        [("sum", "float32"), ("sum", "int32"), ("product", "float64"), ("max", "int32"), ("min", "float32")],
        itertools.product(REDUCERS, ["float32", "float64", "int32"]),
    ),
)
def test_contiguous_rows_of_unknown_length_are_in_lanes_and_right(name: str, dtype: str) -> None:
    func = rows(name, dtype)
    assert f"y: rows in {LANES // (2 if dtype == 'float64' else 1)} lanes" in rule_of(func)
    compiled, draw = here(func), np.random.default_rng(0)
    for length in (1, 2, LANES - 1, LANES, LANES + 1, 2 * LANES, 777):
        x = draw.uniform(0.98, 1.02, (3, length)) if name == "product" else draw.standard_normal((3, length)) * 9
        x = x.astype(dtype)
        exact = REDUCERS[name][1](x.astype("f8" if dtype != "int32" else "i8"))
        found = called(compiled, (3,), x)
        if dtype == "int32":
            assert (found == exact.astype("int32")).all()
        else:
            tolerance.assert_close(found, exact, REDUCERS[name][1](x), length=length, dtype=dtype)


def test_the_vectors_of_a_row_are_filled_within_its_task() -> None:
    func = tvm_cascade.compile(rows("sum"), CPU).mod["main"]
    kinds: list[tuple[tirx.ForKind, Any]] = []
    tvm_ffi.structural_walk(func.body, (tirx.For, lambda loop: kinds.append((loop.kind, loop.extent))), order="pre")
    assert [kind for kind, _ in kinds].count(tirx.ForKind.PARALLEL) == 1 and kinds[0][0] == tirx.ForKind.PARALLEL
    assert {int(extent) for kind, extent in kinds if kind == tirx.ForKind.VECTORIZED} == {LANES, GATHERED_LANES}


def test_empty_rows_and_infinities_are_what_the_program_says() -> None:
    x, j = te.placeholder((N, M), name="x"), te.reduce_axis((0, M), name="j")
    lowest = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda dtype: tirx.const(float("-inf"), dtype))
    func = te.create_prim_func([x, te.compute((N,), lambda i: lowest(x[i, j], axis=j), name="y")])
    assert f"y: rows in {LANES} lanes" in rule_of(func)
    compiled = here(func)
    assert (called(compiled, (2,), np.zeros((2, 0), "float32")) == -np.inf).all()
    assert (called(compiled, (2,), np.full((2, 70), -np.inf, "float32")) == -np.inf).all()
    rising = np.full((1, 70), -np.inf, "float32")
    rising[0, -1] = np.inf
    assert called(compiled, (1,), rising)[0] == np.inf


@pytest.mark.parametrize(("length", "width"), [(1024, 64), (48, 16), (777, 64), (72, 8), (13, 0)])
def test_rows_of_a_known_length_in_batches_of_an_unknown_one(length: int, width: int) -> None:
    func = rows("sum", length=length)
    assert (f"y: rows in {width} lanes" in rule_of(func)) == bool(width)
    x = np.random.default_rng(0).standard_normal((5, length)).astype("float32")
    tolerance.assert_close(called(here(func), (5,), x), x.astype("f8").sum(1), x.sum(1), length=length, dtype="float32")


@pytest.mark.parametrize(("length", "width"), [(768, 64), (49, 16), (100, 32), (1500, 64), (72, 8), (13, 0)])
def test_rows_of_known_extents_are_in_lanes_whatever_divides_them(length: int, width: int) -> None:
    x, j = te.placeholder((5, length), name="x"), te.reduce_axis((0, length), name="j")
    func = te.create_prim_func([x, te.compute((5,), lambda i: te.sum(x[i, j], axis=j), name="y")])
    assert (f"y: rows in {width} lanes" in rule_of(func)) == bool(width)
    data = np.random.default_rng(0).standard_normal((5, length)).astype("float32")
    found = called(here(func), (5,), data)
    tolerance.assert_close(found, data.astype("f8").sum(1), data.sum(1), length=length, dtype="float32")


def test_several_reduced_axes_and_conditions_of_elements() -> None:
    x = te.placeholder((N, 3, M), name="x")
    a, j = te.reduce_axis((0, 3), "a"), te.reduce_axis((0, M), "j")
    value = te.compute(
        (N,), lambda i: te.sum(te.if_then_else(j < 100, x[i, a, j], x[i, a, j] * x[i, a, j]), axis=[a, j]), name="y"
    )
    func = te.create_prim_func([x, value])
    assert f"y: rows in {LANES} lanes" in rule_of(func)
    data = np.random.default_rng(0).standard_normal((4, 3, 133)).astype("float32")
    exact = np.where(np.arange(133) < 100, data.astype("f8"), data.astype("f8") ** 2).sum((1, 2))
    usual = np.where(np.arange(133) < 100, data, data**2).sum((1, 2))
    tolerance.assert_close(called(here(func), (4,), data), exact, usual, length=399, dtype="float32")


def test_a_scalar_of_a_vector_of_unknown_length() -> None:
    x, j = te.placeholder((M,), name="x"), te.reduce_axis((0, M), "j")
    func = te.create_prim_func([x, te.compute((), lambda: te.sum(x[j], axis=j), name="y")])
    assert f"y: rows in {LANES} lanes" in rule_of(func)
    data = np.random.default_rng(0).standard_normal(301).astype("float32")
    tolerance.assert_close(
        called(here(func), (), data), data.astype("f8").sum(), data.sum(), length=301, dtype="float32"
    )


def product(transposed: bool) -> tirx.PrimFunc:
    """Of a vector and a matrix."""
    x, w = te.placeholder((M,), name="x"), te.placeholder((N, M) if transposed else (M, N), name="w")
    k = te.reduce_axis((0, M), "k")
    value = te.compute((N,), lambda j: te.sum(x[k] * (w[j, k] if transposed else w[k, j]), axis=k), name="y")
    return te.create_prim_func([x, w, value])


@pytest.mark.parametrize("transposed", [True, False])
def test_lanes_run_along_what_lies_side_by_side(transposed: bool) -> None:
    """Along the reduction where both operands are contiguous there; along the output, for LLVM, where one is not."""
    func = product(transposed)
    assert (f"y: rows in {LANES} lanes" in rule_of(func)) == transposed
    draw = np.random.default_rng(0)
    x, w = draw.standard_normal(150), draw.standard_normal((37, 150) if transposed else (150, 37))
    found = called(here(func), (37,), x.astype("float32"), w.astype("float32"))
    exact = x.astype("float32").astype("f8") @ (w.T if transposed else w).astype("float32").astype("f8")
    tolerance.assert_close(found, exact, length=150, dtype="float32")
    inner: list[tirx.For] = []
    tvm_ffi.structural_walk(tvm_cascade.compile(func, CPU).mod["main"].body, (tirx.For, inner.append), order="pre")
    assert ("j" in str(inner[-1].loop_var.name)) != transposed


def test_columns_stay_along_the_output() -> None:
    x, j = te.placeholder((M, N), name="x"), te.reduce_axis((0, M), "j")
    func = te.create_prim_func([x, te.compute((N,), lambda i: te.sum(x[j, i], axis=j), name="y")])
    program = read_function(func)
    assert rows_in_lanes(program.func, cpu_of(Target(CPU))).same_as(program.func)
    data = np.random.default_rng(0).standard_normal((90, 70)).astype("float32")
    tolerance.assert_close(
        called(here(func), (70,), data), data.astype("f8").sum(0), data.sum(0), length=90, dtype="float32"
    )


def test_a_row_beside_a_fused_loop_is_in_lanes_too() -> None:
    x, w = te.placeholder((N, M), name="x"), te.placeholder((N, M), name="w")
    j, k, r = (te.reduce_axis((0, M), name) for name in ("j", "k", "r"))
    top = te.compute((N,), lambda i: te.max(x[i, j], axis=j), name="top")
    mass = te.compute((N,), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k), name="mass")
    other = te.compute((N,), lambda i: te.sum(w[i, r], axis=r), name="other")
    func = te.create_prim_func([x, w, mass, other])
    told = rule_of(func)
    assert "the fused loop: " in told and f"other: rows in {LANES} lanes" in told
    draw = np.random.default_rng(0)
    x_data, w_data = (draw.standard_normal((6, 200)).astype("float32") for _ in range(2))
    outs = [np.full(6, np.nan, "float32") for _ in range(2)]
    here(func)(x_data, w_data, *outs)
    exact = np.exp(x_data.astype("f8") - x_data.max(1, keepdims=True)).sum(1)
    tolerance.assert_close(outs[0], exact, length=200, dtype="float32")
    tolerance.assert_close(outs[1], w_data.astype("f8").sum(1), w_data.sum(1), length=200, dtype="float32")


def test_a_norm_of_relax_with_batches_of_unknown_size_is_in_lanes() -> None:
    x, builder = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 512), "float32")), relax.BlockBuilder()
    w = relax.Var("w", relax.TensorType((512,), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.rms_norm(x, w, axes=[-1], epsilon=1e-5))
        builder.emit_func_output(out)
    pipeline = tvm_cascade.relax.get_pipeline()
    run = relax.VirtualMachine(pipeline.build(builder.get()), tvm.cpu())["main"]
    (told,) = [one for one in pipeline.report.functions if one.name == "rms_norm"]
    assert "rows in " in told.lowering
    draw = np.random.default_rng(0)
    data, gain = draw.standard_normal((9, 512)).astype("float32"), draw.standard_normal(512).astype("float32")
    found = run(tvm.runtime.tensor(data), tvm.runtime.tensor(gain)).numpy()
    wide = data.astype("f8")
    exact = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * gain
    tolerance.assert_close(found, exact, length=512, dtype="float32")
