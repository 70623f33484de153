"""Whether what was measured reaches what was meant to be reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_cascade.bench.record import Report
from tvm_cascade.bench.suites import Goal, PassGoal


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


def evaluate(goals: Sequence[Goal], reports: Sequence[Report]) -> list[Outcome]:
    """The outcome of every goal whose workload was measured."""
    by_label = {report.label: report for report in reports}
    return [_outcome(goal, by_label[goal.label]) for goal in goals if goal.label in by_label]


def _outcome(goal: Goal, report: Report) -> Outcome:
    if isinstance(goal, PassGoal):
        text, figure = f"fusing takes under {goal.at_most_s:g} s", f"{report.fuse_seconds:.2f} s"
        return Outcome(goal.label, text, figure, report.fuse_seconds < goal.at_most_s)
    ours = report.delivered
    peer = next((name for name in goal.peers if report.seconds(name) is not None), goal.peers[0])
    wanted = "ratio" if goal.at_least is None else f"at least {goal.at_least:g}×"
    text = f"{wanted} over `{peer}`"
    theirs, own = report.timing(peer), report.timing(ours)
    if theirs is None or own is None:
        return Outcome(goal.label, text, "no time", None)
    ratio = theirs.median_s / own.median_s
    idle = None if theirs.idle is None or own.idle is None else theirs.idle and own.idle
    met = None if goal.at_least is None else ratio >= goal.at_least
    return Outcome(goal.label, text, f"{ratio:.2f}× (`{ours}`)", met, idle)
