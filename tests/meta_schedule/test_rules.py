"""After the pass, plain MetaSchedule samples our space alone, and every schedule it samples is right."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

import tvm_cascade
from corpus import workloads
from tvm_cascade.evaluate import oracle
from tvm_cascade.evaluate.tolerance import assert_close

pytest.importorskip("xgboost")
pytest.importorskip("psutil")
TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
SHAPE = {"heads": 1, "queries": 128, "keys": 32, "head_dim": 8}


@pytest.fixture(scope="module")
def attention() -> tvm.tirx.PrimFunc:
    return workloads.get("attention").with_shape(**SHAPE).build()


@pytest.fixture(scope="module")
def fused(attention: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    return tvm_cascade.FuseCascadedReductions(tile=16)(tvm.IRModule({"main": attention}))["main"]


def _outputs_of(func: tvm.tirx.PrimFunc, inputs: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    out = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
    tvm.compile(func, TARGET)["main"](*map(tvm.runtime.tensor, inputs), out)
    return out.numpy()


def test_every_design_and_sample_of_the_default_space_is_right(
    attention: tvm.tirx.PrimFunc, fused: tvm.tirx.PrimFunc
) -> None:
    from tvm.s_tir import meta_schedule

    context = meta_schedule.TuneContext(
        mod=fused, target=TARGET, space_generator="post-order-apply", task_name="main", rand_state=1, num_threads=1
    )
    with TARGET:
        designs = context.generate_design_space()
    assert len(designs) > 1
    inputs = workloads.get("attention").with_shape(**SHAPE).inputs(np.random.default_rng(0))
    exact = oracle.evaluate(attention, inputs)["out"]
    for design in designs:
        sample = tvm.s_tir.Schedule(fused)
        design.trace.apply_to_schedule(sample, remove_postproc=True)
        text = sample.mod["main"].script()
        assert "T.parallel" in text and "T.vectorized" in text
        actual = _outputs_of(sample.mod["main"], inputs, exact.shape)
        assert_close(actual, exact, length=SHAPE["keys"], dtype="float32")


def test_designs_are_for_the_function_s_own_target_before_the_current_one(fused: tvm.tirx.PrimFunc) -> None:
    from tvm_cascade.meta_schedule.rules import schedule_cpu

    narrow, wide = (
        tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu, "num-cores": 2})
        for mcpu in ("nehalem", "skylake-avx512")
    )

    def designs(func: tvm.tirx.PrimFunc, around: tvm.target.Target) -> list[tvm.tirx.PrimFunc]:
        with around:
            found = schedule_cpu(tvm.s_tir.Schedule(func), None)
        return [design.mod["main"].without_attr("target") for design in found]

    current, own = designs(fused, wide), designs(fused.with_attr("target", narrow), wide)
    assert all(map(tvm_ffi.structural_equal, own, designs(fused, narrow)))
    assert not any(map(tvm_ffi.structural_equal, own, current))


def test_frames_of_an_import_are_told_without_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM's parser asks for the stack at each function: a worker that imports its intrinsics would run out of time."""
    (tmp_path / "imported_here.py").write_text("import inspect\nSTACK = inspect.stack()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    stack = importlib.import_module("imported_here").STACK
    assert stack[0].filename == str(tmp_path / "imported_here.py") and stack[0].code_context
    frozen = [frame for frame in stack if frame.filename.startswith("<frozen importlib.")]
    assert frozen and all(frame.code_context is None for frame in frozen)
    for frame in frozen:
        module = inspect.getmodule(frame.frame, frame.filename)
        assert module is not None and frame.filename == f"<frozen {module.__name__}>"


@pytest.mark.parametrize("file", ["<string>", "<stdin>", "<ast>", "<frozen runpy>"])
def test_frames_of_no_file_are_told_without_a_search(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(inspect, "ismodule", lambda one: seen.append(one) or isinstance(one, ModuleType))
    space: dict[str, Any] = {"inspect": inspect}
    exec(compile("frame = inspect.getframeinfo(inspect.currentframe())", file, "exec"), space)
    assert space["frame"].filename == file and space["frame"].code_context is None
    assert len(seen) < 20, "a search asks it of every module"


@pytest.mark.slow  # docs/tuning.md measures one, and every design is checked above
def test_tune_tir_measures_our_designs(attention: tvm.tirx.PrimFunc, fused: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    from tvm.s_tir import meta_schedule

    database = meta_schedule.tune_tir(
        fused,
        TARGET,
        str(tmp_path),
        max_trials_global=1,
        num_trials_per_iter=1,
        seed=1,
        cost_model="random",
        strategy=meta_schedule.search_strategy.EvolutionarySearch(
            population_size=8, init_min_unmeasured=4, genetic_num_iters=1
        ),
        builder=meta_schedule.builder.LocalBuilder(timeout_sec=200),
        runner=meta_schedule.runner.LocalRunner(timeout_sec=200),
    )
    assert len(database.get_all_tuning_records()) >= 1
    best = meta_schedule.tir_integration.compile_tir(database, fused, TARGET)
    inputs = workloads.get("attention").with_shape(**SHAPE).inputs(np.random.default_rng(0))
    exact = oracle.evaluate(attention, inputs)["out"]
    assert_close(_outputs_of(best.mod["main"], inputs, exact.shape), exact, length=SHAPE["keys"], dtype="float32")
