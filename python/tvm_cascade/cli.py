"""The command line: `python -m tvm_cascade run | explain | numerics | check | bench | fuzz | workloads | env | …`.

Exit codes: 0 all is well (a refusal with its reason is), 1 a check, a benchmark or a fuzzed case failed, 2 bad input
or a bad option.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tvm_cascade import cli_check, cli_env, cli_explain, cli_fuzz, cli_native, cli_numerics, cli_run
from tvm_cascade.bench import runner
from tvm_cascade.errors import CascadeError

_COMMANDS = (
    ("run", "fuse a workload, run it fused and unfused, check both against float64, print times", cli_run),
    ("explain", "per group of reductions: verdict, reason, fold as formulas", cli_explain),
    ("numerics", "error of a workload against float64, fused and unfused, by named input", cli_numerics),
    ("check", "RedFuser's and Neptune's workloads: fused and right, or refused with numbers that show why", cli_check),
    ("bench", "a suite of workloads against its peers", runner),
    ("fuzz", "random cascades through the algebra and the pass; resumes, and uses all cores", cli_fuzz),
    ("workloads", "the workloads that `run` and `explain` know", cli_env.Workloads),
    ("env", "versions, target, processor, threads and options in force", cli_env.Environment),
    ("build-native", "build the optional native library for NVIDIA GPUs, where nvcc and cmake are", cli_native),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tvm_cascade", description="Cascaded reductions as folds.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary, command in _COMMANDS:
        subparser = commands.add_parser(name, help=summary, description=summary)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except CascadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
