"""The GPU benchmark without a GPU: rows that fail keep their reason, turns alternate, files hold every row."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import runner
from benchmarks.environment import Environment
from benchmarks.gpu import device, formula, goals, markdown, peers, suites
from benchmarks.gpu import runner as gpu_runner
from benchmarks.gpu.entry import GpuEntry
from benchmarks.gpu.peers import OURS, of_suite
from benchmarks.gpu.prepared import Prepare, Prepared, allocating
from benchmarks.gpu.problem import Problem
from benchmarks.gpu.record import GpuEnvironment, GpuReport, GpuRow
from benchmarks.gpu.rows import Bench
from benchmarks.gpu.summary import BEST, WHOLE_SUITE, means
from benchmarks.gpu.table import print_environment, print_means, print_report
from benchmarks.gpu.timing import DeviceClock, GpuPlan, in_turn, measure
from benchmarks.table import console
from tvm_cascade.cli.timing import Timing
from tvm_cascade.corpus import workloads
from tvm_cascade.corpus.check import Status
from tvm_cascade.corpus.forms import Absent
from tvm_cascade.errors import InputError, OptionError

torch = pytest.importorskip("torch")

HERE = GpuEnvironment(
    "NVIDIA Test", "580.1", "sm_90", 132, 50 * 2**20, "13.0", "91900",
    Environment("Xeon", 2, 2, "cuda", {"torch": "2.11", "flashinfer-python": None}, "abc123", "2026-11-21"),
)  # fmt: skip


class FakeClock:
    """Runs each program once for its side effects, and says that it took so many seconds."""

    def __init__(self, seconds: float = 1e-3) -> None:
        self.taken, self.turns = seconds, list[Callable[[], Any]]()

    def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
        self.turns.append(run)
        run()
        return [self.taken] * runs


def eager(factor: float = 1.0) -> Prepare:
    def prepare(problem: Problem) -> Prepared:
        def run() -> Any:
            return factor * formula.eager(torch, problem.form, problem.q, problem.k, problem.v, problem.slopes)

        return allocating(problem, run, "eager")

    return prepare


def raising(problem: Problem) -> Prepared:
    raise RuntimeError("no kernel image\nis available")


def absent(problem: Problem) -> Absent:
    return Absent("it has no such mask")


def entry(name: str = "PF_CAUSAL", length: int = 40) -> GpuEntry:
    return GpuEntry(name.lower(), workloads.get(name).cpu.with_length(length), ("small",), True)


def bench(peers: dict[str, Prepare], clock: FakeClock | None = None) -> Bench:
    return Bench(torch, "cpu", peers, clock or FakeClock(), GpuPlan(rounds=4))


ROWS: dict[str, Prepare] = {"right": eager(), "wrong": eager(1.1), "broken": raising, "none": absent, OURS: eager()}


@pytest.fixture(scope="module")
def report() -> GpuReport:
    return bench(ROWS).report(entry())


def test_every_row_is_told_and_only_right_ones_are_timed(report: GpuReport) -> None:
    assert [row.name for row in report.rows] == list(ROWS)
    statuses = [Status.TIMED, Status.WRONG, Status.FAILED, Status.ABSENT, Status.TIMED]
    assert [row.status for row in report.rows] == statuses
    assert [row.timing is not None for row in report.rows] == [status is Status.TIMED for status in statuses]
    assert report.rows[1].note.startswith("not close") and report.rows[2].note == (
        "RuntimeError: no kernel image is available"
    )
    assert report.sound, "a peer's failure is none of ours"


def test_ours_is_also_run_again_and_compared_with_the_oracle(report: GpuReport) -> None:
    right, own = report.rows[0], report.rows[-1]
    assert (right.reruns_equal, right.oracle_error) == (None, None)
    assert own.reruns_equal is True
    assert own.oracle_error is not None and own.oracle_allowed is not None and own.oracle_error <= own.oracle_allowed


def test_a_wrong_row_of_ours_fails_the_run() -> None:
    found = bench({OURS: eager(1.1)}).report(entry())
    assert found.rows[0].status is Status.WRONG and "on a small shape" in found.rows[0].note
    assert not found.sound


def test_ours_with_other_bits_in_further_runs_is_wrong() -> None:
    def moving(problem: Problem) -> Prepared:
        right = eager()(problem)
        runs: list[int] = []

        def run() -> Any:
            runs.append(1)
            output = right.run()
            output[0, 0, 0, 0] *= 1 + 2**-9 * (len(runs) > 1)
            return output

        return allocating(problem, run)

    (row,) = bench({OURS: moving}).report(entry()).rows
    assert row.status is Status.WRONG and row.reruns_equal is False and "other bits" in row.note


def test_an_output_that_is_not_written_is_wrong() -> None:
    def lazy(problem: Problem) -> Prepared:
        output = torch.zeros_like(problem.q)
        return Prepared(lambda: output, lambda o: o, lambda: output.fill_(float("nan")))

    (row,) = bench({"lazy": lazy}).report(entry()).rows
    assert row.status is Status.WRONG and "NaN" in row.note


def test_without_a_reference_every_row_says_so() -> None:
    bad = dataclasses.replace(entry(), workload=workloads.get("attention_mask").cpu)
    found = bench(ROWS).report(bad)
    assert {row.status for row in found.rows} == {Status.FAILED}
    assert all("no reference" in row.note for row in found.rows) and not found.sound


def test_programs_take_turns_and_a_failing_one_leaves_the_others() -> None:
    log: list[str] = []

    def program(name: str, fails_at: int = 99) -> Callable[[], None]:
        def run() -> None:
            log.append(name)
            if log.count(name) == fails_at:
                raise RuntimeError("launch failed")

        return run

    programs = {"a": program("a"), "b": program("b", fails_at=2), "c": program("c")}
    found = measure(programs, GpuPlan(rounds=4), FakeClock())
    assert "".join(log) == "abc" + "cba" + "ca" + "ac" + "ca"
    assert isinstance(found["b"], RuntimeError) and isinstance(found["a"], Timing)
    assert found["a"].samples == 4 * GpuPlan().runs(1e-3)


def test_the_cache_holds_something_else_before_each_run() -> None:
    log: list[str] = []
    event = SimpleNamespace(record=lambda: log.append("event"), elapsed_time=lambda after: 2.5)
    cuda = SimpleNamespace(
        Event=lambda **_: event,
        synchronize=lambda: log.append("wait"),
        _sleep=lambda cycles: log.append("busy"),
        get_device_properties=lambda _: SimpleNamespace(L2_cache_size=1024),
    )
    scratch = SimpleNamespace(amax=lambda: log.append("flush"))
    sizes: list[int] = []
    stub = SimpleNamespace(cuda=cuda, ones=lambda size, device: sizes.append(size) or scratch)
    seconds = DeviceClock(stub).seconds(lambda: log.append("run"), 2)
    assert sizes == [2 * 1024 // 4], "twice the cache, in float32"
    assert seconds == [2.5e-3, 2.5e-3]
    assert log == ["wait", "busy", *["flush", "event", "run", "event"] * 2, "wait"]


def test_a_row_that_fails_while_timed_keeps_its_reason() -> None:
    class Failing(FakeClock):
        def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
            raise RuntimeError("out of memory")

    (row,) = bench({"right": eager()}, Failing()).report(entry()).rows
    assert row.status is Status.FAILED and row.note == "while timed: RuntimeError: out of memory"


def timed(label: str, seconds: dict[str, float | None], *groups: str) -> GpuReport:
    rows = tuple(
        GpuRow(name, Status.ABSENT, "why not")
        if s is None
        else GpuRow(name, Status.TIMED, timing=Timing(s, s, s, 9, 1, None), max_error=1e-3, allowed=2e-3)
        for name, s in seconds.items()
    )
    return GpuReport(label, groups, "", {"keys": 64}, "bfloat16", 10**9, 10**6, rows)


REPORTS = [
    timed("x", {"cudnn": 4e-3, "flash": 8e-3, "ours-cuda-cores": 1e-4, OURS: 2e-3}, "long"),
    timed("y", {"cudnn": None, "flash": 1e-3, OURS: 2e-3}),
    timed("z", {"cudnn": 3e-3, "flash": None, OURS: None}, "long"),
]


def test_means_are_over_what_both_have_a_time_for() -> None:
    assert REPORTS[0].best_peer == "cudnn" and REPORTS[1].best_peer == "flash"
    found = {(mean.group, mean.peer): (round(mean.geomean, 9), mean.count) for mean in means(REPORTS)}
    assert found["all", BEST] == (1.0, 2)  # 2 and 1/2
    assert found["all", "cudnn"] == (2.0, 1) and found["all", "flash"] == (round(2**0.5, 9), 2)
    assert found["long", BEST] == (2.0, 1)
    assert not any(peer == "ours-cuda-cores" for _, peer in found)


def test_goals_are_judged_by_their_figures() -> None:
    wanted = [
        goals.RatioGoal("s", "long", BEST, 2.0),
        goals.RatioGoal("s", "all", BEST, 1.0, each=True),
        goals.RatioGoal("s", "all", "flex", 1.0),
        goals.RatioGoal("another", "all", BEST, 1.0),
    ]
    found = goals.evaluate("s", REPORTS, wanted)
    assert [outcome.met for outcome in found] == [True, False, None]
    assert found[1].figure.startswith("0.500")


@pytest.mark.parametrize(("at_least", "met"), [(0.9, True), (1.1, False)])
def test_rates_are_of_ours(at_least: float, met: bool) -> None:
    flops = 2e-3 * 1e12  # of 2 ms
    reports = [replace(REPORTS[0], flops=int(flops)), REPORTS[1]]
    (outcome,) = goals.evaluate("s", reports, [goals.RateGoal("s", "x", at_least)])
    assert outcome.met is met and outcome.figure == "1 TF/s"
    (outcome,) = goals.evaluate("s", reports, [goals.RateGoal("s", "not measured", at_least)])
    assert outcome.met is None


@pytest.mark.parametrize(("seconds", "met"), [((3.0, 9.9), True), ((3.0, 10.0), False)])
def test_the_slowest_compile_counts(seconds: tuple[float, float], met: bool) -> None:
    reports = [
        replace(one, rows=tuple(replace(row, compile_seconds=s if row.name == OURS else 99.0) for row in one.rows))
        for one, s in zip(REPORTS, seconds, strict=False)
    ]
    (outcome,) = goals.evaluate("s", reports, [goals.CompileGoal("s", 10.0)])
    assert outcome.met is met and "of 2" in outcome.figure


def test_every_goal_is_about_what_there_is() -> None:
    entries = {suite: suites.entries(suite) for suite in suites.SUITES}
    for goal in goals.GOALS:
        if isinstance(goal, goals.RateGoal):
            assert goal.label in {one.label for one in entries[goal.suite]}
        if isinstance(goal, goals.PairGoal):
            assert {label for pair in goal.pairs for label in pair} <= {one.label for one in entries[goal.suite]}
        if not isinstance(goal, (goals.RatioGoal, goals.ShareGoal)):
            continue
        assert goal.group in {group for one in entries[goal.suite] for group in (*one.groups, WHOLE_SUITE)}
        if isinstance(goal, goals.RatioGoal):
            assert goal.peer in (BEST, *of_suite(goal.suite))


def test_markdown_holds_every_row_and_the_slower_ones(report: GpuReport) -> None:
    reports = [*REPORTS, report]
    text = markdown.section("mha", HERE, GpuPlan(), reports)
    for one in reports:
        for row in one.rows:
            assert f"| {one.label} | {row.name} |" in text
    for shown in ("NVIDIA Test", "580.1", "abc123", "flashinfer-python not installed", "0.500", "WRONG", "5 rounds"):
        assert shown in text
    assert "- none (pf_causal): it has no such mask" in text and "broken (pf_causal): FAILED: RuntimeError" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {7, 5, 10, 6}, "cells of a table are as many as its columns"


def test_a_section_is_replaced_and_the_others_stay() -> None:
    text = ""
    for suite, body in (("prefill", "old"), ("mha", "kept"), ("prefill", "new")):
        text = markdown.updated(text, suite, f"## {suite}\n\n{body}\n")
    assert "old" not in text and text.index("# Benchmarks") < text.index("new") < text.index("kept")
    assert markdown.updated(text, "prefill", "## prefill\n\nnew\n") == text


def test_the_file_opens_with_a_table_of_its_sections() -> None:
    told = (
        "tvm-cascade 0.1.0; commit abc; 2026-11-21T19:15:51+00:00\n\n| all | best peer | 1.500 | 1.000 | 2.000 | 3 |\n"
    )
    text = markdown.updated("", "prefill", f"## prefill\n\n{told}")
    text = markdown.updated(text, "mha", "## mha\n\nno row\n")
    head = text.split("## prefill")[0]
    assert "| [prefill](#prefill) | 3 | 1.500 | 1.000 | 2.000 | 2026-11-21 |\n| [mha](#mha) |  |" in head
    assert markdown.indexed(text) == text and text.count("| suite |") == 1


def test_the_terminal_shows_the_rows(report: GpuReport, capsys: pytest.CaptureFixture[str]) -> None:
    shown = console()
    print_environment(shown, HERE)
    print_report(shown, report)
    print_means(shown, means([report]))
    text = capsys.readouterr().out
    for word in (*ROWS, "NVIDIA Test", "it has no such mask", "reruns bitwise equal", "geomean"):
        assert word in text


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    runner.add_arguments(parser)
    return parser.parse_args(words)


def test_json_and_markdown_are_written(tmp_path: Path, report: GpuReport) -> None:
    files = [tmp_path / "out.json", tmp_path / "BENCHMARKS.md"]
    args = parse("--suite", "mha", "--json", str(files[0]), "--markdown", str(files[1]))
    gpu_runner.write(args, HERE, GpuPlan(), [report])
    found = json.loads(files[0].read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found["environment"]["gpu"] == "NVIDIA Test" and found["environment"]["host"]["commit"] == "abc123"
    assert [row["name"] for row in found["workloads"][0]["rows"]] == list(ROWS)
    assert files[1].read_text().startswith("# Benchmarks")


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.1, 1)])
def test_a_whole_run_prints_and_writes_everything(
    factor: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "torch_on_gpu", lambda suite: torch)
    monkeypatch.setattr(device, "describe", lambda *_: HERE)
    monkeypatch.setattr(device, "DEVICE", "cpu")
    monkeypatch.setattr(gpu_runner, "DeviceClock", lambda _: FakeClock())
    monkeypatch.setattr(peers, "chosen", lambda names, known: {"cudnn": eager(), OURS: eager(factor)})
    monkeypatch.setattr(suites, "entries", lambda suite, only: [entry("H1"), entry("PF_ALIBI")])
    path = tmp_path / "B.md"
    assert runner.run(parse("--suite", "mha", "--markdown", str(path))) == code
    shown, text = capsys.readouterr().out, path.read_text()
    for label in ("h1", "pf_alibi", "each at least 1× over best peer"):
        assert label in shown and label in text
    assert ("WRONG" in text) == (code == 1)


def test_without_a_gpu_the_suite_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"a GPU that torch sees(.|\n)*--suite cpu"):
        runner.run(parse("--suite", "prefill"))


def test_without_torch_the_suite_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OptionError, match="pip install"):
        runner.run(parse("--suite", "mha"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--suite", "prefill", "--rounds", "3"], "at least 4 rounds"),
        (["--suite", "prefill", "--peers", "cudmm"], "cudmm"),
        (["--suite", "prefill", "--markdown", "/no/such/folder/B.md"], "--markdown"),
        (["--suite", "smoke", "--peers", "cudnn"], "a suite for a GPU"),
        (["--suite", "smoke", "--markdown", "B.md"], "a suite for a GPU"),
    ],
)
def test_bad_options_are_told_before_anything_runs(words: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        runner.run(parse(*words))


def test_rounds_favour_no_place() -> None:
    """Over as many rounds as there are programs each has had every place, and every other one before it."""
    names = ("a", "b", "c", "d")
    rounds = [in_turn(names, turn) for turn in range(8)]
    for place in range(4):
        assert {order[place] for order in rounds} == set(names)
    before = {(order[k], order[k + 1]) for order in rounds for k in range(3)}
    assert {("a", "b"), ("b", "a"), ("c", "d"), ("d", "c"), ("d", "a"), ("a", "d")} <= before
