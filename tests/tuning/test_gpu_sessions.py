"""Sessions for a GPU that is not here, by a runner that answers with estimates: order, failures, records, replay."""

from __future__ import annotations

import threading
import warnings
from itertools import pairwise
from pathlib import Path

import pytest
import tvm

import tvm_cascade
from corpus import workloads
from tvm_cascade.driver.space import Design
from tvm_cascade.driver.toolkit import find_nvcc
from tvm_cascade.errors import InputError, OptionError
from tvm_cascade.tuning.report import FunctionTuning
from tvm_cascade.tuning.worker import TrialError

from .fakes import FakeBuilder, FakeRunner

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


@pytest.fixture(scope="module")
def softmax() -> tvm.tirx.PrimFunc:
    return workloads.get("softmax").with_shape(rows=4096).build()


@pytest.fixture(scope="module")
def decode() -> tvm.tirx.PrimFunc:
    return workloads.get("DC_GQA").build()


def tuned(
    func: tvm.tirx.PrimFunc, folder: Path | None, runner: FakeRunner, trials: int = 4, **options: object
) -> FunctionTuning:
    report = tvm_cascade.tune(func, HOPPER, trials, work_dir=folder, builder=FakeBuilder(), runner=runner, **options)
    assert report.functions[0].name in str(report)
    return report.functions[0]


def test_the_default_comes_first_then_designs_by_their_estimates(decode: tvm.tirx.PrimFunc) -> None:
    runner = FakeRunner()
    found = tuned(decode, None, runner, trials=40)
    estimates = [trial.estimate for trial in found.trials if not trial.in_turns]
    assert not any(runner.asked[0])
    assert all(one <= 1.05 * other for one, other in pairwise(estimates))
    assert found.best is not None and found.best.words == found.words and found.gain == 1.0


def test_a_session_ends_where_no_estimate_that_is_left_is_near_the_best(decode: tvm.tirx.PrimFunc) -> None:
    found = tuned(decode, None, FakeRunner(), trials=40)
    assert found.stopped == "no estimate that is left is near the best"
    assert 4 <= found.tried < 36


