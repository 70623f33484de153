"""The space of designs of a function, by the kind of its target."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.cpu_space import cpu_space
from tvm_cascade.driver.gpu_space import gpu_space
from tvm_cascade.driver.rocm import finish_rocm
from tvm_cascade.driver.space import Space

_SPACES: dict[str, Callable[[tirx.PrimFunc, str, Goal], Space]] = {
    "llvm": cpu_space,
    "rocm": lambda func, name, goal: gpu_space(func, name, goal, finish_rocm),
}
"""By kind of target; other kinds are GPUs whose code is finished as it was lowered."""


def space_of(func: tirx.PrimFunc, name: str, goal: Goal) -> Space:
    """What a function of that name may be lowered to for a goal."""
    return _SPACES.get(goal.target.kind.name, gpu_space)(func, name, goal)
