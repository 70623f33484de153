"""Finds the native library and its sources, loads it into this process, and builds it on demand."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from tvm_cascade.errors import NativeLibraryError
from tvm_cascade.native.toolkit import find_nvcc, run_tool

FILE_NAME = "libtvm_cascade_native.so"

FUNCTIONS = ("device_count", "device_properties", "max_active_clusters", "flush_l2", "time", "poison")
"""What the library registers, each as tvm_cascade.cuda.<name>."""

_PREFIX = "tvm_cascade.cuda."
_VARIABLE = "TVM_CASCADE_NATIVE_LIBRARY"
_HOW_TO_BUILD = "python -m tvm_cascade build-native"
_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[2]


def source_folder() -> Path:
    """The folder of CMakeLists.txt and src_cuda: a copy in the installed package, else the checkout."""
    installed = _PACKAGE / "sources"
    return installed if installed.is_dir() else _CHECKOUT


def cached_path() -> Path:
    """Where `build` puts the library: a folder named by what it is built from, so that a stale one is never found."""
    digest = hashlib.sha256(tvm_ffi.__version__.encode())
    sources = source_folder()
    for path in [sources / "CMakeLists.txt", *sorted((sources / "src_cuda" / "runtime").iterdir())]:
        digest.update(path.read_bytes())
    return cache_folder() / f"native-{digest.hexdigest()[:16]}" / FILE_NAME


def cache_folder() -> Path:
    """The folder of what this package keeps on the user's disk."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tvm-cascade"


def library_path() -> Path | None:
    """The library that `load` takes, None where there is none.

    The file that TVM_CASCADE_NATIVE_LIBRARY names, or the first that exists of `build/` beside the sources (CMake by
    hand, in a checkout) and the cache folder (`build`).
    """
    if named := os.environ.get(_VARIABLE):
        return Path(named)
    by_hand = source_folder() / "build" / FILE_NAME
    return next((path for path in (by_hand, cached_path()) if path.is_file()), None)


def why_absent() -> str | None:
    """One sentence on why there is no native library and how to get one; None where there is one."""
    if library_path() is not None:
        return None
    by_hand = f"cmake -S {source_folder()} -B build && cmake --build build"
    return f"not built; run `{_HOW_TO_BUILD}`, or `{by_hand}` and set {_VARIABLE}=build/{FILE_NAME}"


def load() -> Path:
    """Load the library once; returns its file.

    Raises
    ------
    NativeLibraryError
        When there is none, it cannot be loaded, or it lacks functions of this version.
    """
    path = library_path()
    if path is None:
        raise NativeLibraryError("the native library", "none", "", why_absent() or "")
    _load(path)
    return path


@cache
def _load(path: Path) -> None:
    hint = f"build it again: `{_HOW_TO_BUILD}`, or `cmake --build build`; unset {_VARIABLE} if it names another file"
    try:
        tvm_ffi.load_module(path)
    except (OSError, RuntimeError) as error:
        raise NativeLibraryError("a loadable library", str(error), str(path), hint) from error
    missing = [name for name in FUNCTIONS if tvm_ffi.get_global_func(_PREFIX + name, allow_missing=True) is None]
    if missing:
        raise NativeLibraryError(f"the functions {', '.join(FUNCTIONS)}", f"no {', '.join(missing)}", str(path), hint)


def native_function(name: str) -> Any:
    """A function of the library, which is loaded when first asked.

    Raises
    ------
    NativeLibraryError
        As `load`.
    """
    load()
    return tvm_ffi.get_global_func(_PREFIX + name)


# Builds it by CMake, into the user's cache folder.


def why_not_buildable() -> str | None:
    """One sentence on what this machine lacks to build the native library; None where it has everything."""
    if find_nvcc() is None:
        return "skipped: there is no nvcc on PATH, in CUDACXX or in CUDA_HOME, and the native library is optional"
    if shutil.which("cmake") is None:
        return "skipped: there is no cmake (`pip install cmake`), and the native library is optional"
    return None


def build() -> Path:
    """Build the native library, unless this very one has been built before; returns its file.

    Raises
    ------
    NativeLibraryError
        Where nvcc or CMake are missing, or fail; the message ends with what they printed last.
    """
    target = cached_path()
    if target.is_file():
        return target
    if reason := why_not_buildable():
        raise NativeLibraryError("nvcc and cmake", reason, "the native library", "install them, or do without it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        python = f"-DPython_EXECUTABLE={sys.executable}"
        _run("cmake", "-S", str(source_folder()), "-B", folder, python)
        _run("cmake", "--build", folder, "--parallel")
        os.replace(Path(folder) / FILE_NAME, target)  # at once, so that no other process sees half a file
    return target


def _run(*command: str) -> None:
    remedy = "see the compiler's messages; everything else works without this library"
    run_tool(list(command), {"CUDACXX": find_nvcc() or ""}, NativeLibraryError, "the native library", remedy)
