"""The environment of a measurement: machine, versions, threads."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import tvm

import tvm_cascade
from corpus.programs.program import Program
from tvm_cascade.devices.host import core_count

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "torch", "numpy")
_ON_A_GPU = ("triton", "flashinfer-python")
_HERE = Path(__file__).resolve().parent
_PACKAGE = Path(tvm_cascade.__file__).resolve().parent


@dataclass(frozen=True)
class Memory:
    """Bandwidths in bytes a second.

    Attributes
    ----------
    read : of a sum of a large vector.
    copy : of a copy of it: bytes read and bytes written together.
    """

    read: float
    copy: float

    def seconds(self, program: Program) -> float:
        """What the compulsory traffic of a program takes at least.

        A byte read costs 1/read, and a byte written what a copy takes for it beside that: 2/copy − 1/read.
        """
        return program.bytes_read / self.read + program.bytes_written * (2 / self.copy - 1 / self.read)


@dataclass(frozen=True)
class Environment:
    """What a figure depends on besides the program.

    Attributes
    ----------
    card : name of the GPU, or of the CPU where programs run there.
    target : what TVM's code was generated for.
    cpu, cores, threads : model name of the host, its logical cores, and those that TVM and torch may use.
    versions : by distribution, and of the driver and its libraries; None for one that is not installed.
    commit : of the package's checkout, with `+` where files of it or of the benchmarks were changed; None outside one.
    date : UTC, ISO 8601.
    multiprocessors, l2_bytes : of a GPU.
    memory : measured bandwidths; None where they do not matter.
    """

    card: str
    target: str
    cpu: str
    cores: int
    threads: int
    versions: dict[str, str | None]
    commit: str | None
    date: str
    multiprocessors: int = 0
    l2_bytes: int = 0
    memory: Memory | None = None

    @property
    def slug(self) -> str:
        """The folder of the card's results: h200, intel-xeon-processor."""
        plain = re.sub(r"\([^)]*\)|\b(nvidia|\d+gb.*)\b", " ", self.card.lower())
        return "-".join(re.findall(r"[a-z0-9]+", plain))


def describe(target: tvm.target.Target, threads: int, commit: str | None = None) -> Environment:
    """The environment of this process.

    Parameters
    ----------
    commit : of the measured tree, where that is a copy without its repository.
    """
    versions: dict[str, str | None] = {"tvm-cascade": tvm_cascade.__version__, "python": platform.python_version()}
    versions |= {name: installed_version(name) for name in _PACKAGES}
    attributes = [str(target.attrs.get("mcpu", "")), *map(str, target.attrs.get("mattr", ()))]
    return Environment(
        card=(cpu := _cpu_model()),
        target=" ".join([target.kind.name, *attributes]),
        cpu=cpu,
        cores=core_count(),
        threads=threads,
        versions=versions,
        commit=commit or _commit(),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def describe_gpu(torch: Any, target: tvm.target.Target, commit: str | None = None) -> Environment:
    """The same of a process that uses the first GPU."""
    host, card = describe(target, core_count(), commit), torch.cuda.get_device_properties(0)
    versions = {**host.versions, **{name: installed_version(name) for name in _ON_A_GPU}}
    versions["torch"] = torch.__version__  # what is imported, and not what some distribution is called
    versions |= {"CUDA": str(torch.version.cuda), "cuDNN": str(torch.backends.cudnn.version()), "driver": _driver()}
    gpu = {"card": card.name, "multiprocessors": card.multi_processor_count, "l2_bytes": card.L2_cache_size}
    return replace(host, target=f"cuda sm_{card.major}{card.minor}", versions=versions, **gpu)


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


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
