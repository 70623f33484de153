"""Functions of other lengths: what was measured of one serves those of its kind, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import te
from tvm_ffi import structural_equal

import tvm_cascade
from corpus import workloads
from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.space import Knob, Space
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.options import FuseOptions
from tvm_cascade.tuning.keys import bucket, kind_of
from tvm_cascade.tuning.known import nearby
from tvm_cascade.tuning.records import Records

from .fakes import FakeBuilder, FakeRunner

CPU = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}


@pytest.fixture(scope="module")
def goal() -> Goal:
    return goal_of(resolve_target(CPU), FuseOptions())


def attention(length: int, name: str = "attention", head_dim: int = 64) -> tvm.tirx.PrimFunc:
    return workloads.get(name).with_shape(heads=2, queries=length, keys=length, head_dim=head_dim).build()


def tune(func: tvm.tirx.PrimFunc, folder: Path, **factors: float) -> dict[str, str]:
    """The words that a session finds best where tiles take the estimate times a factor."""

    def factor(task_space: Space) -> FakeRunner:
        tile = next(k for k, knob in enumerate(task_space.knobs) if knob.name == "tile")
        return FakeRunner(lambda design: factors.get(f"t{task_space.knobs[tile].values[design[tile]]}", 1.0))

    space = space_of(func, "main", goal_of(resolve_target(CPU), FuseOptions()))
    report = tvm_cascade.tune(func, CPU, 40, work_dir=folder, builder=FakeBuilder(), runner=factor(space))
    best = report.functions[0].best
    assert best is not None
    return best.words


@pytest.mark.parametrize(("extent", "expected"), [(7, 7), (17, 32), (1000, 1024), (1024, 1024), (1025, 2048)])
def test_a_bucket_ends_at_a_power_of_two(extent: int, expected: int) -> None:
    assert bucket(extent) == expected


def test_the_kind_is_the_fold_the_dtypes_and_the_bucket(goal: Goal) -> None:
    kind = kind_of(attention(1024), goal)
    assert kind_of(attention(1000), goal) == kind_of(attention(997), goal) == kind
    others = [attention(1025), attention(512), attention(1024, "attention_causal"), attention(1024, head_dim=128)]
    others += [workloads.get("softmax").with_shape(rows=1024, length=1024).build()]
    assert kind not in {kind_of(other, goal) for other in others}
    assert kind_of(attention(1024), goal_of(goal.target, FuseOptions(reference="lazy"))) != kind


def test_lengths_that_are_divided_by_are_of_one_kind(goal: Goal) -> None:
    """The mean divides by the length, so that the fold has it as a number."""
    found = [workloads.get("variance").with_shape(rows=16, length=n).build() for n in (1000, 1024, 1025)]
    first, second, other = (kind_of(func, goal) for func in found)
    assert first == second != other


def test_another_length_takes_the_design_that_trials_say(tmp_path: Path) -> None:
    words = tune(attention(1024), tmp_path, t256=0.8)
    assert words["tile"] == "256"
    compiled = tvm_cascade.compile(attention(1000), CPU, database=tmp_path)
    by_hand = tvm_cascade.compile(attention(1000), CPU, tile=256)
    assert "chosen by   a tuning session of" in str(compiled.report) and "1024" in str(compiled.report)
    assert structural_equal(compiled.mod["main"].body, by_hand.mod["main"].body)


def test_a_length_of_another_bucket_is_compiled_as_without_a_database(tmp_path: Path) -> None:
    tune(attention(1024), tmp_path, t256=0.8)
    compiled = tvm_cascade.compile(attention(1025), CPU, database=tmp_path)
    assert "tuning session" not in str(compiled.report)


def test_its_own_record_comes_before_that_of_another_length(tmp_path: Path) -> None:
    tune(attention(1024), tmp_path, t256=0.8)
    tune(attention(1000), tmp_path, t128=0.5)
    compiled = tvm_cascade.compile(attention(1000), CPU, database=tmp_path)
    assert "chosen by   a tuning session of 20" in str(compiled.report)


def test_of_several_lengths_the_nearest_tells(tmp_path: Path, goal: Goal) -> None:
    tune(attention(1024), tmp_path, t256=0.8)
    tune(attention(600), tmp_path, t128=0.5)
    for length, tile in ((1000, "256"), (700, "128")):
        func = attention(length)
        found, space = nearby(Records(tmp_path), func, goal), space_of(func, "main", goal)
        assert found is not None and (design := found.design(space)) is not None
        assert space.words(design)["tile"] == tile


def test_a_design_that_the_length_does_not_have_is_left(tmp_path: Path, goal: Goal) -> None:
    tune(attention(1024), tmp_path, t512=0.1)
    func = attention(600)
    found = nearby(Records(tmp_path), func, goal)
    assert found is not None
    space = space_of(func, "main", goal)
    without = Space((Knob("form", ("fused",)),), space.seconds, space.lower)  # such as a length that has no tiles
    assert found.design(without) is None and "none of its designs" in found.missing


def test_what_is_no_fold_has_a_kind_too(goal: Goal) -> None:
    a, b = (te.placeholder((8, 8), "float32", name=name) for name in "ab")
    func = te.create_prim_func([a, b, te.compute((8, 8), lambda i, j: a[i, j] + b[i, j], name="out")])
    other = te.create_prim_func([a, b, te.compute((8, 8), lambda i, j: a[i, j] * b[i, j], name="product")])
    assert kind_of(func, goal) == kind_of(func, goal) != kind_of(other, goal)
