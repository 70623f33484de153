"""The benchmarks: complete tables and JSON, wrong programs named and not timed, goals judged by their figures."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from benchmarks import goals, peers, runner, suites
from benchmarks.__main__ import main
from benchmarks.goals import PassGoal, SpeedGoal
from benchmarks.peers import PEERS
from benchmarks.products import __main__ as products
from benchmarks.record import Report, TimedRow
from tvm_cascade.cli.timing import Timing
from tvm_cascade.corpus import forms, workloads
from tvm_cascade.corpus.case import Case
from tvm_cascade.corpus.check import Status
from tvm_cascade.corpus.forms import Absent, Runnable
from tvm_cascade.corpus.workload import Workload
from tvm_cascade.errors import OptionError, OracleError, WorkloadError
from tvm_cascade.evaluate import oracle

from ..tiers import slow_but

EVERY_ROW = [peers.NUMPY, peers.TORCH, forms.TVM_DEFAULT, peers.TVM_DLIGHT, forms.OURS_UNFUSED, forms.OURS_FUSED]
ONE_WORKLOAD = ["--suite", "smoke", "--only", "variance", "--no-idle-gate", "--repeats", "2"]


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    runner.add_arguments(parser)
    return parser.parse_args(words)


def only(*names: str) -> dict[str, forms.Form]:
    return {name: PEERS[name] for name in names}


def constant(value: float, scale: float = 0.0, calls: list[int] | None = None) -> forms.Form:
    """A peer that gives value + scale·(the exact result), and notes its calls."""

    def prepare(case: Case) -> Runnable:
        outputs = [(value + scale * exact).astype(np.float32) for exact in case.exact]
        return Runnable(lambda: calls.append(1) if calls is not None else None, lambda: outputs)

    return prepare


@pytest.fixture(scope="module", params=slow_but(["attention"], ["attention", "all"]))
def smoke(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "smoke.json"
    only = [] if request.param == "all" else [request.param]
    words = ["--suite", "smoke", *(["--only", *only] if only else [])]
    arguments = parse(*words, "--no-idle-gate", "--repeats", "2", "--seed", "3", "--json", str(path))
    code = runner.run(arguments)
    found: dict[str, Any] = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return {**found, "exit code": code, "asked for": suites.entries("smoke", only)}


def test_smoke_is_sound_and_complete(smoke: dict[str, Any]) -> None:
    assert smoke["exit code"] == 0
    assert [one["label"] for one in smoke["workloads"]] == [entry.label for entry in smoke["asked for"]]
    for workload in smoke["workloads"]:
        assert [row["name"] for row in workload["rows"] if row["name"] != forms.OURS_FORCED] == EVERY_ROW
        assert workload["baseline"] == forms.TVM_DEFAULT
        assert workload["blind_to"] == [], "the check has to tell zeros, a constant and a shuffle from the answer"
        assert workload["decisions"] and workload["fuse_seconds"] > 0
        assert workload["flops"] > 0 and workload["bytes"] > 0


def test_every_timed_row_of_smoke_was_checked(smoke: dict[str, Any]) -> None:
    for row in (row for workload in smoke["workloads"] for row in workload["rows"]):
        if row["status"] != Status.TIMED:
            assert row["timing"] is None and row["note"]
            continue
        assert row["max_error"] <= row["allowed"]
        assert row["timing"]["samples"] == 2
        assert 0 < row["timing"]["p20_s"] <= row["timing"]["median_s"] <= row["timing"]["p80_s"]


def test_fusing_leaves_smaller_temporaries_in_what_runs(smoke: dict[str, Any]) -> None:
    (attention,) = (one for one in smoke["workloads"] if one["label"].startswith("attention"))
    rows = {row["name"]: row for row in attention["rows"]}
    fused = rows.get(forms.OURS_FORCED, rows[forms.OURS_FUSED])  # at this size the cost model may decline
    assert fused["temporary_bytes"] < rows[forms.TVM_DEFAULT]["temporary_bytes"]


def test_json_says_what_the_figures_depend_on(smoke: dict[str, Any]) -> None:
    where = smoke["environment"]
    assert where["cpu"] and where["threads"] >= 1 and where["target"].startswith("llvm") and where["date"]
    assert {"tvm-cascade", "apache-tvm", "apache-tvm-ffi", "torch", "numpy"} <= where["versions"].keys()
    assert smoke["settings"]["seed"] == 3 and smoke["settings"]["plan"]["repeats"] == 2
    assert smoke["settings"]["idle_gate"] is False and "tile" in smoke["settings"]["options"]


def test_the_tables_show_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    runner.run(parse(*ONE_WORKLOAD), only(peers.NUMPY, forms.TVM_DEFAULT))
    shown = capsys.readouterr().out
    for text in ("variance 6x1009", peers.NUMPY, forms.TVM_DEFAULT, "apache-tvm", "idle gate off"):
        assert text in shown


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_wrong_program_is_named_and_never_timed(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []
    rows = {**only(peers.NUMPY, forms.TVM_DEFAULT), "impostor": constant(value, calls=calls)}
    path = tmp_path / "out.json"
    assert runner.run(parse(*ONE_WORKLOAD, "--json", str(path)), rows) == 1
    assert "WRONG" in capsys.readouterr().out
    (workload,) = json.loads(path.read_text())["workloads"]
    impostor = workload["rows"][-1]
    assert (impostor["status"], impostor["timing"]) == (Status.WRONG, None)
    assert impostor["note"]
    assert calls == [1], "one run for the check, none for a time"


def test_a_program_that_the_oracle_cannot_evaluate_is_not_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OracleError("a block", "some_packed_call", "block `kernel`")

    monkeypatch.setattr(oracle, "evaluate", refuse)
    words = ["--suite", "redfuser-cpu", "--only", "R1", "--no-idle-gate"]
    assert runner.run(parse(*words), {"never": lambda case: pytest.fail("something ran")}) == 0
    shown = capsys.readouterr().out
    assert "`never`: there is no oracle" in shown and "some_packed_call" in shown


def test_a_program_that_fails_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(case: Case) -> Runnable:
        raise RuntimeError("no such instruction\nand a long trace")

    assert runner.run(parse(*ONE_WORKLOAD), {"broken": broken, **only(peers.NUMPY)}) == 1
    shown = capsys.readouterr().out
    assert "`broken`: FAILED: RuntimeError: no such instruction" in shown
    assert peers.NUMPY in shown


def test_a_program_that_cannot_be_built_is_told_and_hides_no_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = Workload.build

    def build(self: Workload, **shape_overrides: int) -> Any:
        if self.name == "variance":
            raise RuntimeError("no such block\nand a long trace")
        return built(self, **shape_overrides)

    monkeypatch.setattr(Workload, "build", build)
    words = ["--suite", "smoke", "--only", "variance", "inertia", "--no-idle-gate", "--repeats", "2"]
    path = tmp_path / "found.json"
    assert runner.run(parse(*words, "--json", str(path)), only(peers.NUMPY)) == 1
    shown, found = capsys.readouterr().out, json.loads(path.read_text())
    assert "RuntimeError: no such block and a long trace" in shown
    assert [one["label"].split()[0] for one in found["workloads"]] == ["inertia"]
    assert [label.split()[0] for label in found["failed"]] == ["variance"]


def test_missing_torch_is_a_row_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert runner.run(parse(*ONE_WORKLOAD), only(peers.NUMPY, peers.TORCH)) == 0
    shown = capsys.readouterr().out
    assert "`torch`: torch is not installed" in shown


def test_the_default_rows_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    runner.run(parse(*ONE_WORKLOAD, "--skip-default"), only(peers.NUMPY, forms.TVM_DEFAULT))
    assert forms.TVM_DEFAULT not in capsys.readouterr().out


def test_only_takes_names_and_labels() -> None:
    labels = [entry.label for entry in suites.entries("cpu", ["inertia"])]
    assert labels == ["inertia 1024x8192", "inertia 256x131072", "inertia 4x4096"]
    assert [entry.label for entry in suites.entries("cpu", ["inertia 1024x8192"])] == ["inertia 1024x8192"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--only", "varience"], WorkloadError),
        (["--repeats", "0"], OptionError),
        (["--max-seconds", "nan"], OptionError),
        (["--json", "/no/such/folder/out.json"], OptionError),
    ],
)
def test_bad_arguments_are_told_before_anything_runs(words: list[str], error: type[Exception]) -> None:
    def never(case: Case) -> Absent:
        pytest.fail("something ran")

    with pytest.raises(error):
        runner.run(parse("--suite", "smoke", *words), {"never": never})


def test_an_unknown_suite() -> None:
    with pytest.raises(WorkloadError, match="redfuser-cpu"):
        suites.entries("gpu")


@pytest.mark.parametrize("suite", suites.SUITES)
def test_the_labels_of_a_suite_are_distinct(suite: str) -> None:
    labels = [entry.label for entry in suites.entries(suite)]
    assert labels and len(set(labels)) == len(labels)


def test_the_papers_suites_hold_every_program() -> None:
    assert {entry.family for entry in suites.entries("redfuser-cpu")} == {
        "attention", "mla", "routing", "quantised", "moments",
    }  # fmt: skip
    of_neptune = {name for name in workloads.names() if workloads.get(name).source.startswith("Neptune")}
    assert {entry.name for entry in suites.entries("neptune-cpu")} == of_neptune


def test_the_suite_for_cpus_holds_every_workload() -> None:
    measured = [(entry.family, entry.dtype, entry.shape) for entry in suites.entries("cpu")]
    twins = [workloads.get(name).cpu for name in workloads.names()]
    assert not [twin.name for twin in twins if (twin.family, twin.dtype, twin.shape) not in measured]


def test_every_workload_of_cpu_has_goals() -> None:
    by_label = {entry.label: 0 for entry in suites.entries("cpu")}
    means = [goal for goal in suites.goals("cpu") if isinstance(goal, goals.MeanGoal)]
    for goal in suites.goals("cpu"):
        if goal not in means:
            by_label[goal.label] += 1
    assert set(by_label.values()) == {5, 3, 2, 1}  # large attention; large rows; attention at other lengths; the rest
    assert all(set(goal.labels) <= by_label.keys() for goal in means)


def report(rows: dict[str, float | None], fuse_seconds: float = 0.5) -> Report:
    """A report of the label "job" with these medians; None is a row that is not available."""
    found = tuple(
        TimedRow(name, Status.ABSENT, "why not")
        if s is None
        else TimedRow(name, Status.TIMED, timing=Timing(s, s, s, 9, 1, True))
        for name, s in rows.items()
    )
    return Report("job", "", {}, "float32", 1, 1, (), fuse_seconds, None, (), found)


OURS, TORCH = forms.OURS_FUSED, peers.TORCH
JUDGED: list[tuple[Report, goals.Goal, bool | None]] = [
    (report({TORCH: 3.0, OURS: 2.0}), SpeedGoal("job", (TORCH,), 1.5), True),
    (report({TORCH: 2.9, OURS: 2.0}), SpeedGoal("job", (TORCH,), 1.5), False),
    (report({TORCH: 2.9, OURS: 2.0}), SpeedGoal("job", (TORCH,), None), None),
    (report({TORCH: None, OURS: 2.0}), SpeedGoal("job", (TORCH,), 1.5), None),
    (report({TORCH: None, "other": 8.0, OURS: 2.0}), SpeedGoal("job", (TORCH, "other"), 1.5), True),
    (report({TORCH: 3.0, forms.OURS_UNFUSED: 1.0, OURS: 9.0}), SpeedGoal("job", (TORCH,), 1.5), False),
    # Declined: what users get is the unfused program, whatever a forced one would take.
    (
        report({TORCH: 3.0, forms.OURS_UNFUSED: 1.0, OURS: None, forms.OURS_FORCED: 9.0}),
        SpeedGoal("job", (TORCH,), 1.5),
        True,
    ),
    (report({}, fuse_seconds=1.9), PassGoal("job", 2.0), True),
    (report({}, fuse_seconds=2.1), PassGoal("job", 2.0), False),
]


@pytest.mark.parametrize(("found", "goal", "met"), JUDGED)
def test_goals_are_judged_by_their_figures(found: Report, goal: goals.Goal, met: bool | None) -> None:
    (outcome,) = goals.evaluate([goal], [found])
    assert outcome.met is met


@pytest.mark.parametrize(("ours", "met"), [((1.0, 4.0), True), ((2.0, 4.0), False), ((1.0, None), None)])
def test_a_goal_for_a_mean_is_judged_over_all_of_its_workloads(
    ours: tuple[float | None, float | None], met: bool | None
) -> None:
    taken = zip("ab", ours, strict=True)
    found = [dataclasses.replace(report({TORCH: 2.0, OURS: seconds}), label=label) for label, seconds in taken]
    goal = goals.MeanGoal("both", ("a", "b"), TORCH, 1.0)
    (outcome,) = goals.evaluate([goal], found)
    assert outcome.met is met
    assert goals.evaluate([goal], [dataclasses.replace(report({}), label="other")]) == []


def test_a_goal_says_when_the_machine_was_not_idle() -> None:
    quiet, busy = Timing(1, 1, 1, 9, 1, True), Timing(1, 1, 1, 9, 1, False)
    for timing, idle in ((quiet, True), (busy, False)):
        rows = (TimedRow(TORCH, Status.TIMED, timing=timing), TimedRow(OURS, Status.TIMED, timing=quiet))
        (outcome,) = goals.evaluate([SpeedGoal("job", (TORCH,), 1.0)], [dataclasses.replace(report({}), rows=rows)])
        assert outcome.idle is idle


def test_goals_of_workloads_that_were_not_measured_are_left_out() -> None:
    assert goals.evaluate([SpeedGoal("other", (TORCH,), 1.5)], [report({TORCH: 1.0})]) == []


def test_a_wrong_fused_row_is_not_replaced_by_the_unfused_one() -> None:
    rows = (
        TimedRow(forms.OURS_UNFUSED, Status.TIMED, timing=Timing(1, 1, 1, 9, 1, True)),
        TimedRow(OURS, Status.WRONG),
    )
    found = dataclasses.replace(report({}), rows=rows)
    assert found.delivered == OURS and found.seconds(found.delivered) is None
    assert not found.sound


PROGRAM = """
import tvm
from tvm import te
x = te.placeholder((4, 100), "float32", name="x")
j, k = te.reduce_axis((0, 100), "j"), te.reduce_axis((0, 100), "k")
top = te.compute((4,), lambda i: te.max(x[i, j], axis=j), name="top")
stats = te.create_prim_func([x, top, te.compute((4,), lambda i: te.sum(te.exp(x[i, k] - top[i]), axis=k), name="s")])
"""


def test_the_command_takes_a_file(tmp_path: Path) -> None:
    program, path = tmp_path / "program.py", tmp_path / "out.json"
    program.write_text(PROGRAM)
    quick = ["--no-idle-gate", "--repeats", "1", "--max-seconds", "0.1", "--json", str(path)]
    assert main([str(program), *quick, "--force"]) == 0
    (found,) = json.loads(path.read_text())["workloads"]
    timed = {row["name"] for row in found["rows"] if row["status"] == "timed"}
    assert found["label"] == "stats" and found["flops"] is None and found["blind_to"] == []
    assert {"tvm default", "ours, unfused", "ours, fused"} <= timed


BAD = {
    "JSON over a folder": (["--suite", "smoke", "--json", "/"], "--json"),
    "suite and programs": (["V1", "--suite", "smoke"], "a suite or programs"),
    "shape of a suite": (["--suite", "smoke", "--shape", "rows=3"], "with a program"),
    "option of a GPU's suite": (["--suite", "smoke", "--rounds", "9"], "a suite for a GPU"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_a_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: expected") and message in printed.err and printed.out == ""


def test_an_unknown_suite_is_told_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--suite", "none"])
    assert stopped.value.code == 2
    error, remedy = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and remedy == "  what to do: python -m benchmarks --help"


def test_random_programs_with_products_need_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert products.main(["0"]) == 2
    assert "expected 1 or more" in capsys.readouterr().err
    if not tvm.cuda(0).exist:
        assert products.main(["3"]) == 2
        told = capsys.readouterr().err
        assert "a GPU that torch sees" in told or "expected torch" in told
