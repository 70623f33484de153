"""The space of a fused function: our schedule at several row blocks, each with decisions of its own.

A fused function's anchor block carries `schedule_rule="tvm_cascade"`, every other block "None" (see
`transform.handoff`), so that TVM's default space generator calls this rule and no other.
"""

from __future__ import annotations

import tvm
from tvm import s_tir
from tvm.target import Target

from tvm_cascade.errors import ScheduleError
from tvm_cascade.schedule.cpu import schedule_cpu as apply_schedule

MOST_ROWS = (64, 16, 32, 128)
"""Rows that one task works on, at most; the first is what the schedule takes by itself."""


def schedule_cpu(sch: s_tir.Schedule, anchor: s_tir.schedule.SBlockRV) -> list[s_tir.Schedule]:
    """The designs to sample from, for an LLVM target.

    Parameters
    ----------
    sch : the schedule of one fused function.
    anchor : the block that asked for the rule.

    Returns
    -------
    list of Schedule
        One for each choice of rows that makes a difference.

    Raises
    ------
    ScheduleError
        When no target is set and the function carries none.
    """
    target = _target_of(sch, anchor)
    designs: list[s_tir.Schedule] = []
    for most_rows in MOST_ROWS:
        design = _private_copy(sch)
        apply_schedule(design, target, most_rows)
        if not any(tvm.ir.structural_equal(design.mod, other.mod) for other in designs):
            designs.append(design)
    return designs


def _private_copy(sch: s_tir.Schedule) -> s_tir.Schedule:
    """A schedule whose module shares nothing with the caller's: primitives may write to what they were given."""
    return s_tir.Schedule(tvm.ir.load_json(tvm.ir.save_json(sch.mod)), seed=sch.fork_seed(), debug_mask="none")


def _target_of(sch: s_tir.Schedule, anchor: s_tir.schedule.SBlockRV) -> Target:
    current = Target.current(allow_none=True)
    if current is not None:
        return current
    for func in sch.mod.functions.values():
        if func.attrs is not None and "target" in func.attrs:
            return Target(func.attrs["target"])
    where = f"block {sch.get(anchor).name_hint}"
    raise ScheduleError("a target", "none set", where, "tune inside `with target:`, or pass the target to tune_tir")
