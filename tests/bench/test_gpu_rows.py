"""Suites of rows without a GPU: formulas are the programs, wrong answers are seen, shares follow the bytes."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest

from benchmarks import suites
from benchmarks.environment import Memory
from benchmarks.gpu import check, torch_peers, tvm_peers
from benchmarks.gpu.prepared import Prepared, allocating
from benchmarks.gpu.problem import Problem, as_array, as_tensor, problem_class
from benchmarks.gpu.rows import Bench
from benchmarks.judge.check import Status
from benchmarks.peers import ROW_PEERS
from benchmarks.record import OURS, OURS_CUDA_CORES
from benchmarks.runner import report_of
from benchmarks.suites.entry import Entry
from benchmarks.table import console, print_report
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.tuning.compilation import compile

from .fakes import FakeClock, fake_device

torch = pytest.importorskip("torch")

ENTRIES = {
    "variance": ("variance", "V1"),
    "inertia": ("inertia", "I1"),
    **{name: ("row", f"{name} 1024 float32") for name in ("softmax", "rms_norm", "layer_norm", "cross_entropy")},
    **{name: ("row", f"{name} 1024 float16") for name in ("softmax_gradient", "layer_norm_gradient")},
    "cross_entropy_gradient": ("row", "cross_entropy_gradient 1024 float32"),
}


def small(name: str) -> Entry:
    suite, label = ENTRIES[name]
    (entry,) = suites.entries(suite, [label])
    return dataclasses.replace(entry, workload=entry.workload.with_shape(rows=7, length=40))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_formula_is_the_program(name: str) -> None:
    workload = small(name).workload.with_dtype("float32")
    arrays = workload.inputs(np.random.default_rng(1))
    problem = Problem(torch, workload, [as_tensor(torch, array, "cpu") for array in arrays])
    (exact,) = oracle.evaluate(problem.func, arrays).values()
    (reference,) = problem.references()
    tolerance.assert_close(as_array(reference), exact[problem.rows], length=problem.length, dtype="float32")


@pytest.mark.parametrize("name", ENTRIES)
def test_what_torch_computes_passes_and_wrong_answers_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    workload = small(name).workload
    problem = problem_class(workload).drawn(torch, workload, "cpu", seed=0)
    exact = check.Exact(problem)
    for prepared in (torch_peers.eager(problem), torch_peers.inductor(problem)):
        output = check.result(prepared)
        assert exact.judge(output).ok, exact.judge(output).message
    for wrong in (torch.zeros_like(output), output.roll(1, dims=0), output * 1.05):
        assert not exact.judge(wrong).ok


def reference(problem: Problem, factor: float = 1.0) -> Prepared:
    return allocating(problem, lambda: (factor * problem.eager()).to(problem.output_dtype))


def test_a_table_of_rows_has_bytes_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"eager": reference, "wrong": lambda problem: reference(problem, 1.1), OURS: reference}
    place = fake_device(torch, FakeClock(1e-6), Memory(2.0**30, 2.0**30))
    report = report_of(small("softmax"), Bench(place, rows), place, rows)
    assert [row.status for row in report.rows] == [Status.TIMED, Status.WRONG, Status.TIMED]
    seconds = 2 * 7 * 40 * 4 / 2**30
    assert report.limit_s == seconds and report.share(OURS) == seconds / 1e-6
    print_report(console(), report)
    shown = capsys.readouterr().out
    for told in ("GB/s", "of limit", f"{2 * 7 * 40 * 4 / 1e-6 / 1e9:.4g}", f"{seconds / 1e-6:.0%}"):
        assert told in shown
    assert "TF/s" not in shown and "estimate" not in shown


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", [OURS, OURS_CUDA_CORES, "tvm-default"])
def test_programs_from_tvm_build_without_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hopper = resolve_target({"kind": "cuda", "arch": "sm_90a"})
    monkeypatch.setattr(tvm_peers, "resolve_target", lambda target: hopper)
    monkeypatch.setattr(tvm_peers, "compile", lambda func, target, **options: compile(func, hopper, **options))
    prepared = ROW_PEERS[name](Problem.drawn(torch, check.twin(small("layer_norm").workload), "cpu", 0, smallest=True))
    assert isinstance(prepared, Prepared)
    told = {OURS: "memory-bound kernel `row`", OURS_CUDA_CORES: "S-TIR schedule", "tvm-default": "dlight"}
    assert told[name] in prepared.configuration()
