"""From a lowered module to machine code: in this process to run, in a file to take elsewhere.

TVM loads its CUDA runtime only where there is a driver; without it, it keeps kernels as text that whoever loads the
file must compile. To embed machine code all the same, the file is then made by a process of its own, in which a library
without a device stands in for the driver.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.ir import prim
from tvm.target import Target

from tvm_cascade.errors import CompilerError, InputError
from tvm_cascade.lowering_cuda import cuda_compiler
from tvm_cascade.native.toolkit import cuda_homes, find_nvcc, run_tool
from tvm_cascade.tile.pipeline import register_mixed_pipeline

_DRIVER_FUNCTIONS = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
"""What TVM 0.27's CUDA runtime needs of the driver to load."""

_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""

_RUNTIME = "libcudart.so.13"
_EXPORT = "import sys; from tvm_cascade.generation import _export; _export(*sys.argv[1:])"


def generate(mod: tvm.IRModule, target: Target, fast_math: bool) -> tvm.runtime.Executable:
    """TVM's code for a lowered module; on a GPU, tensor-core kernels and S-TIR functions go through it together.

    Parameters
    ----------
    fast_math : on a GPU, whether nvcc may replace functions by approximations (see `cuda_compiler`).

    Raises
    ------
    InputError
        Where TVM generates no code, and a buffer has more elements than its indices can count.
    """
    try:
        if target.kind.name != "cuda":
            return tvm.compile(mod, target=target)
        with target, cuda_compiler(fast_math):
            return tvm.compile(mod, target=target, tir_pipeline=register_mixed_pipeline())
    except Exception as error:
        for name, func in mod.functions_items():
            if large := _uncountable(func):
                sizes = ", ".join(f"`{buffer.name}` of {_elements(buffer)}" for buffer in large)
                hint = 'make extents of 64 bits: te.placeholder((tirx.IntImm("int64", n), …)), and reduce_axis alike'
                raise InputError(
                    "fewer than 2^31 elements, as indices are int32", sizes, name.name_hint, hint
                ) from error
        raise


def _uncountable(func: tirx.PrimFunc) -> list[ir.Var]:
    """The buffers of static shape that have more elements than an index of their dtype reaches."""
    buffers = [param for param in func.params if tirx.is_buffer_var(param)]
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, lambda block: buffers.extend(block.alloc_buffers)))
    return [buffer for buffer in buffers if _elements(buffer) >= 2**31]


def _elements(buffer: ir.Var) -> int:
    """How many elements there are, if extents are int32 and static; else 0."""
    extents = buffer.ty.shape
    counted = all(isinstance(extent, prim.IntImm) and extent.ty.dtype == "int32" for extent in extents)
    return math.prod(int(extent) for extent in extents) if counted else 0


def export_library(
    built: tvm.runtime.Executable, mod: tvm.IRModule, target: Target, fast_math: bool, path: Path
) -> None:
    """Write a shared library with the machine code of a lowered module: of its kernels too, GPU or no GPU.

    Parameters
    ----------
    built : what `generate` made of the other arguments in this process.

    Raises
    ------
    CompilerError
        Where there is no driver and the compiler, or the CUDA runtime, is missing or fails; nothing is written then.
    """
    if target.kind.name != "cuda" or tvm.cuda(0).exist:
        built.export_library(str(path))
        return
    with tempfile.TemporaryDirectory() as folder:
        lowered, made = Path(folder) / "module.json", Path(folder) / path.name
        lowered.write_text(tvm.ir.save_json(mod))
        libraries = os.pathsep.join([str(_driver_without_device(Path(folder))), str(_runtime_folder())])
        searched = os.pathsep.join(filter(None, [libraries, os.environ.get("LD_LIBRARY_PATH")]))
        arguments = [str(lowered), tvm.ir.save_json(target), str(int(fast_math)), str(made)]
        _run([sys.executable, "-c", _EXPORT, *arguments], {"LD_LIBRARY_PATH": searched})
        path.write_bytes(made.read_bytes())


def _export(lowered: str, target: str, fast_math: str, path: str) -> None:
    """What the process with the stand-in does."""
    mod, goal = tvm.ir.load_json(Path(lowered).read_text()), tvm.ir.load_json(target)
    generate(mod, goal, bool(int(fast_math))).export_library(path)


def _driver_without_device(folder: Path) -> Path:
    """A folder with a library that has the driver's name, and for every call the answer that there is no device."""
    source = folder / "driver.c"
    source.write_text("".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in _DRIVER_FUNCTIONS))
    name = "libcuda.so.1"
    _run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(source), "-o", str(folder / name)], {})
    return folder


def _runtime_folder() -> Path:
    """Where the CUDA runtime library of the toolkit is."""
    nvcc = find_nvcc()
    homes = [Path(nvcc).resolve().parent.parent] if nvcc else []
    homes += [*cuda_homes(), *(Path(entry) / "nvidia" / "cu13" for entry in sys.path)]
    for home in homes:
        for folder in (home / "lib64", home / "lib", home / "targets" / "x86_64-linux" / "lib"):
            if (folder / _RUNTIME).exists():
                return folder
    hint = "install the CUDA toolkit 13, or set CUDA_HOME"
    raise CompilerError(f"{_RUNTIME} of a CUDA toolkit", "none beside nvcc or in CUDA_HOME", "export", hint)


def _run(command: list[str], environment: dict[str, str]) -> None:
    run_tool(command, environment, CompilerError, "export", "see its messages; where there is a GPU, none is needed")
