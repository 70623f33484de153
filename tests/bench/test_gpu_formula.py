"""The formula that GPU rows are judged by is the TensorIR program's own: variant by variant, against the oracle."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from benchmarks import suites
from benchmarks.gpu import check, formula
from benchmarks.gpu import problem as problems
from benchmarks.gpu.problem import SelfAttention, as_array, as_tensor
from corpus import workloads
from corpus.workload import WorkloadError
from tvm_cascade.evaluate import oracle, tolerance

torch = pytest.importorskip("torch")

SMALL = {"PF_GLOBAL": 40, "PF_CAUSAL": 40, "PF_ALIBI": 40, "PF_GQA": 40, "PF_SOFTCAP": 40, "PF_WINDOWED": 97, "H1": 40}
SMALL["float8"] = 40  # q and k alone


def small(name: str) -> SelfAttention:
    # At 16 features the program's scale, a float32 constant, is exact.
    found = suites.entries("float8", ["d64s512c"])[0].workload if name == "float8" else workloads.get(name)
    workload = found.cpu.with_length(SMALL[name]).with_shape(head_dim=16)
    arrays = workload.inputs(np.random.default_rng(0))
    return SelfAttention(torch, workload, [as_tensor(torch, array, "cpu") for array in arrays])


@pytest.mark.parametrize("name", SMALL)
def test_the_reference_is_the_oracle_of_the_program(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formula, "_ROWS_AT_ONCE", 17)
    problem = small(name)
    (exact,) = oracle.evaluate(problem.func, [as_array(x) for x in problem.inputs]).values()
    exact = exact.reshape(tuple(problem.q.shape))
    found = check.Exact(problem)
    for (batch, head), values in zip(problem.heads, found.values, strict=True):
        tolerance.assert_close(values, exact[batch, head], length=problem.length, dtype="float64")


@pytest.mark.parametrize("name", SMALL)
def test_the_eager_formula_passes_and_wrong_answers_do_not(name: str) -> None:
    problem = small(name)
    exact = check.Exact(problem)
    output = problem.eager()
    assert exact.judge(output).ok, exact.judge(output).message
    for wrong in (torch.zeros_like(output), output.roll(1, dims=2), output * 1.05):
        assert not exact.judge(wrong).ok


def test_of_long_heads_some_rows_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_COMPARED_QUERIES", 16)
    problem = small("PF_CAUSAL")  # 40 rows: every fifth
    exact = check.Exact(problem)
    output = problem.eager()
    assert exact.judge(output).ok
    output[..., 0, 35, :] = 0
    assert not exact.judge(output).ok


def test_only_the_last_of_some_heads_wrong_is_seen() -> None:
    problem = small("H1")
    output = problem.eager()
    output[-1, -1] = 0
    assert not check.Exact(problem).judge(output).ok


@pytest.mark.parametrize("name", ["V1", "L1", "attention_mask"])
def test_a_workload_without_such_a_form_is_refused(name: str) -> None:
    with pytest.raises(WorkloadError, match=name):
        formula.form_of(workloads.get(name))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_go_to_torch_and_back(dtype: str) -> None:
    array = np.random.default_rng(0).standard_normal((3, 5)).astype(getattr(ml_dtypes, dtype))
    tensor = as_tensor(torch, array, "cpu")
    assert tensor.dtype is getattr(torch, dtype)
    assert np.array_equal(as_array(tensor), array.astype(np.float64))