def test_the_best_measured_design_is_compiled_from_the_database(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    if find_nvcc() is None:
        pytest.skip("no nvcc to compile for Hopper")
    found = tuned(softmax, tmp_path, FakeRunner(lambda design: 0.5 if design[:2] == (0, 2) else 1.0))
    assert found.best is not None and found.default is not None
    assert abs(found.gain * found.best.estimate / (2.0 * found.default.estimate) - 1.0) < 1e-9
    assert found.best.words["plan"] == "out" and "threads=512" in found.best.words["kernel of out"]
    compiled = tvm_cascade.compile(softmax, HOPPER, database=tmp_path)
    (told,) = compiled.report.functions
    assert "of 512 threads" in told.lowering and told.design.startswith("a tuning session of 20")


def test_as_many_designs_run_at_a_time_as_the_runner_has_devices(decode: tvm.tirx.PrimFunc) -> None:
    class Several(FakeRunner):
        batch, meeting = 3, threading.Barrier(3)

        def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
            self.meeting.wait(timeout=30)  # nobody goes on before all three are here
            return super().run(task, design, built, default)

    runner = Several()
    found = tuned(decode, None, runner, trials=6)
    assert found.tried == 6 and not found.failures and len(set(runner.asked)) == 6
    alone = tuned(decode, None, FakeRunner(), trials=6)
    assert found.trials[0].words == alone.trials[0].words == found.words


def test_failures_are_on_record_with_their_reason_and_never_chosen(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    class Failing(FakeRunner):
        def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
            if design[:2] == (0, 1):
                raise TrialError("check", "output 0 is wrong")
            if design[:2] == (0, 2):
                raise TrialError("limit", "the run took more than 1 s")
            return super().run(task, design, built, default)

    tuned(softmax, tmp_path, Failing(), trials=4)
    again = tuned(softmax, tmp_path, FakeRunner(), trials=4)  # read from the file
    assert {(trial.failed, trial.reason) for trial in again.failures} == {
        ("check", "output 0 is wrong"),
        ("limit", "the run took more than 1 s"),
    }
    assert again.best is not None and not again.best.failed


def test_a_session_that_was_interrupted_goes_on(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    class Interrupted(FakeRunner):
        def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
            if len(self.asked) == 2:
                raise KeyboardInterrupt
            return super().run(task, design, built, default)

    first, second, third = Interrupted(), FakeRunner(), FakeRunner()
    with pytest.raises(KeyboardInterrupt):
        tuned(softmax, tmp_path, first)
    found = tuned(softmax, tmp_path, second)
    assert found.known == 2 and found.tried == 4 and not set(first.asked) & set(second.asked)
    assert tuned(softmax, tmp_path, third).tried == 4 and third.asked == []


def test_a_default_that_failed_is_tried_again_by_the_next_session(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    class Crashing(FakeRunner):
        def run(self, task, design, built, default):  # type: ignore[no-untyped-def]
            raise TrialError("crash", "the run ended its process with SIGSEGV")

    first = tuned(softmax, tmp_path, Crashing())
    assert first.best is None and first.stopped.startswith("the default design failed") and first.tried == 1
    again = tuned(softmax, tmp_path, FakeRunner())
    assert again.tried == 4 and again.best is not None and again.default is not None


def test_what_is_damaged_of_a_database_is_left_out(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    tuned(softmax, tmp_path, FakeRunner())
    path = tmp_path / "database_tuning_record.json"
    lines = path.read_text().splitlines()
    path.write_text(
        "\n".join([*lines[:2], lines[2][:100], "no JSON", '[7, ["a record of no workload"]]', lines[3][:-9]])
    )
    runner = FakeRunner()
    with pytest.warns(UserWarning, match=r"4 lines are damaged"):
        found = tuned(softmax, tmp_path, runner)
    assert found.known == 2 and found.tried == 4
    assert (tmp_path / f"{path.name}.damaged-1").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuned(softmax, tmp_path, FakeRunner()).tried == 4


def test_other_options_and_other_devices_are_other_workloads(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    tuned(softmax, tmp_path, FakeRunner(), trials=2)
    assert tuned(softmax, tmp_path, FakeRunner(), trials=2, reference="lazy").known == 0
    assert tuned(softmax, tmp_path, FakeRunner(), trials=2).known > 0


def test_without_the_device_a_runner_is_asked_for(softmax: tvm.tirx.PrimFunc) -> None:
    if tvm.cuda(0).exist:
        pytest.skip("there is a GPU to measure on")
    with pytest.raises(InputError, match="pass `runner`"):
        tvm_cascade.tune(softmax, HOPPER)
    with pytest.raises(InputError, match="a device of kind cuda"):
        tvm_cascade.compile(softmax, HOPPER, tune_trials=2)


@pytest.mark.parametrize("budget", [{"trials": 0}, {"trials": 2.5}, {"seconds": 0.0}])
def test_a_budget_is_a_count_and_a_time(softmax: tvm.tirx.PrimFunc, budget: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        tvm_cascade.tune(softmax, **budget)  # type: ignore[arg-type]


def test_a_design_of_another_release_is_told_of_and_left(softmax: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    from tvm_cascade.driver.lowering import Known, designed, goal_of
    from tvm_cascade.driver.targets import resolve_target
    from tvm_cascade.options import FuseOptions

    goal = goal_of(resolve_target(HOPPER), FuseOptions())
    with pytest.warns(UserWarning, match="no design of this release"):
        found, origins = designed(
            {"main": softmax}, goal, lambda _func, _goal, _sizes: Known([({"kernel of out": "OldConfig()"}, 1.0)], "")
        )
    assert found == {} and "no design of this release" in origins["main"]


def test_kernels_of_a_plan_have_knobs_of_their_own() -> None:
    runner = FakeRunner(lambda design: 0.9 if design[1] == 1 else 1.0)
    found = tuned(workloads.get("normed_rms").build(), None, runner, trials=6)
    assert list(found.words) == ["plan", "kernel of normalised", "kernel of out"]
    best: Design = tuple(int(found.best.words[knob] != found.words[knob]) for knob in found.words)  # type: ignore[union-attr]
    assert best == (0, 1, 0)
