"""A function for a CUDA GPU: a tensor-core kernel where its fold has the shape, an S-TIR schedule elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator

import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.float8 import round_float8
from tvm_cascade.schedule.gpu import schedule_gpu
from tvm_cascade.schedule.gpu_serial import launch_opaque
from tvm_cascade.tile.build import Kernel
from tvm_cascade.tile.select import select_kernel
from tvm_cascade.transform.fuse_function import Outcome

_COMPILER = "TVM_CUDA_COMPILE_MODE"


def lower_cuda(outcome: Outcome, name: str, target: Target, options: FuseOptions) -> tuple[tirx.PrimFunc, Kernel | str]:
    """A function for a CUDA target as it goes into code generation; and its tensor-core kernel, or why it has none.

    Parameters
    ----------
    outcome : what the pass made of it.
    name : its own name.
    target : a CUDA target with its architecture.
    options : see `FuseOptions`.
    """
    chosen = select_kernel(outcome, name, str(target.attrs["arch"]), options)
    if isinstance(chosen, Kernel):
        return chosen.func, chosen
    mod = tvm.ir.load_json(tvm.ir.save_json(tvm.IRModule({"main": round_float8(outcome.func)})))
    schedule = s_tir.Schedule(mod)  # over a copy: a Schedule may write into the function that it was given
    schedule_gpu(schedule, target)
    return launch_opaque(schedule.mod["main"]), chosen


@contextlib.contextmanager
def cuda_compiler() -> Iterator[None]:
    """TVM compiles CUDA with NVRTC unless it is told; where the bindings for that are missing, nvcc does it."""
    missing = importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None
    if _COMPILER in os.environ or not missing or shutil.which("nvcc") is None:
        yield
        return
    os.environ[_COMPILER] = "nvcc"
    try:
        yield
    finally:
        del os.environ[_COMPILER]
