"""Devices, clocks, results and arguments for tests of the harness, without a GPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import tvm

from benchmarks import runner
from benchmarks.device import CPU, Device, GpuPlan, measure
from benchmarks.environment import Environment, Memory
from benchmarks.judge.check import Status
from benchmarks.record import Report, TimedRow
from benchmarks.timing import Timing

VERSIONS = {"torch": "2.11", "flashinfer-python": None}
HERE = Environment(
    "NVIDIA Test 80GB", "cuda sm_90", "Xeon", 2, 2, VERSIONS, "abc123", "2026-11-21T10:00", 132, 50 * 2**20
)


class FakeClock:
    """Runs each program once for its side effects, and says that it took so many seconds."""

    def __init__(self, seconds: float = 1e-3) -> None:
        self.taken, self.turns = seconds, list[Callable[[], Any]]()

    def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
        self.turns.append(run)
        run()
        return [self.taken] * runs


def fake_device(torch: Any, clock: Any = None, memory: Memory | None = None) -> Device:
    """The CPU, timed as a GPU is."""
    where = Environment(**{**vars(HERE), "memory": memory})
    clock = clock or FakeClock()
    return Device(
        CPU, tvm.target.Target("llvm"), where, {}, lambda _, calls: measure(calls, GpuPlan(rounds=4), clock), torch
    )


def timed(label: str, seconds: dict[str, float | None], *groups: str, estimate: float | None = None) -> Report:
    """A report with these medians; None is a row that is not available, and the estimate that of ours."""
    rows = tuple(
        TimedRow(name, Status.ABSENT, "why not")
        if s is None
        else TimedRow(
            name,
            Status.TIMED,
            timing=Timing(s, s, s, 9, 1, None),
            max_error=1e-3,
            allowed=2e-3,
            estimate_s=estimate if name == "ours" else None,
        )
        for name, s in seconds.items()
    )
    return Report(label, rows, groups, "", {"keys": 64}, "bfloat16", 10**9, 10**6)


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    runner.add_arguments(parser)
    return parser.parse_args(words)
