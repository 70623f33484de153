"""The CUDA toolkit of this machine, and running compilers, with their last output in errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tvm_cascade.errors import CascadeError

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


def run_tool(
    command: list[str], environment: dict[str, str], error: type[CascadeError], where: str, remedy: str
) -> None:
    """Run a program to its end.

    Parameters
    ----------
    command : the program and its arguments.
    environment : variables in addition to this process's.
    error : class of what is raised where the program is missing or fails; `where` and `remedy` go into it.
    """
    try:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except FileNotFoundError as missing:
        raise error(f"{command[0]} on PATH", "none", where, f"install {command[0]}") from missing
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-_MESSAGE_LINES:])
        raise error(f"`{' '.join(command)}` to succeed", f"exit code {done.returncode}:\n{last}", where, remedy)
