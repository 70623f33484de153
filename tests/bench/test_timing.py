"""Timing: figures from samples that are known, turns that alternate, budgets that hold, and a gate that lets go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tvm_cascade.bench import timing
from tvm_cascade.bench.timing import IdleGate, Plan, measure, summarise

NO_GATE = IdleGate(enabled=False)


class Clock:
    """Time that passes only when somebody sleeps or calls a candidate."""

    def __init__(self) -> None:
        self.now = 0.0
        self.called: list[str] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def candidate(self, name: str, seconds: Iterator[float]) -> Callable[[], None]:
        def call() -> None:
            self.called.append(name)
            self.now += next(seconds)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(timing.time, "sleep", clock.sleep)
    return clock


def steady(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: Clock, idle_fraction: Callable[[float], float]
) -> None:
    """A /proc/stat of a machine that is idle to the given degree at each time."""
    stat = tmp_path / "stat"
    ticks = {"idle": 0.0, "busy": 0.0}

    def write() -> None:
        stat.write_text(f"cpu {int(ticks['busy'])} 0 0 {int(ticks['idle'])} 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")

    def sleep(seconds: float) -> None:
        fraction = idle_fraction(clock.now)
        ticks["idle"] += 1000 * seconds * fraction
        ticks["busy"] += 1000 * seconds * (1 - fraction)
        clock.sleep(seconds)
        write()

    write()
    monkeypatch.setattr(timing, "_STAT", stat)
    monkeypatch.setattr(timing.time, "sleep", sleep)


def test_median_and_spread() -> None:
    found = summarise([5.0, 1.0, 100.0, 3.0, 2.0, 4.0], calls=7, idle=True)
    assert (found.median_s, found.p20_s, found.p80_s) == (3.5, 2.0, 5.0)
    assert (found.samples, found.calls, found.idle) == (6, 7, True)


def test_one_sample_is_its_own_median_and_spread() -> None:
    found = summarise([2.0], calls=1, idle=None)
    assert (found.median_s, found.p20_s, found.p80_s) == (2.0, 2.0, 2.0)


def test_a_sample_is_the_mean_of_its_calls(clock: Clock) -> None:
    found = measure({"quick": clock.candidate("quick", steady(0.001))}, Plan(repeats=5), NO_GATE)["quick"]
    assert found.median_s == pytest.approx(0.001)
    assert found.samples == 5
    assert found.calls * 0.001 == pytest.approx(timing._SAMPLE_SECONDS, abs=0.0011)


def test_settling_and_the_first_call_of_a_sample_are_not_timed(clock: Clock) -> None:
    def cold_then_warm() -> Iterator[float]:
        yield 1.0  # calibration
        while True:
            yield from (1.0, 0.1)

    found = measure({"slow": clock.candidate("slow", cold_then_warm())}, Plan(repeats=3, max_seconds=9), NO_GATE)[
        "slow"
    ]
    assert found.median_s == pytest.approx(0.1)


def test_candidates_take_turns(clock: Clock) -> None:
    calls = {name: clock.candidate(name, steady(1.0)) for name in ("a", "b")}
    measure(calls, Plan(repeats=3, max_seconds=100), NO_GATE)
    assert clock.called == ["a", "b"] + ["a", "a", "b", "b"] * 3


def test_a_slow_candidate_stops_at_its_budget_and_the_others_go_on(clock: Clock) -> None:
    calls = {"slow": clock.candidate("slow", steady(1.0)), "quick": clock.candidate("quick", steady(0.1))}
    found = measure(calls, Plan(repeats=8, max_seconds=3.0), NO_GATE)
    assert (found["slow"].samples, found["quick"].samples) == (2, 8)


def test_a_call_that_outlasts_its_budget_is_made_once(clock: Clock) -> None:
    found = measure({"slow": clock.candidate("slow", steady(7.0))}, Plan(max_seconds=5.0), NO_GATE)["slow"]
    assert clock.called == ["slow"]
    assert (found.samples, found.median_s) == (1, 7.0)


def test_nothing_to_measure() -> None:
    assert measure({}, Plan(), NO_GATE) == {}


def test_the_gate_opens_when_the_machine_becomes_idle(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores(monkeypatch, tmp_path, clock, lambda now: 1.0 if now >= 4.0 else 0.5)
    assert IdleGate(limit_seconds=30).wait() is True
    assert 4.0 <= clock.now < 5.0


def test_the_gate_gives_up_on_a_busy_machine_and_says_so(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores(monkeypatch, tmp_path, clock, lambda now: 0.9)
    gate = IdleGate(limit_seconds=5)
    assert gate.wait() is False
    assert 5.0 <= clock.now < 6.0
    before = clock.now
    assert gate.wait() is False
    assert clock.now - before < 1.0, "the limit is for all waits together"


def test_a_timing_says_whether_the_machine_was_idle(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cores(monkeypatch, tmp_path, clock, lambda now: 1.0)
    quiet = measure({"a": clock.candidate("a", steady(1.0))}, Plan(repeats=2), IdleGate())["a"]
    cores(monkeypatch, tmp_path, clock, lambda now: 0.0)
    busy = measure({"a": clock.candidate("a", steady(1.0))}, Plan(repeats=2), IdleGate(limit_seconds=1))["a"]
    unknown = measure({"a": clock.candidate("a", steady(1.0))}, Plan(repeats=2), NO_GATE)["a"]
    assert (quiet.idle, busy.idle, unknown.idle) == (True, False, None)


def test_without_proc_stat_nobody_can_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(timing, "_STAT", tmp_path / "none")
    assert IdleGate(limit_seconds=3600).wait() is None


def test_waiting_for_a_device_is_idle_and_stolen_time_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    #                  user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu 1 2 3 40 50 6 7 800 1 2\n")
    monkeypatch.setattr(timing, "_STAT", stat)
    assert timing._ticks() == (909, 90)
