"""Resolves the user's target: this machine's devices for "auto", or what is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tvm.target import Target, codegen

from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.backends import BACKENDS, backend_of
from tvm_cascade.errors import DeviceError, InputError

_ARCHITECTURES = {"sm_": ("cuda", "arch"), "gfx": ("rocm", "mcpu")}
"""By prefix of an architecture, the kind of target and the attribute that states it."""


def resolve_target(target: str | dict[str, Any] | Target) -> Target:
    """The target meant: "auto" is the CPU of this machine; the name of a kind of GPU, such as "cuda", its first one.

    "sm_90a" and "gfx942" are GPUs of that architecture. What a target of a GPU leaves out comes from the GPU of this
    machine, and its host is this machine's CPU.

    Raises
    ------
    InputError
        When it is no target, one of a kind without a backend, or one that its backend cannot complete.
    """
    if isinstance(target, str) and target == "auto":
        return host_target()
    bare = [f'"{kind}"' for kind, backend in BACKENDS.items() if backend.runtime != "cpu"]
    hint = f'pass "auto", {", ".join([*bare, *(backend.example for backend in BACKENDS.values())])}'
    try:
        target = _of_architecture(target) if isinstance(target, str) else target
        resolved = target if isinstance(target, Target) else Target(target)
    except (TypeError, ValueError) as error:
        raise InputError("a target of TVM", repr(target), "target", hint) from error
    if resolved.kind.name not in BACKENDS:
        raise InputError(f"a target of kind {' or '.join(BACKENDS)}", resolved.kind.name, "target", hint)
    return backend_of(resolved).resolve(resolved, _stated(target, resolved))


_INSTRUCTIONS = re.compile(r"avx|sse|fma|f16c|bmi|amx|vaes|vpclmul|gfni|neon|sv|sme|dotprod|i8mm|bf16|fullfp16|lse")
"""Features of processors without which code for them ends the process; others tell what is slow."""


def lacking(target: Target) -> str:
    """What code for the target needs and this machine has not; empty where it runs."""
    host = target if target.host is None else target.host
    triple = str(host.attrs.get("mtriple", ""))
    if triple not in ("", codegen.llvm_get_system_triple()):
        return f"a processor and system {triple}"
    needed, offered = (set(map(str, codegen.llvm_get_cpu_features(one))) for one in (host, host_target()))
    if missing := sorted(filter(_INSTRUCTIONS.match, needed - offered)):
        return f"a processor with {', '.join(missing)}"
    return "" if backend_of(target).first_device.exist else f"a GPU of kind {target.kind.name}"


def check_runs_here(target: Target) -> None:
    """Refuse code that was compiled for another machine: an instruction that a processor lacks ends the process.

    Raises
    ------
    DeviceError
        When this machine cannot run code for the target.
    """
    if wanted := lacking(target):
        here = str(host_target().attrs.get("mcpu", "another machine"))
        raise DeviceError(wanted, here, "compiled code", "compile the program on this machine")


def _of_architecture(target: str) -> str | dict[str, Any]:
    """The target of a GPU that is named by its architecture alone; any other as it is."""
    keys = [key for prefix, key in _ARCHITECTURES.items() if target.startswith(prefix)]
    return {"kind": keys[0][0], keys[0][1]: target} if keys else target


def _stated(target: str | dict[str, Any] | Target, resolved: Target) -> Mapping[str, Any]:
    """What the user stated of a target: everything, by an object or a tag; of what a bare kind leaves out, nothing."""
    if isinstance(target, dict):
        return target
    return {} if target == resolved.kind.name else resolved.export()
