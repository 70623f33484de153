"""A Relax module tuned and rebuilt: records of our space are found again and applied, and the program stays right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_cascade
from tvm_cascade.evaluate.tolerance import assert_close

pytest.importorskip("xgboost")
pytest.importorskip("psutil")
TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
SHAPE = (1, 32, 2, 16)  # batch, positions, heads, features


@pytest.fixture(scope="module")
def unfused() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    q, k, v = (relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in "qkv")
    with builder.function("main", [q, k, v]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.nn.attention(q, k, v))
        builder.emit_func_output(output)
    return relax.transform.LegalizeOps()(builder.get())


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.einsum("bihd,bjhd->bhij", *(x.astype("float64") for x in (q, k))) / np.sqrt(SHAPE[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v)


def test_a_record_of_our_space_is_applied_to_the_module(unfused: tvm.IRModule, tmp_path: Path) -> None:
    from tvm.s_tir import meta_schedule

    fused = tvm_cascade.FuseCascadedReductions(force=True)(unfused)
    (task,) = (t for t in meta_schedule.relax_integration.extract_tasks(fused, TARGET) if t.task_name == "attention")
    (dispatched,) = task.dispatched
    context = meta_schedule.TuneContext(
        mod=dispatched, target=TARGET, space_generator="post-order-apply", rand_state=1, num_threads=1
    )
    with TARGET:
        design = context.generate_design_space()[0]
    database = meta_schedule.database.JSONDatabase(work_dir=str(tmp_path))
    record = meta_schedule.database.TuningRecord(
        design.trace,
        database.commit_workload(dispatched),
        [1e-3],
        TARGET,
        meta_schedule.arg_info.ArgInfo.from_entry_func(dispatched, remove_preproc=True),
    )
    database.commit_tuning_record(record)

    with TARGET:
        applied = relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(fused)
        machine = relax.VirtualMachine(relax.build(applied, TARGET), tvm.cpu())
    _is_ours_and_right(applied, machine)


@pytest.mark.slow  # TVM's evolution makes 512 schedules a step
def test_relax_passes_tune_and_apply_our_space(unfused: tvm.IRModule, tmp_path: Path) -> None:
    fused = tvm_cascade.FuseCascadedReductions(force=True)(unfused)
    with TARGET, tvm.transform.PassContext(opt_level=3):
        relax.transform.MetaScheduleTuneIRMod(params={}, work_dir=str(tmp_path), max_trials_global=1)(fused)
        applied = relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(fused)
        machine = relax.VirtualMachine(relax.build(applied, TARGET), tvm.cpu())
    _is_ours_and_right(applied, machine)


def _is_ours_and_right(applied: tvm.IRModule, machine: relax.VirtualMachine) -> None:
    assert "T.parallel" in applied["attention"].script() and "T.vectorized" in applied["attention"].script()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(SHAPE).astype("float32") for _ in range(3)]
    found = machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()
    assert_close(found, attention(*inputs), length=SHAPE[1], dtype="float32")
