"""Results of a suite as plain data, and the files that hold them: `results/CARD/SUITE.json`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environment import Environment, Memory
from benchmarks.judge.check import Row, Status
from benchmarks.judge.forms import OURS_FUSED, OURS_UNFUSED
from benchmarks.timing import Timing

RESULTS = Path(__file__).resolve().parent / "results"
"""What is stored, a folder for each card."""

FORMAT = 1
"""Version of the files; a field that changes its meaning raises it."""

OURS, OURS_CUDA_CORES = "ours", "ours-cuda-cores"
"""Rows on a GPU; those on a CPU are `judge.forms.OURS_FUSED` and its neighbours."""

SLOWER = 1.03
"""Of the stored time, from which on ours counts as slower."""

_DIGITS = 5


def own(name: str) -> bool:
    """Whether a row is no peer: what it gives must be right, and every run of it the same."""
    return name.startswith(OURS)


@dataclass(frozen=True)
class TimedRow(Row):
    """A row with its times, where it passed the check.

    Attributes
    ----------
    timing : None where it was not timed.
    compile_seconds : until the first result was there.
    configuration : of the kernels, where it is known.
    estimate_s : what the cost model says that the kernels take; None where it says nothing.
    reruns_equal : whether further runs gave the same bits; None where that was not looked at.
    oracle_error, oracle_allowed : scaled error against the oracle on a small shape; None where that was not looked at.
    """

    timing: Timing | None = None
    compile_seconds: float | None = None
    configuration: str = ""
    estimate_s: float | None = None
    reruns_equal: bool | None = None
    oracle_error: float | None = None
    oracle_allowed: float | None = None


@dataclass(frozen=True)
class Decided:
    """The verdict of one group of reductions."""

    verdict: str
    code: str
    detail: str
    estimate: str | None


@dataclass(frozen=True)
class Report:
    """One workload's table.

    Attributes
    ----------
    label : of the entry.
    rows : in the order of the table.
    groups : whose figures it counts in, besides those of the suite.
    source, shape, dtype : of the workload.
    flops, bytes : useful operations, None where nobody has counted them, and compulsory traffic.
    limit_s : what the compulsory traffic takes at the measured bandwidth; None where that was not measured.
    decisions : one for each group of reductions, of a program on a CPU.
    fuse_seconds : what the pass took; None where that was not measured by itself.
    baseline : whose error sets what passes (`judge.check.Checked`).
    blind_to : wrong answers that the check would not have caught on this data.
    """

    label: str
    rows: tuple[TimedRow, ...]
    groups: tuple[str, ...] = ()
    source: str = ""
    shape: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""
    flops: int | None = None
    bytes: int = 0
    limit_s: float | None = None
    decisions: tuple[Decided, ...] = ()
    fuse_seconds: float | None = None
    baseline: str | None = None
    blind_to: tuple[str, ...] = ()

    def row(self, name: str) -> TimedRow | None:
        """The row of that name; None where the table has none."""
        return next((row for row in self.rows if row.name == name), None)

    def seconds(self, name: str) -> float | None:
        """The median of a row; None where it has no time."""
        row = self.row(name)
        return None if row is None or row.timing is None else row.timing.median_s

    @property
    def ours(self) -> str:
        """The row that users get, with which others are compared: fused where fusing was done, else unfused."""
        fused = self.row(OURS_FUSED)
        return OURS if fused is None else OURS_UNFUSED if fused.status is Status.ABSENT else OURS_FUSED

    @property
    def best_peer(self) -> str | None:
        """The fastest row that is not ours; None where no peer has a time."""
        timed = {row.name: row.timing.median_s for row in self.rows if row.timing and not own(row.name)}
        return min(timed, key=lambda name: timed[name]) if timed else None

    def ratio(self, peer: str | None) -> float | None:
        """The time of a peer over ours; None where either has none."""
        theirs, ours = self.seconds(peer or ""), self.seconds(self.ours)
        return None if theirs is None or ours is None else theirs / ours

    @property
    def best_ratio(self) -> float | None:
        """The time of the best peer over ours; None where either has none."""
        return self.ratio(self.best_peer)

    def share(self, name: str) -> float | None:
        """The share of the memory's bandwidth that a row reaches; None where either is not known."""
        seconds = self.seconds(name)
        return None if seconds is None or self.limit_s is None else self.limit_s / seconds

    @property
    def misjudged(self) -> float | None:
        """By what factor the estimate of ours is off, either way; None where there is no estimate or no time."""
        row = self.row(self.ours)
        if row is None or row.timing is None or not row.estimate_s:
            return None
        return max(row.estimate_s / row.timing.median_s, row.timing.median_s / row.estimate_s)

    @property
    def sound(self) -> bool:
        """Whether no row of ours is wrong or failed; that of a peer is for its authors."""
        return not any(row.status in (Status.WRONG, Status.FAILED) for row in self.rows if own(row.name))


