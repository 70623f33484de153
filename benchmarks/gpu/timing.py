"""Device times of several programs, interleaved, with the L2 cache flushed.

A card under load lowers its clocks, so a program that is measured first, or after one that does little, looks faster:
each round takes some runs of every program, forth and back and from another one on, and what is told is over all
rounds. Before each run a buffer of twice the L2 cache is read, which leaves nothing there that a run could read, and
nothing that would have to be written back while it runs. Runs are queued while the device is kept busy by
something else, so that the host's time to start one does not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tvm_cascade.cli.timing import Timing, summarise

_CLOCK_HZ = 2_000_000_000
_HOST_SECONDS = 2e-4
"""To queue one run: more than any of the peers takes."""

_WARM_UP_RUNS = 3


@dataclass(frozen=True)
class GpuPlan:
    """How much to time.

    Attributes
    ----------
    rounds : in which every program has a turn.
    turn_seconds : that the runs of one turn take together, about.
    least_runs, most_runs : of a turn.
    """

    rounds: int = 5
    turn_seconds: float = 0.03
    least_runs: int = 2
    most_runs: int = 40

    def runs(self, seconds: float) -> int:
        """How many runs of that length make a turn."""
        return max(self.least_runs, min(self.most_runs, round(self.turn_seconds / max(seconds, 1e-9))))


class Clock(Protocol):
    """What takes times."""

    def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
        """Seconds of each of several runs."""
        ...


class DeviceClock:
    """Takes device times by events, with the L2 cache filled with something else before each run."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._scratch = torch.ones(2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda")

    def seconds(self, run: Callable[[], Any], runs: int) -> list[float]:
        """Seconds of each run, on the device."""
        cuda = self._torch.cuda
        events = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in range(runs)]
        cuda.synchronize()
        cuda._sleep(int(_CLOCK_HZ * _HOST_SECONDS * runs))
        for before, after in events:
            self._scratch.amax()
            before.record()
            run()
            after.record()
        cuda.synchronize()
        return [before.elapsed_time(after) * 1e-3 for before, after in events]


def measure(programs: Mapping[str, Callable[[], Any]], plan: GpuPlan, clock: Clock) -> dict[str, Timing | Exception]:
    """The timing of each program by its name, or what it failed with; one that fails takes no further turn."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    failed: dict[str, Exception] = {}
    runs: dict[str, int] = {}
    for turn in range(plan.rounds + 1):  # the first warms up, and finds how many runs make a turn
        for name in in_turn(tuple(programs), turn):
            if name in failed:
                continue
            try:
                found = clock.seconds(programs[name], runs.get(name, _WARM_UP_RUNS))
            except Exception as error:  # one program that fails must not hide the others
                failed[name] = error
                continue
            if turn == 0:
                runs[name] = plan.runs(statistics.median(found))
            else:
                seconds[name] += found
    return {name: failed.get(name) or summarise(seconds[name], 1, None) for name in programs}


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The order of a round: so that over the rounds each comes at every place, and not always after the same one."""
    start = turn // 2 % len(names) if names else 0
    order = [*names[start:], *names[:start]]
    return order[::-1] if turn % 2 else order
