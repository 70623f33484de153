"""The CUDA backend: kernels of skeletons and S-TIR schedules, compiled for the architecture of a card."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.support import nvcc
from tvm.target import Target
from tvm.tirx.build import codegen_build, split_host_device_mods
from tvm.tirx.compilation_pipeline import get_tir_pipeline
from tvm.tirx.transform import BindTarget

from tvm_cascade.devices.host import core_count, host_target
from tvm_cascade.driver.backend import Backend, export_library
from tvm_cascade.driver.gpu import gpu_options, lower_gpu, plain_gpu
from tvm_cascade.driver.progress import tell
from tvm_cascade.driver.toolkit import find_nvcc, run_tool, toolkit_homes
from tvm_cascade.errors import CompilerError, InputError
from tvm_cascade.tile.launch.fast_math import is_fast
from tvm_cascade.tile.launch.pipeline import for_a_thread, register_mixed_pipeline

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
    raise CompilerError(f"{_RUNTIME} of a CUDA toolkit", "none next to nvcc or in CUDA_HOME", "export", hint)


def _run(command: list[str], environment: dict[str, str]) -> None:
    run_tool(command, environment, "export", "see its messages; where there is a GPU, none is needed")


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


# Compiles CUDA kernels for TVM, several texts at once, each with the mathematics that its kernels are exact with.
#
# TVM compiles all with fast mathematics, as its environment variables say: one way at a time. It has 2e-5 of error in
# tanh, which suits weights in half precision, and is too much for programs in float32.


_CALLBACK = "tvm_callback_cuda_compile"
_COMPILER, _EXACT_MATH, _MORE_OPTIONS = (
    "TVM_CUDA_COMPILE_MODE",
    "TVM_CUDA_NVCC_NO_FAST_MATH",
    "TVM_CUDA_NVRTC_EXTRA_OPTS",
)

_OPTIONS = tuple(
    f"-U__CUDA_NO_{kind}_{what}__"
    for kind in ("HALF", "BFLOAT16", "BFLOAT162")
    for what in ("OPERATORS", "CONVERSIONS")
)
_FAST_MATH = "--use_fast_math"

_TRAITS = "#include <cuda/std/type_traits>"
_USED_TRAITS = ("is_same", "is_integral", "is_signed", "is_unsigned", "is_floating_point", "enable_if", "conditional")
"""What TVM's texts name of that header, which takes NVRTC half a second to read: four fifths of all before a kernel."""

_FOR_NVRTC = """
#define INFINITY (__int_as_float(0x7f800000))
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
typedef struct CUtensorMap_st CUtensorMap;
"""
"""What texts take from headers of the host's."""

_BY_TVM = tvm_ffi.get_global_func(_CALLBACK)
_THREAD = threading.local()
"""Its `asked`: the architecture that it compiles for, and with which options. Other threads' texts are TVM's own."""


def generate_cuda(mod: tvm.IRModule, target: Target) -> tvm.runtime.Executable:
    """TVM's code for a lowered module: kernels that may be approximated, and those that are exact, compiled apart.

    Host code and kernels are made side by side, with a text for each core: compilers leave the interpreter alone.
    """
    lower, finish_host, finish_device = get_tir_pipeline(register_mixed_pipeline())

    def compiled(kernels: tvm.IRModule, where: Target, fast_math: bool) -> tvm.runtime.Module:
        with cuda_compiler(where, fast_math):
            return codegen_build(finish_device()(kernels), where)

    with target, ThreadPoolExecutor(core_count()) as pool:
        host, devices = split_host_device_mods(lower(BindTarget(target)(mod)))
        made = [
            pool.submit(for_a_thread(compiled, where), part, where, fast_math)
            for where, kernels in devices.items()
            for fast_math, part in _shared_out(kernels, core_count())
        ]
        built = codegen_build(finish_host()(host), Target(target.host))
        for count, _ in enumerate(as_completed(made), start=1):
            tell(f"building kernels: {count} of {len(made)} texts are compiled")
    for module in made:
        built.import_module(module.result())
    return tvm.runtime.Executable(built)


def _shared_out(kernels: tvm.IRModule, count: int) -> Iterator[tuple[bool, tvm.IRModule]]:
    """The kernels that are exact, then those that may be approximated, in so many modules each at most, as long."""
    for fast in (False, True):
        alike = [name for name, kernel in kernels.functions.items() if is_fast(kernel) is fast]
        alike.sort(key=lambda name: -_length(kernels[name]))
        for first in range(min(count, len(alike))):
            yield fast, tvm.IRModule({name: kernels[name] for name in alike[first::count]}, attrs=kernels.attrs)


