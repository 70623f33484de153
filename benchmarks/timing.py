"""Comparable CPU times of several candidates for one computation: interleaved, on an idle machine.

Candidates take turns: each round takes one sample of each, so that drift (clock frequency, other users of the machine)
hits all alike. A sample is taken while nobody else uses the machine, as far as that can be waited for. It is as many
calls as last long enough for the clock, after one call that is not timed and brings the candidate's own data back into
the caches.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_STAT = Path("/proc/stat")
_IDLE_FRACTION = 0.95
_IDLE_WINDOW_SECONDS = 0.15
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01  # the unit of /proc/stat
_TICKS_OF_DOUBT = 3  # a tick goes to whoever runs when it ends
_SETTLE_WINDOW_SECONDS = 0.025
_SETTLE_LIMIT_SECONDS = 2.0
_SAMPLE_SECONDS = 0.03


@dataclass(frozen=True)
class Timing:
    """Seconds of one call.

    Attributes
    ----------
    median_s, p20_s, p80_s : median and percentiles over the samples.
    samples, calls : how many samples were taken, and how many calls each averages.
    idle : whether others left the machine idle during every sample; None where nobody could tell.
    """

    median_s: float
    p20_s: float
    p80_s: float
    samples: int
    calls: int
    idle: bool | None


@dataclass(frozen=True)
class Plan:
    """How much to measure: samples of each candidate, and seconds after which a candidate gets no further sample."""

    repeats: int = 15
    max_seconds: float = 5.0


def summarise(seconds: Sequence[float], calls: int, idle: bool | None) -> Timing:
    low, median, high = (float(np.percentile(seconds, percent)) for percent in (20, 50, 80))
    return Timing(median, low, high, len(seconds), calls, idle)


@dataclass
class IdleGate:
    """Runs work while the machine is otherwise idle, and gives up after a total time limit.

    Attributes
    ----------
    limit_seconds : left for waiting, and for work done again; once it is used up, everything runs at once.
    enabled : False makes everything run at once, and nobody looks.
    """

    limit_seconds: float = 60.0
    enabled: bool = True
    _waits: bool = False

    @property
    def told(self) -> str:
        """What is being waited for, as text; empty while nothing is."""
        return f", once the machine is idle (waits for {self.limit_seconds:.0f} s more at most)" if self._waits else ""

    def wait(self) -> bool | None:
        """Wait until the machine is idle: whether it became so; None when switched off, or without /proc/stat."""
        if not self.enabled:
            return None
        while True:
            start = time.perf_counter()
            idle = _idle_fraction(_IDLE_WINDOW_SECONDS)
            if idle is None:
                return None
            self._waits = idle < _IDLE_FRACTION
            if not self._waits:
                return True
            self.limit_seconds -= time.perf_counter() - start
            if self.limit_seconds <= 0:
                self._waits = False
                return False

    def quietly(self, work: Callable[[], float]) -> tuple[float, bool | None]:
        """The result of `work` on an idle machine, and whether it was idle.

        It is done again where they did not, as long as time is left; without /proc/stat nobody can tell (None).
        """
        while True:
            idle = self.wait()
            before = _usage()
            value = work()
            after = _usage()
            if idle is None or before is None or after is None:
                return value, None
            quiet = idle and not _disturbed(before, after)
            if quiet or self.limit_seconds <= 0:
                return value, quiet
            self.limit_seconds -= after.seconds - before.seconds


@dataclass(frozen=True)
class _Usage:
    """Seconds since some start: on the clock, of all cores while busy, and of all cores for this process."""

    seconds: float
    busy: float
    own: float


def _usage() -> _Usage | None:
    ticks = _ticks()
    if ticks is None:
        return None
    return _Usage(time.perf_counter(), (ticks[0] - ticks[1]) * _TICK_SECONDS, time.process_time())


def _disturbed(before: _Usage, after: _Usage) -> bool:
    """Whether other processes, or other virtual machines, took a noticeable part of the cores' time."""
    foreign = (after.busy - before.busy) - (after.own - before.own)
    offered = (os.cpu_count() or 1) * (after.seconds - before.seconds)
    return foreign > (1 - _IDLE_FRACTION) * offered + _TICKS_OF_DOUBT * _TICK_SECONDS


