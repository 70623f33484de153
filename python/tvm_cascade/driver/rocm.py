"""The ROCm backend: S-TIR schedules for waves of 64 lanes, as a code object for the architecture of a card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from tvm_cascade.devices.cards import CARDS
from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.backend import Backend, Goal, Lowered, export_library
from tvm_cascade.driver.gpu import gpu_options, lower_gpu, plain_gpu
from tvm_cascade.driver.rocm_code import generate_rocm, with_waits
from tvm_cascade.errors import InputError
from tvm_cascade.schedule.amdgpu_math import lower_amdgpu_math
from tvm_cascade.schedule.bfloat16 import lower_bfloat16, round_float8
from tvm_cascade.transform.fuse_function import Outcome

_PREFIX = "gfx"
_EXAMPLE = '{"kind": "rocm", "mcpu": "gfx942"}'


def rocm_target(target: Target, stated: Mapping[str, Any]) -> Target:
    """A ROCm target with the architecture of a card that is known, and this machine's CPU as its host.

    Where it states no architecture, that is what TVM finds for this machine's first GPU.

    Raises
    ------
    InputError
        When the architecture is that of no card that has a row, or none is stated and there is no GPU.
    """
    known = [card.arch for card in CARDS if card.arch.startswith(_PREFIX)]
    hint = f"pass {_EXAMPLE}"
    if "mcpu" not in stated and not tvm.rocm(0).exist:
        raise InputError("a GPU, or the architecture to compile for", "no ROCm device here", "target", hint)
    if str(target.attrs["mcpu"]) not in known:
        found = repr(str(target.attrs["mcpu"]))
        raise InputError(f"the architecture of a card, {' or '.join(known)}", found, "target", hint)
    described = {key: value for key, value in target.export().items() if key not in ("tag", "host", "keys")}
    return with_waits(Target(described, host=host_target()))


def lower_rocm(outcome: Outcome, name: str, goal: Goal) -> Lowered:
    """Lowers a function for an AMD GPU, with the reason why it has no kernel of a skeleton.

    Raises
    ------
    InputError
        When it calls an elementary function that the GPU does not compute.
    """
    return finish_rocm(lower_gpu(outcome, name, goal), name)


def finish_rocm(lowered: Lowered, name: str) -> Lowered:
    """A lowered function in arithmetic that the GPU supports.

    Raises
    ------
    InputError
        As `lower_rocm`.
    """
    func, replaced = _without_libraries(lowered.func, name)
    return dataclasses.replace(lowered, func=func, replaced=replaced)


def plain_rocm(outcome: Outcome, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function as written, in one thread, in arithmetic that the GPU supports."""
    return _without_libraries(round_float8(plain_gpu(outcome, func)), str(func.attrs["global_symbol"]))[0]


def _without_libraries(func: tirx.PrimFunc, name: str) -> tuple[tirx.PrimFunc, tuple[str, ...]]:
    return lower_amdgpu_math(lower_bfloat16(func) or func, name)


def _export(built: tvm.runtime.Executable, _mod: tvm.IRModule, _target: Target, path: Path) -> None:
    export_library(built, path)


ROCM = Backend(
    kind="rocm",
    example=_EXAMPLE,
    runtime="rocm",
    resolve=rocm_target,
    options=gpu_options,
    lower=lower_rocm,
    plain=plain_rocm,
    generate=generate_rocm,
    export=_export,
)
