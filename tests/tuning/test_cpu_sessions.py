"""Sessions on this machine's CPU, end to end: built, checked, timed, replayed by another process."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te

import tvm_cascade
import tvm_cascade.tuning.tune as tune
from corpus import workloads
from tvm_cascade.driver.space import Design
from tvm_cascade.tuning import worker
from tvm_cascade.tuning.building import Built, LocalBuilder
from tvm_cascade.tuning.report import FunctionTuning
from tvm_cascade.tuning.running import LocalRunner
from tvm_cascade.tuning.task import Task, space_for
from tvm_cascade.tuning.worker import TrialError, Worker

from ..tiers import slow_but
from .fakes import FakeBuilder, FakeRunner

pytestmark = pytest.mark.usefixtures("kept_workers")

SHAPES = {
    "attention": {"heads": 1, "queries": 64, "keys": 128, "head_dim": 16},
    "softmax": {"rows": 16, "length": 512},
}


def func_of(name: str) -> tvm.tirx.PrimFunc:
    return workloads.get(name).with_shape(**SHAPES[name]).build()


def tuned(name: str, folder: Path, builder: LocalBuilder, runner: LocalRunner, trials: int = 3) -> FunctionTuning:
    report = tvm_cascade.tune(func_of(name), "auto", trials, work_dir=folder, builder=builder, runner=runner)
    return report.functions[0]


def without_addresses(code: str) -> str:
    """LLVM's text without the addresses by which TVM names what may alias."""
    return re.sub(r"0x[0-9a-f]+", "", code)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", slow_but(["softmax"], SHAPES))
def test_another_process_builds_the_same_kernel_from_the_database(
    name: str, tmp_path: Path, builder: LocalBuilder, runner: LocalRunner
) -> None:
    found = tuned(name, tmp_path, builder, runner)
    assert found.tried == 3 and found.default is not None and found.best is not None
    assert not found.failures and found.gain >= 1.0
    here = tvm_cascade.compile(func_of(name), database=tmp_path)
    code = (
        "import sys, tvm_cascade; from corpus import workloads;"
        f"func = workloads.get({name!r}).with_shape(**{SHAPES[name]}).build();"
        f"compiled = tvm_cascade.compile(func, database={str(tmp_path)!r});"
        "sys.stdout.write(compiled.runtime_module.mod.inspect_source('ll'))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert without_addresses(there.stdout) == without_addresses(here.runtime_module.mod.inspect_source("ll"))
    assert "chosen by   a tuning session of 20" in str(here.report)


class Seen(LocalBuilder):
    """Keeps what it was asked to build."""

    def __init__(self) -> None:
        super().__init__(batch=1)
        self.built: list[tuple[Task, Design]] = []

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        self.built += [(task, design) for design in designs]
        return super().build(task, designs, known)


@pytest.mark.parametrize("vector_math", [True, False])
def test_what_is_measured_and_compiled_has_the_same_exponentials(
    vector_math: bool, tmp_path: Path, runner: LocalRunner
) -> None:
    func = func_of("softmax")
    with contextlib.closing(Seen()) as seen:
        tvm_cascade.tune(func, "auto", 2, work_dir=tmp_path, builder=seen, runner=runner, vector_math=vector_math)
    funcs = [space_for(task).lower(design)[1].func for task, design in seen.built]
    assert len(funcs) >= 2 and all(("T.exp(" in one.script()) != vector_math for one in funcs)
    compiled = tvm_cascade.compile(func, database=tmp_path, vector_math=vector_math)
    assert ("exp" in compiled.replaced_math) == vector_math
    assert compiled.report.functions[0].design.startswith("a tuning session of 20")
    assert any(tvm_ffi.structural_equal(compiled.mod["main"], one) for one in funcs)
    (other,) = tvm_cascade.explain(func, database=tmp_path, vector_math=not vector_math).functions
    assert "nothing is on record of this function for this device and these options" in other.design


class Wrong(LocalBuilder):
    """Designs that are not the default become programs that double their input, which takes less time."""

    def __init__(self) -> None:
        super().__init__(batch=1)

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        x = te.placeholder(tuple(SHAPES["softmax"].values()), "float32", name="x")
        doubled = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2, name="out")])
        other = dataclasses.replace(task, func=tvm.ir.save_json(doubled.with_attr("global_symbol", task.name)))
        return [
            super(Wrong, self).build(other if any(design) else task, [() if any(design) else design])[0]
            for design in designs
        ]


