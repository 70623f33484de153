"""The host function of a plan: allocates its temporaries and calls its steps in order.

TVM's runtime takes temporaries from a pool of the calling thread and device, so that a later call has them again: on
one stream, after all kernels of the call before. Calls of one thread on several streams at once would have the same
temporaries; calls of several threads have their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm import tirx

from tvm_cascade.plan.plan import Plan
from tvm_cascade.tile.launch.dependent import WAITS


def host_function(plan: Plan, name: str, steps: Sequence[str]) -> tirx.PrimFunc:
    """The function that a caller calls.

    Parameters
    ----------
    name : the function's own.
    steps : names of the functions of the plan's steps, in the same module.
    """
    allocations = [tirx.AllocBuffer(buffer) for buffer in plan.temporaries]
    calls = [
        tirx.Evaluate(tirx.call_cpacked(called, *step.arguments))
        for called, step in zip(steps, plan.steps, strict=True)
    ]
    made = tirx.PrimFunc(list(plan.params), tirx.SeqStmt([*allocations, *calls]))
    return made.with_attr("global_symbol", name)


def as_step(func: tirx.PrimFunc, name: str, waits: bool) -> tirx.PrimFunc:
    """A step's function under its name; its kernels wait for those before them, or are the first."""
    return func.with_attr("global_symbol", name).with_attr(WAITS, waits)


def names_beside(name: str, count: int, taken: Collection[str]) -> list[str]:
    """Names of so many functions that another calls, which no function has."""
    stem = name
    while any(f"{stem}_{k}" in taken for k in range(count)):
        stem += "_"
    return [f"{stem}_{k}" for k in range(count)]
