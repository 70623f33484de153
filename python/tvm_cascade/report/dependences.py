"""The passes over a cascade axis that a program makes as it is written, and which of them read which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from tvm_cascade.analysis.extract import Candidate
from tvm_cascade.analysis.passes import passes_for
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of


@dataclass(frozen=True)
class PassReport:
    """One pass.

    Attributes
    ----------
    writes : names of the buffers that it writes.
    reducer : what it reduces by; empty where it computes an element for each position.
    reads : names of the inputs that it reads, in order.
    waits_for : places in the list of the passes that it reads, directly or by maps of their results.
    after : it stays behind the loop of the fused program.
    """

    writes: tuple[str, ...]
    reducer: str
    reads: tuple[str, ...]
    waits_for: tuple[int, ...]
    after: bool


def dependences(program: Program, candidate: Candidate) -> tuple[PassReport, ...]:
    """The passes of a candidate's reductions, in order; of those that are no group, found by their names."""
    if candidate.group is not None:
        members = [member.stage for member in candidate.group.members if not member.is_slice]
    else:
        members = [stage for stage in program.stages if stage.reducer and stage.buffer.name in candidate.names]
    passes = passes_for(program, members)
    listed = (*passes.inside, *passes.after)
    return tuple(_report(program, stage, listed, k >= len(passes.inside)) for k, stage in enumerate(listed))


def _report(program: Program, stage: Stage, listed: Sequence[Stage], after: bool) -> PassReport:
    parts = program.together(stage)
    reads, waits = dict[str, None](), set[int]()
    pending = [load.source for part in parts for load in loads_of(part.value)]
    seen: list[tirx.Var] = [part.buffer for part in parts]
    while pending:
        buffer = pending.pop(0)
        if any(buffer.same_as(other) for other in seen):
            continue
        seen.append(buffer)
        writer = program.writer(buffer)
        place = next((k for k, other in enumerate(listed) if writer and other.block.same_as(writer.block)), None)
        if writer is None:
            reads[buffer.name] = None
        elif place is not None:
            waits.add(place)
        else:
            pending += [load.source for load in loads_of(writer.value)]
    reducer = "" if stage.reducer is None else (stage.reducer.whole or stage.reducer).name
    return PassReport(tuple(part.buffer.name for part in parts), reducer, tuple(reads), tuple(sorted(waits)), after)
