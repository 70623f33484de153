"""Lowers a function for a GPU: by a skeleton's kernel where its fold fits one, else by an S-TIR schedule."""

from __future__ import annotations

import dataclasses

from tvm import s_tir, tirx

from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.backend import Goal, Lowered, is_scheduled
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.float8 import round_float8
from tvm_cascade.schedule.gpu import schedule_gpu
from tvm_cascade.schedule.gpu_serial import launch_serial
from tvm_cascade.schedule.private_copy import private_copy
from tvm_cascade.tile.select import select_kernel
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform.fuse_function import AsItIs, Outcome
from tvm_cascade.transform.handoff import carried_folds, is_fused

SCHEDULED = "tirx.is_scheduled"
"""Function attribute: passes that schedule what nobody has, such as dlight's, leave the function as it is."""


def gpu_options(options: FuseOptions) -> FuseOptions:
    """The options of the pass for a GPU: its cost model is of CPUs, and declines nothing here.

    Segments and lanes are the schedule's own there: threads split what a CPU's vectors do.
    """
    return dataclasses.replace(options, force=True, segments=1, lanes=1)


def lower_gpu(outcome: Outcome, name: str, goal: Goal) -> Lowered:
    """Lowers a function for a GPU: the function, and its kernel or the reason why it has none."""
    func, options = outcome.func, goal.options
    readable = outcome.program is not None or is_fused(func)
    if not options.schedule or is_scheduled(outcome.readable) or not readable:
        alone = launch_serial(func) if options.schedule and not is_scheduled(func) else func
        return Lowered(alone, "the function is scheduled already, or cannot be read")
    if not goal.fuse:
        goal = dataclasses.replace(goal, options=dataclasses.replace(options, tensor_cores=False, row_kernels=False))
    lowered = _lowered(outcome, name, goal)
    return dataclasses.replace(lowered, func=lowered.func.with_attr(SCHEDULED, True))


def _lowered(outcome: Outcome, name: str, goal: Goal) -> Lowered:
    gpu = goal.device
    assert isinstance(gpu, Gpu)
    chosen = select_kernel(outcome, name, gpu, goal.options)
    if isinstance(chosen, Kernel):
        return Lowered(round_float8(chosen.func), chosen)
    func = round_float8(outcome.readable)
    try:
        carried_folds(func)  # a function that was parsed may tell of folds that it no longer has
        schedule = s_tir.Schedule(private_copy(func))
        schedule_gpu(schedule, gpu)
    except Exception as error:  # such as: a nest that was not read writes over what others read
        return Lowered(launch_serial(func), AsItIs.after("in one thread, as the schedule failed", error))
    return Lowered(launch_serial(schedule.mod["main"]), chosen)


def plain_gpu(outcome: Outcome, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function as written, in one thread of a GPU."""
    return launch_serial(func if outcome.program is None else outcome.program.func)
