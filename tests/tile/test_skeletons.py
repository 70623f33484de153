"""The table of skeletons: one more is a module and a row, and every reason for having no kernel is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import sympy as sp
from tvm import te, tirx
from tvm.ir import Expr

import tvm_cascade
from corpus import workloads
from tvm_cascade.analysis.extract import Reductions
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.devices.cards import H200
from tvm_cascade.driver.gpu import gpu_options
from tvm_cascade.options import FuseOptions
from tvm_cascade.tile.attention.program import build_program
from tvm_cascade.tile.attention.shape import read_stream
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.product.fold import read_fold
from tvm_cascade.tile.select import ranked_kernels
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.tile.skeletons import table
from tvm_cascade.transform.fuse_function import fuse_function

from ..transform.test_guards import by_a_sum, softmax
from .checked import assert_attention_right, assert_right, attention_case
from .column_programs import COLUMNS
from .emulator.run import compiler
from .row_programs import PROGRAMS as ROWS
from .split_stream import SPLIT, SplitStreamSkeleton
from .test_tile_program import group_of

TARGET = {"kind": "cuda", "arch": "sm_90a"}

emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table with a row for another skeleton."""
    monkeypatch.setattr(table, "SKELETONS", (SplitStreamSkeleton(), *table.SKELETONS))


def lowering(variant: str, **extents: int) -> str:
    """What a GPU runs an attention as, and why as no one kernel."""
    told = tvm_cascade.explain(attention_case(variant, **extents).build(), target=TARGET).functions[0]
    return told.lowering + told.whole


@pytest.mark.usefixtures("one_more")
def test_a_skeleton_is_a_module_and_a_row() -> None:
    assert lowering("full", heads=80).startswith("the tensor-core kernel `split stream`, SplitConfig(")
    assert lowering("full", heads=80, keys=64).startswith("the tensor-core kernel `stream`, StreamConfig(")
    told = lowering("full", head_dim=20)
    assert "no `split stream` (folds of a matrix product with a long axis)" in told
    assert "no `row` (folds along rows or columns of memory)" in told
    compiled = tvm_cascade.compile(attention_case("full", heads=80).build(), target=TARGET)
    assert "`split stream`" in compiled.report.functions[0].lowering and "wgmma" in compiled.mod.script()


def test_every_skeleton_tells_its_reason_for_every_group() -> None:
    """A maximum beside a product that neither is a map of the other: no kernel does both."""
    told = tvm_cascade.explain(workloads.get("Q1").build(), target=TARGET).functions[0].whole
    assert (
        "no `stream` (folds of a matrix product)" in told and "or `row` (folds along rows or columns of memory)" in told
    )
    assert "of product: out reads absmax" in told and "of absmax: out reads product" in told


