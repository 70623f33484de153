"""The tables of a benchmark, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.device import Device
from benchmarks.goals import Mean, Outcome
from benchmarks.judge.check import Status
from benchmarks.record import Report, TimedRow, own
from tvm_cascade.report.group import bytes_text

_DENSE = 16
"""Operations for each byte of compulsory traffic from which on they are counted too."""

_STYLES = {Status.TIMED: "", Status.ABSENT: "dim", Status.WRONG: "bold red", Status.FAILED: "bold red"}
"""Of a row by how it came out."""

_LEAST_WIDTH = 110


def console() -> Console:
    """A console on standard output, wide enough for the tables even where it is no terminal."""
    plain = Console()
    return plain if plain.width >= _LEAST_WIDTH else Console(width=_LEAST_WIDTH)


def print_environment(console: Console, place: Device) -> None:
    """Where, with what, and whether timing waits until the machine is idle."""
    where = place.environment
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in where.versions.items())
    gpu = f" ({where.multiprocessors} multiprocessors, L2 {where.l2_bytes / 2**20:.0f} MiB)" if where.l2_bytes else ""
    host = f"{where.cpu}, {where.cores} cores, {where.threads} threads"
    lines = [f"{where.card}{gpu}; {host}; {where.target}" if gpu else f"{host}; {where.target}"]
    lines.append(f"{versions}; commit {where.commit or 'unknown'}; {where.date}")
    if where.memory is not None:
        read, copy = where.memory.read / 1e9, where.memory.copy / 1e9
        lines.append(f"memory: {read:.0f} GB/s read by a sum, {copy:.0f} GB/s read and written by a copy")
    for line in lines:
        console.print(line, highlight=False, markup=False)
    if place.settings.get("idle_gate") is False:
        console.print("idle gate off: nobody looked whether the machine was idle", style="yellow")


def print_report(console: Console, report: Report) -> None:
    """One workload: a line for each row, why some have no time, how ours were cut, and what fusing decided."""
    shape = ", ".join(f"{name} {size}" for name, size in report.shape.items())
    title = f"{report.label}: {shape}, {report.dtype}"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("program", no_wrap=True)
    columns = {name: [cell(report, row) for row in report.rows] for name, cell in _COLUMNS.items()}
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    for name in filled:
        table.add_column(name.format(ours=report.ours), justify="right", no_wrap=name.startswith("p20"))
    for k, row in enumerate(report.rows):
        table.add_row(escape(row.name), *(cells[k] for cells in filled.values()), style=_STYLES[row.status])
    console.print(table)
    for note, rows in _notes(report.rows).items():
        names = ", ".join(f"`{row.name}`" for row in rows)
        console.print(f"{names}: {note}", style=_STYLES[rows[0].status], highlight=False, markup=False)
    for line in _summary(report):
        console.print(line, style="dim", highlight=False, markup=False)
    if report.blind_to:
        console.print(f"the check cannot tell these from the right answer: {', '.join(report.blind_to)}", style="red")
    console.print()


def print_means(console: Console, means: Sequence[Mean]) -> None:
    """A line for each group and peer."""
    rows = [
        [mean.group, mean.peer, *map(ratio, (mean.geomean, mean.least, mean.most)), str(mean.count)] for mean in means
    ]
    _print(console, "Time of a peer over ours", ("group", "peer", "geomean", "least", "most", "workloads"), rows)


def print_goals(console: Console, outcomes: Sequence[Outcome]) -> None:
    """A line for each goal."""
    words = {True: "[green]reached[/]", False: "[bold red]not reached[/]", None: "-"}
    rows = [[one.group, escape(one.text), escape(one.figure), words[one.met]] for one in outcomes]
    _print(console, "Goals", ("group", "goal", "measured", ""), rows)


def _print(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*columns, title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    if rows:
        console.print(table)


def ratio(value: float | None) -> str:
    """A ratio with three decimals; empty for none."""
    return "" if value is None else f"{value:.3f}"


def ms(seconds: float) -> str:
    """Milliseconds with four digits."""
    return f"{seconds * 1e3:.4g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _time(report: Report, row: TimedRow) -> str:
    return ms(row.timing.median_s) if row.timing else "-" if row.status is Status.ABSENT else str(row.status)


def _spread(report: Report, row: TimedRow) -> str:
    return f"{ms(row.timing.p20_s)} to {ms(row.timing.p80_s)}" if row.timing else ""


def _over_ours(report: Report, row: TimedRow) -> str:
    return ratio(report.ratio(row.name))


def _flops(report: Report, row: TimedRow) -> str:
    dense = (report.flops or 0) >= _DENSE * report.bytes
    return f"{(report.flops or 0) / row.timing.median_s / 1e9:.4g}" if row.timing and dense else ""


def _bytes(report: Report, row: TimedRow) -> str:
    return f"{report.bytes / row.timing.median_s / 1e9:.4g}" if row.timing and report.bytes else ""


def _of_limit(report: Report, row: TimedRow) -> str:
    return "" if (share := report.share(row.name)) is None else f"{share:.0%}"


def _estimate(report: Report, row: TimedRow) -> str:
    return "" if row.estimate_s is None else ms(row.estimate_s)


def _temporaries(report: Report, row: TimedRow) -> str:
    return "" if row.temporary_bytes is None else bytes_text(row.temporary_bytes)


_COLUMNS: dict[str, Callable[[Report, TimedRow], str]] = {
    "ms": _time,
    "p20 to p80": _spread,
    "time / {ours}": _over_ours,
    "GFLOP/s": _flops,
    "GB/s": _bytes,
    "of limit": _of_limit,
    "estimate": _estimate,
    "max error": lambda _, row: _error(row.max_error),
    "allowed": lambda _, row: _error(row.allowed),
    "temporaries": _temporaries,
    "compile s": lambda _, row: "" if row.compile_seconds is None else f"{row.compile_seconds:.2f}",
}
"""Cells of a row by their headings; a column without any is left out."""


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}"


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


def _summary(report: Report) -> list[str]:
    lines = []
    for row in report.rows:
        if own(row.name) and row.configuration and row.reruns_equal is not None:
            bits = "bitwise equal" if row.reruns_equal else "of OTHER BITS"
            lines.append(f"{row.name}: {row.configuration}; reruns {bits}")
    for one in report.decisions:
        # The detail of a decision by cost ends with the estimate.
        estimate = one.estimate if one.estimate and one.estimate not in one.detail else ""
        lines.append(f"{one.verdict} [{one.code}] " + "; ".join(filter(None, (one.detail, estimate))))
    if report.fuse_seconds is not None:
        lines.append(f"the pass took {report.fuse_seconds:.2f} s")
    return lines
