"""Finds the plan of least estimated time: a function whole, or cut into parts, each of which is planned alike.

A function that a skeleton takes whole is cut only where the time of its parts could be less: what they move and compute
at the device's own rates, with their launches, bounds that from below. What no skeleton takes is cut further; what can
be cut no more is scheduled by itself, neighbours together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tvm import tirx
from tvm_ffi import structural_equal, structural_hash

from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program
from tvm_cascade.analysis.statements import statements_of
from tvm_cascade.chunks.conditions import apart_at_conditions
from tvm_cascade.plan.ahead import overlapping
from tvm_cascade.plan.cuts import KEEP_CASCADES, RULES, Rule, cascades_of, cut, nests_of
from tvm_cascade.plan.operands import with_plain_operands
from tvm_cascade.plan.parts import distinct, parts_of, undefined, with_nests
from tvm_cascade.plan.plan import Declined, Plan, Step, temporaries
from tvm_cascade.plan.scheduled import read_in_part, scheduled
from tvm_cascade.tile.estimate import count_work
from tvm_cascade.tile.factors import find_factors
from tvm_cascade.tile.select import available, ranked_kernels
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import Outcome, fuse_function, read_function

_FASTEST = 1.2
"""Of a device's rate of products, what kernels of large ones reach at most: 860 Tflop/s of 720 (H200, measured)."""

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
    return _least(_searches(outcome, name, setting))


def find_plans(outcome: Outcome, name: str, setting: Setting, replayed: Collection[str] | None = None) -> list[Plan]:
    """The plan of a function, and others of estimated times near it: no two with the same words.

    Parameters
    ----------
    outcome, name, setting : as of `find_plan`.
    replayed : the words of the only others that are asked for; None for all.
    """
    searches = _searches(outcome, name, setting)
    chosen = _least(searches)
    if replayed is not None and {*replayed} <= {chosen.words}:
        return [chosen]
    others = [overlapping(plan, setting) for search in searches for plan in search.alternatives()]
    found: dict[str, Plan] = {}
    for plan in (chosen, *sorted(others, key=lambda one: one.seconds)):
        if plan.seconds <= MOST_TIMES * chosen.seconds:
            found.setdefault(plan.words, plan)
    return list(found.values())[:MOST_PLANS]


def _least(searches: Sequence[_Search]) -> Plan:
    return min((overlapping(one.chosen, one.setting) for one in searches), key=lambda one: one.seconds)


def _searches(outcome: Outcome, name: str, setting: Setting) -> list[_Search]:
    """The searches of a function, and of it with axes in parts where it is no one kernel."""
    found = [_Search(outcome, name, setting)]
    plan, program = found[0].chosen, read_in_part(outcome)
    if program is not None and not (len(plan.steps) == 1 and isinstance(plan.steps[0].chosen, Kernel)):
        for apart in _in_parts(program, setting):
            found.append(_Search(fuse_function(apart, setting.options, setting.gpu), name, setting))
    return found


