"""The programs that a command takes: those that have a name, and functions in the user's files."""

from __future__ import annotations

import argparse
import contextlib
import linecache
import os
import re
import runpy
import sys
import traceback
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import ir, tirx

from tvm_cascade.cli.arguments import options_given, target_of
from tvm_cascade.cli.examples import EXAMPLES, Example
from tvm_cascade.cli.jobs import GivenFunction, Job
from tvm_cascade.driver.progress import waiting
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError, near
from tvm_cascade.options import FuseOptions
from tvm_cascade.relax.pipeline import Merged, merged
from tvm_cascade.report.group import Apart

SUFFIXES = (".py", ".json")
_MESSAGE_LINES = 12
_OF_TVMSCRIPT = (
    "in TVM 0.27 TVMScript is @T.prim_func(s_tir=True), with T.sblock around every store and T.sblock_alloc_buffer for "
    "temporaries"
)


def named(args: argparse.Namespace) -> Mapping[str, Example]:
    """The programs that have names: those that the command was started with, or the examples."""
    return getattr(args, "named", None) or EXAMPLES


def chosen_jobs(names: Sequence[str], args: argparse.Namespace) -> list[Job]:
    """The programs of several names, to be run: functions that cannot be are told of, and left out.

    Raises
    ------
    CascadeError
        When a name stands for nothing, or nothing is left.
    """
    found: list[Job] = []
    for name in names:
        if is_file_name(name, args):
            with waiting(f"running {name}, and deriving the folds of what it holds"):
                found += _given(Path(name), args)
        else:
            found.append(chosen_by_name(name, args).job)
    return found


def _given(path: Path, args: argparse.Namespace) -> list[GivenFunction]:
    found: list[GivenFunction] = []
    refused: list[InputError] = []
    for name, func in functions_of_file(path, args).functions.items():
        try:
            if not isinstance(func, tirx.PrimFunc):
                raise InputError("a PrimFunc", type(func).__name__, f"function `{name}` of {path}")
            found.append(GivenFunction(name, str(path), func))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    for one in refused:
        print(f"left out: {one}", file=sys.stderr)
    return found


def identifier_of(job: Job) -> str:
    """A program's name as that of a function."""
    return "".join(letter if letter.isalnum() else "_" for letter in job.name)


def tuning_inputs(job: Job, seed: int) -> list[NDArray[Any]] | None:
    """Data to tune on; None where results are integers: ties and rounding would decide those, which `tune` avoids."""
    of_choice = any(dtype.kind in "iu" for _, dtype in job.outputs)
    return None if of_choice else job.inputs(np.random.default_rng(seed))


def is_file_name(name: str, args: argparse.Namespace) -> bool:
    """Whether a program is named by a path rather than by a name that is known.

    Raises
    ------
    InputError
        When it is a path to what holds no program.
    """
    if name in named(args):
        return False
    path = Path(name)
    if path.suffix in SUFFIXES:
        return True
    if os.sep in name or (name and path.exists()):
        found = "a folder" if path.is_dir() else "a file of another kind" if path.exists() else "no such file"
        raise InputError(f"a program by name, or a file that ends in {' or '.join(SUFFIXES)}", found, name)
    return False


def chosen_by_name(name: str, args: argparse.Namespace) -> Example:
    """The program of that name, at the shape and dtype that the command line asks for.

    Raises
    ------
    CascadeError
        When there is no such program, extent or dtype.
    """
    known = named(args)
    if name not in known:
        listed = "`programs` lists all; a file of your own ends in .py or .json"
        raise InputError("the name of a program", repr(name), hint=near(name, known) or listed)
    chosen = known[name].cpu if args.small else known[name]
    if args.dtype:
        chosen = chosen.with_dtype(args.dtype)
    return chosen.with_shape(**ChainMap(*args.shape)) if args.shape else chosen


