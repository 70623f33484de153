"""Producers: inner reductions that are elements of a cascade (the scores Q·Kᵀ), computed tile by tile."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import inliner_of, plain_indices
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of, same_extent, uses


@dataclass(frozen=True)
class Producer:
    """A reduction whose result is read at the cascade axis, kept for one tile only.

    Attributes
    ----------
    stage : the reduction as it was written.
    element : its element with elementwise stages inlined, over its own variables.
    variables : its own spatial variables -> the frame's.
    """

    stage: Stage
    element: ir.Expr
    variables: dict[tirx.Var, tirx.Var]


def find_producers(program: Program, group: Group, keep: set[str]) -> list[Producer]:
    """Producers of a group's elements, each before those that read it.

    Those whose buffer the caller or another stage asks for (`keep`, by block name) stay as they are, and so do those
    read at anything but plain frame variables.
    """
    inline = inliner_of(program)
    found: list[Producer] = []
    pending = [load for member in group.members for load in loads_of(member.element)]
    seen: list[Stage] = []
    while pending:
        load = pending.pop(0)
        stage = program.writer(load.source)
        if stage is None or stage.reducer is None or stage.name in keep or any(stage is s for s in seen):
            continue
        if stage.is_part or any(stage is member.stage for member in group.members) or not _varies(load, group):
            continue
        variables = _plain_read(stage, load, group)
        if variables is None or not _always_read_so(stage, load, group):
            continue
        seen.append(stage)
        element = inline.of(stage)
        found.insert(0, Producer(stage, element, variables))
    return found


def _varies(load: ir.TensorLoad, group: Group) -> bool:
    return any(uses(index, group.frame.axis) for index in load.indices)


def _plain_read(stage: Stage, load: ir.TensorLoad, group: Group) -> dict[tirx.Var, tirx.Var] | None:
    """The producer's variables in the frame's, where it is read at plain and distinct ones."""
    if not plain_indices(stage):
        return None
    variables: dict[tirx.Var, tirx.Var] = {}
    for written, index in zip(stage.indices, load.indices, strict=True):
        if isinstance(written, ir.prim.IntImm):
            continue
        if index not in group.frame.extents or index in {*variables.values()}:
            return None
        if not same_extent(stage.extents[written], group.frame.extents[index]):
            return None
        variables[written] = index
    return variables if {*group.frame.axis} <= {*variables.values()} else None


def _always_read_so(stage: Stage, first: ir.TensorLoad, group: Group) -> bool:
    loads = [load for member in group.members for load in loads_of(member.element) if load.source.same_as(stage.buffer)]
    return all(
        all(
            a.same_as(b) if isinstance(a, ir.Var) else isinstance(b, ir.prim.IntImm)
            for a, b in zip(first.indices, load.indices, strict=True)
        )
        for load in loads
    )
