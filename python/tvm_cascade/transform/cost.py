"""The CPU cost model: time of everything along a cascade's axis, unfused and fused.

Unfused, every stage is a nest of its own. Fused, the loop is priced as it will be written: its producers, temporaries
and components tile by tile, the moves of its state, and its results. What it reads and does not compute itself stays a
nest before it; a pass that remains after the loop (the division of a softmax) has to compute again what is no longer
stored. Both are priced by the same rules (`nest_cost`). On several cores each nest shares out its rows, and starts the
threads and waits for them once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import tirx

from tvm_cascade.analysis.extract import Group
from tvm_cascade.analysis.inline import Inliner, inliner_of
from tvm_cascade.analysis.passes import passes_of
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import loads_of, reads_buffer
from tvm_cascade.devices.device import Cpu, Device
from tvm_cascade.devices.read import ANY_CPU
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.assemble import live_stages
from tvm_cascade.transform.layout import Layout, lay_out, plan_loop
from tvm_cascade.transform.layout import Plan as LoopPlan
from tvm_cascade.transform.loop_cost import LoopCost
from tvm_cascade.transform.nest_cost import FORK_NS, size_of, stage_ns, threads_of
from tvm_cascade.transform.tiling import Tiling

LEAST_LOSS_NS = 50.0
"""A predicted loss below this is not worth a refusal: a call costs forty times as much."""


@dataclass(frozen=True)
class Estimate:
    """Predicted cost of both forms.

    Attributes
    ----------
    passes_before, passes_after : passes over the cascade axis.
    bytes_before, bytes_after : of intermediates that grow with the cascade axis, outputs left out.
    ns_before, ns_after : predicted time, in nanoseconds.
    cores : that it is predicted for.
    """

    passes_before: int
    passes_after: int
    bytes_before: int
    bytes_after: int
    ns_before: float
    ns_after: float
    cores: int = 1

    @property
    def slower(self) -> bool:
        """Whether the fused form is predicted to be significantly slower."""
        return self.ns_after - self.ns_before > LEAST_LOSS_NS

    def __str__(self) -> str:
        cores = "one core" if self.cores == 1 else f"{self.cores} cores"
        return f"estimated {self.ns_before / 1e3:.1f} us unfused, {self.ns_after / 1e3:.1f} us fused ({cores})"


def estimate(program: Program, group: Group, options: FuseOptions, device: Device) -> Estimate:
    """Both forms' passes, intermediates and time: on the CPU, or on one core of any CPU where the device is none."""
    cpu, vector_math = device if isinstance(device, Cpu) else ANY_CPU, options.vector_math
    passes = passes_of(program, group)
    after = passes.after
    plan, layout = _loop(program, group, options, device)
    intermediates = [s for s in passes.inside if not program.is_param(s.buffer) and not _is_result(s, group)]
    kept = [s for s in intermediates if any(reads_buffer(a.value, s.buffer) for a in after) and s.reducer is not None]
    loop = LoopCost(layout, plan.producers, cpu, vector_math)
    inline = inliner_of(program)
    stages = (*passes.inside, *after)
    before = [stage for stage in passes.inside if stage.name in _read_from_memory(program, plan.reads)]
    return Estimate(
        len(stages),
        1 + len(after),
        sum(size_of(stage.buffer) for stage in intermediates),
        sum(size_of(stage.buffer) for stage in kept),
        sum(alone_ns(program, stage, cpu, vector_math) for stage in stages),
        sum(alone_ns(program, stage, cpu, vector_math) for stage in before)
        + loop.ns / loop.threads
        + _fork_ns(cpu)
        + sum(_after_ns(inline, stage, cpu, vector_math) for stage in after),
        cpu.cores,
    )


def tiling_of(program: Program, group: Group, options: FuseOptions, device: Device) -> Tiling:
    """The tiling of the loop that a group becomes, also where extents are symbolic."""
    return _loop(program, group, options, device)[1].tiling


def _loop(program: Program, group: Group, options: FuseOptions, device: Device) -> tuple[LoopPlan, Layout]:
    """The loop that a group becomes, as it will be written."""
    asked_for = {stage.name for stage in live_stages(program, [group], [[]])}
    plan = plan_loop(program, group, asked_for | {member.stage.name for member in group.members})
    return plan, lay_out(plan, _asked_for(program, group, passes_of(program, group).after), options, device)


def _read_from_memory(program: Program, reads: Sequence[tirx.Var]) -> set[str]:
    """The names of the stages that write what a loop reads, and what these read."""
    found, pending = set[str](), list(reads)
    while pending:
        stage = program.writer(pending.pop())
        if stage is not None and stage.name not in found:
            found.add(stage.name)
            pending += [load.source for part in program.together(stage) for load in loads_of(part.value)]
    return found


def alone_ns(program: Program, stage: Stage, cpu: Cpu, vector_math: bool) -> float:
    """Time of a stage in a nest of its own."""
    parts = program.together(stage)
    return shared_ns(stage, stage_ns(parts, [part.value for part in parts], cpu, vector_math), cpu)


def _after_ns(inline: Inliner, stage: Stage, cpu: Cpu, vector_math: bool) -> float:
    return shared_ns(stage, stage_ns((stage,), (inline.of(stage),), cpu, vector_math), cpu)


def shared_ns(stage: Stage, alone: float, cpu: Cpu) -> float:
    """Time of a nest whose outputs are shared out among cores."""
    return alone / threads_of(math.prod(int(stage.extents[v]) for v in stage.spatial), cpu) + _fork_ns(cpu)


def _fork_ns(cpu: Cpu) -> float:
    return FORK_NS if cpu.cores > 1 else 0.0


def _is_result(stage: Stage, group: Group) -> bool:
    return any(stage is member.stage for member in group.members)


def _asked_for(program: Program, group: Group, after: Sequence[Stage]) -> list[sp.Symbol]:
    """The results that the loop has to give: of one that is read in slices alone, the slices."""
    slices = [member.stage.block for member in group.members if member.is_slice]
    return [
        member.result
        for member in group.members
        if not member.is_slice
        and (
            program.is_param(member.stage.buffer)
            or any(reads_buffer(stage.value, member.stage.buffer) for stage in after)
            or not any(member.stage.block.same_as(block) for block in slices)
        )
    ]
