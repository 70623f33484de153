"""The tables of a GPU benchmark as Markdown, one section a suite, in a file that keeps the other sections."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.gpu import goals
from benchmarks.gpu.cells import (
    GOAL_COLUMNS,
    MEAN_COLUMNS,
    environment_lines,
    goal_cells,
    mean_cells,
    notes,
    row_cells,
    row_columns,
)
from benchmarks.gpu.peers import OWN
from benchmarks.gpu.record import GpuEnvironment, GpuReport
from benchmarks.gpu.summary import means
from benchmarks.gpu.timing import GpuPlan

_HEAD = """# Benchmarks

Written by `python -m benchmarks --suite NAME --markdown BENCHMARKS.md`, a section for each suite. Every row is
checked against float64 before it is timed, and one that is wrong has no time. Times are medians over all rounds, in
which the programs of a workload take turns; the L2 cache is filled with something else before each run. A ratio over 1
says that ours is faster. `of limit` is the time that the compulsory traffic takes at the bandwidth measured in the same
run, over the program's. `compile s` is the time until the first result is there.
"""


def section(suite: str, where: GpuEnvironment, plan: GpuPlan, reports: Sequence[GpuReport]) -> str:
    """The section of a suite."""
    lines = [f"## {suite}", "", *environment_lines(where), "", f"{plan.rounds} rounds.", ""]
    lines += _table(MEAN_COLUMNS, [mean_cells(mean) for mean in means(reports)], left=2)
    lines += _table(GOAL_COLUMNS, [goal_cells(outcome) for outcome in goals.evaluate(suite, reports)], left=4)
    columns = ("workload", "program", *row_columns(reports))
    rows = [[report.label, row.name, *row_cells(report, row, reports)] for report in reports for row in report.rows]
    lines += _table(columns, rows, left=2)
    if told := notes(reports):
        lines += ["Rows without a time:", "", *(f"- {_plain(note)}" for note in told), ""]
    kernels = [
        [report.label, row.name, row.configuration, "yes" if row.reruns_equal else "NO", _error(row.oracle_error)]
        for report in reports
        for row in report.rows
        if row.name in OWN and row.reruns_equal is not None
    ]
    headings = ("workload", "program", "kernel", "reruns bitwise equal", "error against the oracle, small shape")
    lines += _table(headings, kernels, left=3)
    return "\n".join(lines)


_SECTION = re.compile(r"^## (\S+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ALL = re.compile(r"^\| all \| best peer \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_INDEX = ("suite", "workloads", "best peer's time over ours, geomean", "least", "most", "measured")


def indexed(text: str) -> str:
    """The file's text with a table of its sections behind the head, written anew."""
    first = next(_SECTION.finditer(text), None)
    if first is None:
        return text
    rows = [_row(name, body) for name, body in _SECTION.findall(text)]
    head = text[: first.start()].split(_line(_INDEX))[0].rstrip("\n")
    return "\n".join([head, "", *_table(_INDEX, rows, left=1), text[first.start() :]])


def _row(suite: str, body: str) -> list[str]:
    """A section's line: the mean over all of its workloads, which its tables take apart, and the day."""
    geomean, least, most, count = found.groups() if (found := _ALL.search(body)) else ("",) * 4
    day = re.search(r"^tvm-cascade .*?(\d{4}-\d\d-\d\d)T", body, re.MULTILINE)
    return [f"[{suite}](#{suite})", count, geomean, least, most, day[1] if day else ""]


def updated(text: str, suite: str, written: str) -> str:
    """The file's text with the section of a suite replaced, or added where it has none, and the table of sections."""
    return indexed(_with_section(text, suite, written))


def _with_section(text: str, suite: str, written: str) -> str:
    if not text.strip():
        text = _HEAD
    found = re.search(rf"^## {re.escape(suite)}\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return text.rstrip("\n") + "\n\n" + written.rstrip("\n") + "\n"
    after = text[found.end() :]
    return text[: found.start()] + written.rstrip("\n") + "\n" + ("\n" + after if after else "")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """A table with its first columns to the left and figures to the right, and an empty line; nothing without rows."""
    if not rows:
        return []
    rule = ["---" if number < left else "---:" for number in range(len(columns))]
    return [_line(columns), _line(rule), *(_line([_plain(cell) for cell in row]) for row in rows), ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}"
