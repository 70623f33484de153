"""Programs compiled ahead without a GPU: libraries take the place of compilers, and what fails is left to the bench."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import tvm
from tvm import tirx

from benchmarks import ahead, peers, suites
from benchmarks.gpu import check, tvm_peers
from benchmarks.gpu.prepared import Prepared
from benchmarks.gpu.problem import Problem, problem_class
from benchmarks.record import OURS
from benchmarks.suites.entry import Entry

torch = pytest.importorskip("torch")


def small() -> Entry:
    (entry,) = suites.entries("variance", ["V1"])
    return dataclasses.replace(entry, workload=check.twin(entry.workload))


def refused(problem: Problem) -> Prepared:
    raise AssertionError(f"{problem.workload.name} was to be there already")


def test_a_library_takes_the_place_of_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def for_the_cpu(func: tirx.PrimFunc) -> tvm_peers.Code:
        return tvm_peers.Code(tvm.compile(func, target="llvm"), lambda: "a loop", lambda: 2e-6)

    entry = small()
    monkeypatch.setattr(tvm_peers, "COMPILERS", {OURS: for_the_cpu})
    monkeypatch.setattr(ahead, "entries", lambda suite, only: [entry])
    ready = ahead._compile("variance", "V1", OURS, small=False, path=str(tmp_path / "v.so"))
    problem = problem_class(entry.workload).drawn(torch, entry.workload, "cpu", seed=0)
    prepared = ahead._with({ahead._key(OURS, entry.workload): ready}, OURS, refused)(problem)
    assert isinstance(prepared, Prepared)
    assert (prepared.configuration(), prepared.estimate()) == ("a loop", 2e-6)
    assert prepared.ahead_seconds > 0
    assert check.Exact(problem).judge(check.result(prepared)).ok


def test_other_shapes_are_not_taken_for_it() -> None:
    entry = small()
    other = problem_class(entry.workload).drawn(torch, entry.workload.with_shape(rows=3), "cpu", seed=0)
    ready = {ahead._key(OURS, entry.workload): ahead.Ready(1.0, "there is none")}
    with pytest.raises(AssertionError, match="to be there already"):
        ahead._with(ready, OURS, refused)(other)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_fails_ahead_is_left_to_the_bench() -> None:
    """There is no GPU: the process cannot compile, and the row is prepared as ever."""
    entry = small()
    seen: list[Problem] = []

    def prepare(problem: Problem) -> Prepared:
        seen.append(problem)
        return Prepared(lambda: None, lambda output: output, lambda: None)

    (listed,) = suites.entries("variance", ["V1"])
    problem = Problem.drawn(torch, entry.workload, "cpu", seed=0)
    suite = {"variance": ([listed], {peers.INDUCTOR: prepare, OURS: prepare})}
    with ahead.compiled_ahead(suite, jobs=2) as ready:
        for row in ready["variance"].values():
            row(problem)
    assert seen == [problem, problem]


def test_what_takes_too_long_is_left_to_the_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Problem] = []
    (listed,) = suites.entries("variance", ["V1"])
    suite = {"variance": ([listed], {OURS: lambda problem: seen.append(problem)})}
    with ahead.compiled_ahead(suite, jobs=1, seconds=0.0) as ready:
        ready["variance"][OURS](Problem.drawn(torch, small().workload, "cpu", seed=0))
    assert len(seen) == 1
