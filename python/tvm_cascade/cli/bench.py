"""`python -m tvm_cascade bench`: a suite, or the user's programs, checked, then timed next to their peers."""

from __future__ import annotations

import argparse

from tvm_cascade.bench import runner
from tvm_cascade.cli.arguments import add_option_arguments, add_shape_arguments, options_given
from tvm_cascade.cli.programs import TOLD, chosen_jobs
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"in place of a suite: {TOLD}")
    add_shape_arguments(parser)
    runner.add_arguments(parser)
    add_option_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure; returns the exit code, 1 where a row is wrong or failed."""
    options = FuseOptions.from_environment(**options_given(args))
    if not args.programs:
        if args.shape or args.small or args.dtype:
            raise OptionError("--shape, --small and --dtype with a program", "a suite", "bench", "name a workload")
        return runner.run(args, options=options)
    if args.suite is not None:
        raise OptionError("a suite or programs", f"both `{args.suite}` and {', '.join(args.programs)}", "bench")
    return runner.run(args, options=options, entries=chosen_jobs(args.programs, args))
