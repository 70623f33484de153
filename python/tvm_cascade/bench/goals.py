"""Whether what was measured reaches what was meant to be reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_cascade.bench.record import Report
from tvm_cascade.bench.suites import Goal, MeanGoal, PassGoal, SpeedGoal


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
    found: list[Outcome] = []
    for goal in goals:
        if isinstance(goal, MeanGoal):
            found += _mean(goal, [by_label[label] for label in goal.labels if label in by_label])
        elif goal.label in by_label:
            found.append(_outcome(goal, by_label[goal.label]))
    return found


def _mean(goal: MeanGoal, reports: Sequence[Report]) -> list[Outcome]:
    """The outcome over those of the goal's workloads that were measured, if all of them were."""
    text = f"at least {goal.at_least:g}× over `{goal.peer}` in the mean"
    timings = [(report.timing(goal.peer), report.timing(report.delivered)) for report in reports]
    known = [(theirs, own) for theirs, own in timings if theirs is not None and own is not None]
    if len(known) < len(goal.labels):
        return [Outcome(goal.label, text, f"{len(known)} of {len(goal.labels)} times", None)] if known else []
    mean = math.exp(sum(math.log(theirs.median_s / own.median_s) for theirs, own in known) / len(known))
    states = [timing.idle for pair in known for timing in pair]
    idle = None if None in states else all(states)
    return [Outcome(goal.label, text, f"{mean:.2f}×", mean >= goal.at_least, idle)]


def _outcome(goal: SpeedGoal | PassGoal, report: Report) -> Outcome:
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
