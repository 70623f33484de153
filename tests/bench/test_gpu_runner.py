"""The GPU benchmark without a GPU: rows that fail keep their reason, turns alternate, every row is told and stored."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import device, peers, runner, suites
from benchmarks.device import DeviceClock, GpuPlan, bandwidths, in_turn, measure
from benchmarks.environment import Memory
from benchmarks.gpu.prepared import Prepare, Prepared, allocating
from benchmarks.gpu.problem import Problem
from benchmarks.gpu.rows import Bench
from benchmarks.judge.check import Status
from benchmarks.judge.forms import Absent
from benchmarks.record import OURS, Report, load
from benchmarks.runner import report_of
from benchmarks.suites.entry import Entry
from benchmarks.timing import Timing
from corpus import workloads
from tvm_cascade.errors import InputError, OptionError

from .fakes import FakeClock, fake_device, parse

torch = pytest.importorskip("torch")


def eager(factor: float = 1.0) -> Prepare:
    def prepare(problem: Problem) -> Prepared:
        return allocating(problem, lambda: factor * problem.eager(), "eager")

    return prepare


def raising(problem: Problem) -> Prepared:
    raise RuntimeError("no kernel image\nis available")


def absent(problem: Problem) -> Absent:
    return Absent("it has no such mask")


def entry(name: str = "PF_CAUSAL", length: int = 40) -> Entry:
    return Entry(name.lower(), workloads.get(name).cpu.with_length(length), ("small",), True)


def found_by(peers: dict[str, Prepare], of: Entry | None = None, clock: FakeClock | None = None) -> Report:
    place = fake_device(torch, clock)
    return report_of(of or entry(), Bench(place, peers), place, peers)


ROWS: dict[str, Prepare] = {"right": eager(), "wrong": eager(1.1), "broken": raising, "none": absent, OURS: eager()}


@pytest.fixture(scope="module")
def report() -> Report:
    return found_by(ROWS)


def test_every_row_is_told_and_only_right_ones_are_timed(report: Report) -> None:
    assert [row.name for row in report.rows] == list(ROWS)
    statuses = [Status.TIMED, Status.WRONG, Status.FAILED, Status.ABSENT, Status.TIMED]
    assert [row.status for row in report.rows] == statuses
    assert [row.timing is not None for row in report.rows] == [status is Status.TIMED for status in statuses]
    assert report.rows[1].note.startswith("not close") and report.rows[2].note == (
        "RuntimeError: no kernel image is available"
    )
    assert report.sound, "a peer's failure is none of ours"


def test_ours_is_also_run_again_and_compared_with_the_oracle(report: Report) -> None:
    right, own = report.rows[0], report.rows[-1]
    assert (right.reruns_equal, right.oracle_error) == (None, None)
    assert own.reruns_equal is True
    assert own.oracle_error is not None and own.oracle_allowed is not None and own.oracle_error <= own.oracle_allowed


def test_a_wrong_row_of_ours_fails_the_run() -> None:
    found = found_by({OURS: eager(1.1)})
    assert found.rows[0].status is Status.WRONG and "on a small shape" in found.rows[0].note
    assert not found.sound


def test_ours_with_other_bits_in_further_runs_is_wrong() -> None:
    def moving(problem: Problem) -> Prepared:
        right = eager()(problem)
        runs: list[int] = []

        def run() -> Any:
            runs.append(1)
            output = right.run()
            output[..., 0, 0, 0] *= 1 + 2**-9 * (len(runs) > 1)
            return output

        return allocating(problem, run)

    (row,) = found_by({OURS: moving}).rows
    assert row.status is Status.WRONG and row.reruns_equal is False and "other bits" in row.note


def test_an_output_that_is_not_written_is_wrong() -> None:
    def lazy(problem: Problem) -> Prepared:
        output = torch.zeros_like(problem.inputs[0])
        return Prepared(lambda: output, lambda o: o, lambda: output.fill_(float("nan")))

    (row,) = found_by({"lazy": lazy}).rows
    assert row.status is Status.WRONG and "NaN" in row.note


def test_without_a_reference_every_row_says_so() -> None:
    bad = dataclasses.replace(entry(), workload=workloads.get("attention_mask").cpu)
    found = found_by(ROWS, bad)
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

    (row,) = found_by({"right": eager()}, clock=Failing()).rows
    assert row.status is Status.FAILED and row.note == "while timed: RuntimeError: out of memory"


def test_a_written_byte_costs_what_a_copy_takes_beside_reading() -> None:
    ((softmax,), (variance,)) = suites.entries("row", ["softmax 1024 float32"]), suites.entries("variance", ["V1"])
    copied, read = softmax.workload.program, variance.workload.program
    assert Memory(2.0**42, 2.0**41).seconds(copied) == copied.compulsory_bytes / 2**41
    assert Memory(2.0**42, 2.0**41).seconds(read) == (read.bytes_read + 3 * read.bytes_written) / 2**42


def test_bandwidths_are_the_best_of_some_runs() -> None:
    class Slower(FakeClock):
        def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
            return [1e-3 * (k + 1) for k in range(runs)]

    vector = SimpleNamespace(sum=lambda: None, copy_=lambda other: None)
    stub = SimpleNamespace(randn=lambda *_, **__: vector, empty_like=lambda _: vector)
    found = bandwidths(stub, Slower(), "cpu")
    assert found == Memory(4 * 2**30 / 2e-3, 8 * 2**30 / 2e-3), "the first run warms up"


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.1, 1)])
def test_a_whole_run_prints_and_writes_everything(
    factor: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Memory(4.3e12, 4.2e12)
    monkeypatch.setattr(device, "cuda", lambda args, moving: fake_device(torch, memory=memory))
    monkeypatch.setattr(peers, "of_suite", lambda suite: {"cudnn": eager(), "flash": absent, OURS: eager(factor)})
    monkeypatch.setattr(suites, "entries", lambda suite, only: [entry("H1"), entry("PF_ALIBI")])
    assert runner.run(parse("--suite", "mha", "neptune", "--results", str(tmp_path))) == code
    shown, stored = capsys.readouterr().out, load(tmp_path / "test" / "mha.json")
    for told in ("h1", "pf_alibi", "each at least 1× over best peer", "4300 GB/s read by a sum", "of limit"):
        assert told in shown
    assert ("WRONG" in shown) == (code == 1) and "it has no such mask" in shown
    assert [(report.label, report.sound) for report in stored.reports] == [("h1", not code), ("pf_alibi", not code)]
    assert load(tmp_path / "test" / "neptune.json").command == "python -m benchmarks --suite neptune --device cpu"


def test_what_there_is_no_time_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "cuda", lambda args, moving: fake_device(torch))
    words = ["--suite", "gemm", "mha", "--seconds", "1e-9", "--results", str(tmp_path)]
    assert runner.run(parse(*words)) == 0
    assert load(tmp_path / "test" / "mha.json").left_out == ("H1", "H2", "H3", "H4", "H5", "H6", "flashdecoding")
    assert "out of time: H1" in capsys.readouterr().out


def test_an_estimate_that_is_far_off_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def estimated(seconds: float) -> Prepare:
        return lambda problem: dataclasses.replace(eager()(problem), estimate=lambda: seconds)

    monkeypatch.setattr(device, "cuda", lambda args, moving: fake_device(torch, FakeClock(1e-3)))
    monkeypatch.setattr(suites, "entries", lambda suite, only: [entry("H1")])
    for seconds, code in ((2.9e-3, 0), (3.1e-3, 1), (0.3e-3, 1)):
        monkeypatch.setattr(peers, "of_suite", lambda suite, seconds=seconds: {OURS: estimated(seconds)})
        assert runner.run(parse("--suite", "mha", "--results", str(tmp_path))) == code
        assert ("the estimate of h1 is off by" in capsys.readouterr().out) == bool(code)


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
        (["--suite", "prefill", "--results", "/no/such/folder"], "--results"),
        (["--suite", "prefill", "--repeats", "3"], "a suite for `cpu`"),
        (["--suite", "prefill", "smoke"], "suites for `cuda`"),
        (["--suite", "prefill", "--device", "cpu"], "suites for `cpu`"),
        (["--suite", "row", "--jobs", "0"], "--jobs"),
        (["--suite", "row", "--seconds", "nan"], "--seconds"),
        (["--suite", "smoke", "--rounds", "9"], "a suite for `cuda`"),
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
