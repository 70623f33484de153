"""Runs a TIRx kernel on the CPU: TVM's host code as it is, its CUDA text compiled for the host by `translate`."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from tvm_cascade.tile.launch.pipeline import register_mixed_pipeline

from .guarded import Array, Guarded
from .translate import translate

DEVICE = Path(__file__).parent / "device"
TARGET = {"kind": "cuda", "arch": "sm_90a", "host": {"kind": "llvm", "opt-level": 0}}

_SCRATCH = TemporaryDirectory()
_NUMBERS = count()
MOST_KEPT, WEEK = 2000, 7 * 24 * 3600
"""Kernels in the cache when a process begins, which take a tenth of a megabyte each; and a week in seconds."""

_FLAGS = ["-std=c++17", "-fPIC", "-U_FORTIFY_SOURCE", "-w"]
_KERNEL = [*_FLAGS, "-fvisibility=hidden", "-O0"]


class EmulationError(AssertionError):
    """The kernel did what hardware would not let it do unpunished."""


def compiler() -> str | None:
    """A C++ compiler of the host."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")


def cuda_source(
    func: tirx.PrimFunc, called: Mapping[str, tirx.PrimFunc] | None = None
) -> tuple[tvm.runtime.Module, str]:
    """The host module of a kernel, and its CUDA text; or of a function of the host and those that it calls."""
    return _compiled(tvm.IRModule({"main": func, **(called or {})}))


def _compiled(mod: tvm.IRModule) -> tuple[tvm.runtime.Module, str]:
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):  # of arguments, which `emulate` checks
        module = tvm.compile(mod, target=tvm.target.Target(TARGET), tir_pipeline=register_mixed_pipeline()).mod
    return module, module.imports[0].inspect_source("cuda")


def emulate(
    func: tirx.PrimFunc,
    inputs: Sequence[Array | int],
    change: Callable[[str], str] | None = None,
    together: bool = False,
    called: Mapping[str, tirx.PrimFunc] | None = None,
) -> list[Array]:
    """Runs a kernel over its inputs.

    Parameters
    ----------
    func : a TIRx function; its parameters are the inputs and then the outputs.
    inputs : one for each of the first parameters; a number for one that is a number.
    change : of the CUDA text, for tests of the emulator itself.
    together : all blocks run at the same time, so that they may wait for each other; else one after the other.
    called : kernels by name, where `func` is one of the host that calls them.

    Returns
    -------
    outputs : one for each of the other parameters, NaN or all ones wherever the kernel wrote nothing.

    Raises
    ------
    EmulationError
        Where the kernel would never end, touches memory that is not its own, or what a copy or a product under way
        touches, does without a fence that it needs, or has results that depend on the order of threads.
    """
    mod = tvm.IRModule({"main": func, **(called or {})})
    module, library = _remembered(tvm_ffi.StructuralKey(mod)) if change is None else _linked(mod, change)
    params = [param.ty for param in func.params]
    arrays = [(param, a) for param, a in zip(params, inputs, strict=False) if not isinstance(a, int)]
    known = {str(n): m for param, a in arrays for n, m in zip(param.shape, a.shape, strict=True)}
    for param, a in arrays:
        assert a.dtype == _dtype(param) and a.shape == _shape(param, known), f"{a.shape} {a.dtype} for {param}"
    given = [a if isinstance(a, int) else Guarded.copy(a) for a in inputs]
    runs = []
    for backward in (False, True):
        runs.append([_poisoned(param, known) for param in params[len(inputs) :]])
        _run(module, library, [*given, *runs[-1]], backward, together)
    if not all(isinstance(after, int) or after.holds(before) for after, before in zip(given, inputs, strict=True)):
        raise EmulationError("the kernel wrote to an input")
    if not all(one.holds(other.array) for one, other in zip(*runs, strict=True)):
        raise EmulationError("the result depends on the order of threads")
    return [output.array for output in runs[0]]


def _linked(mod: tvm.IRModule, change: Callable[[str], str]) -> tuple[tvm.runtime.Module, ctypes.CDLL]:
    """The host module with its kernels on the host, and their library."""
    module, text = _compiled(mod)
    library = _build(translate(change(text)))
    module.clear_imports()
    module.import_module(tvm_ffi.load_module(str(library)))
    return module, ctypes.CDLL(str(library))


