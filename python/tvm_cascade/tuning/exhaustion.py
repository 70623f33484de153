"""What a session of few trials would have found, told from the trials of one that tried every design."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_cascade.driver.space import Design
from tvm_cascade.tuning.proposals import Proposals
from tvm_cascade.tuning.records import Trial

DEFAULT_TRIALS = 12
"""Of a session, where the caller says nothing: a design takes seconds to build."""


def within(proposals: Proposals, outcomes: Mapping[Design, Trial], trials: int) -> float | None:
    """The time of the best design of a session of so many trials over that of the best of all; None without times.

    Parameters
    ----------
    proposals : of the space.
    outcomes : the trial of each design that was tried.
    """
    times = {design: trial.seconds for design, trial in outcomes.items() if trial.seconds is not None}
    measured, tried, count = dict[Design, float](), list[Design](), 0
    while count < trials and proposals.may_win(measured, tried, count):
        (design,) = proposals.next(measured, tried, 1)
        if design not in outcomes:
            return None
        tried.append(design)
        count += not outcomes[design].same
        if design in times:
            measured[design] = times[design]
    return min(measured.values()) / min(times.values()) if measured else None
