"""`python -m tvm_cascade run PROGRAM`: fuse, compile, check and time an unfused program."""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import tvm
from rich.table import Table
from tvm import s_tir, tirx

from tvm_cascade.accuracy.numerics import Subject
from tvm_cascade.algebra.verdict import Verdict
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.cli.arguments import (
    add_option_arguments,
    add_program_arguments,
    add_seed_argument,
    console,
    options_given,
    target_of,
)
from tvm_cascade.cli.jobs import Job
from tvm_cascade.cli.programs import chosen_jobs
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.compilation import compile_unfused
from tvm_cascade.driver.compiled import Compiled
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.inputs import poisoned
from tvm_cascade.evaluate.tolerance import Comparison, worst
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.group import bytes_text
from tvm_cascade.report.outcomes import explain_outcomes

_MEMORY_SHARE = 0.5  # of the machine's memory, for the float64 oracle's buffers
_SAMPLES, _SAMPLE_MS, _SECONDS = 11, 30, 2.0
"""Of each program: how many at most, what one lasts at least, and seconds after which there is no further one."""

TVM_DEFAULT, UNFUSED, FUSED = "tvm default", "ours, unfused", "ours, fused"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_program_arguments(parser)
    parser.add_argument("--target", default="auto", help='"auto" (the CPU of this machine) or a target of kind llvm')
    add_seed_argument(parser)
    add_option_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Build, fuse, explain, run, check and time; returns the exit code, 1 where a program is wrong."""
    target = target_of(args.target)
    if backend_of(target).runtime != "cpu":
        hint = "`explain --target sm_90a` says what a GPU gets; `python -m benchmarks` in a checkout measures on one"
        raise InputError("a target of kind llvm", target.kind.name, "--target", hint)
    options = FuseOptions.from_environment(**options_given(args))
    codes = [_run(job, options, target, args.seed) for job in chosen_jobs([args.program], args)]
    return max(codes)


def _run(job: Job, options: FuseOptions, target: tvm.target.Target, seed: int) -> int:
    _check_memory(job)
    with waiting(f"deriving and checking the folds of {job.name}, and compiling it"):
        subject = Subject(job.build(), options, target)
        outcome = subject.outcome
    shape = " ".join(f"{extent}={size}" for extent, size in job.shape.items())
    print(f"{job.name} ({job.dtype}){': ' if shape else ''}{shape}\ntarget: {target}\n")
    print(f"{explain_outcomes({job.name: subject.func}, {job.name: outcome})}\n", flush=True)
    declined = any(one.reason.verdict is Verdict.DECLINED for one in outcome.decisions)
    if subject.fused is None and not declined:
        print("nothing was fused, so there is nothing to compare")
        return 0
    with waiting("compiling, running and checking against float64"):
        programs = {TVM_DEFAULT: compile_unfused(subject.func, target, schedule=False), UNFUSED: subject.unfused}
        programs |= {} if subject.fused is None else {FUSED: subject.fused}
        inputs = job.inputs(np.random.default_rng(seed))
        checked = _checked(subject, programs, inputs)
    with waiting("timing"):
        seconds = _in_turns({name: one for name, one in programs.items() if checked[name].ok}, subject, inputs)
    _print_table(checked, seconds)
    _print_gain(subject, programs, seconds)
    return 0 if all(one.ok for one in checked.values()) else 1


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


def _checked(subject: Subject, programs: Mapping[str, Compiled], inputs: list[np.ndarray]) -> dict[str, Comparison]:
    """Each program against float64; what passes is set by the oracle with every stage rounded to its dtype."""
    rounded = oracle.evaluate(subject.func, inputs, rounding=True)
    _, outputs = subject.compared(inputs)
    found = {}
    for name, program in programs.items():
        results = subject.run(program, inputs)
        each = (replace(one, unfused=rounded[(o := one.output.name)], fused=results[o]) for one in outputs)
        found[name] = worst(one.judged for one in each)
    return found


def _in_turns(programs: Mapping[str, Compiled], subject: Subject, inputs: list[np.ndarray]) -> dict[str, list[float]]:
    """Samples of the seconds of a call: programs take turns, so that what else the machine does hits all alike."""
    written = (poisoned(map(int, one.ty.shape), dtype_of(one)) for one in oracle.signature(subject.func).outputs)
    tensors = [tvm.runtime.tensor(array) for array in (*inputs, *written)]
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    spent = dict.fromkeys(programs, 0.0)
    for _ in range(_SAMPLES):
        for name, program in programs.items():
            if spent[name] < _SECONDS:
                start = time.perf_counter()
                timed = program.runtime_module.jit().time_evaluator
                found = timed(subject.name, tvm.cpu(), number=1, min_repeat_ms=_SAMPLE_MS)(*tensors)
                seconds[name].append(found.mean)
                spent[name] += time.perf_counter() - start
    return seconds


def _print_table(checked: Mapping[str, Comparison], seconds: Mapping[str, list[float]]) -> None:
    table = Table("program", "median", "20 % to 80 %", "times faster", "error", "allowed", "check", box=None)
    for name, found in checked.items():
        times = ["", "", ""]
        if name in seconds:
            low, median, high = np.percentile(seconds[name], (20, 50, 80)) * 1e3
            usual = np.median(seconds[TVM_DEFAULT]) * 1e3 / median if TVM_DEFAULT in seconds else None
            times = [f"{median:.3f} ms", f"{low:.3f} to {high:.3f}", "" if usual is None else f"{usual:.2f}"]
        table.add_row(name, *times, f"{found.max_error:.2e}", f"{found.allowed:.2e}", "ok" if found.ok else "WRONG")
    console().print(table, markup=False)
    for name, found in checked.items():
        if not found.ok:
            print(f"{name}: {found.message}")


def _print_gain(subject: Subject, programs: Mapping[str, Compiled], seconds: Mapping[str, list[float]]) -> None:
    print()
    if subject.fused is None:
        print("declined by the cost model: pass --force to fuse all the same")
    if FUSED in seconds and UNFUSED in seconds:
        ratio = np.median(seconds[UNFUSED]) / np.median(seconds[FUSED])
        print(f"fusing alone: {ratio:.2f} times as fast as unfused under our own schedule")
    if subject.fused is not None:
        before, after = (bytes_text(temporary_bytes(programs[name].mod[subject.name])) for name in (TVM_DEFAULT, FUSED))
        told = f"{before} by TVM's default, {after} fused"
        print(f"temporaries: {told} (all that is allocated besides inputs and outputs)")
    print(f"reading, deriving, checking and rewriting: {subject.fuse_seconds:.2f} s")
    if subject.fused is not None and subject.fused.replaced_math:
        bounds = ", ".join(f"{name} (at most {ulp} ulp)" for name, ulp in subject.fused.replaced_math.items())
        print(f"vectorised polynomials: {bounds}")


def temporary_bytes(func: tirx.PrimFunc) -> int:
    """Of what a function allocates besides its parameters, each buffer compacted to what is live inside its loops."""
    lower = tvm.transform.Sequential(
        [
            s_tir.transform.LowerInitBlock(),
            s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
            s_tir.transform.ConvertBlocksToOpaque(),
            s_tir.transform.CompactBufferAllocation(),
            s_tir.transform.LowerOpaqueBlock(),
        ]
    )
    return sum(map(int, s_tir.analysis.calculate_allocated_bytes(lower(tvm.IRModule({"main": func})))["main"].values()))
