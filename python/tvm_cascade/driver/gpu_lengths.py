"""Estimates of a GPU's designs of a function with symbolic extents, at given lengths.

A kernel of any length has the configurations that need to know none. How long it takes at some lengths is what its
skeleton says of that configuration for the same step of the function at these lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tvm import tirx

from tvm_cascade.analysis.sizes import at_sizes
from tvm_cascade.driver.space import Sizes
from tvm_cascade.plan.plan import Plan, Step
from tvm_cascade.plan.scheduled import scheduled
from tvm_cascade.plan.search import find_plans
from tvm_cascade.tile.cost import seconds
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import fuse_function


class PlanCosts:
    """What plans of a function with symbolic extents cost at lengths.

    Parameters
    ----------
    plans : of the function.
    sizes : of its symbolic extents, by name.
    """

    def __init__(self, func: tirx.PrimFunc, name: str, setting: Setting, plans: Sequence[Plan], sizes: Sizes) -> None:
        self._func, self._name, self._setting, self._plans, self._sizes = func, name, setting, plans, sizes
        self._found: dict[int, tuple[Step, float]] = {}

    @cached_property
    def _known(self) -> dict[str, tuple[Step, ...]]:
        """The steps of such plans at the sizes."""
        setting = self._setting
        outcome = fuse_function(at_sizes(self._func, self._sizes), setting.options, setting.gpu)
        found = find_plans(outcome, self._name, setting, {plan.words for plan in self._plans})
        return {plan.words: plan.steps for plan in found}

    def seconds(self, plan: Plan) -> float:
        """The estimated time of a plan; 0 where the function has none of that kind at these lengths."""
        known = self._known.get(plan.words, ())
        if len(known) != len(plan.steps):
            return 0.0
        each = [self._remembered(*pair, alone=len(known) == 1) for pair in zip(plan.steps, known, strict=True)]
        return plan.launch + sum(each) if all(each) else 0.0

    def _remembered(self, step: Step, known: Step, alone: bool) -> float:
        """The time of a step, which many plans have in common."""
        if id(step) not in self._found:
            self._found[id(step)] = step, self._step(step, known, alone)
        return self._found[id(step)][1]

    def _step(self, step: Step, known: Step, alone: bool) -> float:
        """The estimated time of a step as it is known at lengths; 0 where its skeleton has no kernel there."""
        kernel = step.chosen
        if not isinstance(kernel, Kernel):
            return scheduled(known.outcome, "", self._setting, alone).seconds
        for other in (known.chosen, *known.others):
            if isinstance(other, Kernel) and other.skeleton is kernel.skeleton:
                alike = kernel.skeleton.counts(other.program, kernel.config, other.work, self._setting)
                return seconds(alike, self._setting.gpu) + step.seconds - kernel.seconds
        return 0.0
