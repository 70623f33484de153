"""`python -m benchmarks.check`: programs fused and right, or refused with evidence; by default the papers' tables."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from benchmarks.check import designs
from benchmarks.check.audit import Audit, audits
from benchmarks.check.catalogue import CATALOGUE
from benchmarks.check.definition import HARD, Definition
from benchmarks.commands import command, uncached
from corpus import workloads
from tvm_cascade.cli.arguments import (
    KINDS,
    TOLD,
    add_input_arguments,
    add_only_argument,
    console,
    new_file,
)
from tvm_cascade.cli.jobs import Job
from tvm_cascade.cli.programs import chosen_jobs
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import InputError

JSON_FORMAT = 2
"""Version of what `--json` writes; a field that changes its meaning raises it."""

_COLUMNS = ("id", "verdict", "code", "parts", "loops", "unfused", "fused", "allowed", "worst input", "s", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    told = f"those to check (all workloads of RedFuser and Neptune): {TOLD}"
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=told)
    add_only_argument(parser)
    parser.add_argument("--small", action="store_true", help="at sizes for small machines; else as published in length")
    parser.add_argument("--all", action="store_true", help="every workload that `python -m corpus programs` lists")
    told = "cascades of the catalogue of text-book cascades on hard data (all, without names)"
    parser.add_argument("--catalogue", nargs="*", metavar="NAME", help=told)
    add_input_arguments(parser, HARD)
    told = "instead: draw N designs of these programs at random; each is right, or discarded with its reason"
    parser.add_argument("--designs", type=int, metavar="N", help=told)
    told = (
        'of the designs: "auto" (the CPU of this machine), cuda, or a target of TVM, built alone where it is not here'
    )
    parser.add_argument("--target", default="auto", help=told)
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="rows checked at a time, a core each")
    parser.add_argument("--json", type=new_file, metavar="PATH", help="also write everything to this file")


def run(args: argparse.Namespace) -> int:
    """Check what is compiled now, and keep none of it; returns the exit code, 1 where a row is not sound."""
    with uncached():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    hard = args.catalogue is not None
    if args.designs is None and args.target != "auto":
        raise InputError("--target with --designs", "--target alone", "check", "the rest is checked on this CPU")
    if args.designs is not None and (hard or args.inputs is not KINDS):
        raise InputError("--designs, or --catalogue and --inputs", "both", "check", "designs run on normal data")
    if not (hard or {*args.inputs} <= {*KINDS}):
        raise InputError(f"names among {', '.join(KINDS)}", ", ".join(args.inputs), "--inputs")
    if args.jobs < 1:
        raise InputError("1 or more", str(args.jobs), "--jobs")
    if args.designs is not None:
        return designs.run(args, _chosen(args))
    jobs = _of_catalogue(args) if hard else _chosen(args)
    kinds = tuple(HARD) if hard and args.inputs is KINDS else args.inputs
    found: list[Audit] = []
    try:
        rows = audits(jobs, args.small, kinds, args.seed, args.jobs)
        while row := _next(rows, len(found)):
            found.append(row)
            print(f"{row.name}: {'ok' if row.ok else 'NOT SOUND'}", file=sys.stderr, flush=True)
    finally:  # stopped or not, what was found is told
        _tell(found, args.json)
    return 0 if all(row.ok for row in found) else 1


def _chosen(args: argparse.Namespace) -> list[Job]:
    """The programs to check, workloads at their published sizes."""
    if args.all and args.programs:
        raise InputError("programs or --all", "both", "check")
    names = workloads.names() if args.all else args.programs or published()
    sizes: dict[str, Any] = {"shape": [], "dtype": None, "small": False}  # the audit cuts sizes itself
    return chosen_jobs(names, argparse.Namespace(**sizes, only=args.only, named=workloads.registry()))


def _of_catalogue(args: argparse.Namespace) -> list[Definition]:
    if args.programs or args.all:
        raise InputError("--catalogue or programs", "both", "check")
    if unknown := [name for name in args.catalogue if name not in CATALOGUE]:
        hint = f"names such as '{next(iter(CATALOGUE))}'; without any, all {len(CATALOGUE)}"
        raise InputError("names of the catalogue", ", ".join(map(repr, unknown)), "--catalogue", hint)
    return [CATALOGUE[name] for name in args.catalogue or CATALOGUE]


def _next(rows: Iterator[Audit], done: int) -> Audit | None:
    with waiting(f"row {done + 1}: deriving, compiling and running on every input"):
        return next(rows, None)


def _tell(found: Sequence[Audit], path: Path | None) -> None:
    """Print the table with its notes, and write it where it is asked for."""
    if not found:
        return
    out = console()
    out.print(_table(found))
    for row in found:
        for problem in row.problems:
            out.print(f"{row.name}: {problem}", markup=False)
    for line in _notes(found):
        out.print(line, markup=False)
    out.print(summary(found), markup=False)
    if path is not None:
        rows_as_data = [{**dataclasses.asdict(row), "ok": row.ok} for row in found]
        path.write_text(json.dumps({"format": JSON_FORMAT, "rows": rows_as_data}, indent=1) + "\n")


def published() -> list[str]:
    """The workloads of the papers' tables: RedFuser's 52 rows and Neptune's ten operators."""
    return [name for name in workloads.names() if workloads.get(name).source.startswith(("RedFuser", "Neptune"))]


