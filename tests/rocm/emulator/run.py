"""Runs what TVM generates for an AMD GPU on the CPU: its host code as it is, the LLVM IR of its kernels by `retarget`.

The IR is what LLVM selects instructions from: shuffles are permutations of LDS, barriers and reductions stand as TVM
lowers them. What LLVM makes of it is not seen here.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import tirx
from tvm.target import Target
from tvm.tirx import compilation_pipeline

from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.rocm import register_rocm_pipeline, rocm_tools
from tvm_cascade.evaluate.oracle import signature

from .retarget import for_host

Array = NDArray[Any]

_HERE = Path(__file__).parent
_FIBERS = _HERE.parents[1] / "tile" / "emulator" / "device"
_SCRATCH = TemporaryDirectory()
_NUMBERS = count()
_FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-w", f"-I{_HERE}", f"-I{_FIBERS}"]
_CPU = 1
"""DLPack's name of the CPU, where host code expects its tensors and temporaries."""

_SCALARS = {"int32": "int32_t", "int64": "int64_t", "float32": "float", "float64": "double"}
_AXES = [f"{level}Idx.{axis}" for level in ("block", "thread") for axis in "xyz"]


class EmulationError(AssertionError):
    """The program did what the GPU would not let it do unpunished."""


def compiler() -> str | None:
    """A C++ compiler of the host."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


class Kernels:
    """The kernels of a program as they go into LLVM, with the host code that launches them.

    Parameters
    ----------
    pipeline : TVM's name of another lowering than ours.
    """

    def __init__(self, func: tirx.PrimFunc, target: Target, pipeline: str | None = None) -> None:
        on_cpu = Target(
            {**target.export(), "target_device_type": _CPU, "host": {**host_target().export(), "opt-level": 0}}
        )
        self.signatures: dict[str, tuple[list[str], list[str]]] = {}
        with rocm_tools(lambda made: made), on_cpu:
            noting = self._noting(pipeline or register_rocm_pipeline())
            self.module = tvm.compile(tvm.IRModule({"main": func}), target=on_cpu, tir_pipeline=noting).mod
        device = self.module.imports[0]
        self.text, self.assembly = str(device.inspect_source("llvm")), str(device.inspect_source("asm"))
        self.host = str(self.module.inspect_source("ll"))
        self.module.clear_imports()

    def _noting(self, pipeline: str) -> str:
        """A pipeline that notes how each kernel is called."""
        lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline(pipeline)

        @tirx.transform.prim_func_pass(opt_level=0, name="tests.NoteKernels")
        def note(func: tirx.PrimFunc, _mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
            types = [str(param.ty.dtype) if isinstance(param.ty, tvm.ir.PrimType) else "void*" for param in func.params]
            axes = [str(axis) for axis in func.attrs["tirx.kernel_launch_params"]]
            self.signatures[str(func.attrs["global_symbol"])] = (types, axes)
            return func

        def finish() -> tvm.transform.Pass:
            return tvm.ir.transform.Sequential([note, finish_device()])

        compilation_pipeline.register_tir_pipeline("tests_rocm", lambda: (lower, finish_host, finish))
        return "tests_rocm"

    def entries(self) -> str:
        """C++ by which host code enters the kernels."""
        text = ['#include "entry.h"']
        for name, (types, axes) in self.signatures.items():
            types = [_SCALARS.get(dtype, dtype) for dtype in types]
            fields = ["pointer" if t == "void*" else "real" if t in ("float", "double") else "integer" for t in types]
            given = ", ".join(f"({t})a[{k}].{field}" for k, (t, field) in enumerate(zip(types, fields, strict=True)))
            shape = [f"a[{len(types) + axes.index(axis)}].integer" if axis in axes else "1" for axis in _AXES]
            text.append(
                f'extern "C" void {name}({", ".join(types)});\n'
                'extern "C" __attribute__((visibility("default")))\n'
                f"int __tvm_ffi_{name}(void*, const Argument* a, int, Argument*) {{\n"
                f"  const int64_t extents[] = {{{', '.join(shape)}}};\n"
                f"  return launch([=] {{ {name}({given}); }}, extents);\n}}"
            )
        return "\n".join(text)


def execute(
    func: tirx.PrimFunc,
    target: Target,
    inputs: Sequence[Array],
    change: Callable[[str], str] = lambda text: text,
    lanes: int = 64,
) -> dict[str, Array]:
    """Runs a scheduled function.

    Parameters
    ----------
    func : scheduled for AMD GPUs.
    target : a ROCm target.
    inputs : in the order of the parameters that it does not write.
    change : of the LLVM IR of its kernels, for tests of the emulator itself.
    lanes : of a wave.

    Returns
    -------
    The outputs by name; NaN or all ones wherever nothing was written.

    Raises
    ------
    EmulationError
        Where the program would never end, lanes of a wave part at an exchange, it writes to an input, or its results
        depend on the order of threads.
    MisplacedPointer
        See `for_host`.
    """
    kernels = Kernels(func, target)
    library = _library(kernels, change, lanes)
    kernels.module.import_module(tvm_ffi.load_module(str(library)))
    outputs = {param.name for param in signature(func).outputs}
    forward, backward = (_run(kernels, library, func, inputs, outputs, order) for order in (0, 1))
    for name, array in forward.items():
        if array.tobytes() != backward[name].tobytes():
            raise EmulationError("the result depends on the order of threads")
    return forward


def _run(
    kernels: Kernels, library: Path, func: tirx.PrimFunc, inputs: Sequence[Array], outputs: set[str], order: int
) -> dict[str, Array]:
    runtime = ctypes.CDLL(str(library))
    runtime.emulator_go(order)
    runtime.emulator_failure.restype = ctypes.c_char_p
    given, tensors = iter(inputs), {}
    known: dict[str, int] = {}
    for param, array in zip([p for p in func.params if p.name not in outputs], inputs, strict=True):
        known |= {str(extent): size for extent, size in zip(param.ty.shape, array.shape, strict=True)}
    for param in func.params:
        fresh = _poisoned(param.ty, known) if param.name in outputs else next(given)
        tensors[param.name] = tvm.runtime.tensor(fresh)
    kernels.module["main"](*tensors.values())
    if failure := runtime.emulator_failure().decode():
        raise EmulationError(failure)
    return {name: tensor.numpy() for name, tensor in tensors.items() if name in outputs}


def _poisoned(tensor: Any, known: Mapping[str, int]) -> Array:
    dtype = np.dtype(getattr(ml_dtypes, str(tensor.dtype), str(tensor.dtype)))
    shape = [known[str(extent)] if str(extent) in known else int(extent) for extent in tensor.shape]
    return np.full(int(np.prod(shape)) * dtype.itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


def _library(kernels: Kernels, change: Callable[[str], str], lanes: int) -> Path:
    """The library with the kernels for the host, and what they call."""
    text, machine_code, entries, library = (_scratch(suffix) for suffix in (".ll", ".o", ".cpp", ".so"))
    text.write_text(for_host(change(kernels.text), kernels.host))
    tvm_ffi.get_global_func("ffi.Module.load_from_file.ll")(str(text), "ll").write_to_file(str(machine_code), "o")
    entries.write_text(kernels.entries())
    linked = [str(path) for path in (entries, machine_code, _runtime(lanes))]
    _compile([*_FLAGS, "-O0", "-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", *linked, "-o", str(library), "-lm"])
    return library


@cache
def _runtime(lanes: int) -> Path:
    """What every kernel calls, compiled once a process."""
    target = _scratch(".o")
    _compile([*_FLAGS, f"-DEMULATOR_WARP={lanes}", "-O2", "-c", str(_HERE / "runtime.cpp"), "-o", str(target)])
    return target


def _scratch(suffix: str) -> Path:
    """A path of its own, for as long as the process lives."""
    return Path(_SCRATCH.name) / f"rocm{next(_NUMBERS)}{suffix}"


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([str(compiler()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:4000])
