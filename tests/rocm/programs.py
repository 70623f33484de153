"""Functions as the backend of ROCm gives them to code generation, checked by the emulator of waves."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.target import Target

from tvm_cascade.driver.lowering import goal_of
from tvm_cascade.driver.rocm import ROCM
from tvm_cascade.driver.targets import resolve_target
from tvm_cascade.evaluate import oracle, tolerance
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import fuse_function

from .emulator.run import Array, execute


def target_of(mcpu: str = "gfx942") -> Target:
    """The whole target of an architecture."""
    return resolve_target({"kind": "rocm", "mcpu": mcpu})


def lowered(func: tirx.PrimFunc, **options: object) -> tirx.PrimFunc:
    """The function fused, scheduled and in arithmetic that the GPU has."""
    goal = goal_of(target_of(), FuseOptions.from_environment(**options))
    return ROCM.lower(fuse_function(func, goal.options, goal.device), "main", goal).func


def differences(func: tirx.PrimFunc, inputs: Sequence[Array], outputs: dict[str, Array]) -> str:
    """Which output is farther from the oracle's than the unfused program's rounding allows; empty where none is."""
    exact, usual = oracle.evaluate(func, inputs), oracle.evaluate(func, inputs, rounding=True)
    length = max(int(extent) for param in func.params for extent in param.ty.shape)
    for name, value in outputs.items():
        found = tolerance.check(value, exact[name], usual[name], length=length, dtype=str(value.dtype))
        if not found.ok:
            return f"{name}: {found.message}"
    return ""


def assert_right(func: tirx.PrimFunc, inputs: Sequence[Array], **options: object) -> None:
    """The function's kernels, run as the GPU would run them, compute what it says."""
    wrong = differences(func, inputs, execute(lowered(func, **options), target_of(), inputs))
    assert not wrong, wrong
