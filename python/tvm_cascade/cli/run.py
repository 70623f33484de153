"""`python -m tvm_cascade run PROGRAM`: fuse, compile, check and time an unfused program."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping

import tvm
from rich.table import Table

from tvm_cascade.cli.arguments import (
    add_only_argument,
    add_option_arguments,
    add_shape_arguments,
    check_seed,
    console,
    options_given,
    target_of,
)
from tvm_cascade.cli.programs import TOLD, chosen_jobs
from tvm_cascade.cli.timing import IdleGate, Plan, Timing, measure
from tvm_cascade.driver.backends import BACKENDS
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import InputError
from tvm_cascade.judge.case import Case, Job
from tvm_cascade.judge.check import Checked, Row, Status, check
from tvm_cascade.judge.forms import FORMS, OURS_FUSED, OURS_UNFUSED, TVM_DEFAULT
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.group import bytes_text
from tvm_cascade.report.outcomes import explain_outcomes
from tvm_cascade.schedule.vector_math import ULP_BOUNDS, vectorise_math

_MEMORY_SHARE = 0.5  # of the machine's memory, for the float64 oracle's buffers
_PLAN = Plan(repeats=11, max_seconds=2.0)
_GATE_SECONDS = 5.0
_FAILURES = (Status.WRONG, Status.FAILED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("program", metavar="PROGRAM", help=TOLD)
    add_only_argument(parser)
    add_shape_arguments(parser)
    parser.add_argument("--target", default="auto", help='"auto" (the CPU of this machine) or a target of kind llvm')
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs (default: %(default)s)")
    add_option_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Build, fuse, explain, run, check and time; returns the exit code, 1 where a program is wrong or fails."""
    on_cpus = [kind for kind, backend in BACKENDS.items() if backend.runtime == "cpu"]
    gpus = "`explain --target sm_90a` says what a GPU gets, and `python -m benchmarks` in a checkout measures on one"
    target = target_of(args.target, on_cpus, gpus)
    options = FuseOptions.from_environment(**options_given(args))
    check_seed(args)
    codes = [_run(job, options, target, args.seed) for job in chosen_jobs([args.program], args)]
    return max(codes)


def _run(job: Job, options: FuseOptions, target: tvm.target.Target, seed: int) -> int:
    _check_memory(job)
    with waiting(f"deriving and checking the folds of {job.name}"):
        case = Case(job, options, target, seed)
    shape = " ".join(f"{extent}={size}" for extent, size in job.shape.items())
    print(f"{job.name} ({job.dtype}){': ' if shape else ''}{shape}\ntarget: {target}\n")
    print(f"{explain_outcomes({job.name: case.func}, {job.name: case.outcome})}\n", flush=True)
    if not case.outcome.fused and not case.declined:
        print("nothing was fused, so there is nothing to compare")
        return 0
    forms = [TVM_DEFAULT, OURS_UNFUSED] + ([OURS_FUSED] if case.outcome.fused else [])
    with waiting("compiling, running and checking against float64"):
        checked = check(case, {name: FORMS[name] for name in forms})
    gate = IdleGate(_GATE_SECONDS)
    with waiting(lambda: f"timing{gate.told}"):
        timings = measure({name: r.call for name, r in checked.runnable.items()}, _PLAN, gate)
    _print_table(checked, timings)
    _print_gain(case, checked, timings)
    return 1 if any(row.status in _FAILURES for row in checked.rows) else 0


def _check_memory(job: Job) -> None:
    """Refuse what the float64 oracle could not hold, before anything is allocated."""
    func = job.build()
    buffers = [*func.params, *func.body.block.alloc_buffers]
    needed = 8 * sum(math.prod(int(extent) for extent in buffer.ty.shape) for buffer in buffers)
    limit = int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    if needed > limit:
        raise InputError(
            f"stages that take at most {bytes_text(limit)} in float64, half of this machine's memory",
            bytes_text(needed),
            f"program `{job.name}`",
            "pass --small, or smaller extents with --shape" if job.shape else "give the program smaller extents",
        )


def _print_table(checked: Checked, timings: Mapping[str, Timing]) -> None:
    table = Table("program", "median", "20 % to 80 %", "times faster", "error", "allowed", "check", box=None)
    usual = timings.get(TVM_DEFAULT)
    for row in checked.rows:
        timing = timings.get(row.name)
        times = ["", "", ""]
        if timing is not None:
            times[0] = f"{timing.median_s * 1e3:.3f} ms"
            times[1] = f"{timing.p20_s * 1e3:.3f} to {timing.p80_s * 1e3:.3f}"
            times[2] = f"{usual.median_s / timing.median_s:.2f}" if usual else ""
        table.add_row(row.name, *times, _error_text(row.max_error), _error_text(row.allowed), _status_text(row))
    console().print(table, markup=False)
    for row in checked.rows:
        if row.note:
            print(f"{row.name}: {row.note}")
    if not all(timing.idle for timing in timings.values()):
        print("the machine was not idle: times may be too long")


def _error_text(error: float | None) -> str:
    return "" if error is None else f"{error:.2e}"


def _status_text(row: Row) -> str:
    return "ok" if row.status is Status.TIMED else str(row.status)


def _print_gain(case: Case, checked: Checked, timings: Mapping[str, Timing]) -> None:
    print()
    if not case.outcome.fused:
        print("declined by the cost model: pass --force to fuse all the same")
    if OURS_FUSED in timings and OURS_UNFUSED in timings:
        ratio = timings[OURS_UNFUSED].median_s / timings[OURS_FUSED].median_s
        print(f"fusing alone: {ratio:.2f} times as fast as unfused under our own schedule")
    before, after = ([row.temporary_bytes for row in checked.rows if row.name == n] for n in (TVM_DEFAULT, OURS_FUSED))
    if before and after and before[0] is not None and after[0] is not None:
        sizes = f"{bytes_text(before[0])} by TVM's default, {bytes_text(after[0])} fused"
        print(f"temporaries: {sizes} (all that is allocated besides inputs and outputs)")
    print(f"reading, deriving, checking and rewriting: {case.fuse_seconds:.2f} s")
    replaced = vectorise_math(case.outcome.func)[1] if case.options.vector_math and case.options.schedule else ()
    if replaced:
        bounds = ", ".join(f"{name} (at most {ULP_BOUNDS[name]} ulp)" for name in replaced)
        print(f"vectorised polynomials: {bounds}")
