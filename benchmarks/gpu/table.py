"""The tables of a GPU benchmark, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.gpu.cells import MEAN_COLUMNS, environment_lines, mean_cells, notes, row_cells, row_columns
from benchmarks.gpu.record import GpuEnvironment, GpuReport
from benchmarks.gpu.summary import Mean
from benchmarks.table import STYLES


def print_environment(console: Console, where: GpuEnvironment) -> None:
    """The card, its software, and the commit."""
    for line in environment_lines(where):
        console.print(line, highlight=False, markup=False)


def print_report(console: Console, report: GpuReport) -> None:
    """One workload: a line for each row, why some have no time, and how ours were cut."""
    shape = ", ".join(f"{name} {size}" for name, size in report.shape.items())
    table = Table(title=f"{report.label}: {shape}, {report.dtype}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("program", no_wrap=True)
    for column in row_columns([report]):
        table.add_column(column, justify="right", no_wrap=column.startswith("p20"))
    for row in report.rows:
        table.add_row(escape(row.name), *row_cells(report, row), style=STYLES[row.status])
    console.print(table)
    for note in notes([report]):
        console.print(note, style="dim", highlight=False, markup=False)
    for row in report.rows:
        if row.configuration and row.reruns_equal is not None:
            bits = "bitwise equal" if row.reruns_equal else "of OTHER BITS"
            console.print(f"{row.name}: {row.configuration}; reruns {bits}", style="dim", highlight=False, markup=False)
    console.print()


def print_means(console: Console, means: Sequence[Mean]) -> None:
    """A line for each group and peer."""
    table = Table(title="Time of a peer over ours", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for column in MEAN_COLUMNS:
        table.add_column(column, justify="left" if column in MEAN_COLUMNS[:2] else "right")
    for mean in means:
        table.add_row(*mean_cells(mean))
    console.print(table)
