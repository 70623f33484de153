"""`python -m benchmarks.products N`: random programs with matrix products on a GPU, right, and beside eager torch.

The table says what was found, what is off tensor cores, and what is slowest.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.commands import command, uncached
from benchmarks.device import DeviceClock, torch_on_gpu
from benchmarks.products import trial
from benchmarks.products.trial import EAGER, OURS, Found
from tvm_cascade.cli.arguments import console
from tvm_cascade.devices.host import core_count
from tvm_cascade.driver.progress import waiting
from tvm_cascade.errors import InputError

_SHOWN = 20
SLOWER = 2.0
"""Times eager torch's time that none should take."""


def show(console: Console, found: Sequence[Found]) -> None:
    """Print what was found of all cases."""

    def tell(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    for one in found:
        if one.finding:
            tell(f"seed {one.built.seed} ({one.shape_of}): {one.finding}")
    for one in found:
        if one.built.left_out:
            tell(f"seed {one.built.seed} ({one.shape_of}) not on tensor cores: {one.built.left_out}")
    timed = sorted((one for one in found if one.ratio is not None), key=lambda one: -(one.ratio or 0.0))
    if timed:
        console.print(_slowest(timed[:_SHOWN]))
    for line in summary(found):
        tell(line)


def summary(found: Sequence[Found]) -> list[str]:
    """How many are right, on tensor cores, and slower than eager torch by more than the goal."""
    ratios = [one.ratio for one in found if one.ratio is not None]
    wrong = sum(bool(one.finding) for one in found)
    left = sum(bool(one.built.left_out) for one in found)
    lines = [f"{len(found)} programs: {wrong} wrong or failed, {left} with products of half precision on CUDA cores"]
    if ratios:
        mean, slower = statistics.geometric_mean(ratios), sum(ratio > SLOWER for ratio in ratios)
        lines.append(
            f"{len(ratios)} timed: {mean:.3f} of the time of eager torch in geomean, at most {max(ratios):.2f}; "
            f"{slower} over {SLOWER:g}"
        )
    return lines


def _slowest(timed: Sequence[Found]) -> Table:
    title = f"The slowest {len(timed)}, by our time over that of eager torch"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("seed", "program", "GFLOP", "ours µs", "eager µs", "ratio", "error", "allowed", "lowered to"):
        table.add_column(heading, justify="left" if heading in ("program", "lowered to") else "right")
    for one in timed:
        times = [f"{one.seconds[name] * 1e6:.1f}" for name in (OURS, EAGER)]
        errors = [f"{one.error:.1e}", f"{one.allowed:.1e}"]
        cells = [str(one.built.seed), one.shape_of, f"{one.flops / 1e9:.2f}", *times, f"{one.ratio:.2f}", *errors]
        table.add_row(*cells, one.built.lowering[:80])
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("count", type=int, metavar="N", help="programs to check, and to time against eager torch")
    parser.add_argument("--jobs", type=int, default=core_count(), metavar="J", help="worker processes (all cores)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed; a program is one seed")


def run(args: argparse.Namespace) -> int:
    """Check and time random programs; returns 1 where one is wrong, fails, or is off tensor cores."""
    for name, least in (("count", 1), ("jobs", 1), ("seed", 0)):
        if getattr(args, name) < least:
            raise InputError(f"{least} or more", str(getattr(args, name)), name)
    torch = torch_on_gpu("random programs with products")
    seeds = range(args.seed, args.seed + args.count)
    with uncached(), TemporaryDirectory() as folder, waiting("programs are compiled"):
        built = trial.built_ahead(seeds, args.jobs, Path(folder))
        clock = DeviceClock(torch)
        found = [trial.tried(torch, one, clock) for one in built]
    show(console(), found)
    return 1 if any(one.finding or one.built.left_out for one in found) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    told = "random programs with matrix products, checked on this GPU, and timed against eager torch"
    return command("benchmarks.products", told, add_arguments, run, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
