"""Forms of a program: each is judged by what the unfused one reaches, and what has no program says why."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.judge import check as checks
from benchmarks.judge import forms
from benchmarks.judge.case import Case
from benchmarks.judge.check import Status, check
from benchmarks.judge.forms import FORMS, Form, Runnable
from corpus import workloads
from tvm_cascade.devices.host import host_target
from tvm_cascade.options import FuseOptions


def case(name: str, **shape: int) -> Case:
    return Case(workloads.get(name).with_shape(**shape), FuseOptions(), host_target(), seed=0)


def scaled(factor: float) -> Form:
    """A form that gives so many times the exact result."""

    def prepare(case: Case) -> Runnable:
        outputs = [(factor * exact).astype(np.float32) for exact in case.exact]
        return Runnable(lambda: None, lambda: outputs)

    return prepare


exact = scaled(1.0)


def checked(rows: dict[str, Form]) -> checks.Checked:
    return check(case("variance", rows=6, length=1009), rows)


def test_a_wrong_default_program_does_not_loosen_the_check() -> None:
    off_by_a_percent = scaled(1.01)
    found = checked({"exact": exact, forms.TVM_DEFAULT: off_by_a_percent, "same": off_by_a_percent})
    assert [row.status for row in found.rows] == [Status.TIMED, Status.WRONG, Status.WRONG]
    assert found.baseline == checks.ORACLE


def test_without_default_code_the_rounded_oracle_is_the_baseline() -> None:
    found = checked({"exact": exact, "impostor": scaled(0.0)})
    assert [row.status for row in found.rows] == [Status.TIMED, Status.WRONG]
    assert found.baseline == checks.ORACLE


def test_a_result_of_another_shape_is_wrong() -> None:
    found = checked({"short": lambda case: Runnable(lambda: None, lambda: [np.zeros(3, np.float32)])})
    assert found.rows[0].status is Status.WRONG and "(3,)" in found.rows[0].note


def test_a_declined_program_has_its_reason_and_a_forced_row(monkeypatch: pytest.MonkeyPatch) -> None:
    decline_everything(monkeypatch)
    rows = {row.name: row for row in check(case("variance", rows=4, length=65), FORMS).rows}
    assert rows[forms.OURS_FUSED].status is Status.ABSENT
    assert rows[forms.OURS_FUSED].note.startswith("declined") and "us unfused" in rows[forms.OURS_FUSED].note
    assert rows[forms.OURS_FORCED].status is Status.TIMED


def test_a_refused_program_has_its_reason_and_no_forced_row() -> None:
    rows = {row.name: row for row in check(case("Q1", tokens=4, columns=8, hidden=16), FORMS).rows}
    assert rows[forms.OURS_FUSED].status is Status.ABSENT
    assert forms.OURS_FORCED not in rows


def decline_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_cascade.transform import fuse_function
    from tvm_cascade.transform.cost import Estimate

    slower = Estimate(2, 1, 0, 0, ns_before=1.0, ns_after=1e12)
    monkeypatch.setattr(fuse_function, "estimate", lambda *_: slower)
