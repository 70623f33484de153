"""Fast mathematics is a property of each kernel: what is exact stays so beside kernels of half precision."""

from __future__ import annotations

import os
from typing import Any

import pytest
import tvm
from tvm import te, tirx
from tvm.target import Target

import tvm_cascade
from tvm_cascade.driver import cuda_compiler

from ..plan import functions

CUDA = {"kind": "cuda", "arch": "sm_90a"}


def approximated(mod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """The kernels of a module, with whether the compiler is told that it may approximate them."""
    told: dict[str, bool] = {}
    generated = cuda_compiler.codegen_build

    def record(part: tvm.IRModule, target: Target) -> Any:
        if target.kind.name == "cuda":
            exact = os.environ.get("TVM_CUDA_NVCC_NO_FAST_MATH") == "1"
            told.update({variable.name_hint: not exact for variable in part.get_global_vars()})
        return generated(part, target)

    monkeypatch.setattr(cuda_compiler, "codegen_build", record)
    tvm_cascade.compile(mod, CUDA)
    return told


def mapped(dtype: str, value: Any) -> tirx.PrimFunc:
    x = te.placeholder((512,), dtype, name="x")
    return te.create_prim_func([x, te.compute((512,), lambda i: value(x[i]), name="out")])


def test_a_float32_kernel_beside_kernels_of_half_precision_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc's fast mathematics would take its subnormal numbers for zero."""
    mod = tvm.IRModule({"half": functions.attention(), "single": mapped("float32", lambda x: x + x)})
    assert approximated(mod, monkeypatch) == {"half_kernel": True, "single_kernel": False}


def test_kernels_of_one_plan_are_approximated_or_not_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the dtypes of what they read and store: float32 results, a kernel amid others, and none of either."""
    told = approximated(tvm.IRModule({"main": functions.symmetrised()}), monkeypatch)
    assert told == {"main_0_kernel": False, "main_1_kernel": False}
    told = approximated(tvm.IRModule({"main": functions.quantised()}), monkeypatch)
    assert told == {"main_0_kernel": True, "main_1_kernel": False, "main_2_kernel": True}
    told = approximated(tvm.IRModule({"main": functions.feed_forward()}), monkeypatch)
    assert told == {"main_0_kernel": True, "main_1_kernel": True}


@pytest.mark.parametrize(("name", "fast"), [("exp", True), ("tanh", True), ("sin", False), ("cos", False)])
def test_functions_whose_approximations_have_no_bound_are_exact(
    name: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = getattr(te, name)
    mod = tvm.IRModule({"main": mapped("float16", lambda x: function(x.astype("float32")).astype("float16"))})
    assert approximated(mod, monkeypatch) == {"main_kernel": fast}


def test_a_function_that_is_scheduled_already_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = tvm.s_tir.Schedule(mapped("float16", lambda x: x + x))
    (loop,) = schedule.get_loops(schedule.get_sblock("out"))
    schedule.bind(loop, "threadIdx.x")
    assert approximated(schedule.mod, monkeypatch) == {"main_kernel": False}
