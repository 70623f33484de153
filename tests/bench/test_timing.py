"""Timing: figures from samples that are known, turns that alternate, budgets that hold, and a gate that lets go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import timing
from benchmarks.timing import IdleGate, Plan, measure, summarise

NO_GATE = IdleGate(enabled=False)


class Machine:
    """A machine of one core whose time passes only when somebody sleeps or calls a candidate.

    `others` is the part of the core that other processes take, at each time.
    """

    def __init__(self, stat: Path) -> None:
        self.now = self.own = self.busy = 0.0
        self.others: Callable[[float], float] = lambda now: 0.0
        self.called: list[str] = []
        self.sleeping = False
        self._stat = stat
        self.sleep(0.0)

    def sleep(self, seconds: float) -> None:
        self.sleeping = True
        self._pass(seconds, own=0.0)
        self.sleeping = False

    def candidate(self, name: str, seconds: Iterator[float]) -> Callable[[], None]:
        def call() -> None:
            self.called.append(name)
            duration = next(seconds)
            self._pass(duration, own=duration * (1.0 - self.others(self.now)))

        return call

    def _pass(self, seconds: float, own: float) -> None:
        self.busy += own + self.others(self.now) * seconds
        self.own += own
        self.now += seconds
        ticks = [round(count / timing._TICK_SECONDS) for count in (self.busy, self.now - self.busy)]
        self._stat.write_text(f"cpu {ticks[0]} 0 0 {ticks[1]} 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "stat")
    monkeypatch.setattr(timing, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(timing.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: machine.now)
    monkeypatch.setattr(timing.time, "process_time", lambda: machine.own)
    monkeypatch.setattr(timing.time, "sleep", machine.sleep)
    return machine


def steady(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def test_median_and_spread() -> None:
    found = summarise([5.0, 1.0, 100.0, 3.0, 2.0, 4.0], calls=7, idle=True)
    assert (found.median_s, found.p20_s, found.p80_s) == (3.5, 2.0, 5.0)
    assert (found.samples, found.calls, found.idle) == (6, 7, True)


def test_one_sample_is_its_own_median_and_spread() -> None:
    found = summarise([2.0], calls=1, idle=None)
    assert (found.median_s, found.p20_s, found.p80_s) == (2.0, 2.0, 2.0)


def test_a_sample_is_the_mean_of_its_calls(machine: Machine) -> None:
    found = measure({"quick": machine.candidate("quick", steady(0.001))}, Plan(repeats=5), NO_GATE)["quick"]
    assert found.median_s == pytest.approx(0.001)
    assert found.samples == 5
    assert found.calls * 0.001 == pytest.approx(timing._SAMPLE_SECONDS, abs=0.0011)


def test_settling_and_the_first_call_of_a_sample_are_not_timed(machine: Machine) -> None:
    def cold_then_warm() -> Iterator[float]:
        yield 1.0  # calibration
        while True:
            yield from (1.0, 0.1)

    found = measure({"slow": machine.candidate("slow", cold_then_warm())}, Plan(repeats=3, max_seconds=9), NO_GATE)[
        "slow"
    ]
    assert found.median_s == pytest.approx(0.1)


def test_candidates_take_turns(machine: Machine) -> None:
    calls = {name: machine.candidate(name, steady(1.0)) for name in ("a", "b")}
    measure(calls, Plan(repeats=3, max_seconds=100), NO_GATE)
    assert machine.called == ["a", "b"] + ["a", "a", "b", "b"] * 3


def test_a_slow_candidate_stops_at_its_budget_and_the_others_go_on(machine: Machine) -> None:
    calls = {"slow": machine.candidate("slow", steady(1.0)), "quick": machine.candidate("quick", steady(0.1))}
    found = measure(calls, Plan(repeats=8, max_seconds=3.0), NO_GATE)
    assert (found["slow"].samples, found["quick"].samples) == (2, 8)


def test_a_call_that_outlasts_its_budget_is_made_once(machine: Machine) -> None:
    found = measure({"slow": machine.candidate("slow", steady(7.0))}, Plan(max_seconds=5.0), NO_GATE)["slow"]
    assert machine.called == ["slow"]
    assert (found.samples, found.median_s) == (1, 7.0)


def test_nothing_to_measure() -> None:
    assert measure({}, Plan(), NO_GATE) == {}


def test_the_gate_opens_when_the_machine_becomes_idle(machine: Machine) -> None:
    machine.others = lambda now: 0.0 if now >= 4.0 else 0.5
    assert IdleGate(limit_seconds=30).wait() is True
    assert 4.0 <= machine.now < 5.0


def test_the_gate_gives_up_on_a_busy_machine_and_says_so(machine: Machine) -> None:
    machine.others = lambda now: 0.1
    gate = IdleGate(limit_seconds=5)
    assert gate.wait() is False
    assert 5.0 <= machine.now < 6.0
    before = machine.now
    assert gate.wait() is False
    assert machine.now - before < 1.0, "the limit is for all waits together"


def test_a_timing_says_whether_the_machine_was_idle(machine: Machine) -> None:
    def timed(others: float, gate: IdleGate) -> bool | None:
        machine.others = lambda now: others
        return measure({"a": machine.candidate("a", steady(1.0))}, Plan(repeats=2), gate)["a"].idle

    assert timed(0.0, IdleGate()) is True
    assert timed(0.9, IdleGate(limit_seconds=1)) is False
    assert timed(0.0, NO_GATE) is None


def test_a_sample_that_others_disturb_is_taken_again(machine: Machine) -> None:
    # Idle whenever the gate looks, but somebody else runs for a while during the first samples.
    machine.others = lambda now: 0.5 if 3.5 < now < 9.0 and machine.sleeping is False else 0.0
    slow_when_disturbed = machine.candidate("a", (1.0 + machine.others(machine.now) for _ in iter(int, 1)))
    found = measure({"a": slow_when_disturbed}, Plan(repeats=3, max_seconds=100), IdleGate(limit_seconds=60))["a"]
    assert (found.p80_s, found.samples, found.idle) == (1.0, 3, True)
    assert len(machine.called) > 1 + 2 * 3, "some samples were thrown away"


def test_samples_are_kept_once_the_time_for_retakes_is_used_up(machine: Machine) -> None:
    machine.others = lambda now: 0.5 if machine.sleeping is False else 0.0
    found = measure({"a": machine.candidate("a", steady(1.0))}, Plan(repeats=3), IdleGate(limit_seconds=5))["a"]
    assert (found.samples, found.idle) == (3, False)
    assert machine.now < 20


def test_without_proc_stat_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timing, "_STAT", tmp_path / "none")
    assert IdleGate(limit_seconds=3600).wait() is None


def test_waiting_for_a_device_is_idle_and_stolen_time_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    #                  user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu 1 2 3 40 50 6 7 800 1 2\n")
    monkeypatch.setattr(timing, "_STAT", stat)
    assert timing._ticks() == (909, 90)


def test_threads_of_peers_may_use_every_core() -> None:
    """TVM binds the thread that calls it, and with it all threads started from there, unless it is told not to."""
    program = (
        "import os, numpy, tvm, tvm_cascade\n"
        "from benchmarks import environment\n"
        "from corpus import workloads\n"
        "before = os.sched_getaffinity(0)\n"
        "environment.set_threads()\n"
        "workload = workloads.get('variance').with_shape(rows=64, length=64)\n"
        "run = tvm_cascade.compile(workload.build())\n"
        'run(*workload.inputs(numpy.random.default_rng(0)), numpy.zeros(64, "float32"))\n'
        "own = [os.sched_getaffinity(int(task)) for task in os.listdir('/proc/self/task')]\n"
        "assert all(one == before for one in own), own\n"
    )
    root = Path(__file__).parent.parent.parent
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=120)
