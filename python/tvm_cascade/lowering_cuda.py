"""A function for a CUDA GPU: a kernel of a skeleton where its fold has the shape, an S-TIR schedule elsewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Iterator

from tvm import s_tir, tirx
from tvm.target import Target

from tvm_cascade.devices.read import card_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.schedule.float8 import round_float8
from tvm_cascade.schedule.gpu import schedule_gpu
from tvm_cascade.schedule.gpu_serial import launch_serial
from tvm_cascade.schedule.private_copy import private_copy
from tvm_cascade.tile.select import select_kernel
from tvm_cascade.tile.skeleton import Kernel
from tvm_cascade.transform.fuse_function import AsItIs, Outcome

_COMPILER, _EXACT_MATH = "TVM_CUDA_COMPILE_MODE", "TVM_CUDA_NVCC_NO_FAST_MATH"
_NVRTC_OPTIONS, _EXACT_ARITHMETIC = "TVM_CUDA_NVRTC_EXTRA_OPTS", "--ftz=false --prec-div=true --prec-sqrt=true"


SCHEDULED = "tirx.is_scheduled"
"""Function attribute: passes that schedule what nobody has, such as dlight's, leave the function as it is."""


def lower_cuda(
    outcome: Outcome, name: str, target: Target, options: FuseOptions
) -> tuple[tirx.PrimFunc, Kernel | AsItIs | str]:
    """A function for a CUDA target as it goes into code generation; and its kernel, or why it has none.

    Parameters
    ----------
    outcome : what the pass made of it.
    name : its own name.
    target : a CUDA target with its architecture.
    options : see `FuseOptions`.
    """
    func, chosen = _lowered(outcome, name, target, options)
    return func.with_attr(SCHEDULED, True), chosen


def _lowered(
    outcome: Outcome, name: str, target: Target, options: FuseOptions
) -> tuple[tirx.PrimFunc, Kernel | AsItIs | str]:
    chosen = select_kernel(outcome, name, str(target.attrs["arch"]), options)
    if isinstance(chosen, Kernel):
        return round_float8(chosen.func), chosen
    func = round_float8(outcome.readable)
    try:
        schedule = s_tir.Schedule(private_copy(func))
        schedule_gpu(schedule, card_of(target))
    except Exception as error:  # such as: a nest that was not read writes over what others read
        return launch_serial(func), AsItIs.after("in one thread, as the schedule failed", error)
    return launch_serial(schedule.mod["main"]), chosen


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