def test_a_design_with_wrong_results_is_never_chosen(tmp_path: Path, runner: LocalRunner) -> None:
    with contextlib.closing(Wrong()) as wrong:
        found = tuned("softmax", tmp_path, wrong, runner, trials=2)
    (failure,) = found.failures
    assert failure.failed == "check" and "against float64" in failure.reason
    assert found.best is not None and found.best.words == found.words


class Twins(FakeBuilder):
    """Designs that differ in the rows of a task alone are the same program."""

    def build(self, task: Task, designs: Sequence[Design], known: Collection[int] = ()) -> list[Built | TrialError]:
        return [Built(Path(f"{design}.so"), hash(design[:-1])) for design in designs]


def test_programs_that_are_compared_at_the_end_are_different_ones() -> None:
    fastest = FakeRunner(lambda design: 0.5 if not any(design[:-1]) else 1.0)
    report = tvm_cascade.tune(func_of("softmax"), trials=5, builder=Twins(), runner=fastest)
    trials = report.functions[0].trials
    assert sum(trial.same for trial in trials) >= 3, "more of the fastest program than are compared"
    compared = [trial.words for trial in trials if trial.in_turns]
    assert len(compared) == 3 and compared[0] == report.functions[0].words


def test_data_of_programs_that_choose_are_whole_numbers(builder: LocalBuilder, runner: LocalRunner) -> None:
    router = workloads.get("R1").cpu
    report = tvm_cascade.tune(router.build(), trials=2, builder=builder, runner=runner)
    assert not report.functions[0].failures


def test_what_hangs_is_cut_off_and_what_crashes_is_told_of() -> None:
    with contextlib.ExitStack() as stack:
        one = Worker("run")
        stack.callback(one.stop)
        with pytest.raises(TrialError, match="limit: the run took more than 1 s"):
            one.call("time:sleep", 60, seconds=1.0)
        with pytest.raises(TrialError, match="crash: the run ended its process with SIGABRT"):
            one.call("os:abort", seconds=30.0)
        with pytest.raises(TrialError, match="run: ValueError: math domain error"):
            one.call("math:sqrt", -1.0, seconds=30.0)
        assert one.call("math:sqrt", 4.0, seconds=30.0) == 2.0


def test_threads_are_not_bound_to_cores_that_we_may_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(worker, "core_count", lambda: 2)
    assert worker._threads() == {"TVM_BIND_THREADS": "0"}
    monkeypatch.setattr(worker, "core_count", lambda: 16)
    assert worker._threads() == {}


def test_compile_tunes_first_and_gives_right_results(
    builder: LocalBuilder, runner: LocalRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "LocalBuilder", lambda: builder)
    monkeypatch.setattr(tune, "LocalRunner", lambda: runner)
    func = func_of("softmax")
    compiled = tvm_cascade.compile(func, tune_trials=2)
    x = np.random.default_rng(0).standard_normal((16, 512)).astype("float32")
    out = np.zeros_like(x)
    compiled(x, out)
    from tvm_cascade.evaluate import oracle
    from tvm_cascade.evaluate.tolerance import assert_close

    assert_close(out, oracle.evaluate(func, [x])["out"], length=512, dtype="float32")


def test_the_command_line_tunes_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tvm_cascade.cli import main

    command = ["tune", "softmax", "--shape", "rows=16", "length=512", "--trials", "2", "--work-dir", str(tmp_path)]
    assert main(command) == 0
    assert "(chosen)" in (first := capsys.readouterr().out)
    assert main([*command, "--json", str(tmp_path / "trials.json")]) == 0
    assert "2 designs tried" in first and '"gain"' in (tmp_path / "trials.json").read_text()


def test_every_design_is_tried_when_all_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvm_cascade.cli import main
    from tvm_cascade.cli import tune as command_line

    monkeypatch.setattr(command_line, "LocalBuilder", lambda batch: FakeBuilder())
    monkeypatch.setattr(command_line, "LocalRunner", FakeRunner)
    command = ["tune", "softmax", "--shape", "rows=4", "length=32", "--trials", "all", "--work-dir", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "no design is left" in printed and re.search(
        r"the best of 12 trials takes \d\.\d+ of the best of all", printed
    )
    with pytest.raises(SystemExit):
        main([*command[:-4], "--trials", "most"])
