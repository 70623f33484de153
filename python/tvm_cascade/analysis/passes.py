"""Passes over memory: the stages of a program that run along a group's cascade axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group, Member
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of, reads_buffer, uses


@dataclass(frozen=True)
class Passes:
    """Stages along the axis.

    Attributes
    ----------
    inside : reductions of the group, and the stages that their elements are computed by.
    after : elementwise stages along the axis that read the group's results or what `inside` computes.
    """

    inside: tuple[Stage, ...]
    after: tuple[Stage, ...]


def passes_of(program: Program, group: Group) -> Passes:
    """The passes of a group's reductions in the unfused program."""
    return passes_for(program, [member.stage for member in group.members if not member.is_slice])


def passes_for(program: Program, members: Sequence[Stage]) -> Passes:
    """The passes of some reductions, whether or not they are a group."""
    search = _Along(program)
    for stage in members:
        search.follow(stage, stage.reduce)
    inside = [s for s in program.stages if s in members or s in search.visited]
    inside = [s for s in inside if s is next(o for o in inside if o.block.same_as(s.block))]  # a tuple is one pass
    written = [stage.buffer for stage in inside]
    after = []
    for stage in program.stages:
        reads_group = any(reads_buffer(stage.value, buffer) for buffer in written)
        if stage.reducer is None and reads_group and stage not in inside and search.runs_along(stage):
            after.append(stage)
            written.append(stage.buffer)
    return Passes(tuple(inside), tuple(after))


def along_axis(program: Program, members: Sequence[Member]) -> list[tuple[tirx.Var, int]]:
    """(buffer, dimension) pairs at which members of a group read along its axis, as the program is written."""
    search = _Along(program)
    for member in members:
        search.follow(member.stage, member.stage.reduce)
    return search.positions


class _Along:
    """Follows the axis from reductions back through the stages that they read."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.visited: set[Stage] = set()
        self.positions: list[tuple[tirx.Var, int]] = []

    def follow(self, stage: Stage, axis: tuple[tirx.Var, ...]) -> None:
        """Records which loads of the stage are indexed by the axis, recursively through the stages that write them."""
        for load in loads_of(stage.value):
            along = [k for k, index in enumerate(load.indices) if uses(index, axis)]
            self.positions += [(load.source, k) for k in along]
            writer = self.program.writer(load.source)
            if along and writer is not None and writer not in self.visited:
                self.visited.add(writer)
                written = [writer.indices[k] for k in along]
                self.follow(writer, tuple(v for v in written if isinstance(v, ir.Var)))

    def runs_along(self, stage: Stage) -> bool:
        """Whether a stage loads some buffer at a variable of its own where that buffer runs along the axis."""
        read = [(load.source, k, index) for load in loads_of(stage.value) for k, index in enumerate(load.indices)]
        along = {*self.positions}
        return any((source, k) in along and uses(index, stage.spatial) for source, k, index in read)
