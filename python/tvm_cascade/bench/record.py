"""What a benchmark found, as plain data: `dataclasses.asdict` of it is what `--json` writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tvm_cascade.bench.peers import OURS_FUSED, OURS_UNFUSED
from tvm_cascade.bench.timing import Timing


class Status(str, Enum):
    """How a row came out."""

    TIMED = "timed"
    ABSENT = "not available"
    WRONG = "WRONG"
    FAILED = "FAILED"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Row:
    """One way to compute a workload.

    Attributes
    ----------
    name, status : of the row.
    note : why there is no time, or what is to be known about it.
    timing : only of rows that passed the check.
    max_error, allowed : the largest scaled error against the float64 oracle, and what passes (`evaluate.tolerance`);
        no error where non-finite elements differ.
    temporary_bytes : temporaries: what the program, as it runs, allocates besides inputs and outputs; None where that
        is not known.
    """

    name: str
    status: Status
    note: str = ""
    timing: Timing | None = None
    max_error: float | None = None
    allowed: float | None = None
    temporary_bytes: int | None = None


@dataclass(frozen=True)
class Decided:
    """What fusing said of one group of reductions."""

    verdict: str
    code: str
    detail: str
    estimate: str | None


@dataclass(frozen=True)
class Report:
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
    rows: tuple[Row, ...]

    def timing(self, name: str) -> Timing | None:
        """The timing of a row; None where it has none."""
        return next((row.timing for row in self.rows if row.name == name), None)

    def seconds(self, name: str) -> float | None:
        """The median of a row; None where it has no time."""
        timing = self.timing(name)
        return None if timing is None else timing.median_s

    @property
    def delivered(self) -> str:
        """The row that users get, and others are compared with: fused, but unfused where fusing was not done."""
        absent = any(row.name == OURS_FUSED and row.status is Status.ABSENT for row in self.rows)
        return OURS_UNFUSED if absent else OURS_FUSED

    @property
    def sound(self) -> bool:
        """Whether no row is wrong or failed."""
        return not any(row.status in (Status.WRONG, Status.FAILED) for row in self.rows)