def _idle_fraction(window_seconds: float) -> float | None:
    """The part of all cores' time that was idle during the window; None where /proc/stat does not exist."""
    before = _ticks()
    if before is None:
        return None
    time.sleep(window_seconds)
    after = _ticks()
    if after is None or after[0] == before[0]:
        return None
    return (after[1] - before[1]) / (after[0] - before[0])


def _ticks() -> tuple[int, int] | None:
    """Clock ticks of all cores since start: in all, and idle or waiting for a device."""
    try:
        first = _STAT.read_text().splitlines()[0]
    except OSError:
        return None
    ticks = [int(field) for field in first.split()[1:9]]  # the two fields after these are contained in the first two
    return sum(ticks), ticks[3] + ticks[4]


def _let_workers_sleep() -> None:
    """Wait until no thread of ours runs: workers of the call before spin for a while, and would hold up this one's.

    OpenBLAS's spin for 2^26 clock cycles or more, and had doubled the time of what torch ran after NumPy.
    """
    deadline = time.perf_counter() + _SETTLE_LIMIT_SECONDS
    while time.perf_counter() < deadline:
        start, own = time.perf_counter(), time.process_time()
        time.sleep(_SETTLE_WINDOW_SECONDS)
        if time.process_time() - own < (1 - _IDLE_FRACTION) * (time.perf_counter() - start):
            return


@dataclass
class _Candidate:
    call: Callable[[], object]
    plan: Plan
    calls: int = 1
    seconds: list[float] = field(default_factory=list)
    spent: float = 0.0
    quiet: list[bool | None] = field(default_factory=list)

    def calibrate(self, gate: IdleGate) -> None:
        """Find how many calls make a sample; a call that outlasts the plan is its own only sample."""
        duration, quiet = gate.quietly(lambda: self._time(1))
        if duration > self.plan.max_seconds:
            self._keep(duration, quiet)
            return
        if duration < _SAMPLE_SECONDS:
            duration = min(duration, self._time(1))
        self.calls = max(1, math.ceil(_SAMPLE_SECONDS / max(duration, 1e-9)))

    @property
    def unfinished(self) -> bool:
        return len(self.seconds) < self.plan.repeats and self.spent < self.plan.max_seconds

    def sample(self, gate: IdleGate) -> None:
        self._keep(*gate.quietly(self._settled))

    def _settled(self) -> float:
        _let_workers_sleep()
        self.call()
        return self._time(self.calls)

    def timing(self) -> Timing:
        return summarise(self.seconds, self.calls, None if None in self.quiet else all(self.quiet))

    def _time(self, calls: int) -> float:
        """Seconds of one call, as the mean of several."""
        start = time.perf_counter()
        for _ in range(calls):
            self.call()
        return (time.perf_counter() - start) / calls

    def _keep(self, seconds: float, quiet: bool | None) -> None:
        self.seconds.append(seconds)
        self.spent += seconds * (self.calls + 1)  # one call of each sample is not timed
        self.quiet.append(quiet)


def measure(calls: Mapping[str, Callable[[], object]], plan: Plan, gate: IdleGate) -> dict[str, Timing]:
    """The timing of each call, by its name.

    Parameters
    ----------
    calls : what to time; each computes its whole result each time.
    plan : how many samples, and for how long.
    gate : every sample is taken through it; what it says is kept with the timings.
    """
    candidates = {name: _Candidate(call, plan) for name, call in calls.items()}
    for candidate in candidates.values():
        candidate.calibrate(gate)
    while unfinished := [candidate for candidate in candidates.values() if candidate.unfinished]:
        for candidate in unfinished:
            candidate.sample(gate)
    return {name: candidate.timing() for name, candidate in candidates.items()}
