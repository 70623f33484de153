"""Formatting of figures in GPU tables, for a terminal and for Markdown alike."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.goals import Outcome
from benchmarks.gpu.peers import OURS
from benchmarks.gpu.record import GpuEnvironment, GpuReport, GpuRow
from benchmarks.gpu.summary import Mean
from tvm_cascade.corpus.check import Status

MEAN_COLUMNS = ("group", "peer", "geomean", "least", "most", "workloads")
GOAL_COLUMNS = ("group", "goal", "measured", "")


def row_columns(reports: Sequence[GpuReport]) -> list[str]:
    """Headings of rows: rates of operations, or of bytes where the memory's bandwidth limits; both where both may."""
    rates = [heading for heading, shown in zip(_RATES, _rates_shown(reports), strict=True) if shown]
    return ["ms", "p20 to p80", *rates, f"time / {OURS}", "max error", "allowed", "compile s"]


_RATES = ("TF/s", "GB/s", "of limit")

_DENSE = 50
"""Operations for each byte of traffic from which on the tensor cores may limit a program."""


def _rates_shown(reports: Sequence[GpuReport]) -> tuple[bool, bool, bool]:
    moving = any(report.limit_s is not None for report in reports)
    dense = any(report.flops > _DENSE * report.bytes for report in reports)
    return dense or not moving, moving, moving


def row_cells(report: GpuReport, row: GpuRow, table: Sequence[GpuReport] = ()) -> list[str]:
    """A row under the `row_columns` of a table; by default of one of its report alone."""
    checked = [_short(row.max_error), _short(row.allowed)]
    compiled = "" if row.compile_seconds is None else f"{row.compile_seconds:.2f}"
    if row.timing is None:
        empty = [""] * (len(row_columns(table or [report])) - 4)
        return ["-" if row.status is Status.ABSENT else str(row.status), *empty, *checked, compiled]
    ratio = report.ratio(row.name)
    spread = f"{ms(row.timing.p20_s)} to {ms(row.timing.p80_s)}"
    share = report.share(row.name)
    seconds, shown = row.timing.median_s, _rates_shown(table or [report])
    told = [f"{report.flops / seconds / 1e12:.1f}", f"{report.bytes / seconds / 1e9:.0f}"]
    told.append("" if share is None else f"{share:.0%}")
    rates = [rate for rate, wanted in zip(told, shown, strict=True) if wanted]
    return [ms(seconds), spread, *rates, "" if ratio is None else f"{ratio:.3f}", *checked, compiled]


def mean_cells(mean: Mean) -> list[str]:
    """A mean under `MEAN_COLUMNS`."""
    ratios = [f"{ratio:.3f}" for ratio in (mean.geomean, mean.least, mean.most)]
    return [mean.group, mean.peer, *ratios, str(mean.count)]


def goal_cells(outcome: Outcome) -> list[str]:
    """A goal under `GOAL_COLUMNS`."""
    return [outcome.label, outcome.text, outcome.figure, {True: "met", False: "NOT met", None: "-"}[outcome.met]]


def notes(reports: Sequence[GpuReport]) -> list[str]:
    """Why rows have no time, one line for each reason, and which of ours was not the same in further runs."""
    found: dict[tuple[str, str], list[str]] = {}
    for report in reports:
        for row in report.rows:
            if row.note:
                status = "" if row.status is Status.ABSENT else f"{row.status}: "
                found.setdefault((row.name, status + row.note), []).append(report.label)
    return [f"{name} ({', '.join(labels)}): {note}" for (name, note), labels in found.items()]


def environment_lines(where: GpuEnvironment) -> list[str]:
    """The card, its software, and the commit."""
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in where.host.versions.items())
    l2 = where.l2_bytes / 2**20
    lines = [
        f"{where.gpu} ({where.arch}, {where.multiprocessors} multiprocessors, L2 {l2:.0f} MiB), "
        f"driver {where.driver or 'unknown'}, CUDA {where.cuda}, cuDNN {where.cudnn}; {where.host.cpu}",
        f"{versions}; commit {where.host.commit or 'unknown'}; {where.host.date}",
    ]
    if where.memory is not None:
        read, copy = where.memory.read / 1e9, where.memory.copy / 1e9
        lines.append(f"memory: {read:.0f} GB/s read by a sum, {copy:.0f} GB/s read and written by a copy")
    return lines


def ms(seconds: float) -> str:
    """Milliseconds with four digits."""
    return f"{seconds * 1e3:.4g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _short(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}"