@lru_cache(maxsize=32)
def _remembered(key: tvm_ffi.StructuralKey) -> tuple[tvm.runtime.Module, ctypes.CDLL]:
    return _linked(key.key, lambda text: text)


def _run(
    module: tvm.runtime.Module,
    library: ctypes.CDLL,
    arguments: Sequence[Guarded | int],
    backward: bool,
    together: bool,
) -> None:
    """One launch, with one of the scheduler's orders."""
    library.emulator_go(int(backward), int(together))
    module["main"](*[one if isinstance(one, int) else one.on_device() for one in arguments])
    library.emulator_failure.restype = ctypes.c_char_p
    if failure := library.emulator_failure().decode():
        _build.cache_clear()
        _remembered.cache_clear()
        raise EmulationError(failure)
    for k, array in enumerate(arguments):
        if not isinstance(array, int) and not array.guards_hold():
            raise EmulationError(f"the kernel wrote outside of argument {k}")


def _poisoned(tensor: Any, known: Mapping[str, int]) -> Guarded:
    """An output before the launch, of a TVM type whose extents are numbers or those of an input."""
    return Guarded.poisoned(_shape(tensor, known), _dtype(tensor))


def _shape(tensor: Any, known: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(n) if isinstance(n, tirx.IntImm) else known[str(n)] for n in tensor.shape)


def _dtype(tensor: Any) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, str(tensor.dtype), str(tensor.dtype)))


@lru_cache(maxsize=32)
def _build(text: str) -> Path:
    """The library of a translated text, as a file of this process: what fails halfway is loaded anew."""

    def compile_to(target: Path) -> None:
        source = _scratch(".cpp")
        source.write_text(text)
        headers = [f"-I{_precompiled().parent}", f"-I{DEVICE}"]  # a compiler that cannot use the first finds the second
        libraries = ["-nodefaultlibs", str(_runtime()), "-lm"]  # the runtime brings those of C++, which take long
        _compile([*_KERNEL, *headers, "-shared", "-Wl,-Bsymbolic", str(source), *libraries, "-o", str(target)])

    return Path(shutil.copy(_kept(f"{_digest(text)}.so", compile_to), _scratch(".so")))


def _precompiled() -> Path:
    """What every kernel includes, parsed: it is most of a kernel's compilation."""
    header = [*_KERNEL, f"-I{DEVICE}", "-x", "c++-header", str(DEVICE / "ptx.h")]
    return _common("ptx.h.gch", lambda target: _compile([*header, "-o", str(target)]))


def _runtime() -> Path:
    """What every kernel is linked with: a library of its own, which is linked once."""
    source = [*_FLAGS, f"-I{DEVICE}", "-O2", "-shared", "-Wl,-Bsymbolic", str(DEVICE / "runtime.cpp")]
    return _common("runtime.so", lambda target: _compile([*source, "-o", str(target)]))


def _common(name: str, make: Callable[[Path], None]) -> Path:
    """A file that all kernels need: one process makes it, and others wait."""
    with (_cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _kept(name, make)


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A file of the cache, made where it is not there yet; several processes may do so at the same time."""
    path = _cache() / name
    if not path.exists():
        made = _cache() / f"{os.getpid()}.{name}"
        make(made)
        made.replace(path)
    path.touch()
    return path


@cache
def _cache() -> Path:
    """The folder of what was compiled from these sources by this compiler; those unused for a week are removed."""
    version = subprocess.run([str(compiler()), "--version"], capture_output=True, text=True, check=True).stdout
    sources = [str(Path(__file__).read_text()), *(one.read_text() for one in sorted(DEVICE.iterdir()))]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tvm-cascade" / "emulated"
    folder = home / _digest(version, *sources)
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in home.iterdir():
        if other.stat().st_mtime < time.time() - WEEK:
            shutil.rmtree(other, ignore_errors=True)
    for old in sorted(folder.glob("*.so"), key=lambda one: one.stat().st_mtime)[:-MOST_KEPT]:
        old.unlink(missing_ok=True)
    return folder


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _scratch(suffix: str) -> Path:
    """A path of its own, for as long as the process lives."""
    return Path(_SCRATCH.name) / f"emulated{next(_NUMBERS)}{suffix}"


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([str(compiler()), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:4000])
