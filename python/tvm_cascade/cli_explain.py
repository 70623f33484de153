"""`python -m tvm_cascade explain WORKLOAD|FILE`: for a workload, a file of TVMScript or a saved module."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
from pathlib import Path

import tvm
from tvm import ir, tirx

from tvm_cascade.cli_arguments import add_option_arguments, add_shape_arguments, chosen_workload, options_given
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.explain import explain_functions, functions_of
from tvm_cascade.report.html import page

_SUFFIXES = (".py", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "program",
        metavar="WORKLOAD|FILE",
        help="a workload; or a .py file, run to get its PrimFuncs and IRModules; or the .json of tvm.ir.save_json",
    )
    add_shape_arguments(parser)
    add_option_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", metavar="OUT", type=Path, help="write an HTML page there")


def run(args: argparse.Namespace) -> int:
    """Explain; returns the exit code."""
    options = FuseOptions.from_environment(**options_given(args))
    explanation = explain_functions(_functions(args), options)
    if args.html:
        try:
            args.html.write_text(page(explanation, args.program), encoding="utf-8")
        except OSError as error:
            raise InputError("a file that can be written", str(error), "--html") from error
    if args.json:
        print(explanation.to_json())
    elif not args.html:
        print(explanation)
    return 0


def _functions(args: argparse.Namespace) -> dict[str, ir.BaseFunc]:
    path = Path(args.program)
    if path.suffix not in _SUFFIXES:
        return {args.program: chosen_workload(args.program, args).build()}
    if args.shape or args.small or args.dtype:
        raise InputError("--shape, --small and --dtype with a workload only", "a file", args.program)
    if not path.is_file():
        raise InputError("a file that exists", "none", args.program)
    return _from_python(path) if path.suffix == ".py" else _from_json(path)


def _from_json(path: Path) -> dict[str, ir.BaseFunc]:
    expected, hint = "a module or PrimFunc as tvm.ir.save_json writes it", "tvm.ir.save_json(module)"
    try:
        loaded = tvm.ir.load_json(path.read_text(encoding="utf-8"))
    except Exception as error:  # on other text TVM raises whatever it runs into
        raise InputError(expected, f"{type(error).__name__}: {_first_line(error)}", str(path), hint) from error
    return functions_of(loaded, str(path))


def _from_python(path: Path) -> dict[str, ir.BaseFunc]:
    """Every PrimFunc and every function of every IRModule that the file defines, under the file's own names."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the explanation
            spec.loader.exec_module(module)
    except Exception as error:  # the file is the user's program: anything may be raised
        found = f"{type(error).__name__}: {_first_line(error)}"
        raise InputError("a Python file that runs", found, str(path)) from error
    functions: dict[str, ir.BaseFunc] = {}
    for name, value in vars(module).items():
        if isinstance(value, tirx.PrimFunc):
            functions[name] = value
        elif isinstance(value, tvm.IRModule):
            functions |= {f"{name}.{inner}": func for inner, func in functions_of(value, str(path)).items()}
    if not functions:
        raise InputError("PrimFuncs or IRModules at the file's top level", "none", str(path))
    return functions


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")
