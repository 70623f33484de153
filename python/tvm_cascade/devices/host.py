"""The CPU of this machine as a target."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from tvm.target import Target, codegen

# Vector extensions that a virtual machine may hide from a processor that has them. Linux and LLVM agree on the names.
_MASKABLE_FEATURES = ("avx512f", "avx2", "fma", "avx")


@cache
def host_target() -> Target:
    """The CPU of this machine with the vector extensions that it really offers, and the cores that we may use."""
    wanted: dict[str, Any] = {"kind": "llvm", "num-cores": core_count()}
    if cpu := codegen.llvm_get_system_cpu():
        wanted["mcpu"] = cpu
    offered = _cpu_flags()
    known = codegen.llvm_get_cpu_features(Target(wanted))
    if masked := [f"-{name}" for name in _MASKABLE_FEATURES if offered and name in known and name not in offered]:
        wanted["mattr"] = masked
    return Target(wanted)


def core_count() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_flags() -> frozenset[str]:
    """The features that Linux lists for the first core; empty where it does not say (other systems, Arm)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split()) for line in lines if line.startswith("flags")), frozenset())
