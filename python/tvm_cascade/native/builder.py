"""Builds the native library on demand, by CMake, into the user's cache folder."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tvm_cascade.errors import NativeLibraryError
from tvm_cascade.native import library
from tvm_cascade.native.toolkit import find_nvcc, run_tool


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
    target = library.cached_path()
    if target.is_file():
        return target
    if reason := why_not_buildable():
        raise NativeLibraryError("nvcc and cmake", reason, "the native library", "install them, or do without it")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        python = f"-DPython_EXECUTABLE={sys.executable}"
        _run("cmake", "-S", str(library.source_folder()), "-B", folder, python)
        _run("cmake", "--build", folder, "--parallel")
        os.replace(Path(folder) / library.FILE_NAME, target)  # at once, so that no other process sees half a file
    return target


def _run(*command: str) -> None:
    remedy = "see the compiler's messages; everything else works without this library"
    run_tool(list(command), {"CUDACXX": find_nvcc() or ""}, NativeLibraryError, "the native library", remedy)
