"""Plans and skeletons as knobs: what a session may choose for Hopper, and that it is compiled by its words."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm_ffi import structural_equal

import tvm_cascade
from benchmarks.check.designs import mixed_space
from corpus import workloads
from tvm_cascade.driver.gpu_space import SCHEDULED, UNFUSED, space_of
from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.space import Design, Knob, Space
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.driver.toolkit import find_nvcc
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan import search
from tvm_cascade.plan.plan import Plan
from tvm_cascade.plan.search import MOST_PLANS, MOST_TIMES

from .fakes import FakeBuilder, FakeRunner

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def space_on_hopper(func: tvm.tirx.PrimFunc, **options: object) -> Space:
    return space_of(func, "main", goal_of(resolve_target(HOPPER), FuseOptions.from_environment(**options)))


@pytest.fixture(scope="module")
def decode() -> tvm.tirx.PrimFunc:
    return workloads.get("DC_GQA").build()


@pytest.fixture(scope="module")
def decode_space(decode: tvm.tirx.PrimFunc) -> Space:
    return space_on_hopper(decode)


def design_of(space: Space, **words: str) -> Design:
    """The first design of the list with those values."""
    return next(one for one in space.designs() if words.items() <= space.words(one).items())


def test_the_plan_is_a_knob_from_one_kernel_to_every_reduction_apart(decode_space: Space) -> None:
    plan = decode_space.knobs[0]
    assert plan.name == "plan" and plan.values[:2] == ("out", "logits; probs; out")
    assert len(plan.values) <= MOST_PLANS
    least = decode_space.seconds(decode_space.default)
    for words in plan.values:
        assert decode_space.seconds(design_of(decode_space, plan=words)) <= MOST_TIMES * least


def test_a_design_lowers_to_the_plan_that_its_words_tell(decode_space: Space) -> None:
    for words in decode_space.knobs[0].values[:2]:
        _, lowered = decode_space.lower(design_of(decode_space, plan=words))
        told = lowered.chosen.words if isinstance(lowered.chosen, Plan) else "out"
        assert told == words and len(lowered.steps) == (0 if words == "out" else 3)


def test_only_knobs_of_the_chosen_plan_are_in_a_design(decode_space: Space) -> None:
    apart = design_of(decode_space, plan="logits; probs; out")
    assert set(decode_space.words(apart)) == {"plan", "kernel of logits", "kernel of probs", "kernel of out"}
    designs = decode_space.designs()
    places = [
        (place, knob.is_used(one)) for one in designs for knob, place in zip(decode_space.knobs, one, strict=True)
    ]
    assert all(place == 0 or is_used for place, is_used in places)
    assert len(set(designs)) == len(designs)
    for design in designs[::97]:
        assert decode_space.find(decode_space.words(design)) == design


def test_a_step_may_be_another_skeletons_kernel_or_a_schedule() -> None:
    space = space_on_hopper(workloads.get("softmax").with_shape(rows=64, length=512).build())
    kernels = {knob.values for knob in space.knobs if knob.name.startswith("kernel of")}
    assert any(SCHEDULED in values for values in kernels)
    scheduled = next(one for one in space.designs() if SCHEDULED in space.words(one).values())
    _, lowered = space.lower(scheduled)
    assert "a tuning session chose it" in str(getattr(lowered.chosen, "steps", lowered.chosen))


@pytest.mark.parametrize("force", [False, True])
def test_without_skeletons_a_fused_function_may_be_left_unfused(force: bool) -> None:
    func = workloads.get("softmax").with_shape(rows=64, length=512).build()
    goal = goal_of(resolve_target({"kind": "rocm", "mcpu": "gfx942"}), FuseOptions(force=force))
    space = space_of(func, "main", goal)
    assert [space.words(one).get("kernel of out") for one in space.designs()] == (
        [None] if force else [SCHEDULED, UNFUSED]
    )
    kernels = []
    for design in space.designs():
        outcome, lowered = space.lower(design)
        assert outcome.fused == (design == space.default)
        kernels.append(lowered.func.script().count('"blockIdx.x"'))
    assert force or kernels[0] < kernels[1]


def test_under_force_no_plan_computes_a_cascade_apart(decode: tvm.tirx.PrimFunc) -> None:
    assert space_on_hopper(decode, force=True).knobs[0].values == ("out",)


def test_a_record_whose_plan_is_not_there_is_not_found(decode_space: Space) -> None:
    words = decode_space.words(decode_space.default)
    assert decode_space.find({**words, "plan": "logits; sums; out"}) is None
    assert decode_space.find({"plan": "logits; probs; out", "kernel of out": words["kernel of out"]}) is None
    assert decode_space.find({**words, "kernel of probs": "any"}) is None


def test_the_plan_that_a_session_found_best_is_compiled_and_told(tmp_path: Path) -> None:
    if find_nvcc() is None:
        pytest.skip("no nvcc to compile for Hopper")
    func = workloads.get("variance").build()
    runner = FakeRunner(lambda design: 0.1 if design[0] == 1 else 1.0)
    report = tvm_cascade.tune(func, HOPPER, "all", work_dir=tmp_path, builder=FakeBuilder(), runner=runner)
    (found,) = report.functions
    assert found.best is not None and found.best.words["plan"] == "mean; out"
    assert found.within is not None and found.within > 2.0 and "of the best of all" in str(report)
    (told,) = tvm_cascade.compile(func, HOPPER, database=tmp_path).report.functions
    assert "a plan of 2 steps" in told.lowering and told.design.startswith("a tuning session")


def test_a_session_builds_twelve_designs_at_most_by_default(decode: tvm.tirx.PrimFunc) -> None:
    runner = FakeRunner(lambda design: 4.0 ** (hash(design) % 7 - 3))
    (found,) = tvm_cascade.tune(decode, HOPPER, builder=FakeBuilder(), runner=runner).functions
    assert found.tried == len(runner.asked) == 12 and found.stopped == "all trials" and found.within is None


def space_of_knobs(*knobs: Knob) -> Space:
    return Space(knobs, lambda design: 1.0 + design[0], lambda _design: pytest.fail("nothing is lowered"))


def test_of_equal_estimates_the_first_values_come_first() -> None:
    space = space_of_knobs(Knob("plan", ("a", "b")), Knob("x", ("1", "2", "3"), (0, 0)), Knob("y", ("1", "2"), (0, 1)))
    assert space.designs() == [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 0, 0), (1, 0, 1)]


def test_a_space_that_is_too_large_loses_the_last_values() -> None:
    many = tuple(map(str, range(100)))
    space = space_of_knobs(Knob("plan", ("a", "b")), *(Knob(f"k{n}", many, (0, n // 2)) for n in range(4)))
    found = space.designs()
    assert 3500 < len(found) <= 4096 and {design[0] for design in found} == {0, 1}


def test_mixed_configurations_are_beyond_the_listed_ones_and_are_lowered(
    decode: tvm.tirx.PrimFunc, decode_space: Space
) -> None:
    goal = goal_of(resolve_target(HOPPER), FuseOptions())
    space, lowered = mixed_space(decode, "main", goal, seed=0), 0
    for number, (listed, knob) in enumerate(zip(decode_space.knobs, space.knobs, strict=True)):
        assert knob.values[: len(listed.values)] == listed.values
        for place in range(len(listed.values), len(knob.values)):
            design = [0] * len(space.knobs)
            design[0], design[number] = knob.under[1] if knob.under else 0, place
            space.lower(tuple(design))
            lowered += 1
    assert lowered


def test_a_design_on_record_is_found_without_the_search_for_other_plans(
    decode: tvm.tirx.PrimFunc, decode_space: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal, searched = goal_of(resolve_target(HOPPER), FuseOptions()), list[object]()
    monkeypatch.setattr(search.Search, "alternatives", lambda self: searched.append(self) or [])
    for design in (decode_space.default, design_of(decode_space, plan="out")):
        words = decode_space.words(design)
        replayed = space_of(decode, "main", goal, replayed=[words])
        found = replayed.find(words)
        assert found is not None and not searched and replayed.seconds(found) == decode_space.seconds(design)
        lowered = [space.lower(one)[1].func for space, one in ((replayed, found), (decode_space, design))]
        assert structural_equal(*lowered)
    apart = decode_space.words(design_of(decode_space, plan="logits; probs; out"))
    assert space_of(decode, "main", goal, replayed=[apart]).find(apart) is None and searched
    monkeypatch.undo()
    assert space_of(decode, "main", goal, replayed=[apart]).find(apart) is not None
