"""The knobs of a GPU's lowering: the plan, and for each of its kernels what skeletons and S-TIR schedules offer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tvm import tirx

from tvm_cascade.analysis.program import at_sizes
from tvm_cascade.devices.device import Cpu
from tvm_cascade.driver.backend import Goal, Lowered, as_it_is
from tvm_cascade.driver.cpu_space import cpu_space
from tvm_cascade.driver.gpu import beginning_early, is_planned, lower_gpu, lower_plan, setting_of
from tvm_cascade.driver.space import ENDS_ON_GPUS, Design, Knob, Sizes, Space
from tvm_cascade.plan.plan import Plan, Step, scheduled
from tvm_cascade.plan.search import MOST_TIMES, find_plans
from tvm_cascade.tile.cost import seconds
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, reconfigured
from tvm_cascade.transform.fuse_function import Outcome, fuse_function

Replayed: TypeAlias = Collection[Mapping[str, str]] | None
"""Designs in words, of all that a space could hold; None for all of it."""

Ways: TypeAlias = Callable[[Plan, int, Setting], dict[str, Step]]
"""(a plan, the place of a step, setting) -> the step in each of its ways, in words."""

PLAN = "plan"
"""The knob that the others are under."""

SCHEDULED, UNFUSED = "S-TIR schedule", "S-TIR schedule of the unfused form"
"""Values of a knob of a step that no skeleton's kernel computes."""


def space_of(func: tirx.PrimFunc, name: str, goal: Goal, replayed: Replayed = None, ways: Ways | None = None) -> Space:
    """What a function of that name may be lowered to for a goal: for a GPU, by a plan, and a kernel for each step.

    Parameters
    ----------
    replayed : the designs that are looked for; finding all other plans of a GPU and their kernels takes seconds.
    ways : as `ways_of`, which is the default.
    """
    if isinstance(goal.device, Cpu):
        return cpu_space(func, name, goal)  # lists all values of its knobs
    outcome = fuse_function(func, goal.options, goal.device)
    if not is_planned(outcome, goal):
        return Space((), lambda _design: 0.0, lambda _design: (outcome, lower_gpu(outcome, name, goal)))
    choice = _Choice(outcome, name, setting_of(goal), replayed, ways or ways_of)

    def lower(design: Design, called: str = name) -> tuple[Outcome, Lowered]:
        plan = beginning_early(choice.plan(design), outcome)
        return choice.outcome(design), lower_plan(plan, called, goal)

    def at(sizes: Sizes) -> Callable[[Design], float]:
        costs = PlanCosts(func, name, setting_of(goal), choice.plans, sizes)
        return lambda design: costs.seconds(choice.plan(design))

    return Space(choice.knobs, lambda design: choice.plan(design).seconds, lower, at, ENDS_ON_GPUS)


@dataclass(frozen=True)
class _Tuned:
    """A step of a plan that may be computed in several ways: by knob value, from the least estimated time on."""

    plan: int
    step: int
    ways: dict[str, Step]


class _Choice:
    """The plans of a function, and the ways of each of their steps."""

    def __init__(self, outcome: Outcome, name: str, setting: Setting, replayed: Replayed, ways: Ways) -> None:
        self._whole = outcome
        wanted = None if replayed is None else {words.get(PLAN, "") for words in replayed}
        self.plans = find_plans(outcome, name, setting, wanted)
        found = [
            _Tuned(number, position, ways(plan, position, setting))
            for number, plan in enumerate(self.plans)
            if wanted is None or plan.words in wanted
            for position in range(len(plan.steps))
        ]
        self.tuned = [one for one in found if len(one.ways) > 1]

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The plan's, also where there is one, as lengths beside may have more; then those of steps."""
        kernels = [Knob(self._name(one), tuple(one.ways), (0, one.plan)) for one in self.tuned]
        return (Knob(PLAN, tuple(plan.words for plan in self.plans)), *kernels)

    def _name(self, one: _Tuned) -> str:
        """By the results of its step, which plans of other releases may have too."""
        return f"kernel of {', '.join(self.plans[one.plan].steps[one.step].results)}"

    def plan(self, design: Design) -> Plan:
        plan = self.plans[design[0]]
        steps = list(plan.steps)
        for one, place in zip(self.tuned, design[1:], strict=True):
            if one.plan == design[0]:
                steps[one.step] = list(one.ways.values())[place]
        return dataclasses.replace(plan, steps=tuple(steps))

    def outcome(self, design: Design) -> Outcome:
        """What the pass makes of the function: of one step, which may be the unfused form, what it makes of that."""
        steps = self.plan(design).steps
        return steps[0].outcome if len(steps) == 1 else self._whole