def test_what_fits_is_known_before_anything_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A skeleton is selected for its shape and its configuration, not for what came of an attempt."""
    for skeleton in table.SKELETONS:
        monkeypatch.setattr(type(skeleton), "emit", None)
    options = gpu_options(FuseOptions())
    for func, name in (
        (attention_case("full").build(), "stream"),
        (ROWS["softmax"](rows=4096, length=5003), "row"),
        (COLUMNS["variance"](), "row"),
    ):
        kernel = ranked_kernels(fuse_function(func, options, H200), "main", H200, options)[0]
        assert isinstance(kernel, Kernel) and kernel.skeleton.name == name


def shares_times_values() -> tirx.PrimFunc:
    """x, v -> x/Σ x · v, a product of matrices: the divisor may have any size."""
    x, v = (te.placeholder(shape, "float16", name=name) for name, shape in (("x", (64, 128)), ("v", (128, 64))))
    j, k = (te.reduce_axis((0, 128), name) for name in "jk")
    wide = lambda value: value.astype("float32")  # noqa: E731
    s = te.compute((64,), lambda i: te.sum(wide(x[i, j]), axis=j), name="s")
    share = lambda i, f: wide(x[i, k]) / s[i] * wide(v[k, f])  # noqa: E731
    return te.create_prim_func([x, v, te.compute((64, 64), lambda i, f: te.sum(share(i, f), axis=k), name="out")])


@pytest.mark.parametrize(
    ("func", "guards", "taken"),
    [
        (shares_times_values, "auto", ""),
        (shares_times_values, "off", "prologue"),
        (by_a_sum, "auto", "row"),
        (softmax, "auto", "row"),
        (softmax, "always", "row"),
        (attention_case("full").build, "always", "stream"),
    ],
    ids=["unbounded", "unbounded, without guards", "rows have guards", "bounded", "guards of all", "no fallback"],
)
def test_a_fold_that_is_guarded_is_no_kernel_without_guards(
    func: Callable[[], tirx.PrimFunc], guards: str, taken: str
) -> None:
    options = gpu_options(FuseOptions(guards=guards))
    kernels = ranked_kernels(fuse_function(func(), options, H200), "main", H200, options)
    assert ("" if isinstance(kernels, str) else kernels[0].skeleton.name) == taken
    assert taken or "its kernels have no guards, which results ask for: out: 1/s" in str(kernels)


def test_a_product_that_is_guarded_is_cut_and_says_why() -> None:
    told = tvm_cascade.explain(shares_times_values(), target=TARGET).functions[0]
    assert "no `prologue` (matrix products behind statistics of their rows): its kernels have no guards" in told.whole


def test_an_output_that_is_not_stored_in_rows_has_no_stream_shape() -> None:
    """Bulk copies would have to store it, which the shape says before a kernel is begun."""

    def wide(value: Expr) -> Expr:
        return value.astype("float32")

    q, k, v = (te.placeholder((128, 64), "float16", name=name) for name in "qkv")
    d, j = te.reduce_axis((0, 64), name="d"), te.reduce_axis((0, 128), name="j")
    score = te.compute((128, 128), lambda i, c: te.sum(wide(q[i, d]) * wide(k[c, d]), axis=d), name="score")
    mixed = te.compute((128, 64), lambda i, f: te.sum(wide(score[i, j].astype("float16")) * wide(v[j, f]), axis=j))
    out = te.compute((64, 128), lambda f, i: mixed[i, f].astype("float16"), name="out")
    program, group = group_of(te.create_prim_func([q, k, v, out]))
    with pytest.raises(Unfit, match="out is not stored in rows along"):
        read_stream(program, group)


CASES = {
    "whole tiles": attention_case("full", keys=256),
    "a ragged tile, and rows for one block in turn": attention_case("softcap", "bfloat16", heads=2, keys=200),
}


@emulated
@pytest.mark.parametrize("name", CASES)
def test_states_with_accumulators_of_two_segments_merge_into_the_whole(name: str) -> None:
    assert_attention_right(CASES[name], dataclasses.replace(SPLIT, blocks=1), skeleton=SplitStreamSkeleton())


@emulated
def test_segments_whose_positions_are_all_masked() -> None:
    """Of three rows one keeps the first segment alone, the next the second alone."""
    case = attention_case("mask", queries=70, keys=333, head_dim=128)
    inputs = list(case.inputs(np.random.default_rng(0), "normal"))
    (number,) = (k for k, array in enumerate(inputs) if str(array.dtype) == "bool")
    kept = np.ones((70, 333), "bool")
    kept[0::3, 128:], kept[1::3, :300] = False, False
    inputs[number] = np.broadcast_to(kept, inputs[number].shape).copy()
    assert_right(case.build(), inputs, SPLIT, length=333, skeleton=SplitStreamSkeleton())


def test_a_gradient_of_attention_has_two_producers() -> None:
    """Of keys, Σ_i p[i, l]·(u[i, l] − mean[i])·q[i, d]: queries, which are summed over, are on the right of both."""

    def wide(value: Expr) -> Expr:
        return value.astype("float32")

    q, k, v, do = (te.placeholder((64, 32), "float16", name=name) for name in ("q", "k", "v", "do"))
    lse, mean = (te.placeholder((64,), name=name) for name in ("lse", "mean"))
    d, i = te.reduce_axis((0, 32), name="d"), te.reduce_axis((0, 64), name="i")
    half = tirx.const(0.5, "float32")
    score = te.compute((64, 64), lambda i, c: te.sum(wide(q[i, d]) * wide(k[c, d]) * half, axis=d), name="score")
    up = te.compute((64, 64), lambda i, c: te.sum(wide(do[i, d]) * wide(v[c, d]), axis=d), name="up")

    def element(c: Expr, f: Expr) -> Expr:
        return te.exp(score[i, c] - lse[i]) * (up[i, c] - mean[i]) * wide(q[i, f])

    dk = te.compute((64, 32), lambda c, f: te.sum(element(c, f), axis=i), name="dk")
    program = read_program(te.create_prim_func([q, k, v, do, lse, mean, dk]))
    assert isinstance(program, Program)
    fold = read_fold(program, Reductions(program).lone[-1])
    sums = [fold.produced(producer) for producer in fold.producers]
    found = {one.tensor.name: (one.number, one.left.source.name, one.right.source.name) for one in sums}
    assert found == {"score": (sp.Rational(1, 2), "k", "q"), "up": (1, "v", "do")}
    (lift,) = fold.lifts.values()
    loads = [load for symbol in lift.free_symbols if (load := fold.leaves.load(symbol)) is not None]
    assert {load.source.name for load in loads} == {"q", "score", "up", "lse", "mean"}
    stream = read_stream(program, fold.group)
    (product,) = stream.products
    assert product.tile is not None and stream.scores[product.tile].right.buffer.name == "q"
    assert "finish    dk = c_dk_0*dk_0" in str(build_program(stream))  # nothing bounds up


@emulated
def test_scores_scaled_by_a_function_of_an_input() -> None:
    """Σ_d q[i, d]·k[l, d]·exp(s[i]), by which every score of a row is multiplied."""
    q, k, v = (te.placeholder((64, 64), "bfloat16", name=name) for name in "qkv")
    s, d, j = te.placeholder((64,), name="s"), te.reduce_axis((0, 64), name="d"), te.reduce_axis((0, 64), name="j")

    def wide(value: Expr) -> Expr:
        return value.astype("float32")

    score = te.compute(
        (64, 64), lambda i, c: te.sum(wide(q[i, d]) * wide(k[c, d]) * te.exp(s[i]), axis=d), name="score"
    )
    out = te.compute((64, 64), lambda i, f: te.sum(wide(score[i, j].astype("bfloat16")) * wide(v[j, f]), axis=j), "out")
    rng = np.random.default_rng(0)
    inputs = [
        *(rng.standard_normal((64, 64)).astype(ml_dtypes.bfloat16) for _ in "qkv"),
        rng.random(64).astype("float32"),
    ]
    assert_right(te.create_prim_func([q, k, v, s, out]), inputs, length=64)
