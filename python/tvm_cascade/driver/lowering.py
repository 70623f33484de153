"""The common path of `compile` and `explain`: fuse functions for a target, then lower by its backend."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx
from tvm.target import Target

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal, Lowered, as_it_is
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.buckets import Choice, choose, symbolic_extents
from tvm_cascade.driver.progress import tell
from tvm_cascade.driver.space import Design, Sizes, Space
from tvm_cascade.driver.spaces import space_of
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.buckets import Bucket, Buckets, dispatching, lengths_of, tree_of
from tvm_cascade.plan.plan import names_beside
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

    @property
    def missing(self) -> str:
        """Why the model chooses where the design is in no space."""
        words = ", ".join(f"{knob}: {value}" for knob, value in self.words.items())
        return f"the one on record, {words}, is no design of this release"

    def design(self, space: Space) -> Design | None:
        return space.find(self.words)


Designs: TypeAlias = Callable[[tirx.PrimFunc, Goal, Sizes], Known | str]
"""What is known of a function for a goal, at sizes of its symbolic extents where these are given; or why nothing is,
which is empty where nobody asked."""

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


def lowered(outcomes: Mapping[str, Outcome], goal: Goal, module: Iterable[str] = ()) -> dict[str, Designed]:
    """Each function, ready for code generation, and its outcome: declined, where it is best unfused at all lengths.

    Parameters
    ----------
    module : names of all functions beside them.
    """
    backend, goal = backend_of(goal.target), dataclasses.replace(goal, taken=frozenset((*module, *outcomes)))
    ready = dict[str, Designed]()
    for number, (name, outcome) in enumerate(outcomes.items(), 1):
        tell(f"planning {number} of {len(outcomes)} functions")
        several = None if outcome.program is None else _bucketed(outcome.program.func, name, goal, None)
        if several is None or (goal.options.force and not several[0][0].fused):
            ready[name] = outcome, backend.lower(outcome, name, goal)
            continue
        made, one = several[0]
        told = outcome if made.fused == outcome.fused else made if made.fused else _declined(outcome, made.func)
        ready[name] = told, one
    return ready


def _declined(outcome: Outcome, func: tirx.PrimFunc) -> Outcome:
    """The outcome of a function that was fused, and is left as it was."""
    decisions = tuple(
        dataclasses.replace(one, reason=Reason("cost", f"{', '.join(one.candidate.names)}: at all lengths"))
        if one.reason.verdict is Verdict.FUSED
        else one
        for one in outcome.decisions
    )
    return Outcome(func, decisions, outcome.program)


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
        if (several := _bucketed(func, name, goal, designs)) is not None:
            found[name], origins[name] = several
            continue
        if isinstance(known := designs(func, goal, {}), str):
            origins |= {name: f"{MODEL}: {known}"} if known else {}
            continue
        space = space_of(func, name, goal, replayed=known.replayed)
        design, told = _replayed(known, space, name)
        if design is None:
            origins[name] = f"{MODEL}: {told}"
        else:
            found[name], origins[name] = space.lower(design), told
    return found, origins


def _replayed(known: Known, space: Space, name: str) -> tuple[Design | None, str]:
    """The design on record and where it comes from; or why it is none of the space."""
    if (design := known.design(space)) is not None:
        return design, known.origin
    if known.asked:
        warnings.warn(f"`{name}` is chosen by {MODEL}: {known.missing}", stacklevel=6)
    return None, known.missing


def _bucketed(func: tirx.PrimFunc, name: str, goal: Goal, designs: Designs | None) -> tuple[Designed, str] | None:
    """A function of symbolic extents with its kernels for buckets, and where the design is from if there is but one.

    None of a function that offers nothing to choose from, or is to be one kernel.
    """
    options, extents = goal.options, symbolic_extents(func)
    if not extents or options.buckets == 1 or not (goal.fuse and options.schedule):
        return None
    space = space_of(func, name, goal)
    if not space.knobs:
        return None

    def asked(sizes: Sizes) -> tuple[Design | None, str]:
        assert designs is not None
        known = designs(func, goal, sizes)
        return (None, known) if isinstance(known, str) else _replayed(known, space.for_sizes(sizes), name)

    choice = choose(space, extents, None if designs is None else asked, options.buckets)
    if len(choice.designs) == 1:
        return space.lower(choice.designs[0]), "; ".join(dict.fromkeys(choice.origins.values()))
    return _dispatched(func, name, goal, space, choice), ""


def _dispatched(func: tirx.PrimFunc, name: str, goal: Goal, space: Space, choice: Choice) -> Designed:
    """The function that calls one of several kernels, with these."""
    called = names_beside(name, len(choice.designs), goal.taken)
    made = [space.lower(*pair) for pair in zip(choice.designs, called, strict=True)]
    sources = {cell: (kernel, choice.origins[cell]) for cell, kernel in choice.kernels.items()}
    rows = list(dict.fromkeys(sources.values()))
    told = tree_of(choice.bounds, {cell: rows.index(source) for cell, source in sources.items()})
    lengths = lengths_of(told, [extent.name for extent in choice.extents])
    buckets = tuple(
        Bucket(lengths[place], called[kernel], space.words(choice.designs[kernel]), origin, made[kernel][1].chosen)
        for place, (kernel, origin) in enumerate(rows)
    )
    steps = {
        step: function.with_attr("global_symbol", step)
        for kernel, (_, one) in zip(called, made, strict=True)
        for step, function in {kernel: one.func, **one.steps}.items()
    }
    replaced = tuple(dict.fromkeys(function for _, one in made for function in one.replaced))
    host = dispatching(func, choice.extents, tree_of(choice.bounds, choice.kernels), name, called)
    outcome = next((outcome for outcome, _ in made if outcome.fused), made[0][0])
    return outcome, Lowered(host, Buckets(buckets), replaced, steps)
