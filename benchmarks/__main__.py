"""`python -m benchmarks`: a suite, or the user's programs, checked, then timed next to their peers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks import runner
from benchmarks.commands import command, uncached
from corpus import workloads
from tvm_cascade.cli.arguments import TOLD, add_option_arguments, add_shape_arguments, options_given
from tvm_cascade.cli.programs import chosen_jobs
from tvm_cascade.errors import OptionError
from tvm_cascade.options import FuseOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"in place of a suite: {TOLD}")
    add_shape_arguments(parser)
    runner.add_arguments(parser)
    add_option_arguments(parser)
    parser.set_defaults(named=workloads.registry())


def run(args: argparse.Namespace) -> int:
    """Measure what is compiled now; returns the exit code, 1 where a row is wrong or failed."""
    options = FuseOptions.from_environment(**options_given(args))
    if args.programs and args.suite is not None:
        both = f"both {', '.join(args.suite)} and {', '.join(args.programs)}"
        raise OptionError("a suite or programs", both, "benchmarks")
    if not args.programs and (args.shape or args.small or args.dtype):
        raise OptionError("--shape, --small and --dtype with a program", "a suite", "benchmarks", "name a workload")
    with uncached():
        jobs = chosen_jobs(args.programs, args) if args.programs else ()
        return runner.run(args, options, jobs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 1 a row failed, 2 bad input or a bad option."""
    told = "a suite, or programs of your own, against its peers"
    return command("benchmarks", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
