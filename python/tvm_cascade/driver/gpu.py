"""Lowers a function for a GPU: by a skeleton's kernel where its fold fits one, else by an S-TIR schedule."""

from __future__ import annotations

import dataclasses

import tvm_ffi
from tvm import ir, s_tir, tirx

from tvm_cascade.devices.device import Gpu
from tvm_cascade.driver.backend import Goal, Lowered, is_scheduled
from tvm_cascade.errors import CascadeError
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.plan import Plan, Step, as_step, host_function, names_beside, read_in_part
from tvm_cascade.plan.search import find_plan
from tvm_cascade.schedule.gpu import launch_serial, schedule_gpu
from tvm_cascade.schedule.gpu_vectors import with_vectors
from tvm_cascade.schedule.inlining import inline_maps
from tvm_cascade.schedule.vector_math import powers_as_products
from tvm_cascade.tile.launch.dependent import GIVEN, SHORT
from tvm_cascade.tile.launch.fast_math import with_fast_math
from tvm_cascade.tile.skeleton import Kernel, Setting
from tvm_cascade.transform.fuse_function import AsItIs, Outcome
from tvm_cascade.transform.handoff import carried_folds, is_fused
from tvm_cascade.tvm_faults.copies import private_copy
from tvm_cascade.tvm_faults.divisions import divisions_apart
from tvm_cascade.tvm_faults.float8 import round_float8
from tvm_cascade.tvm_faults.half_constants import fold_half_constants

_TEXT = (
    "alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr continue "
    "decltype default delete do double else enum explicit export extern false float for friend goto if inline int "
    "long mutable namespace new noexcept not nullptr operator or private protected public register return short "
    "signed sizeof static struct switch template this throw true try typedef typeid typename union unsigned using "
    "virtual void volatile wchar_t while xor"
)

_WORDS = frozenset(_TEXT.split())
"""That no variable of C++ may have for a name."""

SCHEDULED = "tirx.is_scheduled"
"""Function attribute: passes that schedule what nobody has, such as dlight's, leave the function as it is."""


def gpu_options(options: FuseOptions) -> FuseOptions:
    """The options of the pass for a GPU: segments and lanes are the schedule's, threads split what a vector does."""
    return dataclasses.replace(options, segments=1, lanes=1)


def lower_gpu(outcome: Outcome, name: str, goal: Goal) -> Lowered:
    """Lowers a function for a GPU: the function, and its kernel, its plan, or the reason why it has none."""
    if not is_planned(outcome, goal):
        func = outcome.func
        alone = launch_serial(func) if goal.options.schedule and not is_scheduled(func) else func
        return goal.finish(Lowered(alone, "the function is scheduled already, or cannot be read"), name)
    plan = goal.planned.get(name) or find_plan(outcome, name, setting_of(goal))
    return lower_plan(beginning_early(plan, outcome), name, goal)


def beginning_early(plan: Plan, outcome: Outcome) -> Plan:
    """The plan whose first kernel begins with what is given, before it waits for the kernel before it."""
    places = (outcome.given.attrs or {}).get(GIVEN, ())
    step = plan.steps[0]
    if not places or not isinstance(step.chosen, Kernel) or step.chosen.seconds > SHORT:
        return plan
    kernel, given = step.chosen, [plan.params[int(place)] for place in places]
    launch = dataclasses.replace(kernel.launch, given=kernel.skeleton.may_begin_early(kernel.program, given))
    early = dataclasses.replace(step, chosen=dataclasses.replace(kernel, launch=launch))
    return dataclasses.replace(plan, steps=(early, *plan.steps[1:]))


def is_planned(outcome: Outcome, goal: Goal) -> bool:
    """Whether a function has a plan: it is not scheduled yet, and can be read."""
    return goal.options.schedule and not is_scheduled(outcome.read) and _is_readable(outcome)


def setting_of(goal: Goal) -> Setting:
    """What plans are found for: without kernels of skeletons, which fuse by themselves, where fusing is off."""
    options, gpu = goal.options, goal.device
    assert isinstance(gpu, Gpu)
    if not goal.fuse:
        options = dataclasses.replace(options, tensor_cores=False, row_kernels=False)
    return Setting(gpu, options)


def lower_plan(plan: Plan, name: str, goal: Goal) -> Lowered:
    gpu = goal.device
    assert isinstance(gpu, Gpu)
    if len(plan.steps) == 1:
        func, step = _lowered(plan.steps[0], name, gpu)
        return goal.finish(Lowered(func.with_attr(SCHEDULED, True), step.chosen), name)
    names = names_beside(name, len(plan.steps), goal.taken)
    steps, told = {}, []
    for position, (step, called) in enumerate(zip(plan.steps, names, strict=True)):
        func, as_lowered = _lowered(step, called, gpu)
        steps[called] = as_step(func, called, waits=position > 0 and gpu.has_clusters).with_attr(SCHEDULED, True)
        told.append(as_lowered)
    host = host_function(plan, name, names).with_attr(SCHEDULED, True)
    return goal.finish(Lowered(host, dataclasses.replace(plan, steps=tuple(told)), steps=steps), name)


def _is_readable(outcome: Outcome) -> bool:
    """Whether a function is fused, or can be read, at least in part."""
    return outcome.program is not None or is_fused(outcome.given) or read_in_part(outcome) is not None


def _lowered(step: Step, name: str, gpu: Gpu) -> tuple[tirx.PrimFunc, Step]:
    """A step's function, scheduled, and the step with its kernel or why it has none."""
    func, chosen = _scheduled(step, name, gpu)
    step, func = dataclasses.replace(step, chosen=chosen), _named_for_cuda(func)
    return with_fast_math(func) if step.fast_math else func, step


def _named_for_cuda(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function without variables whose names are words of C++, which TVM writes as they are."""
    renamed: dict[ir.Var, ir.Var] = {}

    def told(var: ir.Var) -> ir.Var:
        if var.name not in _WORDS or tirx.is_buffer_var(var):  # names of buffers get an ending
            return var
        return renamed.setdefault(var, tirx.Var(f"{var.name}_", var.ty))

    params, body = [told(param) for param in func.params], tvm_ffi.structural_map(func.body, (ir.Var, told))
    return tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs) if renamed else func


def _scheduled(step: Step, name: str, gpu: Gpu) -> tuple[tirx.PrimFunc, Kernel | AsItIs | str]:
    chosen = step.chosen
    if isinstance(chosen, Kernel):
        kernel = dataclasses.replace(chosen, name=name)
        try:
            return round_float8(kernel.func), kernel
        except CascadeError as defect:  # a kernel that cannot be written must not stop a build
            chosen = AsItIs.after(f"as a schedule, as `{kernel.skeleton.name}` gave no kernel", defect)
    func = fold_half_constants(round_float8(step.outcome.readable))
    try:
        carried_folds(func)  # a function that was parsed may tell of folds that it no longer has
        schedule = s_tir.Schedule(private_copy(with_vectors(inline_maps(func), gpu)))
        schedule_gpu(schedule, gpu)
    except Exception as error:  # such as: a nest that was not read writes over what others read
        return launch_serial(func), AsItIs.after("in one thread, as the schedule failed", error)
    return powers_as_products(launch_serial(divisions_apart(schedule.mod["main"]))), chosen


def plain_gpu(outcome: Outcome, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function as written, in one thread of a GPU."""
    return launch_serial(fold_half_constants(func if outcome.program is None else outcome.program.func))
