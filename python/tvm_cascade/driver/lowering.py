"""The common path of `compile` and `explain`: fuse functions for a target, then lower by its backend."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.target import Target

from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal, Lowered, as_it_is
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.space import Design, Space
from tvm_cascade.driver.spaces import space_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.report.outcomes import MODEL
from tvm_cascade.transform.fuse_function import Outcome, fuse_function


@dataclass(frozen=True)
class Known:
    """A design that is known to be the best of a function.

    Attributes
    ----------
    words : the values of its knobs.
    origin : where it comes from, for the report.
    asked : by the caller, who is warned where it is no design of this release; no shipped record is.
    """

    words: Mapping[str, str]
    origin: str
    asked: bool = True

    @property
    def replayed(self) -> Collection[Mapping[str, str]]:
        """The designs that a space is asked for."""
        return [self.words]

    def design(self, space: Space) -> Design | None:
        """The design in a space; None where it is not there."""
        return space.find(self.words)


Designs: TypeAlias = Callable[[tirx.PrimFunc, Goal], Known | str]
"""What is known of a function for a goal; or why nothing is, which is empty where nobody asked."""

Designed: TypeAlias = tuple[Outcome, Lowered]


def goal_of(
    target: Target,
    options: FuseOptions,
    fuse: bool = True,
) -> Goal:
    """The goal of a whole target, with the options that its backend asks for."""
    return Goal(target, device_of(target), backend_of(target).options(options), fuse)


def fused(functions: Mapping[str, tirx.PrimFunc], goal: Goal) -> dict[str, Outcome]:
    """The outcome of the pass for each function; where fusing is off, the function unchanged."""
    if not goal.fuse:
        return {name: as_it_is(func) for name, func in functions.items()}
    return {name: fuse_function(func, goal.options, goal.device) for name, func in functions.items()}


def lowered(outcomes: Mapping[str, Outcome], goal: Goal, module: Iterable[str] = ()) -> dict[str, Lowered]:
    """Each function, ready for code generation.

    Parameters
    ----------
    module : names of all functions beside them.
    """
    backend, goal = backend_of(goal.target), dataclasses.replace(goal, taken=frozenset((*module, *outcomes)))
    return {name: backend.lower(outcome, name, goal) for name, outcome in outcomes.items()}


def designed(
    functions: Mapping[str, tirx.PrimFunc], goal: Goal, designs: Designs
) -> tuple[dict[str, Designed], dict[str, str]]:
    """Each function in the design that is known for it, and where the designs of all come from.

    Parameters
    ----------
    designs : of a function and a goal, what is known.
    """
    goal, found = dataclasses.replace(goal, taken=frozenset(functions)), dict[str, Designed]()
    origins = dict[str, str]()
    for name, func in functions.items():
        if isinstance(known := designs(func, goal), str):
            origins |= {name: f"{MODEL}: {known}"} if known else {}
            continue
        space = space_of(func, name, goal, replayed=known.replayed)
        if (design := known.design(space)) is None:
            told = ", ".join(f"{knob}: {value}" for knob, value in known.words.items())
            origins[name] = f"{MODEL}: the one on record, {told}, is no design of this release"
            if known.asked:
                warnings.warn(f"`{name}` is chosen by {origins[name]}", stacklevel=5)
        else:
            found[name], origins[name] = space.lower(design), known.origin
    return found, origins
