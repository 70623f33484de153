"""The CUDA toolkit of this machine, and running compilers, with their last output in errors."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tvm_cascade.errors import CompilerError

_USUAL_HOME = Path("/usr/local/cuda")
_MESSAGE_LINES = 30


def cuda_homes() -> list[Path]:
    """Where a toolkit may be: CUDA_HOME, CUDA_PATH, then the usual place."""
    return [*(Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ), _USUAL_HOME]


def toolkit_homes() -> list[Path]:
    """Where parts of a toolkit may be: beside nvcc, then `cuda_homes`, then what torch's wheels bring."""
    nvcc = find_nvcc()
    beside = [Path(nvcc).resolve().parent.parent] if nvcc else []
    return [*beside, *cuda_homes(), *(Path(entry) / "nvidia" / "cu13" for entry in sys.path)]


def find_nvcc() -> str | None:
    """nvcc: CUDACXX, on PATH, in CUDA_HOME, or where CUDA is usually installed."""
    if named := os.environ.get("CUDACXX"):
        return named
    folders = os.pathsep.join(str(home / "bin") for home in cuda_homes())
    return shutil.which("nvcc") or shutil.which("nvcc", path=folders)


def run_tool(command: list[str], environment: dict[str, str], where: str, remedy: str) -> None:
    """Run a program to its end, with variables in addition to this process's.

    Raises
    ------
    CompilerError
        When it is missing or fails; `where` and `remedy` go into it.
    """
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError as missing:
        raise CompilerError(f"{command[0]} on PATH", "none", where, f"install {command[0]}") from missing
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-_MESSAGE_LINES:])
        raise CompilerError(f"`{' '.join(command)}` to succeed", f"exit code {done.returncode}:\n{last}", where, remedy)


# LLVM's linker, which makes code objects of generated AMD GPU code.


OLDEST_LLD = 19
"""The first LLD that knows version 6 of AMD's code objects, as LLVM in TVM 0.27 writes them."""

_USUAL_ROCM = "/opt/rocm"
_REMEDY = (
    f"install LLD {OLDEST_LLD} or newer: python -m pip install 'tvm-cascade[rocm]' brings one along; or put ld.lld of "
    "LLVM or ROCm on PATH, or set ROCM_PATH"
)


def link_code_object(relocatable: bytes) -> bytes:
    """The shared ELF object that AMD's driver loads, of a relocatable one.

    Raises
    ------
    CompilerError
        As `required_lld`; or when LLD fails, such as where a symbol is defined nowhere.
    """
    command = required_lld()
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernels.o", Path(folder) / "kernels.hsaco"
        source.write_bytes(relocatable)
        options = ["--no-undefined", "-shared", str(source), "-o", str(made)]
        run_tool([*command, *options], {}, "compile", "see its messages")
        return made.read_bytes()


def required_lld() -> tuple[str, ...]:
    """The command that runs LLD.

    Raises
    ------
    CompilerError
        When there is none that is new enough.
    """
    command = find_lld()
    if command is None:
        found = ", ".join(f"`{' '.join(known)}` of version {_version(known) or 'unknown'}" for known in _candidates())
        raise CompilerError(f"LLVM's linker ld.lld, {OLDEST_LLD} or newer", found or "none", "compile", _REMEDY)
    return command


def find_lld() -> tuple[str, ...] | None:
    """The command that runs LLD: of ROCm, PATH, LLVM or the package ziglang; None where none is new enough."""
    return next((command for command in _candidates() if _version(command) >= OLDEST_LLD), None)


def _candidates() -> Iterator[tuple[str, ...]]:
    """Commands that exist."""
    named = os.environ.get("ROCM_PATH")
    folders = [*([Path(named, "llvm", "bin")] if named else []), *map(Path, os.get_exec_path())]
    folders += [Path(_USUAL_ROCM, "llvm", "bin"), *sorted(Path("/usr/lib").glob("llvm-*/bin"), reverse=True)]
    known: set[Path] = set()
    for folder in folders:
        for path in (folder / "ld.lld", *sorted(folder.glob("ld.lld-*"), reverse=True)):
            if shutil.which(path) and path.resolve() not in known:
                known.add(path.resolve())
                yield (str(path),)
    if importlib.util.find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "ld.lld")


@cache
def _version(command: tuple[str, ...]) -> int:
    """The major version of an LLD; 0 where it does not say."""
    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"LLD (\d+)\.", said)
    return int(found[1]) if found else 0
