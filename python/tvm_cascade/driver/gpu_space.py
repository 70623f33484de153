"""The knobs of a GPU's lowering: of each kernel of a plan, the configurations that its skeleton ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tvm import tirx

from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.backend import Goal, Lowered
from tvm_cascade.driver.gpu import lower_gpu, lower_plan, plan_of
from tvm_cascade.driver.space import Design, Knob, Space
from tvm_cascade.plan.plan import Plan, Step
from tvm_cascade.tile.operand import Unfit
from tvm_cascade.tile.skeleton import Kernel, Setting, reconfigured
from tvm_cascade.transform.fuse_function import fuse_function

Finish = Callable[[Lowered, str], Lowered]


def gpu_space(func: tirx.PrimFunc, name: str, goal: Goal, finish: Finish = lambda lowered, _name: lowered) -> Space:
    """The designs of a function: a configuration for each kernel of its plan.

    Parameters
    ----------
    finish : what the backend does with a lowered function of that name.
    """
    outcome = fuse_function(func, goal.options, goal.device)
    plan = plan_of(outcome, name, goal)
    if plan is None:
        return Space((), lambda _design: 0.0, lambda _design: (outcome, finish(lower_gpu(outcome, name, goal), name)))
    assert isinstance(goal.device, Gpu)
    choices = [_alternatives(step, Setting(goal.device, goal.options)) for step in plan.steps]
    tuned = [position for position, kernels in enumerate(choices) if len(kernels) > 1]

    def planned(design: Design) -> Plan:
        steps = list(plan.steps)
        for position, place in zip(tuned, design, strict=True):
            kernel = choices[position][place]
            longer = kernel.seconds - choices[position][0].seconds
            steps[position] = dataclasses.replace(
                steps[position], chosen=kernel, seconds=steps[position].seconds + longer
            )
        return dataclasses.replace(plan, steps=tuple(steps))

    knobs = [Knob(_knob(plan, k), tuple(_told(kernel.config) for kernel in choices[k])) for k in tuned]
    return Space(
        tuple(knobs),
        lambda design: planned(design).seconds,
        lambda design: (outcome, finish(lower_plan(planned(design), name, goal), name)),
    )


def _alternatives(step: Step, setting: Setting) -> list[Kernel]:
    """The kernels of a step in every configuration that its plan allows; its own comes first."""
    kernel = step.chosen
    if not isinstance(kernel, Kernel):
        return []
    found = {_told(kernel.config): kernel}
    for config in [] if step.early else kernel.skeleton.alternatives(kernel.program, setting):
        if _told(config) in found or not _keeps_what_overlaps(kernel, config):
            continue
        try:
            found[_told(config)] = reconfigured(kernel, config, setting)
        except Unfit:
            continue
    return list(found.values())


def _keeps_what_overlaps(kernel: Kernel, config: Any) -> bool:
    """Whether kernels of a configuration also fetch ahead, and wait late, where the plan has the kernel do that."""
    skeleton, program = kernel.skeleton, kernel.program
    fetches = kernel.ahead is None or skeleton.fetches_ahead(config)
    return fetches and (not getattr(program, "late", ()) or skeleton.may_wait_late(program, config))


def _knob(plan: Plan, position: int) -> str:
    """By the results of its step, which plans of other releases may have too."""
    return f"kernel of {', '.join(plan.steps[position].results)}"


def _told(config: Any) -> str:
    """A configuration in all that tells it apart."""
    fields = [one for one in dataclasses.fields(config) if one.compare]
    return f"{type(config).__name__}({', '.join(f'{one.name}={getattr(config, one.name)}' for one in fields)})"
