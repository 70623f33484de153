"""What the GPU suites are meant to reach, as data, and whether they did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_cascade.bench.goals import Outcome
from tvm_cascade.bench.gpu.summary import BEST, WHOLE_SUITE, Mean


@dataclass(frozen=True)
class RatioGoal:
    """The time of a peer is at least so many times ours.

    Attributes
    ----------
    suite, group, peer : whose ratios.
    at_least : the ratio.
    each : whether every workload has to reach it, or their geometric mean.
    """

    suite: str
    group: str
    peer: str
    at_least: float
    each: bool = False


GOALS = (
    RatioGoal("prefill", "d128 full, length ≥ 2048", BEST, 1.05),
    RatioGoal("prefill", "d128 full, length ≥ 2048", BEST, 1.0, each=True),
    RatioGoal("prefill", "d128 causal, length ≥ 2048", BEST, 1.05),
    RatioGoal("prefill", "d64 full", BEST, 1.1),
    RatioGoal("prefill", "d64 causal", BEST, 1.1),
    RatioGoal("prefill", "length < 2048", BEST, 1.0),
    RatioGoal("mha", WHOLE_SUITE, BEST, 1.0, each=True),
    RatioGoal("neptune", "PF_ALIBI", "flashinfer", 1.1),
    RatioGoal("neptune", "PF_SOFTCAP", "flashinfer", 1.1),
    RatioGoal("neptune", "PF_WINDOWED", "flashinfer", 1.1),
    RatioGoal("neptune", "PF_ALIBI", "flex", 1.3),
    RatioGoal("neptune", "PF_SOFTCAP", "flex", 2.0),
    RatioGoal("neptune", "PF_WINDOWED", "flex", 2.0),
)


def evaluate(suite: str, means: Sequence[Mean], goals: Sequence[RatioGoal] = GOALS) -> list[Outcome]:
    """The outcome of every goal of a suite; without a verdict where nothing was measured."""
    by_name = {(mean.group, mean.peer): mean for mean in means}
    return [_outcome(goal, by_name.get((goal.group, goal.peer))) for goal in goals if goal.suite == suite]


def _outcome(goal: RatioGoal, mean: Mean | None) -> Outcome:
    kind = "each" if goal.each else "geomean"
    text = f"{kind} at least {goal.at_least:g}× over {goal.peer}"
    if mean is None:
        return Outcome(goal.group, text, "no time", None)
    figure = mean.least if goal.each else mean.geomean
    return Outcome(goal.group, text, f"{figure:.3f}× of {mean.count}", figure >= goal.at_least)
