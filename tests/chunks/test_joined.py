"""Known chunks in one function: as a split gives it, and where an axis comes from several tensors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tvm import tirx

import tvm_cascade
from corpus import workloads
from tvm_cascade.chunks.conditions import apart_at_conditions
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions

from ..analysis.programs import LENGTH, ROWS, array, fold, maximum, number, program
from ..tiers import slow_but
from ..transform.programs import PROGRAMS
from ..transform.running import Array, Arrays, assert_close, build, read, run
from ..transform.tuple_programs import PROGRAMS as TUPLES

LENGTHS = (7, 11, 19)
FAST = ["softmax_times_values", "softmax_weighted_variance", "router"]
ALL = {**PROGRAMS, **TUPLES}


def numbered(func: tirx.PrimFunc, joined: tirx.PrimFunc, inputs: Arrays) -> Arrays:
    """The inputs of a joined function: those of the original, or the parts of those that are cut."""
    named = dict(zip((p.name for p in oracle.signature(func).inputs), inputs, strict=True))
    found: list[Array] = []
    for param in oracle.signature(joined).inputs:
        if param.name in named:
            found.append(named[param.name])
            continue
        name, _, chunk = param.name.rpartition("_")
        (axis,) = (d for d, extent in enumerate(param.ty.shape) if int(extent) != named[name].shape[d])
        found.append(np.ascontiguousarray(np.split(named[name], np.cumsum(LENGTHS)[:-1], axis)[int(chunk)]))
    return found


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in ALL])
def test_known_chunks_in_one_function(name: str) -> None:
    func = ALL[name]()
    joined = tvm_cascade.split(func, lengths=LENGTHS).joined
    assert joined is not None
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal([int(n) for n in p.ty.shape]).astype("float32") for p in oracle.signature(func).inputs
    ]
    found = run({"main": build(joined)["joined"]}, joined, numbered(func, joined, inputs))
    assert_close(found, func, inputs, run(build(func), func, inputs), LENGTH)


def test_many_chunks_are_merged_in_a_loop() -> None:
    func = PROGRAMS["softmax_times_values"]()
    joined = tvm_cascade.split(func, chunks=10).joined
    assert joined is not None and "segment" in joined.script()
    assert "segment" not in tvm_cascade.split(func, chunks=9).joined.script()


def test_chunks_of_unknown_length_are_not_joined() -> None:
    assert tvm_cascade.split(PROGRAMS["softmax_times_values"]()).joined is None


def prefixed(first: int) -> tirx.PrimFunc:
    """x, y -> Σ exp(e − max e), where e is x up to a position and y from there on."""
    x, y = array("x", first), array("y", ROWS, LENGTH - first)

    def element(i: object, j: object) -> object:
        return tirx.if_then_else(j < first, x[j], y[i, j - first])

    m = fold("m", element, maximum)
    return program(x, y, m, fold("out", lambda i, j: tirx.exp(element(i, j) - m[i])))


def test_an_axis_of_two_tensors_is_taken_apart_where_the_second_begins() -> None:
    func = prefixed(20)
    apart = apart_at_conditions(func, FuseOptions())
    assert apart is not None
    assert [p.name for p in apart.params] == [p.name for p in func.params]
    assert "if_then_else" not in apart.script() and "T.grid(4, 20)" in apart.script()
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal([int(n) for n in p.ty.shape]).astype("float32") for p in oracle.signature(func).inputs
    ]
    found = run(build(apart), apart, inputs)
    assert_close(found, func, inputs, run(build(func), func, inputs), LENGTH)


def test_a_shared_prefix_is_read_for_all_sequences_at_once() -> None:
    workload = workloads.get("decode_prefix").cpu
    func = workload.build()
    apart = apart_at_conditions(func, FuseOptions())
    assert apart is not None
    inputs = workload.inputs(np.random.default_rng(0))
    found = run(build(apart), apart, inputs)
    assert_close(found, func, inputs, run(build(func), func, inputs), workload.shape["keys"])


def test_a_prefix_of_many_rows_is_folded_in_pieces_that_leave_a_state_each() -> None:
    shape = {"batch": 32, "heads": 8, "kv_heads": 2, "keys": 1048, "prefix": 1024, "head_dim": 16}
    workload = workloads.get("decode_prefix").with_shape(**shape)
    func = workload.build()
    apart = apart_at_conditions(func, FuseOptions(), processors=4)
    assert apart is not None and "row_max_state_0 = T.sblock_alloc_buffer((2, 32, 8, 1)" in apart.script()
    assert "alloc_buffer((2, 32, 8, 1" not in apart_at_conditions(func, FuseOptions(), processors=3).script()
    inputs = workload.inputs(np.random.default_rng(0))
    exact, usual = oracle.evaluate(func, inputs)["out"], oracle.evaluate(func, inputs, rounding=True)["out"]
    found = oracle.evaluate(apart, inputs, rounding=True)["out"]
    comparison = tolerance.check(found, exact, usual, length=1048, dtype="bfloat16")
    assert comparison.ok, comparison.message


def test_the_same_axis_as_one_loop_is_right_too() -> None:
    workload = workloads.get("decode_prefix").cpu
    read(workload.build()).check(workload.inputs(np.random.default_rng(0)))


def test_a_shared_prefix_is_planned_as_a_kernel_for_all_sequences_and_one_for_what_they_own() -> None:
    report = str(tvm_cascade.explain(workloads.get("decode_prefix").build(), target={"kind": "cuda", "arch": "sm_90a"}))
    first, second = re.findall(r"^ +[12]\. .*\n.*$", report, re.M)
    assert "from q, k_prefix, v_prefix: " in first and "out from q, k, v, row_max_state_0" in second
    assert "StreamConfig" in first and "blocks=64" in first and "side by side with the next" in first
    assert "PiecesConfig" in second and "neighbours=2" in second and "kept=4" in second and "side by side" not in second
    assert "fetching" not in first + second


@pytest.mark.parametrize(
    "change",
    slow_but([{"batch": 16}, {"keys": 9192}], [{"batch": 16}, {"heads": 64}, {"keys": 9192}]),
    ids=["few", "wide", "long"],
)
def test_kernels_run_one_after_the_other_where_both_compute_or_one_is_long(change: dict[str, int]) -> None:
    workload = workloads.get("decode_prefix")
    func = workload.with_shape(**{**workload.shape, **change}).build()
    report = str(tvm_cascade.explain(func, target={"kind": "cuda", "arch": "sm_90a"}))
    assert "a plan of 2 steps" in report and "side by side with the next" not in report


def masked() -> tirx.PrimFunc:
    x = array("x")
    m = fold("m", lambda i, j: tirx.if_then_else(j < 20, x[i, j], number(float("-inf"))), maximum)
    return program(x, m, fold("out", lambda i, j: tirx.exp(x[i, j] - m[i])))


@pytest.mark.parametrize("make", [masked, PROGRAMS["softmax_times_values"]])
def test_masks_and_single_tensors_are_left_alone(make: object) -> None:
    assert apart_at_conditions(make(), FuseOptions()) is None  # type: ignore[operator]
