"""Libraries with CUDA kernels as machine code, built with or without a GPU.

TVM loads its CUDA runtime only where there is a driver; without it, it keeps kernels as text that whoever loads the
file must compile. To embed machine code all the same, the file is then made by a process of its own, in which a library
without a device stands in for the driver.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import tvm
from tvm.target import Target

from tvm_cascade.driver.backend import export_library
from tvm_cascade.driver.cuda_compiler import generate_cuda
from tvm_cascade.errors import CompilerError
from tvm_cascade.native.toolkit import run_tool, toolkit_homes

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
_EXPORT = "import sys; from tvm_cascade.driver.cuda_library import _export; _export(*sys.argv[1:])"


def export_cuda(built: tvm.runtime.Executable, mod: tvm.IRModule, target: Target, path: Path) -> None:
    """Write a shared library with the machine code of a lowered module, its kernels' too.

    Parameters
    ----------
    built : what `generate_cuda` made of the module in this process.

    Raises
    ------
    CompilerError
        Where there is no driver and the compiler, or the CUDA runtime, is missing or fails; nothing is written then.
    """
    if tvm.cuda(0).exist:
        export_library(built, path)
        return
    with tempfile.TemporaryDirectory() as folder:
        lowered, made = Path(folder) / "module.json", Path(folder) / path.name
        lowered.write_text(tvm.ir.save_json(mod))
        libraries = os.pathsep.join([str(_driver_without_device(Path(folder))), str(_runtime_folder())])
        searched = os.pathsep.join(filter(None, [libraries, os.environ.get("LD_LIBRARY_PATH")]))
        arguments = [str(lowered), tvm.ir.save_json(target), str(made)]
        _run([sys.executable, "-c", _EXPORT, *arguments], {"LD_LIBRARY_PATH": searched})
        path.write_bytes(made.read_bytes())


def _export(lowered: str, target: str, path: str) -> None:
    """What the process with the stand-in does."""
    mod, goal = tvm.ir.load_json(Path(lowered).read_text()), tvm.ir.load_json(target)
    export_library(generate_cuda(mod, goal), Path(path))


def _driver_without_device(folder: Path) -> Path:
    """A folder with a library that has the driver's name, and for every call the answer that there is no device."""
    source = folder / "driver.c"
    source.write_text("".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in _DRIVER_FUNCTIONS))
    name = "libcuda.so.1"
    _run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(source), "-o", str(folder / name)], {})
    return folder


def _runtime_folder() -> Path:
    """Where the CUDA runtime library of the toolkit is."""
    for home in toolkit_homes():
        for folder in (home / "lib64", home / "lib", home / "targets" / "x86_64-linux" / "lib"):
            if (folder / _RUNTIME).exists():
                return folder
    hint = "install the CUDA toolkit 13, or set CUDA_HOME"
    raise CompilerError(f"{_RUNTIME} of a CUDA toolkit", "none beside nvcc or in CUDA_HOME", "export", hint)


def _run(command: list[str], environment: dict[str, str]) -> None:
    run_tool(command, environment, CompilerError, "export", "see its messages; where there is a GPU, none is needed")
