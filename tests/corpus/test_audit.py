"""RedFuser's 52 rows and Neptune's ten operators: fused into one loop and right, or refused with numbers that show why.

At small sizes here; `python -m benchmarks.check` runs the same at the published lengths and on every named input.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from benchmarks.check import __main__ as check
from benchmarks.check.__main__ import published
from benchmarks.check.audit import Audit, audit, audits, checkable
from corpus import workloads
from tvm_cascade.cli.jobs import GivenFunction
from tvm_cascade.evaluate import oracle

from ..tiers import slow_but

KINDS = ("normal", "late_spike", "neg_inf_first_segment")
PUBLISHED = published()
QUANTISED = [name for name in PUBLISHED if name.startswith("Q")]


@pytest.fixture(scope="module")
def table() -> dict[str, list[Audit]]:
    found: dict[str, list[Audit]] = {}
    for row in audits(map(workloads.get, PUBLISHED), small=True, kinds=KINDS):
        found.setdefault(row.name, []).append(row)
    return found


@pytest.mark.slow
def test_rows_checked_by_processes_are_those_of_this_one_in_order(table: dict[str, list[Audit]]) -> None:
    names = ["V2", "Q1", "V1", "V2"]
    given = GivenFunction("mine", "mine.py", workloads.get("softmax").cpu.build())
    *rows, mine = audits([*map(workloads.get, names), given], small=True, kinds=KINDS, processes=2)
    assert [row.name for row in rows] == ["V2", "Q1", "Q1", "V1", "V2"]
    assert (mine.name, mine.verdict, mine.ok) == ("mine", "fused", True)
    told = [(row.verdict, row.code, row.loops_after, row.problems) for row in rows]
    assert told == [(r.verdict, r.code, r.loops_after, r.problems) for name in names for r in table[name]]


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_it_is_fused_and_right_or_refused_for_a_reason_that_holds(name: str, table: dict[str, list[Audit]]) -> None:
    for row in table[name]:
        assert row.problems == ()
        assert row.worst is not None
        assert 0.0 < row.worst.fused_error <= row.worst.allowed
    *refused, fused = table[name]
    assert (fused.verdict, fused.code, fused.loops_after) == ("fused", "fold", 1)
    assert fused.passes_before is not None and fused.passes_before > 1 and fused.components > 1
    assert [row.code for row in refused] == (["rounding"] if name in QUANTISED else [])
    assert bool(fused.rescaled) == (name in QUANTISED)


def test_a_sum_of_what_was_rounded_at_another_scale_is_not_the_sum() -> None:
    """What the refusal of Q1 claims, by ml_dtypes' own rounding: 448·x/absmax at two scales."""
    row = audit(workloads.get("Q1").cpu, ("normal",))
    number = r"(-?[\d.e+]+)"
    said = re.search(
        rf"x = {number}: .* at absmax = {number} and moved to absmax = {number} it is {number}, rounded there it is "
        rf"{number}$",
        row.counterexample,
    )
    assert row.verdict == "refused" and said is not None
    element, first, second, moved_said, right_said = map(float, said.groups())
    assert abs(element) <= min(first, second)
    before, right = (float(np.float32(element * 448 / of).astype(ml_dtypes.float8_e4m3fn)) for of in (first, second))
    moved = before * first / second
    assert abs(moved - moved_said) < 1e-3 * abs(moved) and right == right_said
    assert moved_said != right_said


def test_only_what_repeats_the_cascade_is_cut_down() -> None:
    cut = {"batch", "heads", "kv_heads", "queries", "tokens", "columns", "rows"}
    for name in PUBLISHED:
        job, sized = workloads.get(name), checkable(workloads.get(name))
        changed = {extent for extent, size in job.shape.items() if sized.shape[extent] != size}
        assert changed <= (cut | {"keys"} if name == "PF_WINDOWED" else cut)
        if "kv_heads" in job.shape:
            assert sized.shape["heads"] // sized.shape["kv_heads"] == job.shape["heads"] // job.shape["kv_heads"]
    window = checkable(workloads.get("PF_WINDOWED")).shape
    assert window["keys"] > window["window"] == 4096


def wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """The row of a workload whose fused program is compiled with its last input halved."""
    from tvm_cascade.accuracy.numerics import Subject

    run = Subject.run

    def spoilt(self: Subject, compiled: object, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
        given = [*arrays[:-1], arrays[-1] / 2] if compiled is self.fused else arrays
        return run(self, compiled, [np.ascontiguousarray(a, b.dtype) for a, b in zip(given, arrays, strict=True)])

    monkeypatch.setattr(Subject, "run", spoilt)
    return audit(workloads.get(name).cpu, ("normal",))


@pytest.mark.parametrize("name", ["V1", "R1", "DC_ALIBI"])
def test_a_wrong_program_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = wrong(name, monkeypatch)
    assert not row.ok and any("not close" in problem for problem in row.problems)


def test_of_a_product_alone_no_fused_loop_is_asked() -> None:
    row = audit(workloads.get("product").cpu, ("normal",))
    assert row.ok and not row.problems and row.worst is not None


def test_indices_are_right_where_their_keys_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halved logits keep their order: the shares are wrong, and the experts are right."""
    row = wrong("R1", monkeypatch)
    assert all("expert_weights" in problem for problem in row.problems)


def test_what_the_unfused_program_loses_shows_nothing_and_is_told() -> None:
    """A late spike makes both softmaxes one point, and the divergence the rounding error of a logarithm."""
    row = audit(workloads.get("kl_divergence").cpu, ("late_spike",))
    assert row.ok and row.worst is not None and row.worst.input == "normal"
    ((kind, output, error),) = row.blind
    assert (kind, output) == ("late_spike", "out") and error > 0.1


@pytest.mark.parametrize(
    ("name", "loops"), [("softmax", 2), ("cross_entropy", 1), ("softmax_stats", 1), ("logsumexp", 1)]
)
def test_outputs_along_the_axis_and_indices_into_it_are_checked(name: str, loops: int) -> None:
    row = audit(workloads.get(name).cpu, ("normal", "tiny"))
    assert row.problems == () and row.loops_after == loops


@pytest.mark.parametrize("name", slow_but(["softmax_stats"], workloads.names(source="tvm-cascade")))
def test_every_other_workload_is_fused_and_right_as_well(name: str) -> None:
    row = audit(workloads.get(name).cpu, (*KINDS, "tiny", "denormals"))
    assert row.problems == () and row.verdict == "fused"


def test_a_control_that_changes_nothing_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = oracle.evaluate

    def nothing_left_out(func: object, arrays: object, **how: object) -> object:
        return whole(func, arrays, **{**how, "left_out": None})  # type: ignore[arg-type]

    monkeypatch.setattr(oracle, "evaluate", nothing_left_out)
    row = audit(workloads.get("softmax").cpu, ("normal",))
    assert row.problems == ("the check of out cannot tell a segment that is left out",)


def test_one_row_that_cannot_be_checked_stops_nothing() -> None:
    def broken(shape: object, precision: object) -> object:
        raise ValueError("no such program")

    names = [workloads.get("V1").cpu, dataclasses.replace(workloads.get("V2").cpu, builder=broken)]
    found = list(audits([*names, workloads.get("V3").cpu], small=True))
    assert [row.ok for row in found] == [True, False, True]
    assert found[1].problems == ("ValueError: no such program",) and found[1].worst is None


def test_what_cannot_be_told_apart_is_a_problem() -> None:
    constant = dataclasses.replace(workloads.get("V3").cpu, name="flat", builder=_flat)
    row = audit(constant, ("normal",))
    assert any("cannot tell" in problem for problem in row.problems)


def _flat(shape: dict[str, int], precision: object) -> object:
    from corpus.programs import moments

    program = moments.variance(shape, precision)  # type: ignore[arg-type]
    (argument,) = program.arguments
    ones = dataclasses.replace(argument, draw=lambda rng, extents, kind: np.ones(extents, np.float32))
    return dataclasses.replace(program, arguments=(ones,))


def test_the_command_prints_a_table_its_sizes_and_a_summary(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    assert check.main(["V1", "Q1", "--small", "--inputs", "normal", "--json", str(path)]) == 0
    told = capsys.readouterr().out
    assert "length 8192 → 4096" in told and "Q1 *" in told and "refused, as Q1" in told
    assert "2 programs: 1 fused, 1 refused with a counterexample (1 of them fuse" in " ".join(told.split())
    rows = json.loads(path.read_text())["rows"]
    assert [(row["name"], row["verdict"], row["ok"]) for row in rows] == [
        ("V1", "fused", True),
        ("Q1", "refused", True),
        ("Q1", "fused", True),
    ]


def test_the_command_fails_where_a_row_is_not_sound(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsound(*_: object) -> Iterator[Audit]:
        yield dataclasses.replace(audit(workloads.get("V1").cpu, ("normal",)), problems=("2 loops over the axis",))

    monkeypatch.setattr("benchmarks.check.__main__.audits", unsound)
    assert check.main(["V1"]) == 1
    assert "V1: 2 loops over the axis" in capsys.readouterr().out


def test_an_unknown_workload_is_bad_input() -> None:
    assert check.main(["V9"]) == 2
