"""Suites that are tuned: their programs, the table of what the model's choices lose, and the command that prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import tune
from corpus.workload import WorkloadError
from tvm_cascade.tuning.records import Trial
from tvm_cascade.tuning.report import FunctionTuning

DEFAULT, OTHER = {"form": "fused", "tile": "by shape"}, {"form": "fused", "tile": "64"}


def tuned(default: float | None, other: float, within: float | None = None) -> FunctionTuning:
    trials = Trial(DEFAULT, default, failed="" if default else "build"), Trial(OTHER, other)
    return FunctionTuning("f", trials, DEFAULT, 0, "no design is left", 1.0, within)


def printed(found: list[tuple[str, FunctionTuning]]) -> str:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(tune.table(found))
    return shown.get()


def test_the_table_tells_how_far_the_default_is_from_the_best() -> None:
    found = [
        ("near", tuned(1.04e-6, 1e-6, 1.0)),
        ("far", tuned(2e-6, 1e-6, 1.5)),
        ("best", tuned(1e-6, 3e-6, 1.02)),
        ("nothing", tuned(None, 1e-6)),
    ]
    lines = {line.split()[0]: line.split() for line in printed(found).splitlines() if line.strip() and "─" not in line}
    assert lines["far"][1:] == ["2", "0", "2.0", "1.0", "2.000", "1.500", "tile:", "64"]
    assert lines["best"][3:7] == ["1.0", "1.0", "1.000", "1.020"] and lines["best"][7:] == ["the", "default"]
    assert lines["nothing"][1:3] == ["2", "1"]
    told = tune.sentence(found)
    assert "of 3 programs the default is within 5% in 2, within 10% in 2" in told
    assert "tuning gives 1.277 in the geometric mean" in told  # (1.04 · 2 · 1)^(1/3) = 1.2765
    assert "within 3% of the best of all in 2 of 3" in told
    assert tune.sentence([("nothing", tuned(None, 1e-6))]) == "no program was measured"


def test_every_suite_has_programs_and_a_label_picks_one() -> None:
    for suite in tune.SUITES:
        assert tune.entries(suite), suite
    cpu = [job.label for job in tune.entries("tuning-cpu")]
    assert len(set(cpu)) == len(cpu) and "attention_causal 4x4096x4096x64" in cpu
    (one,) = tune.entries("tuning-gpu", ["R6 2048x2048x64x6"])
    assert one.name == "R6"
    with pytest.raises(WorkloadError, match="nothing of the kind"):
        tune.entries("tuning-cpu", ["nothing of the kind"])


@pytest.mark.usefixtures("kept_workers")
def test_the_command_tunes_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    command = ["--suite", "tuning-cpu", "--only", "variance", "--small", "--trials", "1", "--json", str(path)]
    assert tune.main([*command, "--work-dir", str(tmp_path / "tuned")]) == 0
    assert "of 2 programs the default is within 5% in 2" in capsys.readouterr().out  # two sizes are the same small one
    assert [one["program"] for one in json.loads(path.read_text())] == ["variance 4x1000", "variance 4x4096"]
    assert tune.main([*command, "--only", "softmax"]) == 2
    assert "labels or workloads among" in capsys.readouterr().err
