"""Relax merges a fused function with what reads it, and drops its attributes: it is known as fused nevertheless."""

from __future__ import annotations

from functools import cache

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script import relax as R

import tvm_cascade
from tvm_cascade.evaluate import tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function
from tvm_cascade.transform.handoff import FUSED

ROWS, LENGTH = 16, 256


@cache
def merged() -> tirx.PrimFunc:
    """relu(softmax(x) − 1/8): the pass before FuseOps and FuseTIR."""
    x, builder = relax.Var("x", R.Tensor((ROWS, LENGTH), "float32")), relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weights = builder.emit(relax.op.nn.softmax(x, -1))
            lower = builder.emit(relax.op.subtract(weights, relax.const(0.125, "float32")))
            out = builder.emit_output(relax.op.nn.relu(lower))
        builder.emit_func_output(out)
    passes = relax.transform
    order = [
        passes.LegalizeOps(), tvm_cascade.FuseCascadedReductions(force=True), passes.AnnotateTIROpPattern(),
        passes.FuseOps(), passes.FuseTIR(),
    ]  # fmt: skip
    module = tvm.transform.Sequential(order)(builder.get())
    (func,) = (func for func in module.functions.values() if isinstance(func, tirx.PrimFunc))
    return func


def test_fuse_tir_drops_the_attribute_of_the_function() -> None:
    assert FUSED not in merged().attrs


def test_the_pass_leaves_it_as_it_is() -> None:
    assert fuse_function(merged(), FuseOptions(force=True)).func.same_as(merged())


def test_explain_tells_of_its_folds() -> None:
    explanation = tvm_cascade.explain(merged())
    assert explanation.fused
    (group,) = explanation.groups
    assert group.buffers == ("T_softmax_maxelem", "T_softmax_expsum")
    assert any(formula.section == "merge" for formula in group.formulas)


def test_compile_gives_it_the_schedule_of_fused_functions() -> None:
    compiled, x = tvm_cascade.compile(merged()), np.random.default_rng(0).standard_normal((ROWS, LENGTH))
    assert "as it is" not in str(compiled.report)
    given, found = x.astype("float32"), np.full((ROWS, LENGTH), np.nan, "float32")
    compiled(given, found)
    weights = np.exp(given.astype("float64") - given.max(1, keepdims=True))
    exact = np.maximum(weights / weights.sum(1, keepdims=True) - 0.125, 0)
    assert tolerance.check(found, exact, length=LENGTH, dtype="float32").ok
