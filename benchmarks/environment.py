"""The environment of a measurement: machine, versions, threads."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import tvm

import tvm_cascade
from tvm_cascade.devices.host import core_count

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "numpy")
_HERE = Path(__file__).resolve().parent
_PACKAGE = Path(tvm_cascade.__file__).resolve().parent


@dataclass(frozen=True)
class Environment:
    """What a figure depends on besides the program.

    Attributes
    ----------
    cpu, cores : model name, and logical cores that the machine has.
    threads : threads that TVM and torch may use.
    target : what TVM's code was generated for.
    versions : by distribution; None for one that is not installed.
    commit : of the package's checkout, with `+` where files of it or of the benchmarks were changed; None outside one.
    date : UTC, ISO 8601.
    """

    cpu: str
    cores: int
    threads: int
    target: str
    versions: dict[str, str | None]
    commit: str | None
    date: str


def describe(target: tvm.target.Target, threads: int) -> Environment:
    """The environment of this process."""
    versions: dict[str, str | None] = {"tvm-cascade": tvm_cascade.__version__, "python": platform.python_version()}
    versions |= {name: installed_version(name) for name in _PACKAGES}
    return Environment(
        cpu=_cpu_model(),
        cores=core_count(),
        threads=threads,
        target=" ".join(
            [target.kind.name, str(target.attrs.get("mcpu", "")), *map(str, target.attrs.get("mattr", ()))]
        ),
        versions=versions,
        commit=_commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def set_threads() -> int:
    """Give TVM and torch the same number of threads: TVM_NUM_THREADS where it is set, else one for each core of ours.

    TVM reads the variables when it first runs something in parallel, so this comes before everything else. Left to
    itself it binds the calling thread to one core, and the threads that a peer starts from there would share that core.
    """
    threads = int(os.environ.setdefault("TVM_NUM_THREADS", str(core_count())))
    os.environ["TVM_BIND_THREADS"] = "0"
    try:
        import torch
    except ImportError:
        return threads
    torch.set_num_threads(threads)
    return threads


def installed_version(distribution: str) -> str | None:
    """The version of a distribution; None for one that is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str | None:
    # An installed copy may lie inside a checkout of something else; only one that holds this package is ours.
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git("rev-parse", "--short=12", "HEAD")
    changes = any(_git("status", "--porcelain", "--", str(folder)) for folder in (_PACKAGE, _HERE))
    return None if commit is None else commit + ("+" if changes else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=_PACKAGE, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
