"""`python -m tvm_cascade programs`, `options` and `reasons`: lists of names."""

from __future__ import annotations

import argparse
import dataclasses
import os

from rich.table import Table

from tvm_cascade.cli.arguments import console, flag
from tvm_cascade.cli.programs import named
from tvm_cascade.codes import CODES
from tvm_cascade.errors import InputError
from tvm_cascade.options import ENVIRONMENT_PREFIX, FuseOptions, meaning_of


def programs(args: argparse.Namespace) -> int:
    """Print the programs that have names; returns the exit code."""
    table = Table("name", "dtype", "shape", box=None)
    for name, one in named(args).items():
        table.add_row(name, one.dtype, " ".join(f"{extent}={size}" for extent, size in one.shape.items()))
    console().print(table)
    return 0


def options(args: argparse.Namespace) -> int:
    """Print the options of the pass; returns the exit code."""
    in_force = options_in_force()
    for option in dataclasses.fields(FuseOptions):
        print(f"{option.name}  ({flag(option.name)}, {ENVIRONMENT_PREFIX}{option.name.upper()})")
        print(f"    {meaning_of(option)}")
        print(f"    in force: {in_force[option.name]}")
    return 0


def options_in_force() -> dict[str, str]:
    """Each option's value in words, with the variable that it comes from."""
    options, told = FuseOptions.from_environment(), {}
    for field in dataclasses.fields(FuseOptions):
        variable = f"{ENVIRONMENT_PREFIX}{field.name.upper()}"
        source = f"  (from {variable})" if os.environ.get(variable) else ""
        told[field.name] = f"{getattr(options, field.name)}{source}"
    return told


class Reasons:
    """The command `reasons`."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("codes", nargs="*", metavar="CODE", help="those to tell (all)")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print the reason codes with their laws and hints; returns the exit code."""
        if unknown := [code for code in args.codes if code not in CODES]:
            raise InputError(f"codes among {', '.join(CODES)}", ", ".join(unknown), "reasons")
        for code, (verdict, law, hint) in CODES.items():
            if not args.codes or code in args.codes:
                print(f"{code}  ({verdict})\n    {law}" + (f"\n    to make it fuse: {hint}" if hint else ""))
        return 0
