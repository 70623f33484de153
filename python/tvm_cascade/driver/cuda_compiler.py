"""Chooses the CUDA compiler that TVM calls."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator

import tvm
from tvm.target import Target

from tvm_cascade.tile.pipeline import register_mixed_pipeline

_COMPILER, _EXACT_MATH = "TVM_CUDA_COMPILE_MODE", "TVM_CUDA_NVCC_NO_FAST_MATH"
_NVRTC_OPTIONS, _EXACT_ARITHMETIC = "TVM_CUDA_NVRTC_EXTRA_OPTS", "--ftz=false --prec-div=true --prec-sqrt=true"


def generate_cuda(mod: tvm.IRModule, target: Target, fast_math: bool) -> tvm.runtime.Executable:
    """TVM's code for a lowered module, tensor-core kernels and S-TIR functions together.

    Parameters
    ----------
    fast_math : whether nvcc may replace functions by approximations (see `cuda_compiler`).
    """
    with target, cuda_compiler(fast_math):
        return tvm.compile(mod, target=target, tir_pipeline=register_mixed_pipeline())


@contextlib.contextmanager
def cuda_compiler(fast_math: bool) -> Iterator[None]:
    """How TVM compiles CUDA, unless the environment says so already.

    NVRTC does it, or nvcc where the bindings for that are missing. TVM asks for fast mathematics by default, with 2e-5
    of error in tanh: right for weights in half precision, too much for programs in float32. Of nvcc it can be had
    without; NVRTC is always told to, and only that quotients, roots and small numbers be exact after all: so nvcc
    compiles what must be exact, where there is one.
    """
    wanted = {} if fast_math else {_EXACT_MATH: "1", _NVRTC_OPTIONS: _EXACT_ARITHMETIC}
    missing = importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None
    if (missing or not fast_math) and shutil.which("nvcc") is not None:
        wanted[_COMPILER] = "nvcc"
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
