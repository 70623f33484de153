"""The LLVM backend for CPUs: our S-TIR schedules, with arithmetic that vectorises."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.target import Target, codegen

from tvm_cascade.analysis.index_width import counted_in_64_bits
from tvm_cascade.devices.device import Cpu
from tvm_cascade.driver.arguments import of_any_address
from tvm_cascade.driver.backend import Backend, Goal, Lowered, export_library, is_scheduled
from tvm_cascade.errors import InputError
from tvm_cascade.plan.iterations import iterations_of
from tvm_cascade.schedule.blocked_sums import blocked_sums
from tvm_cascade.schedule.cpu import schedule_cpu
from tvm_cascade.schedule.inlining import inline_maps
from tvm_cascade.schedule.nest_schedule import CpuSchedule, start_of_none
from tvm_cascade.schedule.packing import squares_in_registers
from tvm_cascade.schedule.row_lanes import rows_in_lanes, tuples_apart
from tvm_cascade.schedule.row_picks import with_runs_marked
from tvm_cascade.schedule.row_runs import products_in_runs
from tvm_cascade.schedule.tile_skip import hoist_guards, skip_dead_tiles
from tvm_cascade.schedule.unfused import schedule_unfused_cpu
from tvm_cascade.schedule.vector_math import powers_as_products, vectorise_math
from tvm_cascade.schedule.whole_tiles import whole_products, whole_tiles
from tvm_cascade.schedule.windows import windows_as_offsets
from tvm_cascade.transform.fuse_function import AsItIs, Outcome, Unfused
from tvm_cascade.transform.handoff import carried_folds, is_fused
from tvm_cascade.tvm_faults.bfloat16 import lower_bfloat16
from tvm_cascade.tvm_faults.copies import private_copy
from tvm_cascade.tvm_faults.divisions import divisions_apart
from tvm_cascade.tvm_faults.float8 import round_float8
from tvm_cascade.tvm_faults.stack import cells_on_the_stack, lets_on_the_stack


def lower_cpu(outcome: Outcome, _name: str, goal: Goal, most_rows: int | None = None) -> Lowered:
    """A function under a schedule for a CPU, for tensors at any address.

    Parameters
    ----------
    most_rows : rows that one task works on, at most; by the loop where it is left out.
    """
    found = _lowered(outcome, goal, most_rows)
    return dataclasses.replace(found, func=of_any_address(divisions_apart(found.func)))


def _lowered(outcome: Outcome, goal: Goal, most_rows: int | None) -> Lowered:
    func = outcome.readable
    fused = is_fused(func)
    plain = outcome.program is not None and not outcome.program.opaque
    if not goal.options.schedule or not (plain or (fused and not is_scheduled(func))):
        return Lowered(func)
    func, cpu = counted_in_64_bits(round_float8(func)), goal.device
    assert isinstance(cpu, Cpu)
    unfused = counted_in_64_bits(outcome.program.func) if fused and plain and outcome.program else None
    lowered, made = _scheduled(func, unfused, cpu, most_rows)
    lowered = cells_on_the_stack(squares_in_registers(blocked_sums(skip_dead_tiles(hoist_guards(lowered)))))
    # Last: neither schedule primitives nor TVM's lowering of bfloat16 know the let expressions of this arithmetic.
    if (wide := lower_bfloat16(lowered)) is not None:
        lowered = powers_as_products(wide)
    lowered, replaced = vectorise_math(lowered) if goal.options.vector_math else (lowered, ())
    return Lowered(lets_on_the_stack(lowered), made, replaced)


def _scheduled(
    func: tirx.PrimFunc, unfused: tirx.PrimFunc | None, cpu: Cpu, most_rows: int | None
) -> tuple[tirx.PrimFunc, CpuSchedule | AsItIs]:
    """A function under our schedule, and what that is; else its unfused form under one, or as written, and why.

    Parameters
    ----------
    unfused : of a function that was fused, as it was read; None where there is none, or it is `func` itself.
    """
    try:
        if is_fused(func):
            return _under_schedule_of_fused(func, cpu, most_rows)
        return _under_schedule_of_unfused(func, cpu)
    except Exception as error:  # such as: a nest that was not read writes over what others read
        failed = error
    if unfused is not None:
        with contextlib.suppress(Exception):
            lowered, _ = _under_schedule_of_unfused(round_float8(unfused), cpu)
            return lowered, Unfused.after("our schedule of the fused function does not apply", failed)
    with contextlib.suppress(Exception):
        func = _started(func)
    return func, AsItIs.after("our schedule does not apply", failed)


def _started(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function without a schedule, whose reductions start whatever their length."""
    schedule = s_tir.Schedule(private_copy(func))
    start_of_none(schedule)
    return schedule.mod["main"]


def _under_schedule_of_fused(func: tirx.PrimFunc, cpu: Cpu, most_rows: int | None) -> tuple[tirx.PrimFunc, CpuSchedule]:
    carried_folds(func)  # a function that was parsed may tell of folds that it no longer has
    plain = rows_in_lanes(windows_as_offsets(func, cpu), cpu)
    schedule = s_tir.Schedule(private_copy(whole_products(whole_tiles(plain, cpu), cpu)))
    made = schedule_cpu(schedule, cpu, most_rows)
    return schedule.mod["main"], made


def _under_schedule_of_unfused(func: tirx.PrimFunc, cpu: Cpu) -> tuple[tirx.PrimFunc, CpuSchedule]:
    if (found := iterations_of(func, cpu)) is None:
        return _nest_by_nest(func, cpu)
    one, made = _nest_by_nest(found.one, dataclasses.replace(cpu, cores=1))
    return found.around(one), dataclasses.replace(made, loops=(f"one loop over {found.count} iterations of all nests",))


def _nest_by_nest(func: tirx.PrimFunc, cpu: Cpu) -> tuple[tirx.PrimFunc, CpuSchedule]:
    plain = inline_maps(windows_as_offsets(tuples_apart(func, cpu), cpu))
    plain = rows_in_lanes(with_runs_marked(plain), cpu)
    schedule = s_tir.Schedule(private_copy(whole_products(plain, cpu)))
    made = schedule_unfused_cpu(schedule, cpu)
    return products_in_runs(schedule.mod["main"], cpu), made


def _resolved(target: Target, _stated: Mapping[str, Any]) -> Target:
    processor, triple = (str(target.attrs.get(name, "")) for name in ("mcpu", "mtriple"))
    if processor and not codegen.llvm_is_valid_cpu(processor, triple or codegen.llvm_get_system_triple()):
        hint = 'leave "mcpu" out, or pass a name that LLVM has, such as "znver4"'
        raise InputError("a processor that LLVM knows", repr(processor), "target", hint)
    return target


LLVM = Backend(
    kind="llvm",
    example='{"kind": "llvm", "mcpu": "znver4", "num-cores": 8}',
    runtime="cpu",
    resolve=_resolved,
    options=lambda options: options,
    lower=lower_cpu,
    plain=lambda _outcome, func: of_any_address(func),
    generate=lambda mod, target: tvm.compile(mod, target=target),
    export=export_library,
)
