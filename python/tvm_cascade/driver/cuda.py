"""The CUDA backend: kernels of skeletons and S-TIR schedules, compiled for the architecture of a card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import tvm
from tvm.target import Target

from tvm_cascade.devices.host import host_target
from tvm_cascade.driver.backend import Backend
from tvm_cascade.driver.cuda_compiler import generate_cuda
from tvm_cascade.driver.cuda_library import export_cuda
from tvm_cascade.driver.gpu import gpu_options, lower_gpu, plain_gpu
from tvm_cascade.errors import InputError

_CAPABILITIES = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
"""Compute capabilities of the cards that CUDA 12 and 13 compile for."""

_FIRST_WITH = {"": 0, "a": 90, "f": 100}
"""From which on there are instructions of one card alone (a), or of a family (f)."""

_EXAMPLE = '{"kind": "cuda", "arch": "sm_90a"}'


def cuda_target(target: Target, stated: Mapping[str, Any]) -> Target:
    """A CUDA target with an architecture, and this machine's CPU as its host.

    Where it states no architecture, that and the model are those of this machine's first GPU. Hopper's own instructions
    need sm_90a, which a device reports as sm_90, and TVM so in a target of its own; where a user names sm_90 by a text
    or a dictionary, that is meant.

    Raises
    ------
    InputError
        When the architecture is that of no card, or none is stated and there is no GPU.
    """
    said = {key: value for key, value in target.export().items() if key not in ("tag", "host", "keys")}
    if "arch" in stated:
        said["arch"] = _checked(str(target.attrs["arch"]))
    else:
        said |= _of_the_device()
    named = "arch" in stated and ("keys" not in stated or target.host == host_target())  # or resolved already
    if said["arch"] == "sm_90" and not named:
        said["arch"] = "sm_90a"
    return Target(said, host=host_target())


def _checked(arch: str) -> str:
    parts = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if parts is None or int(parts[1]) not in _CAPABILITIES or int(parts[1]) < _FIRST_WITH[parts[2]]:
        known = ", ".join(f"sm_{capability}" for capability in _CAPABILITIES)
        hint = f"cards have {known}; pass sm_90a for Hopper's own instructions"
        raise InputError("the architecture of a card", repr(arch), "target", hint)
    return arch


def _of_the_device() -> dict[str, str]:
    """The architecture and the model of this machine's first GPU."""
    device = tvm.cuda(0)
    if not device.exist:
        hint = f"pass {_EXAMPLE}"
        raise InputError("a GPU, or the architecture to compile for", "no CUDA device here", "target", hint)
    return {"arch": "sm_" + str(device.compute_version).replace(".", ""), "model": str(device.device_name)}


CUDA = Backend(
    kind="cuda",
    example=_EXAMPLE,
    runtime="cuda",
    resolve=cuda_target,
    options=gpu_options,
    lower=lower_gpu,
    plain=plain_gpu,
    generate=generate_cuda,
    export=export_cuda,
)
