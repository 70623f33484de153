"""Reading a PrimFunc: its blocks become stages with reducers, axes and elements; what cannot be read says why."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx
from tvm.script import tirx as T

from tvm_cascade.algebra.reducer import MAX, MIN
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.canonical import canonical
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.analysis.reducers import identity_of

from .programs import Attention, array, each, fold, maximum, minimum, number, product, program, softmax_stats, total


def read(func: tirx.PrimFunc) -> Program:
    outcome = read_program(func)
    assert isinstance(outcome, Program), str(outcome)
    return outcome


def test_each_block_is_a_stage_with_its_buffer_reducer_and_axes() -> None:
    attention = Attention()
    stages = read(attention.program(attention.out())).stages
    assert [stage.name for stage in stages] == ["scores", "row_max", "weights", "row_sum", "probs", "out"]
    assert [stage.reducer and stage.reducer.name for stage in stages] == ["sum", "max", None, "sum", None, "sum"]
    scores, row_max = stages[0], stages[1]
    assert [scores.extents[var] for var in scores.reduce] == [8]
    assert [row_max.extents[var] for var in (*row_max.spatial, *row_max.reduce)] == [2, 6, 37]


@pytest.mark.parametrize(("combine", "name"), [(total, "sum"), (maximum, "max"), (minimum, "min"), (product, "prod")])
def test_the_reducer_is_recognised(combine, name: str) -> None:  # type: ignore[no-untyped-def]
    x = array("x")
    (stage,) = read(program(x, fold("out", lambda i, j: x[i, j], combine))).stages
    assert stage.reducer is not None and stage.reducer.name == name


@pytest.mark.parametrize("symbol", ["and", "or"])
def test_logical_reducers_are_recognised(symbol: str) -> None:
    combine = te.comm_reducer(
        lambda a, b: tirx.And(a, b) if symbol == "and" else tirx.Or(a, b),
        lambda dtype: tirx.const(symbol == "and", "bool"),
        name=symbol,
    )
    x = array("x", dtype="bool")
    (stage,) = read(program(x, fold("out", lambda i, j: x[i, j], combine))).stages
    assert stage.reducer is not None and stage.reducer.name == symbol


def test_the_element_is_found_on_either_side_of_the_accumulator() -> None:
    @T.prim_func(s_tir=True)
    def main(x: T.Buffer((4, 37), "float32"), out: T.Buffer((4,), "float32")):
        for i, j in T.grid(4, 37):
            with T.sblock("out"):
                v_i, v_j = T.axis.remap("SR", [i, j])
                with T.init():
                    out[v_i] = T.float32(0)
                out[v_i] = x[v_i, v_j] * T.float32(2) + out[v_i]

    (stage,) = read(main).stages
    assert stage.reducer is not None and stage.reducer.name == "sum"
    assert "x[" in str(stage.value) and "out[" not in str(stage.value)


def test_a_maximum_may_start_at_minus_infinity_or_at_the_lowest_number() -> None:
    def starting_at(start: float) -> tirx.PrimFunc:
        @T.prim_func(s_tir=True)
        def main(x: T.Buffer((4, 37), "float32"), out: T.Buffer((4,), "float32")):
            for i, j in T.grid(4, 37):
                with T.sblock("out"):
                    v_i, v_j = T.axis.remap("SR", [i, j])
                    with T.init():
                        out[v_i] = T.float32(start)
                    out[v_i] = T.max(out[v_i], x[v_i, v_j])

        return main

    for start in (float("-inf"), float(tirx.min_value("float32"))):
        (stage,) = read(starting_at(start)).stages
        assert stage.reducer is not None and stage.reducer.plain == MAX
        assert float(identity_of(stage.reducer, "float32")) == start
    sentinel = read_program(starting_at(-1e30))
    assert isinstance(sentinel, Reason) and sentinel.code == "reducer"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_the_identity_of_a_maximum_is_the_lowest_finite_number_of_the_dtype(dtype: str) -> None:
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    assert identity_of(MAX, dtype).value == limits.min
    assert identity_of(MIN, dtype).value == limits.max


def test_rows_of_one_position_are_stored_at_as_others_are() -> None:
    """One query among many heads: where it stands is no layout of its own."""
    scores, weights = te.placeholder((4, 1, 8), name="scores"), te.placeholder((4, 1, 8), name="weights")
    j, k = te.reduce_axis((0, 8), "j"), te.reduce_axis((0, 8), "k")
    largest = te.compute((4, 1), lambda h, i: te.max(scores[h, i, j], axis=j), name="largest")
    out = te.compute((4, 1), lambda h, i: te.sum(weights[h, i, k] * largest[h, i], axis=k), name="out")
    read = read_program(canonical(program(scores, weights, out)))
    assert isinstance(read, Program)
    assert [stage.buffer.name for stage in read.stages] == ["largest", "out"]


def test_the_caller_s_buffers_are_told_from_intermediates() -> None:
    func = softmax_stats()
    found = read(func)
    assert [found.is_param(stage.buffer) for stage in found.stages] == [True, True]
    x = array("x")
    inner = each("inner", lambda i, j: x[i, j] * number(2))
    found = read(program(x, fold("out", lambda i, j: inner[i, j])))
    assert [found.is_param(stage.buffer) for stage in found.stages] == [False, True]


def test_a_sum_that_starts_elsewhere_than_zero_is_not_read_as_a_sum() -> None:
    combine = te.comm_reducer(lambda a, b: a + b, lambda dtype: tirx.const(1, dtype), name="from_one")
    x = array("x")
    outcome = read_program(program(x, fold("out", lambda i, j: x[i, j], combine)))
    assert isinstance(outcome, Reason)
    assert outcome.code == "reducer" and "out" in outcome.detail


def test_reading_leaves_the_function_as_it_was() -> None:
    func = softmax_stats()
    before = softmax_stats()
    read(func)
    assert tvm_ffi.structural_equal(func, before)
