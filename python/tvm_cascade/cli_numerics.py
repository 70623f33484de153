"""`python -m tvm_cascade numerics WORKLOAD`: errors of the fused and of the unfused program, by named input."""

from __future__ import annotations

import argparse

import numpy as np

from tvm_cascade.accuracy.numerics import numerics
from tvm_cascade.bench.programs.draws import KINDS
from tvm_cascade.cli_arguments import add_option_arguments, add_shape_arguments, chosen_workload, options_given
from tvm_cascade.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("workload", metavar="WORKLOAD", help="one of those that `workloads` lists")
    add_shape_arguments(parser)
    add_option_arguments(parser)
    parser.add_argument("--inputs", nargs="+", default=KINDS, choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Measure; returns the exit code, 1 where the fused program is worse than it may be."""
    if args.seed < 0:
        raise InputError("a seed of 0 or more", str(args.seed), "--seed")
    workload = chosen_workload(args.workload, args)
    data = {kind: workload.inputs(np.random.default_rng(args.seed), kind) for kind in args.inputs}
    func = workload.build().with_attr("global_symbol", workload.name)
    found = numerics(func, data, seed=args.seed, **options_given(args))
    print(found.to_json() if args.json else found)
    return 0 if found.ok else 1
