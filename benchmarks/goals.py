"""What a suite is meant to reach, and whether what was measured reaches it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.record import Report


@dataclass(frozen=True)
class Outcome:
    """One goal with its figure.

    Attributes
    ----------
    label : of the workload.
    text : the goal in words.
    figure : what was measured, in words.
    met : None where there is nothing to meet, or where a time is missing.
    idle : whether the machine was idle while the figure was measured; None where nobody could tell.
    """

    label: str
    text: str
    figure: str
    met: bool | None
    idle: bool | None = None


class Goal(Protocol):
    """A goal of a suite for any machine."""

    def outcomes(self, reports: Sequence[Any]) -> list[Outcome]:
        """The outcomes; none where nothing relevant was measured."""
        ...


def evaluate(goals: Sequence[Goal], reports: Sequence[Any]) -> list[Outcome]:
    """The outcomes of goals, in their order."""
    return [outcome for goal in goals for outcome in goal.outcomes(reports)]


@dataclass(frozen=True)
class SpeedGoal:
    """Our program takes at most 1/`at_least` of the time of a peer.

    Attributes
    ----------
    label : of the entry.
    peers : rows to compare with; the first that has a time counts.
    at_least : the ratio asked for; None where the ratio is only to be shown.
    """

    label: str
    peers: tuple[str, ...]
    at_least: float | None

    def outcomes(self, reports: Sequence[Report]) -> list[Outcome]:
        """The ratio on the entry."""
        return [self._on(report) for report in reports if report.label == self.label]

    def _on(self, report: Report) -> Outcome:
        ours = report.delivered
        peer = next((name for name in self.peers if report.seconds(name) is not None), self.peers[0])
        wanted = "ratio" if self.at_least is None else f"at least {self.at_least:g}×"
        text = f"{wanted} over `{peer}`"
        theirs, own = report.timing(peer), report.timing(ours)
        if theirs is None or own is None:
            return Outcome(self.label, text, "no time", None)
        ratio = theirs.median_s / own.median_s
        idle = None if theirs.idle is None or own.idle is None else theirs.idle and own.idle
        met = None if self.at_least is None else ratio >= self.at_least
        return Outcome(self.label, text, f"{ratio:.2f}× (`{ours}`)", met, idle)


@dataclass(frozen=True)
class PassGoal:
    """Fusing takes at most so many seconds."""

    label: str
    at_most_s: float

    def outcomes(self, reports: Sequence[Report]) -> list[Outcome]:
        """The seconds on the entry."""
        text = f"fusing takes under {self.at_most_s:g} s"
        taken = [report.fuse_seconds for report in reports if report.label == self.label]
        return [Outcome(self.label, text, f"{seconds:.2f} s", seconds < self.at_most_s) for seconds in taken]


@dataclass(frozen=True)
class MeanGoal:
    """The geometric mean of a peer's times over ours reaches a ratio.

    Attributes
    ----------
    label : what the entries are called together.
    labels : of the entries.
    peer : the row to compare with.
    at_least : the ratio asked for.
    """

    label: str
    labels: tuple[str, ...]
    peer: str
    at_least: float

    def outcomes(self, reports: Sequence[Report]) -> list[Outcome]:
        """The mean over the entries, if all of them have times; how many have where only some do."""
        text = f"at least {self.at_least:g}× over `{self.peer}` in the mean"
        found = [report for report in reports if report.label in self.labels]
        timings = [(report.timing(self.peer), report.timing(report.delivered)) for report in found]
        known = [(theirs, own) for theirs, own in timings if theirs is not None and own is not None]
        if len(known) < len(self.labels):
            return [Outcome(self.label, text, f"{len(known)} of {len(self.labels)} times", None)] if known else []
        mean = math.exp(sum(math.log(theirs.median_s / own.median_s) for theirs, own in known) / len(known))
        states = [timing.idle for pair in known for timing in pair]
        idle = None if None in states else all(states)
        return [Outcome(self.label, text, f"{mean:.2f}×", mean >= self.at_least, idle)]
