"""`python -m tvm_cascade check`: every workload of the papers' tables fused and right, or refused with a proof."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tvm_cascade.bench import workloads
from tvm_cascade.bench.audit import Audit, audits
from tvm_cascade.bench.programs.draws import KINDS
from tvm_cascade.cli_arguments import console
from tvm_cascade.errors import InputError

JSON_FORMAT = 1
"""Version of what `--json` writes; a field that changes its meaning raises it."""

_COLUMNS = ("id", "verdict", "code", "parts", "loops", "unfused", "fused", "allowed", "worst input", "s", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="those to check (all of RedFuser and Neptune)")
    parser.add_argument("--small", action="store_true", help="at sizes for small machines; else as published in length")
    parser.add_argument("--inputs", nargs="+", default=KINDS, choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="rows checked at a time, a core each")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write everything to this file")


def run(args: argparse.Namespace) -> int:
    """Check; returns the exit code, 1 where a row is not sound."""
    if args.seed < 0:
        raise InputError("a seed of 0 or more", str(args.seed), "--seed")
    if args.jobs < 1:
        raise InputError("1 or more", str(args.jobs), "--jobs")
    if args.json is not None and not args.json.parent.is_dir():
        raise InputError("a file in a folder that exists", str(args.json), "--json")
    chosen = [workloads.get(name) for name in args.workloads or published()]
    out = console()
    found: list[Audit] = []
    for row in audits(chosen, args.small, args.inputs, args.seed, args.jobs):
        found.append(row)
        print(f"{row.name}: {'ok' if row.ok else 'NOT SOUND'}", file=sys.stderr, flush=True)
    out.print(_table(found))
    for row in found:
        for problem in row.problems:
            out.print(f"{row.name}: {problem}", markup=False)
    for line in _notes(found):
        out.print(line, markup=False)
    out.print(summary(found), markup=False)
    if args.json is not None:
        rows_as_data = [{**dataclasses.asdict(row), "ok": row.ok} for row in found]
        args.json.write_text(json.dumps({"format": JSON_FORMAT, "rows": rows_as_data}, indent=1) + "\n")
    return 0 if all(row.ok for row in found) else 1


def published() -> list[str]:
    """The workloads of the papers' tables: RedFuser's 52 rows and Neptune's ten operators."""
    return [name for name in workloads.names() if workloads.get(name).source.startswith(("RedFuser", "Neptune"))]


def summary(found: Sequence[Audit]) -> str:
    """How many workloads are fused, refused and sound, in one sentence."""
    by_default = [row for row in found if not row.rescaled]
    fused = sum(row.verdict == "fused" for row in by_default)
    refused = [row for row in by_default if row.verdict == "refused"]
    listed = sum(row.rescaled != () and row.verdict == "fused" for row in found)
    text = f"{len(by_default)} workloads: {fused} fused, {len(refused)} refused with a counterexample"
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
        worst = row.worst
        errors = [
            f"{error:.1e}" if math.isfinite(error) else "inf" for error in (worst.unfused_error, worst.fused_error)
        ]
        fused = row.loops_after is not None
        table.add_row(
            f"{row.name}{' *' if row.rescaled else ''}",
            row.verdict,
            row.code,
            str(row.components) if fused else "-",
            f"{row.passes_before} → {row.loops_after}" if fused else "-",
            errors[0],
            errors[1] if fused else "-",
            f"{worst.allowed:.1e}",
            worst.input,
            f"{row.seconds:.2f}",
            "ok" if row.ok else "NOT SOUND",
        )
    return table


def _notes(found: Sequence[Audit]) -> list[str]:
    lines = ["errors: the largest for what is allowed, over all inputs; s: reading, deriving, proving, rewriting"]
    if any(row.rescaled for row in found):
        dtypes = next(row.rescaled for row in found if row.rescaled)
        lines.append(f"* under rescalable_casts with {', '.join(dtypes)}")
    counterexamples = {row.counterexample: row.name for row in reversed(found) if row.counterexample}
    lines += [f"refused, as {name}: {text}" for text, name in counterexamples.items()]
    sizes: dict[str, list[str]] = {}
    for row in found:
        changed = ", ".join(f"{extent} {old} → {row.shape[extent]}" for extent, old in row.published.items())
        sizes.setdefault(changed, []).append(row.name)
    for changed, names in sizes.items():
        lines.append(f"size of {', '.join(dict.fromkeys(names))}: {changed or 'as published'}")
    return lines
