"""A row of a GPU table, compiled and ready to run, or the reason why it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.problem import Problem
from benchmarks.judge.forms import Absent


@dataclass(frozen=True)
class Prepared:
    """A program ready to run.

    Attributes
    ----------
    run : puts one run on the device's stream and returns what it gives; this is what is timed.
    output : from that to the output; of attention as [batch, head, position, feature].
    poison : fills the output with NaN where it is known before the run.
    configuration : how the kernel is cut, or which one it is; empty where that is not known.
    estimate : what the cost model says that it takes, in seconds; None where it says nothing.
    ahead_seconds : that the program took to compile ahead, in another process.
    """

    run: Callable[[], Any]
    output: Callable[[Any], Any]
    poison: Callable[[], object]
    configuration: Callable[[], str] = str
    estimate: Callable[[], float | None] = lambda: None
    ahead_seconds: float = 0.0


Prepare = Callable[[Any], Prepared | Absent]
"""Prepares a row of a problem, of attention or of rows; an exception becomes a row that failed."""


def allocating(problem: Problem, run: Callable[[], Any], configuration: str = "") -> Prepared:
    """A row whose runs allocate their output.

    The allocator gives a block that was just freed to the next request of its size: so that is filled with NaN.
    """
    return Prepared(run, lambda output: output, problem.empty_output, lambda: configuration)
