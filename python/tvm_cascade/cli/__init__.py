"""The command line: `python -m tvm_cascade COMMAND`, also installed as `tvm-cascade`.

Exit codes: 0 all is well (a refusal with its reason is), 1 a check failed, 2 bad input
or a bad option. An interrupt passes through, after what was found by then has been printed (`__main__` tells of it).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from tvm_cascade import __version__
from tvm_cascade.cli import calibrate, env, explain, lists, numerics, run, tune
from tvm_cascade.errors import CascadeError, InputError

_COMMANDS = (
    ("run", "fuse a program, run it fused and unfused, check both against float64, print times", run),
    ("explain", "per group of reductions: verdict, reason, fold as formulas; with --target, its GPU kernel", explain),
    ("numerics", "error of a program against float64, fused and unfused, by named input", numerics),
    ("tune", "measure designs of a program's kernels, and keep the best in a database; resumes", tune),
    (
        "calibrate",
        "measure the rates of this machine's GPU that estimates of kernels rest on, and write them",
        calibrate,
    ),
    ("workloads", "the workloads that the commands know by name", lists.Workloads),
    ("options", "the options of the pass: flag, variable, value in force, meaning", lists.Options),
    ("reasons", "every reason code of a verdict: the law or limit, and what would make it fuse", lists.Reasons),
    ("env", "versions, target, processor, threads and options in force", env),
)

_PATH_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are as short as all others of this package."""

    def error(self, message: str) -> NoReturn:
        """End the process by the message and what to do."""
        self.exit(2, f"error: {message}\n  what to do: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    known = parser()
    args = known.parse_args(arguments)
    if args.run is None:
        known.print_help()
        return 0
    return exit_code(args.run, args)


def exit_code(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """What a command returns; 2, after the message, where what it was given is bad."""
    try:
        return run(args)
    except CascadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except _PATH_ERRORS as error:
        told = InputError("a file that can be read or written", str(error.strerror), str(error.filename))
        print(f"error: {told}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> argparse.ArgumentParser:
    """What reads the command line; `run` of what it gives is the command, None where none was named."""
    started = Path(sys.argv[0]).name
    prog = started if started.startswith("tvm-cascade") else "python -m tvm_cascade"
    known = Parser(prog=prog, description="Cascaded reductions as folds.")
    known.add_argument("--version", action="version", version=f"tvm-cascade {__version__}")
    known.set_defaults(run=None)
    commands = known.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, summary, command in _COMMANDS:
        subparser = commands.add_parser(name, help=summary, description=summary)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return known
