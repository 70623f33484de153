"""The search space of a fused function: our schedule at several row tiles, with their sampled decisions.

A fused function's anchor block carries `schedule_rule="tvm_cascade"`, every other block "None" (see
`transform.handoff`), so that TVM's default space generator calls this rule and no other.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.devices.host import host_target
from tvm_cascade.devices.read import cpu_of, given_target
from tvm_cascade.schedule.cpu import schedule_cpu as apply_schedule
from tvm_cascade.schedule.row_plan import MOST_ROWS
from tvm_cascade.tvm_faults.copies import private_copy


def schedule_cpu(sch: s_tir.Schedule, _anchor: s_tir.schedule.SBlockRV) -> list[s_tir.Schedule]:
    """The designs to sample from, for an LLVM target.

    Parameters
    ----------
    sch : the schedule of one fused function.
    _anchor : the block that asked for the rule; the whole function is scheduled from it.

    Returns
    -------
    list of Schedule
        One for each choice of rows that makes a difference.
    """
    cpu = cpu_of(_target_of(sch))
    designs: list[s_tir.Schedule] = []
    for most_rows in (None, *MOST_ROWS):
        design = _private_copy(sch)
        apply_schedule(design, cpu, most_rows)
        if not any(tvm_ffi.structural_equal(design.mod, other.mod) for other in designs):
            designs.append(design)
    return designs


def _private_copy(sch: s_tir.Schedule) -> s_tir.Schedule:
    """A schedule whose module shares nothing with the caller's: primitives may write to what they were given."""
    return s_tir.Schedule(private_copy(sch.mod), seed=sch.fork_seed(), debug_mask="none")


def _target_of(sch: s_tir.Schedule) -> Target:
    """The target that is tuned for, which MetaSchedule passes to its own rules only; by default this machine."""
    given = (given_target(func) for func in sch.mod.functions.values() if isinstance(func, tirx.PrimFunc))
    return next((target for target in given if target is not None), host_target())
