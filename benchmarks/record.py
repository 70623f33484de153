"""Results of a benchmark as plain data; `--json` writes `dataclasses.asdict` of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tvm_cascade.cli.timing import Timing
from tvm_cascade.corpus.check import Row, Status
from tvm_cascade.corpus.forms import OURS_FUSED, OURS_UNFUSED
from tvm_cascade.errors import OptionError


@dataclass(frozen=True)
class TimedRow(Row):
    """A row with its times, where it passed the check."""

    timing: Timing | None = None


R = TypeVar("R", bound=TimedRow)


class Table(Generic[R]):
    """The rows of one workload, looked up by their names."""

    rows: tuple[R, ...]

    def row(self, name: str) -> R | None:
        """The row of that name; None where the table has none."""
        return next((row for row in self.rows if row.name == name), None)

    def timing(self, name: str) -> Timing | None:
        """The timing of a row; None where it has none."""
        row = self.row(name)
        return None if row is None else row.timing

    def seconds(self, name: str) -> float | None:
        """The median of a row; None where it has no time."""
        timing = self.timing(name)
        return None if timing is None else timing.median_s


@dataclass(frozen=True)
class Decided:
    """The verdict of one group of reductions."""

    verdict: str
    code: str
    detail: str
    estimate: str | None


@dataclass(frozen=True)
class Report(Table[TimedRow]):
    """One workload's table.

    Attributes
    ----------
    label, source, shape, dtype : of the workload.
    flops, bytes : useful operations, None where nobody has counted them, and compulsory traffic.
    decisions : one for each group of reductions.
    fuse_seconds : what the pass took.
    baseline : whose error sets what passes (`check.Checked`).
    blind_to : wrong answers that the check would not have caught on this data.
    rows : in the order of the table.
    """

    label: str
    source: str
    shape: Mapping[str, int]
    dtype: str
    flops: int | None
    bytes: int
    decisions: tuple[Decided, ...]
    fuse_seconds: float
    baseline: str | None
    blind_to: tuple[str, ...]
    rows: tuple[TimedRow, ...]

    @property
    def delivered(self) -> str:
        """The row that users get, with which others are compared: fused where fusing was done, else unfused."""
        absent = any(row.name == OURS_FUSED and row.status is Status.ABSENT for row in self.rows)
        return OURS_UNFUSED if absent else OURS_FUSED

    @property
    def sound(self) -> bool:
        """Whether no row is wrong or failed."""
        return not any(row.status in (Status.WRONG, Status.FAILED) for row in self.rows)


def check_files(**files: Path | None) -> None:
    """Raise where something cannot be written, before anything is measured.

    Raises
    ------
    OptionError
        When the file of an option is a folder, or in one that does not exist.
    """
    for option, path in files.items():
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise OptionError("a file in a folder that exists", str(path), f"--{option}")


def write_json(path: Path | None, **found: Any) -> None:
    """Write what was found so far, where there is a file for it."""
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n")
