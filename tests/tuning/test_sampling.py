"""Designs drawn at random: each is right, or told of with its reason; a wrong one fails the command."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from benchmarks.check import __main__ as check
from benchmarks.check import designs
from benchmarks.check.designs import Sample, samples
from corpus import workloads
from tvm_cascade.driver.space import Design, Knob, Space
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.errors import InputError
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning.building import Built, LocalBuilder
from tvm_cascade.tuning.running import LocalRunner
from tvm_cascade.tuning.task import Task, task_of
from tvm_cascade.tuning.worker import TrialError

from .fakes import FakeBuilder
from .test_cpu_sessions import SHAPES, Wrong

pytestmark = pytest.mark.usefixtures("kept_workers")


def task_in(folder: Path) -> Task:
    func = workloads.get("softmax").with_shape(**SHAPES["softmax"]).build()
    return task_of("softmax", func, resolve_target("auto"), FuseOptions(), folder / "task")


def drawn(folder: Path, count: int, builder: LocalBuilder | FakeBuilder, runner: LocalRunner | None) -> list[Sample]:
    return list(samples(task_in(folder), count, random.Random(0), builder, runner))


def test_every_design_can_be_drawn_and_none_beside() -> None:
    knobs = (Knob("form", ("a", "b")), Knob("tile", ("1", "2", "3"), (0, 0)), Knob("rows", ("8", "16")))
    space, rng = Space(knobs, lambda _design: 0.0, lambda _design: pytest.fail()), random.Random(0)
    assert {designs.drawn(space, rng) for _ in range(200)} == set(space.designs())


def test_designs_drawn_at_random_are_different_and_right(
    tmp_path: Path, builder: LocalBuilder, runner: LocalRunner
) -> None:
    found = drawn(tmp_path, 4, builder, runner)
    assert [one.outcome for one in found] == ["right"] * 4
    assert len({tuple(one.words.items()) for one in found}) == 4


def test_a_wrong_design_is_told_of_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(designs, "MixedBuilder", lambda batch: Wrong())
    file, told = tmp_path / "given.py", tmp_path / "told.json"
    build = f"workloads.get('softmax').with_shape(**{SHAPES['softmax']}).build()"
    file.write_text(f"from corpus import workloads\nsoftmax = {build}\n")
    assert check.main([str(file), "--designs", "2", "--json", str(told)]) == 1
    found = json.loads(told.read_text())["designs"]
    wrong = [one for one in found if one["outcome"] == "wrong"]
    assert wrong and all(one["stage"] == "check" and "against float64" in one["reason"] for one in wrong)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"check: {' '.join(wrong[0]['reason'].split())}" in printed and f"{len(wrong)} wrong" in printed


class Unbuildable(FakeBuilder):
    """Every other design needs more registers than there are, each another number."""

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        (design,) = designs
        if sum(design) % 2:
            return [TrialError("build", f"{100 + design[-1]} registers of 99")]
        return super().build(task, designs)


def test_a_design_that_cannot_be_built_is_discarded_with_its_reason(tmp_path: Path) -> None:
    found = drawn(tmp_path, 12, Unbuildable(), None)
    assert {one.outcome for one in found} == {"built", "discarded"}
    assert all("registers of 99" in one.reason for one in found if one.outcome == "discarded")
    assert "there is no such device here" in designs.summary(found)


class Prepared(LocalRunner):
    """Makes no data, as `prepare` makes no exact results of what is too large."""

    def prepare(self, task: Task, inputs: object) -> None:
        pass


def test_what_numpy_does_not_compute_in_seconds_is_not_checked(tmp_path: Path) -> None:
    task = task_in(tmp_path)
    with pytest.raises(InputError, match="float64 in NumPy computes in seconds"):
        next(samples(task, 1, random.Random(0), FakeBuilder(), Prepared()))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["V1", "--designs", "0"], "1 design or more"),
        (["V1", "--target", "cuda"], "--target with --designs"),
        (["--catalogue", "--designs", "2"], "--designs, or --catalogue"),
        (["V1", "--designs", "2", "--inputs", "ties"], "--designs, or --catalogue"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(arguments) == 2
    assert expected in capsys.readouterr().err
