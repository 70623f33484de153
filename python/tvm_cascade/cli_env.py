"""`python -m tvm_cascade env` and `workloads`: what is installed and in force, and what there is to run."""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
from importlib import metadata

import tvm
from rich.table import Table
from tvm.target import codegen

from tvm_cascade import native
from tvm_cascade.bench import workloads
from tvm_cascade.cli_arguments import console
from tvm_cascade.errors import CascadeError
from tvm_cascade.options import FuseOptions
from tvm_cascade.targets import core_count, host_target

_DISTRIBUTIONS = ("apache-tvm", "apache-tvm-ffi", "numpy", "sympy", "rich")
_EXTRAS = {"torch": "bench", "xgboost": "tune", "psutil": "tune", "cloudpickle": "tune"}
_VECTOR_FEATURES = ("sse4.2", "avx", "avx2", "fma", "avx512f", "avx512bf16", "amx-tile", "neon", "sve")
_THREAD_VARIABLES = ("TVM_NUM_THREADS", "OMP_NUM_THREADS")


class Environment:
    """The command `env`."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """It takes none."""

    @staticmethod
    def run(_args: argparse.Namespace) -> int:
        """Print what a report of a problem needs; returns the exit code."""
        from tvm_cascade import __version__

        options = FuseOptions.from_environment()
        target = host_target()
        rows = [("tvm-cascade", __version__), ("python", platform.python_version()), ("system", platform.platform())]
        rows += [(name, _version(name)) for name in _DISTRIBUTIONS]
        rows += [(f"{name} (extra `{extra}`)", _version(name)) for name, extra in _EXTRAS.items()]
        rows += [("llvm", str(codegen.llvm_version_major(allow_none=True))), ("target", str(target))]
        rows += [("cpu features", _features(target)), ("threads", _threads())]
        rows += [("native library", native.why_absent() or str(native.library_path())), ("gpus", _gpus())]
        for field in dataclasses.fields(FuseOptions):
            variable = f"TVM_CASCADE_{field.name.upper()}"
            source = f"  (from {variable})" if os.environ.get(variable) else ""
            rows.append((f"option {field.name}", f"{getattr(options, field.name)}{source}"))
        table = Table(show_header=False, box=None)
        for row in rows:
            table.add_row(*row)
        console().print(table, markup=False)
        return 0


class Workloads:
    """The command `workloads`."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """--family and --source."""
        parser.add_argument("--family", help="only those of one family")
        parser.add_argument("--source", help="only those from one source")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Print the workloads; returns the exit code."""
        table = Table("name", "family", "source", "dtype", "shape", box=None)
        for name in workloads.names(args.family, args.source):
            workload = workloads.get(name)
            shape = " ".join(f"{extent}={size}" for extent, size in workload.shape.items())
            table.add_row(name, workload.family, workload.source, workload.dtype, shape)
        console().print(table)
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
    try:
        found = [native.device_properties(device) for device in range(native.device_count())]
    except CascadeError as error:
        return f"unknown: {error.found}" if native.library_path() else "unknown without the native library"
    return ", ".join(f"{gpu.name} ({gpu.arch}, {gpu.multiprocessors} multiprocessors)" for gpu in found) or "none"


def _threads() -> str:
    settings = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    return " ".join([f"{core_count()} cores", *settings])
