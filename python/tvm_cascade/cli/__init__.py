"""The command line: `python -m tvm_cascade COMMAND`, also installed as `tvm-cascade`.

Exit codes: 0 all is well (a refusal with its reason is), 1 a check failed, 2 bad input
or a bad option. An interrupt passes through, after what was found by then has been printed (`__main__` tells of it).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tvm_cascade import __version__
from tvm_cascade.errors import CascadeError, InputError

_COMMANDS = (
    ("run", "run", "fuse a program, run it fused and unfused, check both against float64, print times"),
    ("explain", "explain", "per group of reductions: verdict, reason, fold as formulas; with --target, its GPU kernel"),
    ("numerics", "numerics", "error of a program against float64, fused and unfused, by named input"),
    ("tune", "tune", "measure designs of a program's kernels, and keep the best in a database; resumes"),
    ("programs", "lists.programs", "the programs that the commands know by name, to try"),
    ("options", "lists.options", "the options of the pass: flag, variable, value in force, meaning"),
    ("reasons", "lists.Reasons", "every reason code of a verdict: the law or limit, and what would make it fuse"),
    ("env", "env", "versions, target, processor, threads and options in force"),
)
"""Names, what they are in this package, and what they do. One is loaded when it is asked for: all take seconds."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are as short as all others of this package."""

    def error(self, message: str) -> NoReturn:
        """End the process by the message and what to do."""
        self.exit(2, f"error: {message}\n  what to do: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None, named: Mapping[str, Any] | None = None) -> int:
    """Run one command; returns the exit code.

    Parameters
    ----------
    named : each like an `examples.Example`, by its name; the builders of `tvm_cascade.te` by default.
    """
    given = sys.argv[1:] if arguments is None else arguments
    known = parser(given[:1])
    known.set_defaults(named=named)
    args, unknown = known.parse_known_args(given)
    if args.run is None:
        known.print_help()
        return 0
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return exit_code(args.run, args)


def exit_code(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """What a command returns; 2, after the message, where what it was given is bad."""
    try:
        return run(args)
    except CascadeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        told = InputError("a file that can be read or written", str(error.strerror), str(error.filename))
        print(f"error: {told}", file=sys.stderr)
        return 2


_NAMES = tuple(one[0] for one in _COMMANDS)


def parser(wanted: Collection[str] = _NAMES) -> argparse.ArgumentParser:
    """What reads the command line of these commands, and knows the others by name.

    `run` of what it gives is the command, None where none was named, and `parser` the command's own one.
    """
    started = Path(sys.argv[0])
    prog = f"python -m {started.parent.name}" if started.name == "__main__.py" else started.name
    known = Parser(prog=prog, description="Cascaded reductions as folds.")
    known.add_argument("--version", action="version", version=f"tvm-cascade {__version__}")
    known.set_defaults(run=None)
    commands = known.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for name, place, summary in _COMMANDS:
        subparser = commands.add_parser(name, help=summary, description=summary)
        if name in wanted:
            module, _, inside = place.partition(".")
            command: Any = importlib.import_module(f"tvm_cascade.cli.{module}")
            command = getattr(command, inside) if inside else command
            if hasattr(command, "add_arguments"):
                command.add_arguments(subparser)
            subparser.set_defaults(run=getattr(command, "run", command), parser=subparser)
    return known
