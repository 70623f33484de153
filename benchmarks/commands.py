"""How the commands of a checkout are started: with the parser, the messages and the exit codes of the package's."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar
from unittest import mock

from tvm_cascade.__main__ import INTERRUPTED
from tvm_cascade.cli import Parser, exit_code
from tvm_cascade.driver.cache import VARIABLE
from tvm_cascade.errors import OptionError

C = TypeVar("C")


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


def uncached() -> AbstractContextManager[Any]:
    """While this lasts, code is compiled as if none was kept on disk: for those who measure how long that takes."""
    return mock.patch.dict(os.environ, {VARIABLE: "0"})


def add_cases(parser: argparse.ArgumentParser) -> None:
    """Declare which rows of a table are measured."""
    parser.add_argument(
        "--cases", nargs="+", default=(), metavar="WORD", help="whose name has one of these (default: all)"
    )


def chosen(cases: Iterable[C], words: Sequence[str]) -> list[C]:
    """The cases whose name has one of the words; all where none are given.

    Raises
    ------
    OptionError
        When no case has one.
    """
    known = list(cases)
    found = [case for case in known if not words or any(word in str(case) for word in words)]
    if not found:
        raise OptionError(f"words of {', '.join(map(str, known))}", ", ".join(words), "--cases")
    return found
