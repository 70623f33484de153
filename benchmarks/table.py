"""The tables of a benchmark, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.environment import Environment
from benchmarks.goals import Outcome
from benchmarks.record import Report, TimedRow
from tvm_cascade.corpus.check import Status
from tvm_cascade.corpus.forms import OURS_FUSED

_COMPUTE_BOUND = 16
"""Operations for each byte of compulsory traffic from which on operations are counted, and not bytes."""

STYLES = {Status.TIMED: "", Status.ABSENT: "dim", Status.WRONG: "bold red", Status.FAILED: "bold red"}
"""Of a row by how it came out."""

_LEAST_WIDTH = 110


def console() -> Console:
    """A console on standard output, wide enough for the tables even where it is no terminal."""
    plain = Console()
    return plain if plain.width >= _LEAST_WIDTH else Console(width=_LEAST_WIDTH)


def print_environment(console: Console, environment: Environment, gated: bool) -> None:
    """Machine, versions and date, and whether timing waits until the machine is idle."""
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in environment.versions.items())
    console.print(f"{environment.cpu}, {environment.cores} cores, {environment.threads} threads; {environment.target}")
    console.print(f"{versions}; commit {environment.commit or 'unknown'}; {environment.date}", highlight=False)
    if not gated:
        console.print("idle gate off: nobody looked whether the machine was idle", style="yellow")


def print_report(console: Console, report: Report) -> None:
    """One workload: a line for each row, why some have no time, and what fusing decided."""
    base = report.delivered if report.seconds(report.delivered) is not None else None
    rate = "GFLOP/s" if _compute_bound(report) else "GB/s"
    table = Table(title=f"{report.label}, {report.dtype}", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("program", no_wrap=True)
    for column in ("ms", "p20 to p80", f"time / {base}" if base else "ratio", rate, "max error", "temporaries"):
        table.add_column(column, justify="right", no_wrap=column == "p20 to p80")
    for row in report.rows:
        table.add_row(escape(row.name), *_cells(report, row, base), style=STYLES[row.status])
    console.print(table)
    for note, rows in _notes(report.rows).items():
        names = ", ".join(f"`{row.name}`" for row in rows)
        console.print(f"{names}: {note}", style=STYLES[rows[0].status], highlight=False, markup=False)
    console.print(_summary(report), style="dim", highlight=False, markup=False)
    if report.blind_to:
        console.print(f"the check cannot tell these from the right answer: {', '.join(report.blind_to)}", style="red")
    console.print()


def print_goals(console: Console, outcomes: Sequence[Outcome]) -> None:
    """A line for each goal."""
    words = {True: "[green]met[/]", False: "[bold red]not met[/]", None: "-"}
    table = Table(title="Goals", title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for column in ("workload", "goal", "measured", ""):
        table.add_column(column)
    for outcome in outcomes:
        # A ratio that is only shown has no verdict, and neither has a goal without a time.
        busy = "" if outcome.idle is not False else ", machine not idle"
        table.add_row(outcome.label, escape(outcome.text), escape(outcome.figure) + busy, words[outcome.met])
    console.print(table)


def _cells(report: Report, row: TimedRow, base: str | None) -> list[str]:
    error = "" if row.max_error is None else f"{row.max_error:.1e}"
    temporaries = "" if row.temporary_bytes is None else _bytes(row.temporary_bytes)
    if row.timing is None:
        return ["-" if row.status is Status.ABSENT else str(row.status), "", "", "", error, temporaries]
    reference = report.seconds(base) if base else None
    ratio = "" if reference is None else f"{row.timing.median_s / reference:.2f}"
    spread = f"{_ms(row.timing.p20_s)} to {_ms(row.timing.p80_s)}"
    return [_ms(row.timing.median_s), spread, ratio, _rate(report, row.timing.median_s), error, temporaries]


def _notes(rows: Sequence[TimedRow]) -> dict[str, list[TimedRow]]:
    """The rows that each note is about, in their order."""
    found: dict[str, list[TimedRow]] = {}
    for row in rows:
        if note := _note(row):
            found.setdefault(note, []).append(row)
    return found


def _note(row: TimedRow) -> str:
    if row.timing is None:
        return row.note if row.status is Status.ABSENT else f"{row.status}: {row.note}"
    few = f"only {row.timing.samples} sample{'s'[: row.timing.samples > 1]}" if row.timing.samples < 3 else ""
    busy = "the machine was not idle" if row.timing.idle is False else ""
    return ", ".join(filter(None, (few, busy)))


def _summary(report: Report) -> str:
    lines = []
    for one in report.decisions if report.delivered == OURS_FUSED else ():  # else the row `ours, fused` says why
        # The detail of a decision by cost ends with the estimate.
        estimate = one.estimate if one.estimate and one.estimate not in one.detail else ""
        lines.append(f"{one.verdict} [{one.code}] " + "; ".join(filter(None, (one.detail, estimate))))
    lines.append(f"the pass took {report.fuse_seconds:.2f} s")
    return "\n".join(lines)


def _compute_bound(report: Report) -> bool:
    return _operations(report) >= _COMPUTE_BOUND * report.bytes


def _operations(report: Report) -> int:
    return report.flops or 0


def _rate(report: Report, seconds: float) -> str:
    return f"{(_operations(report) if _compute_bound(report) else report.bytes) / seconds / 1e9:.3g}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"
