"""Finds the plan of least estimated time: a function whole, or cut into parts, each of which is planned alike.

A function that a skeleton takes whole is cut only where the time of its parts could be less: what they move and compute
at the device's own rates, with their launches, bounds that from below. What no skeleton takes is cut further; what can
be cut no more is scheduled by itself, neighbours together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tvm import tirx
from tvm_ffi import structural_equal, structural_hash

from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import statements_of, undefined
from tvm_cascade.chunks.conditions import apart_at_conditions
from tvm_cascade.plan.cuts import (
    KEEP_CASCADES,
    RULES,
    Position,
    Rule,
    by_folds,
    cascades_of,
    cut,
    distinct,
    nests_of,
    parts_of,
    with_nests,
)
from tvm_cascade.plan.operands import with_plain_operands
from tvm_cascade.plan.plan import Declined, Plan, Step, overlapping, read_in_part, scheduled, temporaries
from tvm_cascade.tile.estimate import count_work
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.select import available, ranked_kernels
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import Outcome, fuse_function, fuse_read, fused_groups, read_function

MOST_PLANS, MOST_TIMES = 4, 2.0
"""Plans that a tuner may choose from, and times of the least estimate that they take at most: estimates err by less."""


def find_plan(outcome: Outcome, name: str, setting: Setting) -> Plan:
    """The plan of a function, whose kernels overlap.

    Parameters
    ----------
    outcome : what the pass made of it.
    name : the function's own.
    setting : the device, and options as they stand for it.
    """
    return Search(outcome, name, setting).plan


def find_plans(outcome: Outcome, name: str, setting: Setting, replayed: Collection[str] | None = None) -> list[Plan]:
    """The plan of a function, and others of estimated times near it: no two with the same words.

    Parameters
    ----------
    outcome, name, setting : as of `find_plan`.
    replayed : the words of the only others that are asked for; None for all.
    """
    search = Search(outcome, name, setting)
    chosen = search.plan
    if replayed is not None and {*replayed} <= {chosen.words}:
        return [chosen]
    others = [overlapping(plan, setting) for one in (search, *search.in_parts) for plan in one.alternatives()]
    found: dict[str, Plan] = {}
    for plan in (chosen, *sorted(others, key=lambda one: one.seconds)):
        if plan.seconds <= MOST_TIMES * chosen.seconds:
            found.setdefault(plan.words, plan)
    return list(found.values())[:MOST_PLANS]


def _in_parts(program: Program, setting: Setting) -> list[tirx.PrimFunc]:
    """The function with axes of several tensors in parts, which all multiprocessors share, or half of them."""
    processors, found = setting.gpu.processors, list[tirx.PrimFunc]()
    for sharing in (processors, processors // 2):
        apart = apart_at_conditions(program.func, setting.options, sharing)
        if apart is not None and not any(structural_equal(apart, other) for other in found):
            found.append(apart)
    return found


_Part: TypeAlias = tuple[int, tuple[tirx.Var, ...]]
"""What tells a part of a function: its structure, and its parameters, which it shares with other parts."""


def _part(func: tirx.PrimFunc) -> _Part:
    return structural_hash(func), tuple(func.params)


def _is_kernel(plan: Plan) -> bool:
    """Whether one kernel of a skeleton is all of a plan."""
    return len(plan.steps) == 1 and isinstance(plan.steps[0].chosen, Kernel)


@dataclass(frozen=True)
class _Cut:
    """A function's parts."""

    parts: tuple[tirx.PrimFunc, ...]
    rules: tuple[Rule, ...]