@dataclass(frozen=True)
class Result:
    """What a suite gave on a card.

    Attributes
    ----------
    suite, command : its name, and how it was started.
    environment : where.
    settings : how much was timed, and how programs were fused.
    reports : in the order of the suite.
    left_out : labels of workloads that the time did not suffice for.
    """

    suite: str
    command: str
    environment: Environment
    settings: Mapping[str, Any]
    reports: tuple[Report, ...]
    left_out: tuple[str, ...] = ()

    def path(self, folder: Path) -> Path:
        """Where it is stored."""
        return folder / self.environment.slug / f"{self.suite}.json"

    def save(self, folder: Path) -> None:
        """Write the file: a line for each workload, with what follows from its times."""
        head = {"format": FORMAT, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)[:-2]}}
        head |= {"environment": dataclasses.asdict(self.environment), "left_out": self.left_out}
        told = [json.dumps(_plain(report), allow_nan=False, default=str) for report in self.reports]
        text = json.dumps(head, indent=1, default=str).removesuffix("\n}")
        path = self.path(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{text},\n "workloads": [\n' + ",\n".join(told) + "\n ]\n}\n", encoding="utf-8")


def load(path: Path) -> Result:
    """The result that a file holds."""
    found = json.loads(path.read_text(encoding="utf-8"))
    where = {**found["environment"], "memory": _of(Memory, found["environment"]["memory"])}
    reports = tuple(map(_report, found["workloads"]))
    return Result(
        found["suite"], found["command"], Environment(**where), found["settings"], reports, tuple(found["left_out"])
    )


def stored(folder: Path = RESULTS) -> Iterator[Result]:
    """Everything that is stored, by card and suite."""
    return map(load, sorted(folder.glob("*/*.json")))


def slower(before: Result, after: Result) -> list[tuple[str, float]]:
    """(label, our time over the one before) of workloads that take longer by more than `SLOWER`, the worst first."""
    known = {report.label: report.seconds(report.ours) for report in before.reports}
    pairs = [(report.label, report.seconds(report.ours), known.get(report.label)) for report in after.reports]
    found = [(label, now / then) for label, now, then in pairs if now and then and now > SLOWER * then]
    return sorted(found, key=lambda one: -one[1])


def _plain(report: Report) -> dict[str, Any]:
    """A report in JSON's types, without what is at its default, and with the best peer and what estimates err by."""
    found = _given(report) | {"rows": [_given(row) for row in report.rows]}
    for name in ("best_peer", "best_ratio", "misjudged"):
        if (value := getattr(report, name)) is not None:
            found[name] = _short(value)
    return found


def _given(one: Any) -> dict[str, Any]:
    return {
        f.name: _short(value)
        for f in dataclasses.fields(one)
        if (value := getattr(one, f.name)) != f.default and value not in (None, (), {}, "")
    }


def _short(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _short(one) for name, one in dataclasses.asdict(value).items()}
    if isinstance(value, tuple):
        return [_short(one) for one in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _report(found: dict[str, Any]) -> Report:
    names = {f.name for f in dataclasses.fields(Report)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if name in names
    }
    given["decisions"] = tuple(Decided(**one) for one in found.get("decisions", ()))
    return Report(**given | {"rows": tuple(map(_row, found["rows"]))})


def _row(found: dict[str, Any]) -> TimedRow:
    timing = _of(Timing, found.get("timing"))
    return TimedRow(**{**found, "status": Status(found["status"]), "timing": timing})


def _of(kind: Any, found: Mapping[str, Any] | None) -> Any:
    return None if found is None else kind(**found)
