"""The numerics report: errors by input, what is named where digits are lost, and its text and JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import sympy as sp
import tvm
from tvm import te, tirx

import tvm_cascade
from tvm_cascade import cli
from tvm_cascade.accuracy.draws import drawn
from tvm_cascade.accuracy.losses import losses
from tvm_cascade.algebra.cascade import LENGTH as N
from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.extract import Group, Reductions
from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.analysis.reading import read_program
from tvm_cascade.errors import DeviceError, InputError
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import INPUTS

from ..analysis.infinite import from_infinity
from ..analysis.programs import LENGTH, ROWS, Attention, array, fold, program, softmax_stats, variance


def only_group(func: tirx.PrimFunc) -> Group:
    (candidate,) = Reductions(read_program(func)).cascades()
    assert candidate.group is not None
    return candidate.group


def raw_moments(group: Group) -> Fold:
    """Σ (x − s/N)² from Σ x² and Σ x, which cancel."""
    (x,), (s, moment) = group.fold.cascade.elements, group.fold.cascade.results
    s_0, squares = sp.symbols("s_0 squares", real=True)
    steps = (Component(s_0, s, SUM, x, s_0), Component(squares, moment, SUM, x**2, squares))
    return Fold(group.fold.cascade, steps, {s: s_0, moment: squares - 2 * s_0 * s / N + s**2 / N})


def test_each_adversarial_input_has_a_row_with_both_errors() -> None:
    found = tvm_cascade.numerics(softmax_stats(), tile=5)
    assert found.fused and found.ok
    assert {row.input for row in found.rows} == set(INPUTS)
    assert {row.output for row in found.rows} == {"row_max", "row_sum"}
    by_name = {row.input: row for row in found.rows if row.output == "row_sum"}
    assert 0 < by_name["normal"].fused_error <= by_name["normal"].allowed < 1e-5
    assert by_name["normal"].unfused_error > 0
    assert len(str(found).splitlines()) == 1 + len(found.rows)


def test_a_maximum_that_starts_at_minus_infinity_has_rows_and_losses() -> None:
    func = from_infinity(softmax_stats())
    found = tvm_cascade.numerics(func, tile=5)
    assert found.ok and found.fused and {row.input for row in found.rows} == set(INPUTS)
    given = [INPUTS["late_spike"](np.random.default_rng(0), (ROWS, LENGTH), "float32")]
    lost = losses(only_group(func), oracle.evaluate_buffers(func, given), 5, {})
    assert {loss.result for loss in lost} == {"row_max", "row_sum"} and max(loss.error for loss in lost) < 1e-5


def test_json_says_what_the_table_says() -> None:
    found = tvm_cascade.numerics(variance(), inputs=("normal", "zeros"))
    form = json.loads(found.to_json())
    assert [row["input"] for row in form["rows"]] == ["normal", "zeros"]
    assert form["ok"] and form["fused"] and form["schema"] == 1
    assert form["rows"][0]["fused_error"] == found.rows[0].fused_error


def test_arrays_of_the_callers_own_are_taken() -> None:
    given = np.full((ROWS, LENGTH), 3.0, np.float32)
    (row,) = tvm_cascade.numerics(variance(), inputs={"threes": [given]}).rows
    assert (row.input, row.fused_error) == ("threes", 0.0)


def symbolic(rows: str, length: str) -> tirx.PrimFunc:
    """Maximum and sum of exponentials of x[rows, length]."""
    n, m = tirx.Var(rows, "int64"), tirx.Var(length, "int64")
    x = te.placeholder((n, m), "float32", name="x")
    first, second = te.reduce_axis((0, m), "first"), te.reduce_axis((0, m), "second")
    top = te.compute((n,), lambda i: te.max(x[i, first], axis=first), name="top")
    total = te.compute((n,), lambda i: te.sum(te.exp(x[i, second] - top[i]), axis=second), name="total")
    return te.create_prim_func([x, top, total])


def test_symbolic_extents_are_those_given_or_small() -> None:
    func = symbolic("n", "m")
    found = tvm_cascade.numerics(func, "normal", sizes={"m": 33})
    assert found.fused and found.ok and len(found.rows) == 2
    assert [int(extent) for extent in at_sizes(func, {"m": 33}).params[0].ty.shape] == [64, 33]
    static = variance()
    assert at_sizes(static).same_as(static)


@pytest.mark.parametrize(
    ("sizes", "message"), [({"k": 3}, "n, m.*'k'"), ({"m": 0}, r"positive.*0.*sizes\['m'\]"), ({"m": 2.5}, "2.5")]
)
def test_sizes_that_are_none(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=r"(?s)" + message):
        tvm_cascade.numerics(symbolic("n", "m"), "normal", sizes=sizes)


def test_arrays_by_themselves_are_taken_and_give_the_sizes() -> None:
    given = np.random.default_rng(0).standard_normal((3, 37)).astype("float32")
    for inputs in (given, [given], {"mine": given}, tvm.runtime.tensor(given)):
        found = tvm_cascade.numerics(symbolic("n", "m"), inputs)
        assert found.ok and {row.input for row in found.rows} == {"mine" if isinstance(inputs, dict) else "given"}


@pytest.mark.parametrize("inputs", [None, 3, [1.0, 2.0]])
def test_what_is_no_data_is_told_what_is(inputs: object) -> None:
    with pytest.raises(InputError, match=r"(?s)NumPy arrays, or names.*adversarial"):
        tvm_cascade.numerics(variance(), inputs)  # type: ignore[arg-type]


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told_before_anything_is_compiled() -> None:
    with pytest.raises(DeviceError, match=r"(?s)a GPU, on which both programs run.*no CUDA device"):
        tvm_cascade.numerics(variance(), "normal", target={"kind": "cuda", "arch": "sm_90a"})


def test_a_refused_program_is_measured_unfused_and_the_reason_is_told() -> None:
    x = array("x")
    s = fold("s", lambda i, j: x[i, j])
    found = tvm_cascade.numerics(program(x, fold("out", lambda i, j: te.tanh(x[i, j] - s[i]))), inputs="normal")
    assert not found.fused and "infinite_rank" in str(found) and found.rows[0].unfused_error > 0


def test_the_component_that_cancels_is_named() -> None:
    func = variance()
    group = only_group(func)
    given = [INPUTS["large_offset"](np.random.default_rng(0), (ROWS, LENGTH), "float32")]
    buffers = oracle.evaluate_buffers(func, given)
    centred = losses(group, buffers, 5, {})
    raw = losses(dataclasses.replace(group, fold=raw_moments(group)), buffers, 5, {"moment": (2,)})
    worst = next(loss for loss in raw if loss.result == "moment")
    assert worst.part in ("squares", "finish") and worst.error > 1e-2
    assert next(loss for loss in raw if loss.part == "squares").error > 1e-4
    assert max(loss.error for loss in centred) < 1e-5


def test_the_pattern_runs_along_the_axis_of_what_the_chain_reads_through_its_producers() -> None:
    attention = Attention()
    func = attention.program(attention.out())
    program_ = read_program(func)
    q, k, v = drawn(program_, [only_group(func)], "neg_inf_first_segment", np.random.default_rng(0))
    assert np.isneginf(k[:, : LENGTH // 2, :]).all() and np.isfinite(k[:, LENGTH // 2 :, :]).all()
    assert np.isfinite(q).all() and np.isfinite(v).all()


def test_indices_stay_in_range_whatever_the_pattern() -> None:
    x, table, row = array("x"), array("table", 3, LENGTH), te.placeholder((ROWS,), "int32", name="row")
    m = fold("m", lambda i, j: x[i, j] + table[row[i], j], te.max)
    func = program(x, table, row, fold("out", lambda i, j: te.exp(x[i, j] + table[row[i], j] - m[i])))
    *_, indices = drawn(read_program(func), [only_group(func)], "large_offset", np.random.default_rng(0))
    assert indices.min() >= 0 and indices.max() <= 2


@pytest.mark.parametrize("inputs", ["odd", ("normal", "odd")])
def test_an_unknown_input_is_told_by_name(inputs: str | tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="odd"):
        tvm_cascade.numerics(variance(), inputs=inputs)


def test_the_command_prints_the_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--small", "--shape", "length=100"]
    assert cli.main(["numerics", "moments", *shape, "--inputs", "normal", "late_spike"]) == 0
    assert "late_spike" in capsys.readouterr().out
    assert cli.main(["numerics", "moments", *shape, "--inputs", "nan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["input"] == "nan"