class Search:
    """The plans of a function; see `find_plan`."""

    def __init__(self, outcome: Outcome, name: str, setting: Setting) -> None:
        self.outcome, self.name, self.setting = outcome, name, setting
        program = outcome.program
        self.params = outcome.given.params if program is None else program.params
        self.launch = setting.gpu.launch_seconds - setting.gpu.dependent_launch_seconds
        self.declined: dict[tuple[str, ...], Declined] = {}
        self.above: list[int] = []
        self.parts: dict[_Part, Program | Reason] = {}
        self.outcomes: dict[_Part, Outcome] = {}
        self.known: dict[_Part, Step] = {}
        self.apart: dict[tuple[Program, tuple[tuple[Position, ...], ...]], tuple[tirx.PrimFunc, ...]] = {}

    @cached_property
    def plan(self) -> Plan:
        """The plan of least estimated time, whose kernels overlap."""
        plans = [overlapping(one.chosen, self.setting) for one in (self, *self.in_parts)]
        return min(plans, key=lambda one: one.seconds)

    @cached_property
    def in_parts(self) -> list[Search]:
        """Those of the function with axes in parts, where it is no one kernel."""
        program = read_in_part(self.outcome)
        if program is None or _is_kernel(self.chosen):
            return []
        fused = (
            fuse_function(func, self.setting.options, self.setting.gpu) for func in _in_parts(program, self.setting)
        )
        return [Search(outcome, self.name, self.setting) for outcome in fused]

    @cached_property
    def alone(self) -> float | None:
        """Estimated seconds where one kernel of a skeleton computes all; None where that is none, or not the plan."""
        return None if isinstance(self.kernels, str) or not _is_kernel(self.chosen) else self.chosen.seconds

    @property
    def known_alone(self) -> bool:
        """Whether it was found that one kernel computes all; nothing is looked for."""
        return "chosen" in vars(self) and _is_kernel(self.chosen)

    @cached_property
    def whole(self) -> Step:
        return self.step(self.outcome, self.kernels, alone=True)

    @cached_property
    def kernels(self) -> list[Kernel] | str:
        """Those that compute the function whole, or why there is none."""
        return self.ranked(self.outcome)

    def ranked(self, outcome: Outcome) -> list[Kernel] | str:
        """The kernels of a function by estimated time, or why there is none."""
        return ranked_kernels(outcome, self.name, self.setting.gpu, self.setting.options)

    @cached_property
    def chosen(self) -> Plan:
        """The plan of least estimated time, with neighbours that no skeleton takes as one function."""
        steps = self.joined(self.best(self.whole, RULES)) if available(self.setting) else [self.whole]
        if not any(isinstance(step.chosen, Kernel) for step in steps):
            return Plan(tuple(self.params), (self.whole,), self.launch)
        found = [self.declined[names] for names in _cascades(self.outcome) if names in self.declined]
        return self.planned(steps, found)

    def alternatives(self) -> list[Plan]:
        """The function as one step, and as each of its cuts, whose parts are planned for the least time."""
        ways: dict[tuple[int, ...], _Cut] = {}
        for place in range(len(RULES) if available(self.setting) else 0):
            for way in self.cuts(self.whole, self.allowed(self.whole, RULES[place:])):
                ways.setdefault(tuple(map(structural_hash, way.parts)), way)
        found = [[self.whole], *(self.joined(self.steps(way)) for way in ways.values())]
        plans = []
        for steps in found:
            if len(steps) == 1 or any(isinstance(step.chosen, Kernel) for step in steps):
                declined = dict(self.declined_by(self.whole, steps))
                plans.append(self.planned(steps, list(declined.values())))
        return plans

    def planned(self, steps: Sequence[Step], declined: Sequence[Declined]) -> Plan:
        why = self.whole.chosen if isinstance(self.whole.chosen, str) and len(steps) > 1 else ""
        return Plan(tuple(self.params), tuple(steps), self.launch, why, tuple(declined))

    def step(self, outcome: Outcome, kernels: list[Kernel] | str, alone: bool = False) -> Step:
        """A function as one step.

        Parameters
        ----------
        kernels : as of `ranked`.
        alone : it is all of the plan, and so none of its kernels is launched dependently.
        """
        program = read_in_part(outcome)
        if program is None or isinstance(kernels, str):
            return scheduled(outcome, kernels if isinstance(kernels, str) else kernels[0], self.setting, alone)
        chosen, *others = kernels
        seconds = chosen.seconds + self.setting.gpu.dependent_launch_seconds
        return Step(program.func, outcome, chosen, count_work(program), seconds, tuple(others))

    def best(self, whole: Step, rules: Sequence[Rule], below: float = math.inf) -> list[Step]:
        """The steps of least estimated time; a part that is a function it was cut from is cut no more.

        Parameters
        ----------
        below : seconds; of what takes no less, any steps that take no less.
        """
        mark = structural_hash(whole.func)
        if mark in self.above:
            return [whole]
        self.above.append(mark)
        try:
            return self._least_of_cuts(whole, rules, below)
        finally:
            self.above.pop()

    def _least_of_cuts(self, whole: Step, rules: Sequence[Rule], below: float) -> list[Step]:
        """The function as it is, or the steps of its cut, whichever is estimated to take less."""
        kernel = isinstance(whole.chosen, Kernel)
        if kernel and (bound := self.bound(whole)) is not None and whole.seconds <= bound:
            return [whole]
        steps, seconds = list[Step](), min(whole.seconds, below)
        for way in self.cuts(whole, self.allowed(whole, rules)):
            if found := self.steps(way, seconds):
                steps, seconds = found, _seconds(found)
        if not any(isinstance(step.chosen, Kernel) for step in steps):
            return [whole]
        for names, declined in self.declined_by(whole, steps):
            self.declined.setdefault(names, declined)
        return steps

    def allowed(self, whole: Step, rules: Sequence[Rule]) -> Sequence[Rule]:
        """The rules by which a function may be cut under the options."""
        if not (self.setting.options.force and whole.outcome.fused):
            return rules
        return [] if isinstance(whole.chosen, Kernel) else [rule for rule in rules if rule in KEEP_CASCADES]

    def steps(self, way: _Cut, below: float = math.inf) -> list[Step]:
        """The parts of a cut, each planned for the least time; none where they take no less than so many seconds."""
        found, least = list[Step](), [self.least_of(part, self.setting.gpu.rates.tensor_short) for part in way.parts]
        for k, part in enumerate(way.parts):
            left = below - _seconds(found) - sum(least[k + 1 :])
            if least[k] >= left:
                return []
            found += self.best(self.part(part), way.rules, left)
        return found if _seconds(found) < below else []

    def part(self, func: tirx.PrimFunc) -> Step:
        if (mark := _part(func)) not in self.known:
            outcome = self.fuse(func)
            self.known[mark] = self.step(outcome, self.ranked(outcome))
        return self.known[mark]

    def read(self, func: tirx.PrimFunc) -> Program | Reason:
        if (mark := _part(func)) not in self.parts:
            self.parts[mark] = read_function(func, is_canonical=True)
        return self.parts[mark]

    def declined_by(self, whole: Step, steps: Sequence[Step]) -> Iterator[tuple[tuple[str, ...], Declined]]:
        """The cascades that no step computes by itself, by the names of their results."""
        told = str(whole.chosen) if isinstance(whole.chosen, Kernel) else "an S-TIR schedule"
        times = self.launch + whole.seconds, self.launch + _seconds(steps)
        for names, written in _cascades(whole.outcome).items():
            if not any(all(among(buffer, _computed(step)) for buffer in written) for step in steps):
                yield names, Declined(names, told, *times, len(steps))

    def fuse(self, func: tirx.PrimFunc) -> Outcome:
        """What the pass makes of a part."""
        if (mark := _part(func)) not in self.outcomes:
            self.outcomes[mark] = fuse_read(func, self.read(func), self.setting.options, self.setting.gpu)
        return self.outcomes[mark]

    def bound(self, whole: Step) -> float | None:
        """Seconds that the steps of no cut of a function can be under; None where it cannot be cut."""
        found = self.cut(whole, RULES[1:])
        return None if found is None else sum(map(self.least_of, found.parts))

    def least_of(self, part: tirx.PrimFunc, compute: float = 1.0) -> float:
        """Seconds that the steps of a part cannot be under, where kernels compute at so much of the device's rates."""
        program, gpu = self.read(part), self.setting.gpu
        if not isinstance(program, Program):
            return 0.0
        return count_work(program).seconds(gpu, compute=compute) + gpu.dependent_launch_seconds

    def cuts(self, whole: Step, rules: Sequence[Rule]) -> list[_Cut]:
        """The parts by the first rule that gives several, and others.

        They are those by the first rule that takes the products of cascades out, also with what these multiply inside.
        """
        first = self.cut(whole, rules)
        if first is None:
            return []
        apart = [rule for rule in rules if rule not in KEEP_CASCADES]
        others = [*self.lifted(whole, apart), self.cut(whole, apart, stored=True), self.recomputed(whole)]
        if first.rules[0] in KEEP_CASCADES:
            others.append(self.cut(whole, apart))
        return [first, *(other for other in others if other is not None)]

    def lifted(self, whole: Step, rules: Sequence[Rule]) -> Iterator[_Cut]:
        """The parts of a function by the first rule, with operands of products computed within them: all, or of inputs.

        Of a chain, what borders the image is computed in the first product, and its activation is stored by it.
        """
        program = read_in_part(whole.outcome)
        if program is None or not rules:
            return
        nests = nests_of(program)
        operands = tuple(k for k in nests.maps if nests.is_operand(k))
        given = tuple(k for k in operands if nests.needs[k].isdisjoint(nests.folds))
        for lifted in dict.fromkeys(filter(None, (operands, given))):
            cuts = cut(nests, rules[0](nests, whole.outcome), lifted=lifted)
            if cuts is not None and len(cuts) > 1:
                yield _Cut(self.parts_of(program, cuts), tuple(rules))

    def recomputed(self, whole: Step) -> _Cut | None:
        """The parts of a function whose folds each compute the products that they read."""
        program = read_in_part(whole.outcome)
        units = [] if program is None else by_folds(nests_of(program))
        cuts = None if program is None or not units else cut(nests_of(program), units)
        if program is None or cuts is None or len(cuts) < 2:
            return None
        return _Cut(self.parts_of(program, cuts), RULES)

    def cut(self, whole: Step, rules: Sequence[Rule], stored: bool = False) -> _Cut | None:
        """The parts of a function by the first rule that gives several, with the rules that are left for them.

        Parameters
        ----------
        stored : outputs of inputs alone are stored where they are folded, and there are such.
        """
        program = read_in_part(whole.outcome)
        if program is None:
            return None
        for place, rule in enumerate(rules):
            last = rule is RULES[-1]
            for gathered, apart in ((False, False), (True, False), (False, True)) if last else ((False, False),):
                outcome = self._with_operands(whole.outcome, program, rule, gathered)
                read = read_in_part(outcome)
                if read is None:
                    continue
                cuts = cut(nests_of(read), rule(nests_of(read), outcome), apart, stored=stored)
                if cuts is not None and len(cuts) > 1:
                    parts = self.parts_of(read, cuts)
                    if not any(undefined(part.body, part.params) for part in parts):
                        return _Cut(parts, tuple(rules[place:]))
        return None

    def parts_of(self, program: Program, cuts: Sequence[Sequence[Position]]) -> tuple[tirx.PrimFunc, ...]:
        """The functions of a program's nests; several rules cut at the same places."""
        mark = program, tuple(map(tuple, cuts))
        if mark not in self.apart:
            self.apart[mark] = tuple(parts_of(program, cuts))
        return self.apart[mark]

    def _with_operands(self, outcome: Outcome, program: Program, rule: Rule, gathered: bool) -> Outcome:
        """The function with plain operands in the products that a rule takes apart."""
        inside = frozenset().union(*cascades_of(nests_of(program), outcome)) if rule in KEEP_CASCADES else frozenset()
        products = [stage for stage in program.stages if find_factors(stage) is not None]
        found = [(stage, program.position(stage) in inside) for stage in products]
        func = with_plain_operands(program, found, self.setting.options, gathered)
        return outcome if func is program.func else self.fuse(func)

    def joined(self, steps: Sequence[Step]) -> list[Step]:
        """The steps with neighbours that no skeleton takes as one."""
        found: list[Step] = []
        for k, step in enumerate(steps):
            if found and not isinstance(step.chosen, Kernel) and not isinstance(found[-1].chosen, Kernel):
                others = [*(s.func for s in found[:-1]), *(s.func for s in steps[k + 1 :])]
                merged = self._merged(found[-1].func, step.func, others)
                found[-1] = self.part(merged)
            else:
                found.append(step)
        return found

    def _merged(self, one: tirx.PrimFunc, two: tirx.PrimFunc, others: Sequence[tirx.PrimFunc]) -> tirx.PrimFunc:
        """Two functions as one: what passes between them alone is its own."""
        params = distinct([*one.params, *two.params])
        outside = [*self.params, *temporaries(self.params, others)]
        own = [p for p in params if tirx.is_buffer_var(p) and not among(p, outside)]
        roots = [func.body.block for func in (one, two)]
        nests = [nest for root in roots for nest in statements_of(root)]
        buffers = distinct([*own, *(buffer for root in roots for buffer in root.alloc_buffers)])
        return with_nests(one, [p for p in params if not among(p, own)], nests, buffers)


def _seconds(steps: Sequence[Step]) -> float:
    return sum(step.seconds for step in steps)


def _cascades(outcome: Outcome) -> dict[tuple[str, ...], list[tirx.Var]]:
    """The cascades of a function that have a fold: names of their results, and what one step has to compute."""
    return {group.names: _together(outcome.program, group) for group in fused_groups(outcome.found)}


def _together(program: Program | None, group: Group) -> list[tirx.Var]:
    """What the members of a cascade write; of a reduction alone, which folds a product, that product too."""
    own = [member.stage for member in group.members]
    if program is not None and all(stage.block.same_as(own[0].block) for stage in own):
        own += [stage for stage in passes_of(program, group).inside if stage.reducer is not None]
    return [stage.buffer for stage in own]


def _computed(step: Step) -> list[tirx.Var]:
    """The buffers that a step writes, its own temporaries too."""
    program = step.outcome.program
    return [] if program is None else [stage.buffer for stage in program.stages]
