"""`python -m tvm_cascade explain PROGRAM`: for a program by name, a file of TVMScript or a saved module."""

from __future__ import annotations

import argparse
from pathlib import Path

from tvm_cascade.cli.arguments import (
    add_option_arguments,
    add_program_arguments,
    console,
    new_file,
    options_given,
    target_of,
)
from tvm_cascade.cli.programs import chosen_by_name, functions_of_file, is_file_name
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.relax.pipeline import Merged
from tvm_cascade.tuning.explanation import explained


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_program_arguments(parser)
    told = (
        'also say what each function becomes there: auto (this CPU), cuda (the GPU here), sm_90a, gfx942, {"kind": …}'
    )
    parser.add_argument("--target", help=told)
    told = "folder of a tuning session's database, whose best designs are explained, and where each comes from"
    parser.add_argument("--database", type=Path, metavar="FOLDER", help=told)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", metavar="OUT", type=new_file, help="write an HTML page there")
    add_option_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Explain; returns the exit code."""
    options = FuseOptions.from_environment(**options_given(args))
    target = None if args.target is None else target_of(args.target)
    if args.database is not None and not args.database.is_dir():
        raise InputError("the folder of a database", str(args.database), "--database")
    program = _program(args)
    with waiting(f"reading {args.program}, deriving and checking its folds"):
        explanation = explained(program, options, target, args.database)
    if args.html:
        args.html.write_text(explanation.to_html(args.program), encoding="utf-8")
    if args.json:
        print(explanation.to_json())
    elif not args.html:
        out = console()
        if out.is_terminal:
            out.print(explanation)
        else:
            print(explanation)
    return 0


def _program(args: argparse.Namespace) -> Merged:
    if is_file_name(args.program, args):
        return functions_of_file(Path(args.program), args)
    return Merged({args.program: chosen_by_name(args.program, args).job.build()})
