"""Arguments that several commands share: which workload at which shape, and the options of the pass."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from rich.console import Console

from tvm_cascade.bench import workloads
from tvm_cascade.bench.workload import Workload
from tvm_cascade.errors import WorkloadError
from tvm_cascade.options import REFERENCE_MOVES, FuseOptions

_PLAIN_WIDTH = 120


def console() -> Console:
    """Where tables go: plain text, wide enough for a row, where standard output is no terminal."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


def add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    """--shape, --small and --dtype."""
    parser.add_argument("--shape", nargs="+", default=[], metavar="EXTENT=N", help="extents to replace, as keys=1024")
    parser.add_argument("--small", action="store_true", help="the same program at a size for small machines")
    parser.add_argument("--dtype", help="storage: float16, bfloat16, float32 or float64; sums are at least float32")


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the pass; those that are not given come from TVM_CASCADE_* variables, then from the defaults."""
    for name, meaning in (
        ("tile", "positions of the cascade axis per loop step"),
        ("segments", "parts of the cascade axis folded apart, then merged"),
        ("lanes", "independent partial results of a tile's reduction"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=meaning)
    parser.add_argument(
        "--rescalable-casts", nargs="*", metavar="DTYPE", help="dtypes whose rounding may happen at another scale"
    )
    parser.add_argument("--reference", choices=REFERENCE_MOVES, help="how running references move")
    parser.add_argument(
        "--vector-math", action=argparse.BooleanOptionalAction, default=None, help="exp, log, tanh as polynomials"
    )
    parser.add_argument(
        "--force", action=argparse.BooleanOptionalAction, default=None, help="fuse even where the cost model declines"
    )


def options_given(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of `FuseOptions` that the command line names."""
    given = {field.name: getattr(args, field.name, None) for field in dataclasses.fields(FuseOptions)}
    if given["rescalable_casts"] is not None:
        given["rescalable_casts"] = tuple(given["rescalable_casts"])
    return {name: value for name, value in given.items() if value is not None}


def chosen_workload(name: str, args: argparse.Namespace) -> Workload:
    """The named workload at the shape and dtype that the command line asks for.

    Raises
    ------
    WorkloadError
        When there is no such workload, extent or dtype.
    """
    workload = workloads.get(name)
    if args.small:
        workload = workload.cpu
    if args.dtype:
        workload = workload.with_dtype(args.dtype)
    return workload.with_shape(**_shape(name, args.shape)) if args.shape else workload


def _shape(name: str, pairs: list[str]) -> dict[str, int]:
    """{"keys": 1024} from ["keys=1024"]; a list in one argument, as keys=1024,queries=8, is taken too."""
    shape = {}
    for pair in (part for text in pairs for part in text.split(",") if part):
        extent, _, value = pair.partition("=")
        if not value.strip().isdecimal():
            raise WorkloadError(
                "extents as NAME=N", repr(pair), f"--shape of workload `{name}`", "pass --shape keys=1024"
            )
        shape[extent.strip()] = int(value)
    return shape