def functions_of_file(path: Path, args: argparse.Namespace) -> Merged:
    """The functions of a file, by name: those of --only where it is given.

    Raises
    ------
    InputError
        When the file is not there, does not run, or holds no such function, or arguments of named programs are given.
    """
    if args.shape or args.small or args.dtype:
        raise InputError("--shape, --small and --dtype with a program by name", "a file", str(path))
    if not path.is_file():
        raise InputError("a file that exists", "a folder" if path.is_dir() else "none", str(path))
    found = _from_python(path, args) if path.suffix == ".py" else _from_json(path, args)
    functions = found.functions
    if unknown := [name for name in args.only if name not in functions]:
        raise InputError(f"functions among {', '.join(functions)}", ", ".join(unknown), f"--only of {path}")
    return Merged({name: functions[name] for name in functions if not args.only or name in args.only}, found.apart)


def _merged(value: object, path: Path, args: argparse.Namespace) -> Merged:
    named = getattr(args, "target", None)
    target = resolve_target("auto" if named is None else target_of(named))
    return merged(value, target, FuseOptions.from_environment(**options_given(args)), str(path))


def _from_json(path: Path, args: argparse.Namespace) -> Merged:
    expected, hint = "a module or PrimFunc as tvm.ir.save_json writes it", "tvm.ir.save_json(module)"
    try:
        loaded = tvm.ir.load_json(path.read_text(encoding="utf-8"))
    except Exception as error:  # on other text TVM raises whatever it runs into
        first = next(iter(str(error).strip().splitlines()), "")
        raise InputError(expected, f"{type(error).__name__}: {first}", str(path), hint) from error
    return _merged(loaded, path, args)


def _from_python(path: Path, args: argparse.Namespace) -> Merged:
    """Every PrimFunc and every function of every IRModule that the file defines, under the file's own names."""
    functions, apart = dict[str, ir.BaseFunc](), list[Apart]()
    for name, value in _executed(path).items():
        if isinstance(value, tirx.PrimFunc):
            functions[name] = value
        elif isinstance(value, tvm.IRModule):
            found = _merged(value, path, args)
            functions |= {f"{name}.{inner}": func for inner, func in found.functions.items()}
            apart += found.apart
    if not functions:
        raise InputError("PrimFuncs or IRModules at the file's top level", "none", str(path))
    return Merged(functions, tuple(apart))


def _executed(path: Path) -> dict[str, Any]:
    """What the file defines, run as `python FILE` would, though not as __main__."""
    expected = "a Python file that runs to its end"
    try:
        with _beside(path), contextlib.redirect_stdout(sys.stderr):  # standard output is for the command's own
            return runpy.run_path(str(path.absolute()), run_name=f"_program_{path.stem}")
    except SystemExit as error:
        raise InputError(expected, f"sys.exit({error.code!r})", _place(error, path)) from error
    except Exception as error:  # the file is the user's program: anything may be raised
        lines = str(error).strip().splitlines()
        message = "\n    ".join([f"{type(error).__name__}: {next(iter(lines), '')}", *lines[1:_MESSAGE_LINES]])
        hint = _OF_TVMSCRIPT if type(error).__name__ == "DiagnosticError" else ""
        raise InputError(expected, message, _place(error, path), hint) from error


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[None]:
    """The file's folder as the first place that is imported from, and no arguments for it."""
    search, arguments = list(sys.path), sys.argv
    sys.path.insert(0, str(path.resolve().parent))
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.path[:], sys.argv = search, arguments


def _place(error: BaseException, path: Path) -> str:
    """The line of the file that raised, or is no Python, with its text."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _same_file(frame.filename, path)]
    line = frames[-1].lineno if frames else None
    if told := re.search(rf"{re.escape(str(path.absolute()))}:(\d+)", str(error)):  # TVMScript's own place in it
        line = int(told.group(1))
    if isinstance(error, SyntaxError) and _same_file(error.filename or "", path):
        line = error.lineno
    text = linecache.getline(str(path), line or 0).strip()
    return f"{path}:{line}: {text}" if line else str(path)


def _same_file(name: str, path: Path) -> bool:
    return Path(name).absolute() == path.absolute()
