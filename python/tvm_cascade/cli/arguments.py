"""Arguments that several commands share: shapes, inputs, targets, and a flag for every option of the pass."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console

from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.evaluate.inputs import INPUTS
from tvm_cascade.options import FuseOptions

KINDS = tuple(INPUTS)
"""Of data, by name."""

TOLD = (
    "one that `programs` lists; or a .py file, run to get its PrimFuncs and IRModules; or the .json of "
    "tvm.ir.save_json; of Relax, the functions that its operators are merged into"
)
"""What a program's name may be, for the help of a command."""

_PLAIN_WIDTH = 120
_STDERR = 2


def console() -> Console:
    """Where tables go: plain text, wide enough for a row, where standard output is no terminal."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def add_program_arguments(parser: argparse.ArgumentParser, **how: Any) -> None:
    """PROGRAM, and what is taken of it."""
    parser.add_argument("program", metavar="PROGRAM", help=TOLD, **how)
    add_only_argument(parser)
    add_shape_arguments(parser)


def add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    """--shape, --small and --dtype of programs that have names."""
    told = "extents to replace, as keys=1024"
    parser.add_argument("--shape", nargs="+", type=_extents, default=[], metavar="EXTENT=N", help=told)
    parser.add_argument("--small", action="store_true", help="the same program at a size for small machines")
    told = "storage, of %(choices)s; sums are at least float32"
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32", "float64"), metavar="DTYPE", help=told)


def _extents(text: str) -> dict[str, int]:
    """{"keys": 1024} of keys=1024; several in one argument, as keys=1024,queries=8, are taken too."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(value.strip().isdecimal() for _, _, value in pairs):
        raise argparse.ArgumentTypeError(f"expected extents as NAME=N: found {text!r}")
    return {name.strip(): int(value) for name, _, value in pairs}


def add_only_argument(parser: argparse.ArgumentParser) -> None:
    """--only, where programs come from files."""
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="functions of a file to keep")


def add_input_arguments(parser: argparse.ArgumentParser, kinds: Iterable[str] = KINDS) -> None:
    """--inputs, of those kinds, and --seed."""
    told = f"named data, of {', '.join(KINDS)} (default: all)"
    parser.add_argument("--inputs", nargs="+", default=KINDS, choices=tuple(kinds), metavar="KIND", help=told)
    add_seed_argument(parser)


def add_seed_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="of the inputs (default: %(default)s)")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a seed of 0 or more: found {text!r}")
    return int(text)


def new_file(text: str) -> Path:
    """A file that can be written, told before anything takes time."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists: found {text!r}")
    return path


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for every field of `FuseOptions`; what is not given comes from TVM_CASCADE_* variables, then defaults."""
    group = parser.add_argument_group("options of the pass", "which TVM_CASCADE_<OPTION> variables preset")
    for option in dataclasses.fields(FuseOptions):
        group.add_argument(flag(option.name), default=None, help=_told(option), **_kind(option))


def flag(name: str) -> str:
    """The flag of an option: --rescalable-casts of rescalable_casts."""
    return f"--{name.replace('_', '-')}"


def _told(option: dataclasses.Field[Any]) -> str:
    return str(option.metadata["meaning"]).replace("%", "%%")


def _kind(option: dataclasses.Field[Any]) -> dict[str, Any]:
    """How argparse reads a flag: by the kind of the option's default."""
    if isinstance(option.default, bool):
        return {"action": argparse.BooleanOptionalAction}
    if isinstance(option.default, tuple):
        return {"nargs": "*", "metavar": "DTYPE"}
    if isinstance(option.default, str):
        return {"metavar": "|".join(option.metadata["choices"])}
    return {"type": int, "metavar": "N"}


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of `FuseOptions` that the command line names."""
    given = {field.name: getattr(args, field.name, None) for field in dataclasses.fields(FuseOptions)}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value is not None
    }


def target_of(text: str) -> tvm.target.Target:
    """The target that the command line names: a kind, a tag, an architecture (sm_90a, gfx942), or a target's JSON.

    Raises
    ------
    InputError
        When it is no target that we compile for.
    """
    meant: str | dict[str, Any] = text
    if text.lstrip().startswith("{"):
        try:
            meant = json.loads(text)
        except ValueError as error:
            raise InputError("a target's JSON", f"{text}: {error}", "--target") from error
    with _without_warnings_of_tvm():
        return resolve_target(meant)


@contextmanager
def _without_warnings_of_tvm() -> Iterator[None]:
    """Keeps what TVM prints, from Python and from C++, while it looks for devices from standing before a message."""
    kept, nowhere = os.dup(_STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDERR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)
        os.close(nowhere)
