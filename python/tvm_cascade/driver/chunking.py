"""Lowers a function whose temporaries are large in chunks of an axis, where that is possible."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass, field

from tvm import tirx

from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.arguments import of_any_address
from tvm_cascade.driver.backend import Backend, Goal, Lowered, as_it_is, joined
from tvm_cascade.driver.gpu import SCHEDULED, is_planned, setting_of
from tvm_cascade.plan.chunked import Chunks, Cost, Part, in_chunks, least_bytes
from tvm_cascade.plan.plan import Plan, bytes_of, calling, names_beside
from tvm_cascade.plan.search import find_plan
from tvm_cascade.report.group import bytes_text
from tvm_cascade.tile.launch.dependent import GIVEN
from tvm_cascade.transform.fuse_function import Outcome, fuse_function


def lowered_whole_or_in_chunks(outcome: Outcome, name: str, goal: Goal, backend: Backend) -> Lowered:
    """A function, lowered by its backend: in chunks if they are asked for, or take about as long on a GPU."""
    program, limit = outcome.program, goal.options.temporaries
    least = least_bytes(goal.options)
    own = None if program is None or program.opaque else bytes_of(program.root.alloc_buffers)
    if own is None or own <= least or not is_planned(outcome, goal) or (limit is None and not _estimates(goal)):
        return backend.lower(outcome, name, goal)
    assert program is not None
    parts = _Parts(goal, {outcome.given: outcome})
    whole = parts.cost(outcome.given)
    found = "" if whole.bytes <= least else in_chunks(program, parts.cost, whole, None if limit is None else least)
    if isinstance(found, Chunks):
        return _in_chunks(found, program, name, parts, backend)
    if found and limit is not None:
        told = f"`{name}` has {bytes_text(whole.bytes)} of temporaries, and is not computed in chunks: {found}"
        warnings.warn(told, stacklevel=6)
    return backend.lower(outcome, name, parts.planned(outcome.given, name, found))


def _estimates(goal: Goal) -> bool:
    """Whether the time of functions is estimated, so that less memory is not had at any price."""
    return isinstance(goal.device, Gpu)


@dataclass
class _Parts:
    """Functions as they would be lowered.

    Attributes
    ----------
    outcomes, plans : what the pass made of them, and their plans on a GPU.
    """

    goal: Goal
    outcomes: dict[tirx.PrimFunc, Outcome]
    plans: dict[tirx.PrimFunc, Plan] = field(default_factory=dict)

    def cost(self, func: tirx.PrimFunc) -> Cost:
        outcome = self.outcome(func)
        if not _estimates(self.goal):
            return Cost(0.0, bytes_of(outcome.func.body.block.alloc_buffers) or 0)
        plan = self.plans[func] = find_plan(outcome, "main", setting_of(self.goal))
        return Cost(plan.seconds, bytes_of(plan.temporaries) or 0)

    def outcome(self, func: tirx.PrimFunc) -> Outcome:
        if func not in self.outcomes:
            goal, own = self.goal, func.without_attr(GIVEN)  # places among the parameters of the whole
            self.outcomes[func] = fuse_function(own, goal.options, goal.device) if goal.fuse else as_it_is(own)
        return self.outcomes[func]

    def planned(self, func: tirx.PrimFunc, name: str, at_once: str = "") -> Goal:
        """The goal with the function's plan by its name."""
        if (plan := self.plans.get(func)) is None:
            return self.goal
        return dataclasses.replace(self.goal, planned={name: dataclasses.replace(plan, at_once=at_once)})


def _in_chunks(found: Chunks, program: Program, name: str, parts: _Parts, backend: Backend) -> Lowered:
    goal, funcs = parts.goal, [call.func for call in found.calls]
    names = names_beside(name, len(funcs), goal.taken)
    made = [
        backend.lower(parts.outcome(func), called, parts.planned(func, called))
        for func, called in zip(funcs, names, strict=True)
    ]
    calls = [call.statement(one) for call, one in zip(found.calls, names, strict=True)]
    host = of_any_address(calling(name, program.params, found.serial.passed, calls)).with_attr(SCHEDULED, True)
    each = tuple(Part(parts.outcome(func), one.chosen) for func, one in zip(funcs, made, strict=True))
    return joined(host, dataclasses.replace(found, each=each), dict(zip(names, made, strict=True)))
