"""Checks each form of a case against the float64 oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from numpy.typing import NDArray

from benchmarks.judge.case import Case
from benchmarks.judge.forms import OURS_FORCED, TVM_DEFAULT, Absent, Form, Runnable
from benchmarks.judge.power import rejects
from tvm_cascade.errors import OracleError
from tvm_cascade.evaluate import tolerance
from tvm_cascade.evaluate.tolerance import Comparison

Array = NDArray[Any]

_LONGEST_MESSAGE = 300


class Status(str, Enum):
    """The outcome of a row."""

    TIMED = "timed"
    ABSENT = "not available"
    WRONG = "WRONG"
    FAILED = "FAILED"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Row:
    """One way to compute a program.

    Attributes
    ----------
    name, status : of the row.
    note : why nothing ran, or what is wrong.
    max_error, allowed : the largest scaled error against the float64 oracle, and what passes (`evaluate.tolerance`);
        no error where non-finite elements differ.
    temporary_bytes : temporaries: what the program, as it runs, allocates besides inputs and outputs; None where that
        is not known.
    """

    name: str
    status: Status
    note: str = ""
    max_error: float | None = None
    allowed: float | None = None
    temporary_bytes: int | None = None


R = TypeVar("R", bound=Row)


def judged(row: R, found: Comparison) -> R:
    """The row with its error, and as WRONG where it does not pass."""
    return replace(
        row,
        status=Status.TIMED if found.ok else Status.WRONG,
        note="" if found.ok else found.message,
        max_error=finite(found.max_error),
        allowed=found.allowed,
    )


def finite(error: float) -> float | None:
    """The error where it is a number: JSON has no infinity."""
    return error if math.isfinite(error) else None


def told(error: Exception) -> str:
    """Why a row failed, on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:_LONGEST_MESSAGE]}"


ORACLE = "oracle, each stage rounded"
"""The baseline where TVM's default code is missing or wrong."""


@dataclass(frozen=True)
class Checked:
    """The rows of a case, without times.

    Attributes
    ----------
    rows : in the order of the table; those that passed have the status `TIMED`.
    runnable : the programs that passed, by the names of their rows.
    baseline : whose error sets what passes: a row, or `ORACLE`; None where nothing could be checked.
    blind_to : wrong answers that the check would not have caught on this data.
    """

    rows: tuple[Row, ...]
    runnable: Mapping[str, Runnable]
    baseline: str | None
    blind_to: tuple[str, ...]


def check(case: Case, forms: Mapping[str, Form]) -> Checked:
    """Prepare, run and judge every row. Where the oracle cannot evaluate the program, no row is run.

    What passes is set by what the unfused program reaches at the same dtypes (`evaluate.tolerance`). That is TVM's
    default code, which is itself judged against the oracle with every stage rounded; where it is missing or wrong, it
    is that oracle.
    """
    try:
        baseline: Sequence[Array] = case.rounded
    except OracleError as error:
        return _unchecked(forms, f"there is no oracle: {error.where} holds {error.found}")
    name = ORACLE
    attempts = {row: attempt for row, form in forms.items() if (attempt := _attempt(case, row, form)) is not None}
    if TVM_DEFAULT in attempts:
        attempts[TVM_DEFAULT] = default = _judged(case, attempts[TVM_DEFAULT], baseline)
        if default.passed:
            baseline, name = default.outputs, TVM_DEFAULT
    for row in attempts.keys() - {TVM_DEFAULT}:
        attempts[row] = _judged(case, attempts[row], baseline)
    return Checked(
        rows=tuple(attempt.row for attempt in attempts.values()),
        runnable={row: a.program for row, a in attempts.items() if a.program is not None and a.passed},
        baseline=name,
        blind_to=_blind_to(case, baseline),
    )


def _unchecked(forms: Mapping[str, Form], reason: str) -> Checked:
    rows = tuple(Row(name, Status.ABSENT, reason) for name in forms if name != OURS_FORCED)
    return Checked(rows, {}, None, ())


@dataclass(frozen=True)
class _Attempt:
    """A row, with its program and the outputs of its first run where there are any."""

    row: Row
    program: Runnable | None = None
    outputs: Sequence[Array] = ()

    @property
    def passed(self) -> bool:
        return self.row.status is Status.TIMED


def _attempt(case: Case, name: str, form: Form) -> _Attempt | None:
    try:
        program = form(case)
        if program is None:
            return None
        if isinstance(program, Absent):
            return _Attempt(Row(name, Status.ABSENT, program.reason))
        program.call()
        outputs = tuple(output.copy() for output in program.outputs())
    except Exception as error:  # one program that does not build or run must not hide the others
        return _Attempt(Row(name, Status.FAILED, told(error)))
    return _Attempt(Row(name, Status.TIMED, temporary_bytes=program.temporary_bytes), program, outputs)


def _judged(case: Case, attempt: _Attempt, baseline: Sequence[Array]) -> _Attempt:
    """The attempt with its errors, and as WRONG where it does not pass."""
    if attempt.program is None:
        return attempt
    if [output.shape for output in attempt.outputs] != [exact.shape for exact in case.exact]:
        found = ", ".join(str(output.shape) for output in attempt.outputs)
        return replace(attempt, row=replace(attempt.row, status=Status.WRONG, note=f"outputs of shape {found}"))
    columns = zip(attempt.outputs, case.exact, baseline, case.output_dtypes, strict=True)
    worst = tolerance.worst(
        tolerance.check(actual, exact, unfused, length=case.length, dtype=dtype)
        for actual, exact, unfused, dtype in columns
    )
    return replace(attempt, row=judged(attempt.row, worst))


def _blind_to(case: Case, baseline: Sequence[Array]) -> tuple[str, ...]:
    return tuple(
        mutant
        for exact, unfused, dtype in zip(case.exact, baseline, case.output_dtypes, strict=True)
        for mutant in rejects(exact, case.length, dtype, baseline=unfused)
    )
