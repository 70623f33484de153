"""Runs a TIRx kernel on the CPU: TVM's host code as it is, its CUDA text compiled for the host by `translate`."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from .guarded import Array, Guarded
from .translate import translate

DEVICE = Path(__file__).parent / "device"
TARGET = {"kind": "cuda", "arch": "sm_90a", "host": {"kind": "llvm"}}

_FLAGS = ["-std=c++17", "-fPIC", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-w", f"-I{DEVICE}"]


class EmulationError(AssertionError):
    """The kernel did what hardware would not let it do unpunished."""


def compiler() -> str | None:
    """A C++ compiler of the host."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def cuda_source(func: tirx.PrimFunc) -> tuple[tvm.runtime.Module, str]:
    """The host module of a kernel, and its CUDA text."""
    module = tvm.compile(tvm.IRModule({"main": func}), target=tvm.target.Target(TARGET), tir_pipeline="tirx").mod
    return module, module.imports[0].inspect_source("cuda")


def emulate(
    func: tirx.PrimFunc,
    inputs: Sequence[Array],
    change: Callable[[str], str] = lambda text: text,
) -> list[Array]:
    """Runs a kernel over its inputs.

    Parameters
    ----------
    func : a TIRx function; its parameters are the inputs and then the outputs.
    inputs : one for each of the first parameters.
    change : of the CUDA text, for tests of the emulator itself.

    Returns
    -------
    outputs : one for each of the other parameters, NaN or all ones wherever the kernel wrote nothing.

    Raises
    ------
    EmulationError
        Where the kernel would never end, touches memory that is not its own, or what a copy or a product under way
        touches, or does without a fence that it needs.
    """
    module, text = cuda_source(func)
    params = [param.ty for param in func.params]
    given = [Guarded.copy(array) for array in inputs]
    outputs = [
        Guarded.poisoned(tuple(int(n) for n in param.shape), _numpy_dtype(str(param.dtype)))
        for param in params[len(inputs) :]
    ]
    with TemporaryDirectory() as folder:
        failure = _run(module, _build(translate(change(text)), Path(folder)), [*given, *outputs])
    if failure:
        raise EmulationError(failure)
    for name, array in zip((param.name for param in func.params), (*given, *outputs), strict=True):
        if not array.guards_hold():
            raise EmulationError(f"the kernel wrote outside of {name}")
    if not all(after.holds(before) for after, before in zip(given, inputs, strict=True)):
        raise EmulationError("the kernel wrote to an input")
    return [output.array for output in outputs]


def _run(module: tvm.runtime.Module, library: Path, arguments: Sequence[Guarded]) -> str:
    """What went wrong; empty where nothing did."""
    module.clear_imports()
    module.import_module(tvm_ffi.load_module(str(library)))
    module["main"](*[array.on_device() for array in arguments])
    failure = ctypes.CDLL(str(library)).emulator_failure
    failure.restype = ctypes.c_char_p
    return str(failure().decode())


def _build(text: str, folder: Path) -> Path:
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(text)
    _compile([*_FLAGS, "-O1", "-shared", "-Wl,-Bsymbolic", str(source), str(_runtime()), "-o", str(library)])
    return library


@cache
def _runtime() -> Path:
    """What every kernel needs, compiled once a process."""
    target = Path(mkdtemp()) / "runtime.o"
    _compile([*_FLAGS, "-O2", "-c", str(DEVICE / "runtime.cpp"), "-o", str(target)])
    return target


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([str(compiler()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:4000])


def _numpy_dtype(dtype: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
