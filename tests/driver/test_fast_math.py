"""Fast mathematics is a property of each kernel: what is exact stays so beside kernels of half precision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.target import Target

import tvm_cascade
from tvm_cascade.driver import cuda
from tvm_cascade.driver.toolkit import find_nvcc

from ..plan import functions

CUDA = {"kind": "cuda", "arch": "sm_90a"}


def approximated(mod: tvm.IRModule, monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """The kernels of a module, with whether the compiler is told that it may approximate them."""
    told: dict[str, bool] = {}
    generated = cuda.codegen_build

    def record(part: tvm.IRModule, target: Target) -> Any:
        if target.kind.name == "cuda":
            _, options = cuda._THREAD.asked
            told.update({variable.name_hint: "--use_fast_math" in options for variable in part.get_global_vars()})
        return generated(part, target)

    monkeypatch.setattr(cuda, "codegen_build", record)
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


_CODE = """
extern "C" __global__ void kernel(float* x) { x[0] = sinf(x[0]); }
"""


def size_of_code(fast_math: bool) -> int:
    with cuda.cuda_compiler(Target(CUDA), fast_math):
        return len(tvm_ffi.get_global_func("tvm_callback_cuda_compile")(_CODE))


@pytest.mark.skipif(find_nvcc() is None, reason="no CUDA toolkit")
def test_the_compiler_approximates_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing where the environment says so, as TVM reads it. A sine of any argument is long."""
    exact = size_of_code(fast_math=False)
    assert size_of_code(fast_math=True) < 0.8 * exact
    monkeypatch.setenv("TVM_CUDA_NVCC_NO_FAST_MATH", "1")
    assert size_of_code(fast_math=True) == exact


def test_what_others_compile_is_compiled_as_tvm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this thread outside of our compilation, and in another one meanwhile."""
    monkeypatch.setattr(cuda, "_BY_TVM", lambda code: code.encode())
    compile_cuda = tvm_ffi.get_global_func("tvm_callback_cuda_compile")
    with cuda.cuda_compiler(Target(CUDA), fast_math=False), ThreadPoolExecutor(1) as pool:
        assert bytes(pool.submit(compile_cuda, _CODE).result()) == _CODE.encode()
    assert bytes(compile_cuda(_CODE)) == _CODE.encode()
