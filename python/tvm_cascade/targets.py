"""The CPU that code is generated for: what this machine offers, or what the user asks for."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from tvm.target import Target, codegen

from tvm_cascade.errors import InputError

# Vector extensions that a virtual machine may hide from a processor that has them. Linux and LLVM agree on the names.
_MASKABLE_FEATURES = ("avx512f", "avx2", "fma", "avx")


def resolve_target(target: str | dict[str, Any] | Target) -> Target:
    """The LLVM target meant: "auto" is the CPU of this machine.

    Raises
    ------
    InputError
        When it is no target, or one of another kind than LLVM.
    """
    if isinstance(target, str) and target == "auto":
        return host_target()
    hint = 'pass "auto", "llvm" or {"kind": "llvm", "mcpu": "znver4", "num-cores": 8}, say'
    try:
        resolved = target if isinstance(target, Target) else Target(target)
    except (TypeError, ValueError) as error:
        raise InputError("a target of TVM", repr(target), "target", hint) from error
    if resolved.kind.name != "llvm":
        raise InputError("a CPU target, of kind llvm", resolved.kind.name, "target", hint)
    return resolved


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
