"""The loops that groups become: everything that is decided of one before it is priced or written.

What a loop computes depends on what the rest of the function reads, and on what the loops of other groups read. So the
loops of a function are planned together, once: the cost model, the rewrite and the reports read the same `Loop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.meaning import meaning_of
from tvm_cascade.analysis.order import access_of, among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of
from tvm_cascade.devices.device import Device
from tvm_cascade.obligations.certificate import certificate
from tvm_cascade.obligations.ends import at_infinities
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import live_stages, sources_of
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


# What of a fold is guarded: the results that its certificate does not bear, or whose class at infinities may differ.
#
# A guarded result is decided upon by its value, and reduced again as it was written where that may not be used: loops
# do so after the fused one (`transform.guard`), row kernels row by row (`tile.row.again`).


@dataclass(frozen=True)
class Guarding:
    """What is guarded of a group.

    Attributes
    ----------
    results : of the members whose fused values are decided upon.
    asked : the results that the fused loop has to give: those asked for, and those that fallbacks read.
    at_infinities : those of them that are decided upon by their class alone, and whether their own value tells it.
    unguarded : why there is no fallback, where results are in doubt; empty otherwise.
    """

    results: frozenset[sp.Symbol]
    asked: tuple[sp.Symbol, ...]
    at_infinities: Mapping[sp.Symbol, bool] = field(default_factory=dict)
    unguarded: str = ""


def guarding(
    plan: Plan, asked: Sequence[sp.Symbol], guards: str, classes: bool = False, loops: bool = False
) -> Guarding:
    """What is guarded: nothing where all is bounded, or where there is no fallback, which `Guarding.unguarded` tells.

    A fallback reads what the group reads, and results that are stored: slices of results and buffers that are written
    over have none.

    Parameters
    ----------
    asked : the results that the rest of the program reads.
    guards : see `FuseOptions`.
    classes : whether what is of another class at infinities is guarded too.
    loops : whether fallbacks are those of loops: kernels have none of what producers give, and take no time for
        classes of results with columns and of tuples.
    """
    fold, members = plan.group.fold, plan.group.members
    if guards == "off":
        return Guarding(frozenset(), tuple(asked))
    known = certificate(fold.restricted_to(asked), meaning_of(plan.group.atoms))
    if why := _no_fallback(plan, loops):
        doubts = [str(one) for one in known.standings if not one.bounded]
        return Guarding(frozenset(), tuple(asked), unguarded=f"{why}: {'; '.join(doubts)}" if doubts else "")
    doubtful = {one.result for one in known.standings if not one.bounded or guards == "always"}
    found = _with_readers(members, asked, doubtful)
    told = _told_at_infinities(plan, loops) if classes else {}
    if ends := told.keys() & {one.result for one in known.standings} - doubtful:
        wider = _with_readers(members, asked, doubtful | ends)
        others = wider.results - found.results
        if loops or not any(columns_of(member, members) for member in members if member.result in others):
            return replace(wider, at_infinities={one: told.get(one, True) for one in others})
    return found


def _told_at_infinities(plan: Plan, tuples: bool) -> dict[sp.Symbol, bool]:
    """The results whose class at infinities may differ, and whether their own value tells where it does.

    Parameters
    ----------
    tuples : whether parts of tuples are among the results.
    """
    members = plan.group.members
    faults = at_infinities(plan.group.fold, meaning_of(plan.group.atoms)).faults
    parts = {m.result for m in members if m.stage.is_part}
    alone = {result: fault.told for result, fault in faults.items() if result not in parts}
    alone |= {m.result: False for m in members if m.result not in parts and cancelled_in(m, plan.group)}
    return alone | dict.fromkeys(_whole_tuples(parts & faults.keys() if tuples else set(), members), False)


def cancelled_in(member: Member, group: Group) -> list[sp.Symbol]:
    """The results that a member's element reads and its algebra does not: 0/0 is NaN, of which d/d = 1 says nothing."""
    (element,) = (r.element for r in group.fold.cascade.reductions if r.result == member.result)
    return [result for result in read_by(member, group.members) if result not in element.free_symbols]


def _with_readers(members: Sequence[Member], asked: Sequence[sp.Symbol], doubtful: set[sp.Symbol]) -> Guarding:
    """Guards of some results, and of all that read them; what their fallbacks read is given too."""
    if not doubtful:
        return Guarding(frozenset(), tuple(asked))
    guarded = _whole_tuples(doubtful, members)
    needed = {*asked, *guarded}
    for member in reversed(members):
        if member.result in needed:
            needed.update(read_by(member, members))
    for member in members:
        if member.result in needed and not guarded.isdisjoint(read_by(member, members)):
            guarded |= _whole_tuples({member.result}, members)
    needed |= guarded
    return Guarding(frozenset(guarded), tuple(member.result for member in members if member.result in needed))


def _whole_tuples(results: Set[sp.Symbol], members: Sequence[Member]) -> set[sp.Symbol]:
    """Some results, and the other parts of the tuples that they belong to."""
    blocks = [member.stage.block for member in members if member.result in results]
    return {member.result for member in members if any(member.stage.block.same_as(block) for block in blocks)}


def columns_of(member: Member, members: Sequence[Member]) -> list[tirx.Var]:
    """The dimensions of a result that not all results have."""
    return [d for d in member.dims if isinstance(d, ir.Var) and not all(among(d, other.dims) for other in members)]


def _no_fallback(plan: Plan, loops: bool) -> str:
    """Why the program's own reductions cannot be run again after the fused loop; empty where they can."""
    members = plan.group.members
    if any(member.is_slice for member in members):
        return "no result can be reduced again where a fixed part of one is read by itself"
    if plan.producers and not loops:
        return f"nothing can be reduced again from {plan.producers[0].stage.buffer.name}, which is reduced in tiles"
    written = next((m.stage.buffer for m in members if among(m.stage.buffer, plan.reads)), None)
    if written is not None:
        return f"no result can be reduced again where {written.name} is read and written over"
    if not all(isinstance(dim, ir.Var) for member in members for dim in member.dims):
        return "no result can be reduced again where results are at fixed places"
    if not all(isinstance(member.stage.init, (type(None), tirx.FloatImm, tirx.IntImm)) for member in members):
        return "no result can be reduced again where a reduction starts from data"
    return ""


def loaded_by(member: Member) -> list[tirx.Var]:
    """The buffers that a member's element reads."""
    return [load.source for load in loads_of(member.element)]


def read_by(member: Member, members: Sequence[Member]) -> list[sp.Symbol]:
    """The results among some members' that a member's element reads."""
    buffers = loaded_by(member)
    return [other.result for other in members if among(other.stage.buffer, buffers)]