def _in_parts(program: Program, setting: Setting) -> list[tirx.PrimFunc]:
    """The function with axes of several tensors in parts, which all multiprocessors share, or half of them."""
    processors, found = setting.gpu.processors, list[tirx.PrimFunc]()
    for sharing in (processors, processors // 2):
        apart = apart_at_conditions(program.func, setting.options, sharing)
        if apart is not None and not any(structural_equal(apart, other) for other in found):
            found.append(apart)
    return found


@dataclass(frozen=True)
class _Cut:
    """A function's parts."""

    parts: tuple[tirx.PrimFunc, ...]
    rules: tuple[Rule, ...]


class _Search:
    def __init__(self, outcome: Outcome, name: str, setting: Setting) -> None:
        self.outcome, self.name, self.setting = outcome, name, setting
        program = outcome.program
        self.params = outcome.func.params if program is None else program.params
        self.launch = setting.gpu.launch_seconds - setting.gpu.dependent_launch_seconds
        self.declined: dict[tuple[str, ...], Declined] = {}
        self.above: list[int] = []
        self.known: dict[tuple[int, tuple[tirx.Var, ...]], Step] = {}

    @cached_property
    def whole(self) -> Step:
        """The function as one step."""
        return self.step(self.outcome, alone=True)

    @cached_property
    def chosen(self) -> Plan:
        """The plan of least estimated time, with neighbours that no skeleton takes as one function."""
        steps = self.joined(self.best(self.whole, RULES)) if available(self.setting) else [self.whole]
        if not any(isinstance(step.chosen, Kernel) for step in steps):
            return Plan(tuple(self.params), (self.whole,), self.launch)
        found = [self.declined[names] for names in _cascades(self.outcome) if names in self.declined]
        return self.plan(steps, found)

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
                plans.append(self.plan(steps, list(declined.values())))
        return plans

    def plan(self, steps: Sequence[Step], declined: Sequence[Declined]) -> Plan:
        """The plan of some steps."""
        why = self.whole.chosen if isinstance(self.whole.chosen, str) and len(steps) > 1 else ""
        return Plan(tuple(self.params), tuple(steps), self.launch, why, tuple(declined))

    def step(self, outcome: Outcome, alone: bool = False) -> Step:
        """A function as one step.

        Parameters
        ----------
        alone : it is all of the plan, and so none of its kernels is launched dependently.
        """
        kernels = ranked_kernels(outcome, self.name, self.setting.gpu, self.setting.options)
        program = read_in_part(outcome)
        if program is None or isinstance(kernels, str):
            return scheduled(outcome, kernels if isinstance(kernels, str) else kernels[0], self.setting, alone)
        chosen, *others = kernels
        seconds = chosen.seconds + self.setting.gpu.dependent_launch_seconds
        return Step(program.func, outcome, chosen, count_work(program), seconds, tuple(others))

    def best(self, whole: Step, rules: Sequence[Rule]) -> list[Step]:
        """The steps of least estimated time; a part that is a function it was cut from is cut no more."""
        mark = structural_hash(whole.func)
        if mark in self.above:
            return [whole]
        self.above.append(mark)
        try:
            return self._least_of_cuts(whole, rules)
        finally:
            self.above.pop()

    def _least_of_cuts(self, whole: Step, rules: Sequence[Rule]) -> list[Step]:
        """The function as it is, or the steps of its cut, whichever is estimated to take less."""
        kernel = isinstance(whole.chosen, Kernel)
        if kernel and (bound := self.bound(whole)) is not None and whole.seconds <= bound:
            return [whole]
        steps: list[Step] = []
        for way in self.cuts(whole, self.allowed(whole, rules)):
            if not steps or self.least(way, _FASTEST) < _seconds(steps):
                steps = min(filter(None, (steps, self.steps(way))), key=_seconds)
        if not steps:
            return [whole]
        if not any(isinstance(step.chosen, Kernel) for step in steps) or whole.seconds <= _seconds(steps):
            return [whole]
        for names, declined in self.declined_by(whole, steps):
            self.declined.setdefault(names, declined)
        return steps

    def allowed(self, whole: Step, rules: Sequence[Rule]) -> Sequence[Rule]:
        """The rules by which a function may be cut under the options."""
        if not (self.setting.options.force and whole.outcome.fused):
            return rules
        return [] if isinstance(whole.chosen, Kernel) else [rule for rule in rules if rule in KEEP_CASCADES]

    def steps(self, way: _Cut) -> list[Step]:
        """The parts of a cut, each planned for the least time."""
        return [step for part in way.parts for step in self.best(self.part(part), way.rules)]

    def part(self, func: tirx.PrimFunc) -> Step:
        """A part as one step; cuts have parts in common."""
        mark = structural_hash(func), tuple(func.params)
        if mark not in self.known:
            self.known[mark] = self.step(self.fuse(func))
        return self.known[mark]

    def declined_by(self, whole: Step, steps: Sequence[Step]) -> Iterator[tuple[tuple[str, ...], Declined]]:
        """The cascades that no step computes by itself, by the names of their results."""
        told = str(whole.chosen) if isinstance(whole.chosen, Kernel) else "an S-TIR schedule"
        times = self.launch + whole.seconds, self.launch + _seconds(steps)
        for names, written in _cascades(whole.outcome).items():
            if not any(all(among(buffer, _computed(step)) for buffer in written) for step in steps):
                yield names, Declined(names, told, *times, len(steps))

    def fuse(self, func: tirx.PrimFunc) -> Outcome:
        """What the pass makes of a part."""
        return fuse_function(func, self.setting.options, self.setting.gpu)

    def bound(self, whole: Step) -> float | None:
        """Seconds that the steps of no cut of a function can be under; None where it cannot be cut."""
        found = self.cut(whole, RULES[1:])
        return None if found is None else self.least(found)

    def least(self, cut: _Cut, compute: float = 1.0) -> float:
        """Seconds that the steps of a cut cannot be under, where kernels compute at so much of the device's rates."""
        programs = [program for part in cut.parts if isinstance(program := read_function(part), Program)]
        gpu = self.setting.gpu
        return sum(
            count_work(program).seconds(gpu, compute=compute) + gpu.dependent_launch_seconds for program in programs
        )

    def cuts(self, whole: Step, rules: Sequence[Rule]) -> list[_Cut]:
        """The parts by the first rule that gives several, and others.

        They are those by the first rule that takes the products of cascades out, also with what these multiply inside.
        """
        first = self.cut(whole, rules)
        if first is None:
            return []
        apart = [rule for rule in rules if rule not in KEEP_CASCADES]
        others = [self.lifted(whole, apart), self.cut(whole, apart, stored=True)]
        if first.rules[0] in KEEP_CASCADES:
            others.append(self.cut(whole, apart))
        return [first, *(other for other in others if other is not None)]

    def lifted(self, whole: Step, rules: Sequence[Rule]) -> _Cut | None:
        """The parts of a function by the first rule, with the operands of products computed within them."""
        program = read_in_part(whole.outcome)
        nests = None if program is None else nests_of(program)
        if program is None or nests is None or not rules or not any(map(nests.is_operand, nests.maps)):
            return None
        cuts = cut(nests, rules[0](nests, whole.outcome), lifted=True)
        if cuts is None or len(cuts) < 2:
            return None
        return _Cut(tuple(parts_of(program, cuts)), tuple(rules))

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
                    parts = parts_of(read, cuts)
                    if not any(undefined(part) for part in parts):
                        return _Cut(tuple(parts), tuple(rules[place:]))
        return None

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
                found[-1] = self.step(self.fuse(merged))
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
    """Estimated, of steps in order."""
    return sum(step.seconds for step in steps)


def _cascades(outcome: Outcome) -> dict[tuple[str, ...], list[tirx.Var]]:
    """The cascades of a function that have a fold: names of their results, and what one step has to compute."""
    found = [d.candidate.group for d in outcome.decisions if d.reason.verdict is Verdict.FUSED]
    return {group.names: _together(outcome.program, group) for group in found if group is not None}


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
