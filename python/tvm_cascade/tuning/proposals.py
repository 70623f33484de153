"""Which design to try next: the least predicted time, the estimate times what was learned of its values.

    log(measured / estimate) ≈ offset + Σ over knobs of w(knob, value)

The weights are found by least squares with a penalty on each, so that a value that was not tried counts as the model
says. No more is learned: lists of a few hundred designs are ranked in milliseconds, without a model to start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tvm_cascade.driver.space import Design, Space, steps_over
from tvm_cascade.tuning.records import Trial

DEFAULT_TRIALS = 12
"""Of a session, where the caller says nothing: a design takes seconds to build."""

_PENALTY = 0.5
"""Of a weight, against the square of one residual."""

_LEAST_TRIALS = 4
"""Times before anything is said of the spread of residuals."""

_LEAST_SPREAD = 0.1
"""Of residuals, where so few are known."""

_WIDTH = 2.0
"""Spreads by which an estimate may be too long."""


class Proposals:
    """The designs of a space that are left, in the order in which to try them.

    Attributes
    ----------
    designs : all of them, as the model ranks them.
    known : whether the model knows all their times.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self.designs = space.designs()
        self._estimates = {design: space.seconds(design) for design in self.designs}
        self.known = all(seconds > 0 for seconds in self._estimates.values())

    def next(self, measured: Mapping[Design, float], tried: Sequence[Design], count: int) -> list[Design]:
        """So many designs that were not tried: the default first.

        Parameters
        ----------
        measured : seconds of those that gave a time.
        tried : those and the ones that failed.
        """
        left = self._left(tried)
        predicted = dict(zip(left, self.predicted(left, measured), strict=True))
        least = min(predicted.values(), default=0.0)
        # In the order of the space where predictions are hardly told apart: sorting is stable.
        return sorted(left, key=lambda one: (any(one), steps_over(predicted[one], least)))[:count]

    def predicted(self, designs: Sequence[Design], measured: Mapping[Design, float]) -> list[float]:
        """Seconds of designs: estimates, and what was learned from those that were measured."""
        base = [self._estimates[design] if self.known else 1.0 for design in designs]
        if not designs or not measured:
            return base
        offset, weights = self._learned(measured)
        factors = [math.exp(offset + float(self._row(design) @ weights)) for design in designs]
        return [seconds * factor for seconds, factor in zip(base, factors, strict=True)]

    def may_win(self, measured: Mapping[Design, float], tried: Sequence[Design], different: int) -> bool:
        """Whether a design that is left could, within the spread of residuals, take less than the best.

        Parameters
        ----------
        different : programs among those that were measured.
        """
        left = self._left(tried)
        if not left or not measured or not self.known or different < _LEAST_TRIALS:
            return bool(left)
        residuals = [math.log(seconds / self._estimates[design]) for design, seconds in measured.items()]
        spread = max(float(np.std(residuals)), _LEAST_SPREAD)
        least = min(self.predicted(left, measured))
        return least * math.exp(-_WIDTH * spread) < min(measured.values())

    def _left(self, tried: Sequence[Design]) -> list[Design]:
        done = set(tried)
        return [design for design in self.designs if design not in done]

    def _learned(self, measured: Mapping[Design, float]) -> tuple[float, np.ndarray]:
        rows = np.array([self._row(design) for design in measured])
        base = [self._estimates[design] if self.known else 1.0 for design in measured]
        residuals = np.log(np.array(list(measured.values())) / np.array(base))
        offset = float(np.mean(residuals))
        normal = rows.T @ rows + _PENALTY * np.eye(rows.shape[1])
        return offset, np.linalg.solve(normal, rows.T @ (residuals - offset))

    def _row(self, design: Design) -> np.ndarray:
        """1 for each value that a design has, of knobs in use."""
        row = np.zeros(sum(len(knob.values) for knob in self._space.knobs) or 1)
        start = 0
        for knob, place in zip(self._space.knobs, design, strict=True):
            row[start + place] = float(knob.is_used(design))
            start += len(knob.values)
        return row


def within(proposals: Proposals, outcomes: Mapping[Design, Trial], trials: int) -> float | None:
    """What a session of few trials would have found, told from one that tried every design; None without times.

    It is the time of the best design of so many trials over that of the best of all.

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
