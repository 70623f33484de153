"""The CPU or GPU that code is generated for: what this machine offers, or what the user asks for."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target, codegen

from tvm_cascade.errors import InputError

# Vector extensions that a virtual machine may hide from a processor that has them. Linux and LLVM agree on the names.
_MASKABLE_FEATURES = ("avx512f", "avx2", "fma", "avx")

# Compute capabilities of the cards that CUDA 12 and 13 compile for.
_CARDS = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
_FIRST_WITH = {"": 0, "a": 90, "f": 100}
"""From which on there are instructions of one card alone (a), or of a family (f)."""


def resolve_target(target: str | dict[str, Any] | Target) -> Target:
    """The target meant: "auto" is the CPU of this machine, "cuda" its first GPU.

    A CUDA target gets its architecture from the GPU where it names none, and this machine's CPU as its host. Kernels
    for Hopper need sm_90a, which a device reports as sm_90.

    Raises
    ------
    InputError
        When it is no target, one of another kind than LLVM or CUDA, or a CUDA target whose architecture is not known,
        or is that of no card.
    """
    if isinstance(target, str) and target == "auto":
        return host_target()
    hint = (
        'pass "auto", "cuda", {"kind": "llvm", "mcpu": "znver4", "num-cores": 8} or {"kind": "cuda", "arch": "sm_90a"}'
    )
    try:
        resolved = target if isinstance(target, Target) else Target(target)
    except (TypeError, ValueError) as error:
        raise InputError("a target of TVM", repr(target), "target", hint) from error
    if resolved.kind.name == "cuda":
        named = isinstance(target, Target) or (isinstance(target, dict) and "arch" in target)
        return _cuda_target(resolved, _checked(str(resolved.attrs["arch"])) if named else _device_architecture(hint))
    if resolved.kind.name != "llvm":
        raise InputError("a target of kind llvm or cuda", resolved.kind.name, "target", hint)
    return resolved


def _cuda_target(target: Target, arch: str) -> Target:
    described = {key: value for key, value in target.export().items() if key not in ("tag", "host", "arch", "keys")}
    return Target({**described, "arch": "sm_90a" if arch == "sm_90" else arch}, host=host_target())


def _checked(arch: str) -> str:
    parts = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if parts is None or int(parts[1]) not in _CARDS or int(parts[1]) < _FIRST_WITH[parts[2]]:
        hint = f"cards have {', '.join(f'sm_{card}' for card in _CARDS)}; pass sm_90a for Hopper's own instructions"
        raise InputError("the architecture of a card", repr(arch), "target", hint)
    return arch


def _device_architecture(hint: str) -> str:
    device = tvm.cuda(0)
    if not device.exist:
        raise InputError("a GPU, or the architecture to compile for", "no CUDA device here", "target", hint)
    return "sm_" + str(device.compute_version).replace(".", "")


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
