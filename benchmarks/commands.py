"""How the commands of a checkout are started: with the parser, the messages and the exit codes of the package's."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from tvm_cascade.__main__ import INTERRUPTED
from tvm_cascade.cli import Parser, exit_code


def command(
    name: str,
    summary: str,
    add_arguments: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run a command that is started by `python -m NAME`; returns the exit code."""
    parser = Parser(prog=f"python -m {name}", description=summary)
    add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        return exit_code(run, args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
