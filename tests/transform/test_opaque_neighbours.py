"""A block that cannot be read does not keep its neighbours from being fused, where that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from numpy.typing import NDArray
from tvm import te, tirx, topi
from tvm.script import tirx as T

import tvm_cascade
from benchmarks.judge.power import rejects
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from ..analysis.programs import LENGTH, ROWS, array, program, softmax_stages

Array = NDArray[Any]


def sorted_beside() -> tirx.PrimFunc:
    x, y = array("x"), array("y")
    return program(x, y, softmax_stages(x)[1], topi.sort(y, axis=1))


def argmax_beside() -> tirx.PrimFunc:
    """Both read x, by loads."""
    x = array("x")
    return program(x, softmax_stages(x)[1], topi.argmax(x, axis=1))


def sort_of_the_same() -> tirx.PrimFunc:
    x = array("x")
    return program(x, softmax_stages(x)[1], topi.sort(x, axis=1))


def softmax_of_a_sort() -> tirx.PrimFunc:
    x = array("x")
    return program(x, softmax_stages(topi.sort(x, axis=1))[1])


@T.prim_func(s_tir=True)
def around(x: T.Buffer((4, 37), "float32"), out: T.Buffer((4,), "float32"), other: T.Buffer((4,), "float32")):
    """The sum reads what a block with two stores, one of which reads another row of the other, makes of the maximum."""
    top = T.sblock_alloc_buffer((4,))
    twice = T.sblock_alloc_buffer((4,))
    for i, j in T.grid(4, 37):
        with T.sblock("top"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                top[v_i] = T.min_value("float32")
            top[v_i] = T.max(top[v_i], x[v_i, v_j])
    for i in range(4):
        with T.sblock("pair"):
            v_i = T.axis.spatial(4, i)
            twice[v_i] = top[v_i] * T.float32(2)
            other[v_i] = twice[3 - v_i]
    for i, j in T.grid(4, 37):
        with T.sblock("out"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                out[v_i] = T.float32(0)
            out[v_i] = out[v_i] + T.exp(x[v_i, v_j] - top[v_i]) * twice[v_i]


def call(func: tirx.PrimFunc, *arguments: Array) -> None:
    tensors = [tvm.runtime.tensor(array) for array in arguments]
    func(*tensors)
    for array_, tensor in zip(arguments, tensors, strict=True):
        array_[...] = tensor.numpy()


def assert_row_sums(x: Array, total: Array) -> None:
    exact = np.exp(x.astype("f8") - x.max(1, keepdims=True)).sum(1)
    tolerance.assert_close(total, exact, length=LENGTH, dtype="float32")
    assert rejects(exact, LENGTH, "float32") == []


@pytest.mark.parametrize("schedule", [True, False])
def test_a_cascade_fuses_beside_an_external_call(schedule: bool) -> None:
    compiled = tvm_cascade.compile(sorted_beside(), force=True, schedule=schedule)
    assert [group.reason.code for group in compiled.report.groups] == ["fold", "extern"]
    x, y = (np.random.default_rng(k).standard_normal((ROWS, LENGTH)).astype("float32") for k in range(2))
    total, ordered = np.full(ROWS, np.nan, "float32"), np.full((ROWS, LENGTH), np.nan, "float32")
    call(compiled.runtime_module["main"], x, y, total, ordered)
    assert_row_sums(x, total)
    np.testing.assert_array_equal(ordered, np.sort(y, axis=1))


def test_a_cascade_fuses_beside_a_block_that_reads_the_same_input() -> None:
    outcome = fuse_function(argmax_beside(), FuseOptions(force=True))
    assert outcome.decisions[0].reason.code == "fold"
    compiled = tvm_cascade.compile(argmax_beside(), force=True)
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    total, at = np.full(ROWS, np.nan, "float32"), np.full(ROWS, -1, "int32")
    call(compiled.runtime_module["main"], x, total, at)
    assert_row_sums(x, total)
    np.testing.assert_array_equal(at, x.argmax(1))


def test_a_cascade_around_an_unreadable_block_stays_as_it_is() -> None:
    outcome = fuse_function(around, FuseOptions(force=True))
    assert outcome.func.same_as(around)
    assert {decision.reason.code for decision in outcome.decisions} == {"opaque_block"}
    assert "out needs twice" in outcome.decisions[0].reason.detail


def test_a_cascade_runs_before_a_call_that_is_handed_its_input() -> None:
    """Who is handed x may write it."""
    compiled = tvm_cascade.compile(sort_of_the_same(), force=True)
    assert [group.reason.code for group in compiled.report.groups] == ["fold", "extern"]
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    given, total, ordered = x.copy(), np.full(ROWS, np.nan, "float32"), np.full((ROWS, LENGTH), np.nan, "float32")
    call(compiled.runtime_module["main"], given, total, ordered)
    assert_row_sums(x, total)
    np.testing.assert_array_equal(ordered, np.sort(x, axis=1))


def test_a_cascade_runs_after_the_call_that_writes_its_input() -> None:
    compiled = tvm_cascade.compile(softmax_of_a_sort(), force=True)
    assert [group.reason.code for group in compiled.report.groups] == ["fold", "extern"]
    x = np.random.default_rng(0).standard_normal((ROWS, LENGTH)).astype("float32")
    total = np.full(ROWS, np.nan, "float32")
    call(compiled.runtime_module["main"], x, total)
    assert_row_sums(x, total)


def test_stages_around_an_unreadable_block_keep_their_order() -> None:
    """The pair reads a result of the fused loop, and a stage after it reads the pair."""
    x, z = array("x"), te.placeholder((ROWS, LENGTH), "float32", name="z")
    total = softmax_stages(x)[1]
    at = topi.argmax(te.compute((ROWS, LENGTH), lambda i, j: z[i, j] * total[i], name="scaled"), axis=1)
    after = te.compute((ROWS,), lambda i: at[i] + 1, name="after")
    func = program(x, z, after)
    compiled = tvm_cascade.compile(func, force=True)
    assert compiled.report.fused
    given = [np.random.default_rng(k).standard_normal((ROWS, LENGTH)).astype("float32") for k in range(2)]
    result = np.full(ROWS, -1, "int32")
    call(compiled.runtime_module["main"], *given, result)
    np.testing.assert_array_equal(result, given[1].argmax(1) + 1)


READS_OF_ONE_TENSOR = """# from tvm.script import tirx as T
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 37)), y: T.Buffer((4, 37)), s: T.Buffer((4,)), t: T.Buffer((4,))):
    for i, j in T.grid(4, 37):
        with T.sblock("s"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                s[v_i] = T.float32(0)
            s[v_i] = s[v_i] + x[v_i, v_j]
    with T.sblock("call"):
        T.reads(HANDED[0:4, 0:37])
        T.writes(HANDED[0:4, 0:37])
        T.evaluate(T.call_packed("kernel", HANDED.data))
    for i, j in T.grid(4, 37):
        with T.sblock("t"):
            v_i, v_j = T.axis.remap("SR", [i, j])
            with T.init():
                t[v_i] = T.min_value("float32")
            t[v_i] = T.max(t[v_i], x[v_i, v_j])
"""


@pytest.mark.parametrize(("handed", "codes"), [("x", ["extern"]), ("y", ["fold", "extern"])])
def test_reductions_of_a_tensor_share_no_pass_across_a_call_that_may_write_it(handed: str, codes: list[str]) -> None:
    func = tvm.script.from_source(READS_OF_ONE_TENSOR.replace("HANDED", handed))
    outcome = fuse_function(func, FuseOptions(force=True))
    assert [decision.reason.code for decision in outcome.decisions] == codes
