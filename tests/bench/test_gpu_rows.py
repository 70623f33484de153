"""Suites of rows without a GPU: formulas are the programs, wrong answers are seen, shares follow the bytes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import runner
from benchmarks.gpu import check, device, goals, memory, peers, suites, torch_peers, tvm_peers
from benchmarks.gpu import runner as gpu_runner
from benchmarks.gpu.cells import row_cells, row_columns
from benchmarks.gpu.entry import GpuEntry
from benchmarks.gpu.memory import Memory
from benchmarks.gpu.peers import OURS, OURS_CUDA_CORES, ROW_PEERS
from benchmarks.gpu.prepared import Prepared, allocating
from benchmarks.gpu.problem import as_array, as_tensor
from benchmarks.gpu.problems import problem_class
from benchmarks.gpu.row_problem import RowProblem
from benchmarks.gpu.rows import Bench
from benchmarks.gpu.timing import GpuPlan
from tvm_cascade.corpus.check import Status
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.tuning.compilation import compile

from .test_gpu_runner import HERE, FakeClock, parse, timed

torch = pytest.importorskip("torch")

ENTRIES = {
    "variance": ("variance", "V1"),
    "inertia": ("inertia", "I1"),
    **{name: ("row", f"{name} 1024 float32") for name in ("softmax", "rms_norm", "layer_norm", "cross_entropy")},
    **{name: ("row", f"{name} 1024 float16") for name in ("softmax_gradient", "layer_norm_gradient")},
    "cross_entropy_gradient": ("row", "cross_entropy_gradient 1024 float32"),
}


def small(name: str) -> GpuEntry:
    suite, label = ENTRIES[name]
    (entry,) = suites.entries(suite, [label])
    return dataclasses.replace(entry, workload=entry.workload.with_shape(rows=7, length=40))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_formula_is_the_program(name: str) -> None:
    workload = small(name).workload.with_dtype("float32")
    arrays = workload.inputs(np.random.default_rng(1))
    problem = RowProblem(torch, workload, [as_tensor(torch, array, "cpu") for array in arrays])
    (exact,) = oracle.evaluate(problem.func, arrays).values()
    (reference,) = problem.references()
    tolerance.assert_close(as_array(reference), exact[problem.rows], length=problem.length, dtype="float32")


@pytest.mark.parametrize("name", ENTRIES)
def test_what_torch_computes_passes_and_wrong_answers_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    workload = small(name).workload
    problem = problem_class(workload).drawn(torch, workload, "cpu", seed=0)
    exact = check.Exact(problem)
    for prepared in (torch_peers.row_eager(problem), torch_peers.row_inductor(problem)):
        output = check.result(prepared)
        assert exact.judge(output).ok, exact.judge(output).message
    for wrong in (torch.zeros_like(output), output.roll(1, dims=0), output * 1.05):
        assert not exact.judge(wrong).ok


def reference(problem: RowProblem, factor: float = 1.0) -> Prepared:
    return allocating(problem, lambda: (factor * problem.eager()).to(problem.output_dtype))


def test_a_table_of_rows_has_bytes_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"eager": reference, "wrong": lambda problem: reference(problem, 1.1), OURS: reference}
    bench = Bench(torch, "cpu", rows, FakeClock(1e-6), GpuPlan(rounds=4), memory=Memory(2.0**30, 2.0**30))
    report = bench.report(small("softmax"))
    assert [row.status for row in report.rows] == [Status.TIMED, Status.WRONG, Status.TIMED]
    seconds = 2 * 7 * 40 * 4 / 2**30
    assert report.limit_s == seconds and report.share(OURS) == seconds / 1e-6
    assert row_columns([report])[2:4] == ["GB/s", "of limit"]
    assert all(len(row_cells(report, row)) == len(row_columns([report])) for row in report.rows)
    assert row_cells(report, report.rows[2])[2] == f"{2 * 7 * 40 * 4 / 1e-6 / 1e9:.0f}"


def test_a_written_byte_costs_what_a_copy_takes_beside_reading() -> None:
    program = small("softmax").workload.program  # reads as much as it writes
    assert Memory(2.0**42, 2.0**41).seconds(program) == program.compulsory_bytes / 2**41
    assert Memory(2.0**42, 2.0**41).seconds(small("variance").workload.program) < program.compulsory_bytes / 2**42


def test_bandwidths_are_the_best_of_some_runs() -> None:
    class Slower(FakeClock):
        def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
            return [1e-3 * (k + 1) for k in range(runs)]

    vector = SimpleNamespace(sum=lambda: None, copy_=lambda other: None)
    stub = SimpleNamespace(randn=lambda *_, **__: vector, empty_like=lambda _: vector)
    found = memory.measured(stub, Slower(), "cpu")
    assert found == Memory(4 * 2**30 / 2e-3, 8 * 2**30 / 2e-3), "the first run warms up"


@pytest.mark.parametrize(("limit", "met"), [(1.9e-3, True), (1.0e-3, False)])
def test_shares_are_judged_on_each_workload(limit: float, met: bool) -> None:
    reports = [
        dataclasses.replace(timed("x", {OURS: 2e-3}, suites.STREAMED), limit_s=limit),
        dataclasses.replace(timed("y", {OURS: 2e-3}, suites.STREAMED), limit_s=1.95e-3),
        dataclasses.replace(timed("z", {OURS: 2e-3}, suites.SHORT), limit_s=1e-6),
    ]
    (outcome,) = goals.evaluate("s", reports, [goals.ShareGoal("s", suites.STREAMED, 0.9)])
    assert outcome.met is met and "of 2" in outcome.figure
    (outcome,) = goals.evaluate("s", [], [goals.ShareGoal("s", suites.STREAMED, 0.9)])
    assert outcome.met is None


def test_a_whole_run_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "torch_on_gpu", lambda suite: torch)
    monkeypatch.setattr(device, "describe", lambda *_: HERE)
    monkeypatch.setattr(device, "DEVICE", "cpu")
    monkeypatch.setattr(gpu_runner, "DeviceClock", lambda _: FakeClock())
    monkeypatch.setattr(gpu_runner, "measured", lambda *_: Memory(4.3e12, 4.2e12))
    monkeypatch.setattr(peers, "chosen", lambda names, known: {"inductor": reference, OURS: reference})
    found = [small("inertia"), small("variance")]
    monkeypatch.setattr(suites, "entries", lambda suite, only: found)
    path = tmp_path / "B.md"
    assert runner.run(parse("--suite", "inertia", "--markdown", str(path))) == 0
    shown, text = capsys.readouterr().out, path.read_text()
    for told in ("4300 GB/s read by a sum", "of limit", "at least 1.2× over inductor"):
        assert told in shown and told in text


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("name", [OURS, OURS_CUDA_CORES, "tvm-default"])
def test_programs_from_tvm_build_without_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hopper = resolve_target({"kind": "cuda", "arch": "sm_90a"})
    monkeypatch.setattr(tvm_peers, "resolve_target", lambda target: hopper)
    monkeypatch.setattr(tvm_peers, "compile", lambda func, target, **options: compile(func, hopper, **options))
    prepared = ROW_PEERS[name](RowProblem.drawn(torch, check.twin(small("layer_norm").workload), "cpu", seed=0))
    assert isinstance(prepared, Prepared)
    told = {OURS: "memory-bound kernel `row`", OURS_CUDA_CORES: "S-TIR schedule", "tvm-default": "dlight"}
    assert told[name] in prepared.configuration()
