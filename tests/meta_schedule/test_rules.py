"""After the pass, plain MetaSchedule samples our space alone, and every schedule it samples is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_cascade
from tvm_cascade.bench import workloads
from tvm_cascade.testing import oracle
from tvm_cascade.testing.tolerance import assert_close

pytest.importorskip("xgboost")
pytest.importorskip("psutil")
TARGET = tvm.target.Target({"kind": "llvm", "num-cores": 2})
SHAPE = {"heads": 2, "queries": 32, "keys": 64, "head_dim": 16}


@pytest.fixture(scope="module")
def attention() -> tvm.tirx.PrimFunc:
    return workloads.get("attention").with_shape(**SHAPE).build()


@pytest.fixture(scope="module")
def fused(attention: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    return tvm_cascade.FuseCascadedReductions(tile=32)(tvm.IRModule({"main": attention}))["main"]


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


@pytest.mark.slow
def test_tune_tir_measures_our_designs(attention: tvm.tirx.PrimFunc, fused: tvm.tirx.PrimFunc, tmp_path: Path) -> None:
    from tvm.s_tir import meta_schedule

    database = meta_schedule.tune_tir(
        fused, TARGET, str(tmp_path), max_trials_global=2, num_trials_per_iter=2, seed=1, cost_model="random"
    )
    assert len(database.get_all_tuning_records()) >= 1
    best = meta_schedule.tir_integration.compile_tir(database, fused, TARGET)
    inputs = workloads.get("attention").with_shape(**SHAPE).inputs(np.random.default_rng(0))
    exact = oracle.evaluate(attention, inputs)["out"]
    assert_close(_outputs_of(best.mod["main"], inputs, exact.shape), exact, length=SHAPE["keys"], dtype="float32")


@I.ir_module
class Attention:
    @R.function
    def main(
        q: R.Tensor((2, 32, 16), "float32"), k: R.Tensor((2, 16, 64), "float32"), v: R.Tensor((2, 64, 16), "float32")
    ):
        with R.dataflow():
            scores = R.matmul(q, k)
            weights = R.nn.softmax(scores, axis=-1)
            out = R.matmul(weights, v)
            R.output(out)
        return out


@pytest.mark.slow
def test_relax_tunes_and_applies_the_database(tmp_path: Path) -> None:
    q, k, v = wildcard(), wildcard(), wildcard()
    pattern = is_op("relax.matmul")(is_op("relax.nn.softmax")(is_op("relax.matmul")(q, k)), v)
    group = tvm.transform.Sequential(
        [
            relax.transform.FuseOpsByPattern([("cascade", pattern)], annotate_codegen=False),
            relax.transform.LegalizeOps(),
            relax.transform.FuseTIR(),
            tvm.tir.transform.FuseCascadedReductions(tile=32),
        ]
    )
    module = group(Attention)
    with TARGET:
        tuned = relax.transform.MetaScheduleTuneIRMod(params={}, work_dir=str(tmp_path), max_trials_global=2)(module)
        applied = relax.transform.MetaScheduleApplyDatabase(str(tmp_path))(tuned)
    scheduled = [f for f in applied.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert any("T.parallel" in f.script() for f in scheduled)
    inputs = [
        np.random.default_rng(0).standard_normal(s).astype("float32") for s in ((2, 32, 16), (2, 16, 64), (2, 64, 16))
    ]
    machine = relax.VirtualMachine(tvm.compile(applied, TARGET), tvm.cpu())
    actual = machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()
    scores = inputs[0].astype("float64") @ inputs[1].astype("float64")
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    assert_close(
        actual, weights / weights.sum(-1, keepdims=True) @ inputs[2].astype("float64"), length=64, dtype="float32"
    )
