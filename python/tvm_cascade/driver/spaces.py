"""The space of designs of a function, by the kind of its target."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from tvm_cascade.driver.backend import Goal
from tvm_cascade.driver.cpu_space import cpu_space
from tvm_cascade.driver.gpu_space import Replayed, gpu_space
from tvm_cascade.driver.rocm import finish_rocm
from tvm_cascade.driver.space import Space

_SPACES: dict[str, Callable[[tirx.PrimFunc, str, Goal, int | None, Replayed], Space]] = {
    "llvm": lambda func, name, goal, _mixing, _replayed: cpu_space(func, name, goal),  # lists all values of its knobs
    "rocm": lambda func, name, goal, mixing, replayed: gpu_space(func, name, goal, mixing, replayed, finish_rocm),
}
"""By kind of target; other kinds are GPUs whose code is finished as it was lowered."""


def space_of(func: tirx.PrimFunc, name: str, goal: Goal, mixing: int | None = None, replayed: Replayed = None) -> Space:
    """What a function of that name may be lowered to for a goal.

    Parameters
    ----------
    mixing : seed of configurations that no skeleton lists, which need not fit; None for none of them.
    replayed : designs in words, where only these and the default are looked for: others need not be in the space.
    """
    return _SPACES.get(goal.target.kind.name, gpu_space)(func, name, goal, mixing, replayed)
