"""The CUDA backend: kernels of skeletons and S-TIR schedules, compiled for the architecture of a card."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.backend import Backend, export_library
from tvm_cascade.driver.cuda_compiler import generate_cuda
from tvm_cascade.driver.gpu import gpu_options, lower_gpu, plain_gpu
from tvm_cascade.driver.toolkit import run_tool, toolkit_homes
from tvm_cascade.errors import CompilerError, InputError

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
_EXPORT = "import sys; from tvm_cascade.driver.cuda import _export; _export(*sys.argv[1:])"


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
        export_library(built, mod, target, path)
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
    export_library(generate_cuda(mod, goal), mod, goal, Path(path))


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


_CAPABILITIES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
"""Compute capabilities of the cards that CUDA 12 and 13 compile for."""

_FIRST_WITH = {"": 0, "a": 90, "f": 100}
"""From which on there are instructions of one card alone (a), or of a family (f)."""

_EXAMPLE = '{"kind": "cuda", "arch": "sm_90a"}'


def cuda_target(target: Target, stated: Mapping[str, Any]) -> Target:
    """A CUDA target with an architecture, and this machine's CPU as its host.

    Where it states no architecture, that and the model are those of this machine's first GPU. Hopper's own instructions
    need sm_90a, which a device reports as sm_90, and TVM so in a target of its own; where a user names sm_90 by a text
    or a dictionary, that is meant.

    Raises
    ------
    InputError
        When the architecture is that of no card, or none is stated and there is no GPU.
    """
    said = {key: value for key, value in target.export().items() if key not in ("tag", "host", "keys")}
    if "arch" in stated:
        said["arch"] = _checked(str(target.attrs["arch"]))
    else:
        said |= _of_the_device()
    named = "arch" in stated and ("keys" not in stated or target.host == host_target())  # or resolved already
    if said["arch"] == "sm_90" and not named:
        said["arch"] = "sm_90a"
    return Target(said, host=host_target())


def _checked(arch: str) -> str:
    parts = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if parts is None or int(parts[1]) not in _CAPABILITIES or int(parts[1]) < _FIRST_WITH[parts[2]]:
        known = ", ".join(f"sm_{capability}" for capability in _CAPABILITIES)
        hint = f"cards have {known}; pass sm_90a for Hopper's own instructions"
        raise InputError("the architecture of a card", repr(arch), "target", hint)
    return arch


def _of_the_device() -> dict[str, str]:
    """The architecture and the model of this machine's first GPU."""
    device = tvm.cuda(0)
    if not device.exist:
        hint = f"pass {_EXAMPLE}"
        raise InputError("a GPU, or the architecture to compile for", "no CUDA device here", "target", hint)
    return {"arch": "sm_" + str(device.compute_version).replace(".", ""), "model": str(device.device_name)}


CUDA = Backend(
    kind="cuda",
    example=_EXAMPLE,
    runtime="cuda",
    resolve=cuda_target,
    options=gpu_options,
    lower=lower_gpu,
    plain=plain_gpu,
    generate=generate_cuda,
    export=export_cuda,
)
