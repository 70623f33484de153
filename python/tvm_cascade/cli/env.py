"""`python -m tvm_cascade env`: versions, devices and settings, for bug reports."""

from __future__ import annotations

import argparse
import itertools
import os
import platform
from importlib import metadata

import tvm
from rich.table import Table
from tvm.target import codegen

from tvm_cascade import __version__
from tvm_cascade.cli.arguments import console
from tvm_cascade.cli.lists import options_in_force
from tvm_cascade.devices.host import core_count, host_target

_DISTRIBUTIONS = ("apache-tvm", "apache-tvm-ffi", "numpy", "sympy", "rich")
_EXTRAS = {"torch": "bench", "xgboost": "tune", "psutil": "tune", "cloudpickle": "tune", "ziglang": "rocm"}
_VECTOR_FEATURES = ("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512bf16", "amx-tile", "neon", "sve")
_THREAD_VARIABLES = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")


def run(_args: argparse.Namespace) -> int:
    """Print what a report of a problem needs; returns the exit code."""
    options = options_in_force()
    target = host_target()
    rows = [("tvm-cascade", __version__), ("python", platform.python_version()), ("system", platform.platform())]
    rows += [(name, _version(name)) for name in _DISTRIBUTIONS]
    rows += [(f"{name} (extra `{extra}`)", _version(name)) for name, extra in _EXTRAS.items()]
    rows += [("llvm", str(codegen.llvm_version_major(allow_none=True))), ("target", str(target))]
    rows += [("cpu features", _features(target)), ("threads", _threads())]
    rows += [("gpus", _gpus())]
    rows += [(f"option {name}", value) for name, value in options.items()]
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*row)
    console().print(table, markup=False)
    return 0


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _features(target: tvm.target.Target) -> str:
    known = codegen.llvm_get_cpu_features(target)
    return " ".join(name for name in _VECTOR_FEATURES if name in known) or "unknown"


def _gpus() -> str:
    devices = itertools.takewhile(lambda gpu: gpu.exist, map(tvm.cuda, itertools.count()))
    found = [f"{gpu.device_name} ({gpu.compute_version}, {gpu.multi_processor_count} processors)" for gpu in devices]
    return ", ".join(found) or "none"


def _threads() -> str:
    settings = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    return " ".join([f"{core_count()} cores", *settings])