def summary(found: Sequence[Audit]) -> str:
    """How many programs are fused, refused and sound, in one sentence."""
    by_default = [row for row in found if not row.rescaled]
    fused = sum(row.verdict == "fused" for row in by_default)
    refused = [row for row in by_default if row.counterexample]
    listed = sum(row.rescaled != () and row.verdict == "fused" for row in found)
    programs = "1 program" if len(by_default) == 1 else f"{len(by_default)} programs"
    text = f"{programs}: {fused} fused, {len(refused)} refused with a counterexample"
    if listed:
        text += f" ({listed} of them fuse once their dtype is listed in rescalable_casts)"
    wrong = sum(not row.ok for row in found)
    slowest = max((row.seconds for row in found), default=0.0)
    return f"{text}; {wrong} not sound; deriving and rewriting took {slowest:.2f} s at most"


def _table(found: Sequence[Audit]) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in ("parts", "s") else "left", no_wrap=True)
    for row in found:
        fused = row.loops_after is not None
        table.add_row(
            f"{row.name}{' *' if row.rescaled else ''}",
            row.verdict,
            row.code,
            str(row.components) if fused else "-",
            f"{row.passes_before} → {row.loops_after}" if fused else "-",
            *_errors(row, fused),
            f"{row.seconds:.2f}",
            "ok" if row.ok else "NOT SOUND",
        )
    return table


def _errors(row: Audit, fused: bool) -> list[str]:
    worst = row.worst
    if worst is None:
        return ["-"] * 4
    unfused, ours = (f"{e:.1e}" if math.isfinite(e) else "inf" for e in (worst.unfused_error, worst.fused_error))
    return [unfused, ours if fused else "-", f"{worst.allowed:.1e}", worst.input]


def _notes(found: Sequence[Audit]) -> list[str]:
    lines = ["errors: the largest for what is allowed, over all inputs; s: reading, deriving, checking, rewriting"]
    if any(row.rescaled for row in found):
        dtypes = next(row.rescaled for row in found if row.rescaled)
        lines.append(f"* under rescalable_casts with {', '.join(dtypes)}")
    for row in found:
        for kind, output, error in row.blind:
            lines.append(
                f"{row.name}: {kind} shows nothing of {output}: the unfused program's own error is {error:.1e}"
            )
    counterexamples = {row.counterexample: row.name for row in reversed(found) if row.counterexample}
    lines += [f"refused, as {name}: {text}" for text, name in counterexamples.items()]
    sizes: dict[str, list[str]] = {}
    for row in (row for row in found if row.shape):  # functions of files are checked as they are
        changed = ", ".join(f"{extent} {old} → {row.shape[extent]}" for extent, old in row.published.items())
        sizes.setdefault(changed, []).append(row.name)
    for changed, names in sizes.items():
        lines.append(f"size of {', '.join(dict.fromkeys(names))}: {changed or 'as published'}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "programs fused and right, or refused with numbers that show why; by default the papers' tables"
    return command("benchmarks.check", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