def _length(kernel: tirx.PrimFunc) -> int:
    found: list[tirx.Stmt] = []
    tvm_ffi.structural_walk(kernel.body, (tirx.Stmt, found.append))
    return len(found)


@contextlib.contextmanager
def cuda_compiler(target: Target, fast_math: bool) -> Iterator[None]:
    """While this lasts, what this thread has TVM compile is compiled here: by NVRTC, or nvcc where that is missing.

    TVM's environment variables count: which compiler, without fast mathematics, more options.
    """
    before = getattr(_THREAD, "asked", None)
    options = [*_OPTIONS, *([_FAST_MATH] if fast_math and not os.environ.get(_EXACT_MATH) else [])]
    options += [f"--ptxas-options={flag}" for flag in nvcc._ptxas_option_flags()]
    _THREAD.asked = str(target.arch), options
    try:
        yield
    finally:
        _THREAD.asked = before


@tvm_ffi.register_global_func(_CALLBACK, override=True)
def _compile(code: str) -> bytes:
    asked: tuple[str, list[str]] | None = getattr(_THREAD, "asked", None)
    if asked is None:
        return bytes(_BY_TVM(code))
    bound = importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.bindings") is not None
    compiler = os.environ.get(_COMPILER, "nvrtc" if bound or find_nvcc() is None else "nvcc").lower()
    return (_by_nvcc if compiler == "nvcc" else _by_nvrtc)(code, *asked)


def _by_nvcc(code: str, arch: str, options: list[str]) -> bytes:
    """A text compiled in a process of its own, which reads headers for the host too."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernels.cu", Path(folder) / "kernels.fatbin"
        source.write_text(code)
        command = [find_nvcc() or "nvcc", "--fatbin", "-gencode", f"arch={arch.replace('sm', 'compute')},code={arch}"]
        command += ["--expt-relaxed-constexpr", "--expt-extended-lambda", *options, "-o", str(made), str(source)]
        run_tool(command, {}, "generating kernels", "see its messages")
        return made.read_bytes()


def _by_nvrtc(code: str, arch: str, options: list[str]) -> bytes:
    """A text compiled in this process. Texts wait for each other while they are read, not while they are optimised."""
    from cuda.bindings import nvrtc

    folders = _header_folders()
    if all((folders[-1] / f"cuda/std/__type_traits/{name}.h").exists() for name in _USED_TRAITS):
        code = code.replace(_TRAITS, "\n".join(f"#include <cuda/std/__type_traits/{name}.h>" for name in _USED_TRAITS))
    options = [
        *options,
        f"--gpu-architecture={arch}",
        "-default-device",
        "--device-int128",
        *(f"-I{one}" for one in folders),
    ]
    # Of vector_types.h, which headers of small floats use and do not include.
    options += [
        f"-D__NV_SILENCE_{what}_{end}=" for what in ("DEPRECATION", "HOST_DEPRECATION") for end in ("BEGIN", "END")
    ]
    options += shlex.split(os.environ.get(_MORE_OPTIONS, ""))
    _, program = nvrtc.nvrtcCreateProgram((_FOR_NVRTC + code).encode(), b"kernels.cu", 0, None, None)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
            nvrtc.nvrtcGetProgramLog(program, log)
            raise CompilerError("NVRTC to compile the kernels", log.decode(), "generating kernels", "see its messages")
        made = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
        nvrtc.nvrtcGetCUBIN(program, made)
        return bytes(made)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _header_folders() -> list[Path]:
    """The folders with CUDA's headers, of the first toolkit that has them; the last has those of `cuda::std`.

    Raises
    ------
    CompilerError
        Where there are none.
    """
    for home in toolkit_homes():
        for folder in (home / "include", *home.glob("targets/*/include")):
            apart = folder / "cccl" if (folder / "cccl").exists() else folder
            if (folder / "cuda_fp16.h").exists() and (apart / "cuda" / "std" / "cstdint").exists():
                return [folder, apart]
    hint = "install the CUDA toolkit, or set CUDA_HOME"
    raise CompilerError("headers of a CUDA toolkit", "none next to nvcc or in CUDA_HOME", "generating kernels", hint)


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
