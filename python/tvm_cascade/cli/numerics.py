"""`python -m tvm_cascade numerics PROGRAM`: error of the fused and the unfused program, by named input."""

from __future__ import annotations

import argparse

import numpy as np

from tvm_cascade.accuracy.numerics import numerics
from tvm_cascade.accuracy.table import Numerics
from tvm_cascade.cli.arguments import (
    add_input_arguments,
    add_option_arguments,
    add_program_arguments,
    options_given,
)
from tvm_cascade.cli.jobs import Job
from tvm_cascade.cli.programs import chosen_jobs
from tvm_cascade.driver.progress import waiting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_program_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, of each function")
    add_option_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure; returns the exit code, 1 where a fused program is worse than it may be."""
    worse = False
    jobs = chosen_jobs([args.program], args)
    for job in jobs:
        found = _measured(job, args)
        title = f"{job.name}:\n" if len(jobs) > 1 else ""
        print(found.to_json() if args.json else f"{title}{found}", flush=True)
        worse |= not found.ok
    return int(worse)


def _measured(job: Job, args: argparse.Namespace) -> Numerics:
    with waiting(f"deriving, compiling and running {job.name}"):
        data = {kind: job.inputs(np.random.default_rng(args.seed), kind) for kind in args.inputs}
        func = job.build().with_attr("global_symbol", job.name)
        return numerics(func, data, seed=args.seed, **options_given(args))
