"""The loops that groups become: everything that is decided of one before it is priced or written.

What a loop computes depends on what the rest of the function reads, and on what the loops of other groups read. So the
loops of a function are planned together, once: the cost model, the rewrite and the reports read the same `Loop`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import access_of
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.devices.device import Device
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import live_stages, sources_of
from tvm_cascade.transform.guarding import Guarding, guarding
from tvm_cascade.transform.layout import Layout, Plan, lay_out, plan_loop


@dataclass(frozen=True)
class Loop:
    """The loop of a group.

    Attributes
    ----------
    plan : the group, the producers that the loop computes itself, and what it reads from memory.
    guarding : the results that it gives, and those of them that are guarded.
    layout : its temporaries and the tiling of its axis.
    """

    plan: Plan
    guarding: Guarding
    layout: Layout


@dataclass(frozen=True)
class Asked:
    """What is left of a function beside the loops of some groups, and what these have to give.

    Attributes
    ----------
    plans : one for each group.
    stages : those that are computed outside of the loops, in the order of the function.
    """

    program: Program
    plans: Sequence[Plan]
    stages: Sequence[Stage]

    def of(self, group: Group) -> list[sp.Symbol]:
        """The results of a group that the caller is given, or that are read outside of its loop."""
        read = {buffer for stage in self.stages for buffer in sources_of(self.program, stage)}
        read |= {buffer for one in self.program.opaque for buffer in access_of(one).reads}
        read |= {buffer for plan in self.plans for buffer in plan.reads}
        own = [member for member in group.members if not member.is_slice]
        return [m.result for m in own if self.program.is_param(m.stage.buffer) or m.stage.buffer in read]


def asked_for(program: Program, groups: Sequence[Group]) -> Asked:
    """What a function asks of the loops of some groups."""
    outside = live_stages(program, groups, [()] * len(groups))
    kept = {stage.name for stage in outside} | {member.stage.name for group in groups for member in group.members}
    plans = [plan_loop(program, group, kept) for group in groups]
    return Asked(program, plans, live_stages(program, groups, [plan.reads for plan in plans]))


def loops_of(asked: Asked, options: FuseOptions, device: Device) -> list[Loop]:
    """The loop of each group, under the options, cut for a device."""
    guarded = [guarding(plan, asked.of(plan.group), options.guards, classes=True, loops=True) for plan in asked.plans]
    pairs = zip(asked.plans, guarded, strict=True)
    return [Loop(plan, known, lay_out(plan, known.asked, options, device)) for plan, known in pairs]


def loop_of(program: Program, group: Group, options: FuseOptions, device: Device) -> Loop:
    """The loop of a group that is fused alone."""
    return loops_of(asked_for(program, [group]), options, device)[0]


def kernel_guarding(program: Program, group: Group, options: FuseOptions) -> Guarding:
    """What a group would have to guard as one kernel."""
    asked = asked_for(program, [group])
    return guarding(asked.plans[0], asked.of(group), options.guards)
