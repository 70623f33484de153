"""Chooses the CUDA compiler that TVM calls, and calls it for several kernels at once."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.target import Target
from tvm.tirx.build import codegen_build, split_host_device_mods
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget

from tvm_cascade.devices.host import core_count
from tvm_cascade.driver.progress import tell
from tvm_cascade.tile.launch.fast_math import is_fast
from tvm_cascade.tile.launch.pipeline import for_a_thread, register_mixed_pipeline

_COMPILER, _EXACT_MATH = "TVM_CUDA_COMPILE_MODE", "TVM_CUDA_NVCC_NO_FAST_MATH"
_NVRTC_OPTIONS, _EXACT_ARITHMETIC = "TVM_CUDA_NVRTC_EXTRA_OPTS", "--ftz=false --prec-div=true --prec-sqrt=true"

_KERNELS_APIECE = 2
"""Of a text that is compiled by itself, at least: the headers before them take as long, half a second."""


def generate_cuda(mod: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """TVM's code for a lowered module: kernels that may be approximated, and those that are exact, compiled apart.

    Compilers run side by side, one on each core at most: they are processes, or leave the interpreter alone meanwhile.
    """
    lower, finish_host, finish_device = get_tir_pipeline(register_mixed_pipeline())
    with target:
        host, devices = split_host_device_mods(lower(BindTarget(target)(mod)))
        finished, made = finish_host()(host), list[tvm.runtime.Module]()
        with ThreadPoolExecutor(1) as beside:
            hosted = beside.submit(for_a_thread(codegen_build, target), finished, Target(target.host))
            for where, kernels in devices.items():
                for fast_math, part in _by_math(kernels).items():
                    with cuda_compiler(fast_math):
                        made += _compiled(part, where, finish_device)
            built = hosted.result()
    for module in made:
        built.import_module(module)
    return tvm.runtime.Executable(built)


def _compiled(
    kernels: tvm.IRModule, where: Target, finish: Callable[[], tvm.transform.Pass]
) -> list[tvm.runtime.Module]:
    """The code of some kernels, in modules of about equal length, after the passes that finish each."""
    found, count = list[tvm.runtime.Module](), len(kernels.functions)

    def compile_one(part: tvm.IRModule) -> tvm.runtime.Module:
        return codegen_build(finish()(part), where)

    parts = _shared_out(kernels, max(1, min(core_count(), count // _KERNELS_APIECE)))
    with ThreadPoolExecutor(len(parts)) as pool:
        for module in pool.map(for_a_thread(compile_one, where), parts):
            found.append(module)
            tell(f"building kernels: {sum(len(part.functions) for part in parts[: len(found)])} of {count} are built")
    return found


def _shared_out(kernels: tvm.IRModule, count: int) -> list[tvm.IRModule]:
    """The kernels in so many modules, the longest ones first, each to the module that is shortest so far."""
    if count == 1:
        return [kernels]
    lengths = {name: _length(kernel) for name, kernel in kernels.functions.items()}
    parts: list[dict[ir.GlobalVar, tirx.PrimFunc]] = [{} for _ in range(count)]
    for name in sorted(lengths, key=lambda name: -lengths[name]):
        shortest = min(parts, key=lambda part: sum(lengths[one] for one in part))
        shortest[name] = kernels[name]
    return [tvm.IRModule(part, attrs=kernels.attrs) for part in parts]


def _length(kernel: tirx.PrimFunc) -> int:
    """The statements of a kernel."""
    found: list[tirx.Stmt] = []
    tvm_ffi.structural_walk(kernel.body, (tirx.Stmt, found.append))
    return len(found)


def _by_math(kernels: tvm.IRModule) -> dict[bool, tvm.IRModule]:
    """The kernels of a module apart by whether they may be approximated."""
    parts: dict[bool, dict[ir.GlobalVar, tirx.PrimFunc]] = {}
    for name, kernel in kernels.functions.items():
        parts.setdefault(is_fast(kernel), {})[name] = kernel
    return {fast: tvm.IRModule(part, attrs=kernels.attrs) for fast, part in parts.items()}


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
