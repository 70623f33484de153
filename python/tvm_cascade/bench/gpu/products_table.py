"""The table of random programs with products: findings, what is off tensor cores, and the slowest beside torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tvm_cascade.bench.gpu.random_products import EAGER, OURS, Found

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
