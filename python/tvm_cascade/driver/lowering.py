"""The common path of `compile` and `explain`: fuse functions for a target, then lower by its backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tvm import tirx
from tvm.target import Target

from tvm_cascade.analysis.program import Program
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal, Lowered
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.transform.fuse_function import Outcome, fuse_function, read_function


def goal_of(
    target: Target,
    options: FuseOptions,
    fuse: bool = True,
    tuned: Callable[[tirx.PrimFunc], tirx.PrimFunc | None] | None = None,
) -> Goal:
    """The goal of a whole target, with the options that its backend asks for."""
    return Goal(target, device_of(target), backend_of(target).options(options), fuse, tuned)


def fused(functions: Mapping[str, tirx.PrimFunc], goal: Goal) -> dict[str, Outcome]:
    """The outcome of the pass for each function; where fusing is off, the function unchanged."""
    if not goal.fuse:
        return {name: _as_it_is(func) for name, func in functions.items()}
    return {name: fuse_function(func, goal.options, goal.device) for name, func in functions.items()}


def lowered(outcomes: Mapping[str, Outcome], goal: Goal) -> dict[str, Lowered]:
    """Each function, ready for code generation."""
    backend, goal = backend_of(goal.target), dataclasses.replace(goal, taken=frozenset(outcomes))
    return {name: backend.lower(outcome, name, goal) for name, outcome in outcomes.items()}


def _as_it_is(func: tirx.PrimFunc) -> Outcome:
    program = read_function(func)
    return Outcome(func, (), program if isinstance(program, Program) and not program.opaque else None)