def ways_of(plan: Plan, position: int, setting: Setting) -> dict[str, Step]:
    """A step in every configuration that its plan allows, its own first, and as other skeletons and schedules have it.

    The latter where their estimates are near. Kernels that are started with the one before them, or have the one after
    started with them, stay as they are.
    """
    step = plan.steps[position]
    if not isinstance(step.chosen, Kernel):
        return _forms(step, setting, alone=len(plan.steps) == 1)
    found = {told_of(step.chosen): step}
    if step.early:
        return found
    beside = position > 0 and plan.steps[position - 1].early
    others = () if beside else _others(step, setting)
    for kernel in (*_reconfigured(step.chosen, setting), *others):
        longer = kernel.seconds - step.chosen.seconds
        found.setdefault(told_of(kernel), dataclasses.replace(step, chosen=kernel, seconds=step.seconds + longer))
    asked = scheduled(step.outcome, "a tuning session chose it", setting, alone=len(plan.steps) == 1)
    if not beside and asked.seconds <= MOST_TIMES * step.seconds:
        found[SCHEDULED] = asked
    first, *rest = found.items()
    return dict([first, *sorted(rest, key=lambda one: float(f"{one[1].seconds:.2e}"))])


def _forms(step: Step, setting: Setting, alone: bool) -> dict[str, Step]:
    """A step without a kernel: under a schedule as it is, and unfused where it is fused."""
    found = {SCHEDULED: step}
    if step.outcome.fused and not setting.options.force:
        unfused = as_it_is(step.func)
        found[UNFUSED] = scheduled(unfused, "a tuning session chose the unfused form", setting, alone)
    return found


def _reconfigured(kernel: Kernel, setting: Setting) -> Iterator[Kernel]:
    """The kernel in the other configurations of its skeleton."""
    for config in kernel.skeleton.alternatives(kernel.program, setting):
        if keeps_what_overlaps(kernel, config):
            try:
                yield reconfigured(kernel, config, setting)
            except Unfit:
                continue


def _others(step: Step, setting: Setting) -> Iterator[Kernel]:
    """The kernels of other skeletons that take a step, where they are estimated to take about as long."""
    for kernel in step.others:
        if kernel.seconds <= MOST_TIMES * step.seconds:
            yield kernel
            yield from _reconfigured(kernel, setting)


def keeps_what_overlaps(kernel: Kernel, config: Any) -> bool:
    """Whether kernels of a configuration also fetch ahead, and wait late, where the plan has the kernel do that."""
    skeleton, launch = kernel.skeleton, kernel.launch
    fetches = launch.ahead is None or skeleton.fetches_ahead(config)
    return fetches and (not launch.late or skeleton.may_wait_late(kernel.program, config, launch.late))


def told_of(kernel: Kernel) -> str:
    """A kernel in all that tells it from others of its function."""
    fields = [one for one in dataclasses.fields(kernel.config) if one.compare]
    told = ", ".join(f"{one.name}={getattr(kernel.config, one.name)}" for one in fields)
    return f"{kernel.skeleton.name} {type(kernel.config).__name__}({told})"


# Estimates of a GPU's designs of a function with symbolic extents, at given lengths.


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
