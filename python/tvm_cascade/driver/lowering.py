"""The common path of `compile` and `explain`: fuse functions for a target, then lower by its backend."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tvm import ir, tirx
from tvm.target import Target

from tvm_cascade.algebra.verdict import Reason, Verdict
from tvm_cascade.devices.read import device_of
from tvm_cascade.driver.backend import Goal, Lowered, as_it_is, joined
from tvm_cascade.driver.backends import backend_of
from tvm_cascade.driver.chunking import lowered_whole_or_in_chunks
from tvm_cascade.driver.gpu_space import space_of
from tvm_cascade.driver.progress import tell
from tvm_cascade.driver.space import NOISE, TOLD_APART, Design, Sizes, Space
from tvm_cascade.options import FuseOptions
from tvm_cascade.plan.buckets import Bucket, Buckets, Cell, dispatching, lengths_of, tree_of
from tvm_cascade.plan.plan import names_beside
from tvm_cascade.report.outcomes import MODEL
from tvm_cascade.tile.estimate import NOMINAL
from tvm_cascade.transform.fuse_function import Outcome, fuse_function


@dataclass(frozen=True)
class Known:
    """The design that is known to be the best of a function, or several that were measured where it was not.

    Attributes
    ----------
    designs : the values of knobs, and the measured time over the estimate there.
    origin : where they come from, for the report.
    asked : by the caller, who is warned where none is a design of this release; no shipped record is.
    """

    designs: Sequence[tuple[Mapping[str, str], float]]
    origin: str
    asked: bool = True

    @property
    def missing(self) -> str:
        """Why the model chooses where no design is in the space."""
        if len(self.designs) > 1:
            return f"{self.origin}, and none of its designs is one of this function"
        words = ", ".join(f"{knob}: {value}" for knob, value in self.designs[0][0].items())
        return f"the one on record, {words}, is no design of this release"

    def design(self, space: Space) -> Design | None:
        """The design of the least predicted time among those of the space; None where none is of it.

        The model's own where it was measured and is predicted to take hardly more.
        """
        found = [(space.find(words), factor) for words, factor in self.designs]
        predicted = {design: space.seconds(design) * factor for design, factor in found if design is not None}
        if predicted.get(space.default, math.inf) <= NOISE * min(predicted.values(), default=0.0):
            return space.default
        return min(predicted, key=lambda design: predicted[design], default=None)


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
    backend = backend_of(target)
    return Goal(target, device_of(target), backend.options(options), fuse, backend.finish)


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
            ready[name] = outcome, lowered_whole_or_in_chunks(outcome, name, goal, backend)
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
        space = space_of(func, name, goal, replayed=[words for words, _ in known.designs])
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
    host = dispatching(func, choice.extents, tree_of(choice.bounds, choice.kernels), name, called)
    outcome = next((outcome for outcome, _ in made if outcome.fused), made[0][0])
    return outcome, joined(host, Buckets(buckets), {name: one for name, (_, one) in zip(called, made, strict=True)})


# Which kernels a function of symbolic extents has, and for which lengths each is.
#
#     bucket       ≤ 1     2     4    …    512    1024    …    longer
#     best design   A      A     A         B       B             C         of records, else of estimates
#     kernel        0      0     0         1       1             1         those few that lose little
#
# A bucket ends at a power of two. Extents that do not change the choice are not asked for. Of the designs that are best
# in some bucket, as many become kernels as the options allow, each while it saves more than estimates tell apart.


_MOST_CELLS = 24
"""Combinations of buckets that are looked at."""

_UNKNOWN = math.log(2.0)
"""Logarithm of what a design takes where another was measured to be the best, of which the model says nothing."""

_NOTHING = (math.inf, math.inf)
"""What no design at all takes."""

Asked: TypeAlias = Callable[[Sizes], tuple[Design | None, str]]
"""Of sizes, the design that is on record, and where that comes from; or why there is none."""


@dataclass(frozen=True)
class Chosen:
    """What is chosen for the lengths of one bucket.

    Attributes
    ----------
    losses : of designs that are compared, the logarithm of their time over the least.
    origin : where that comes from.
    measured : by the design on record; None where estimates decide.
    """

    losses: dict[Design, float]
    origin: str
    measured: Design | None = None

    def loss(self, design: Design) -> float:
        """The logarithm of what a design takes over the best; 0 where these are hardly told apart."""
        if self.measured is not None and design != self.measured:
            return max(_UNKNOWN, self.losses.get(design, 0.0))
        found = self.losses.get(design, _UNKNOWN)
        return found if found >= TOLD_APART else 0.0

    def order(self, design: Design) -> tuple[float, float]:
        """Less for a better design: what is told apart, then all of it."""
        return self.loss(design), self.losses.get(design, _UNKNOWN)


@dataclass(frozen=True)
class Choice:
    """The kernels of a function, and their buckets.

    Attributes
    ----------
    extents : those that are asked for, by place.
    bounds : of each of these.
    kernels : by cell, the place of a design.
    designs : a kernel each.
    origins : by cell, where the choice comes from.
    """

    extents: tuple[tirx.Var, ...]
    bounds: tuple[tuple[int, ...], ...]
    kernels: dict[Cell, int]
    designs: tuple[Design, ...]
    origins: dict[Cell, str]


def symbolic_extents(func: tirx.PrimFunc) -> list[tirx.Var]:
    """The symbolic extents that a function's tensors tell; none where two have one name."""
    found: list[tirx.Var] = []
    for param in func.params:
        for extent in param.ty.shape if tirx.is_buffer_var(param) else ():
            if isinstance(extent, ir.Var) and not any(extent.same_as(other) for other in found):
                found.append(extent)
    return found if len({extent.name for extent in found}) == len(found) else []


def choose(space: Space, extents: Sequence[tirx.Var], asked: Asked | None, most: int) -> Choice:
    """The kernels of a function and the buckets of each.

    Parameters
    ----------
    space : of the function, with symbolic extents.
    asked : what is on record; estimates decide by default.
    most : kernels.
    """
    return _Search(space, extents, asked, most).choice


class _Search:
    def __init__(self, space: Space, extents: Sequence[tirx.Var], asked: Asked | None, most: int) -> None:
        self.space, self.asked, self.most = space, asked, most
        self.extents = extents
        self.known: dict[tuple[tuple[str, int], ...], Chosen] = {}

    @cached_property
    def designs(self) -> list[Design]:
        """All designs, those of fewer changes first."""
        return sorted(self.space.designs(), key=lambda design: (sum(map(bool, design)), sum(design), design))

    def at(self, sizes: Sizes) -> Chosen:
        """What is chosen for the lengths in the bucket that ends at some sizes."""
        key = tuple(sizes.items())
        if key not in self.known:
            self.known[key] = self._chosen(sizes)
        return self.known[key]

    def _chosen(self, sizes: Sizes) -> Chosen:
        measured, told = (None, "") if self.asked is None else self.asked(sizes)
        space = self.space.for_sizes(sizes)
        if measured is not None and space.seconds(space.default) <= 0.0:
            return Chosen({measured: 0.0}, told, measured)
        seconds = {design: time for design in self.designs if (time := space.seconds(design)) > 0.0}
        if space.default not in seconds:
            return Chosen({measured or space.default: 0.0}, told if measured else _model(told), measured)
        least = min(seconds.values()) if measured is None else seconds.get(measured, min(seconds.values()))
        losses = {design: math.log(time / least) for design, time in seconds.items()}
        return Chosen(losses, told if measured else _model(told), measured)

    @cached_property
    def choice(self) -> Choice:
        """The kernels and their buckets."""
        bounds = {extent.name: bounds for extent in self.extents if (bounds := self._bounds(extent))}
        if len(bounds) == 1:  # what was looked at on the way tells more of it than its changes
            ((name, _),) = bounds.items()
            bounds = {name: sorted({dict(sizes)[name] for sizes in self.known if _others_nominal(sizes, name)})[:-1]}
        while math.prod(len(one) + 1 for one in bounds.values()) > _MOST_CELLS:
            widest = max(bounds, key=lambda name: len(bounds[name]))
            bounds[widest] = bounds[widest][1::2]
        names = list(bounds)
        cells = list(itertools.product(*(range(len(bounds[name]) + 1) for name in names)))
        chosen = {cell: self.at(self._sizes(dict(zip(names, cell, strict=True)), bounds)) for cell in cells}
        designs = self._kernels(list(chosen.values()))
        kernels = {cell: _least(one, designs) for cell, one in chosen.items()}
        used = sorted(set(kernels.values()))
        return Choice(
            tuple(extent for extent in self.extents if extent.name in bounds),
            tuple(tuple(bounds[name]) for name in names),
            {cell: used.index(kernel) for cell, kernel in kernels.items()},
            tuple(designs[kernel] for kernel in used),
            {cell: one.origin for cell, one in chosen.items()},
        )

    def _sizes(self, cell: dict[str, int], bounds: dict[str, list[int]]) -> dict[str, int]:
        """The ends of a cell's buckets; the nominal size of extents that are not asked for."""
        ends = {name: (*bounds[name], 2 * self.space.ends[-1])[place] for name, place in cell.items()}
        return {extent.name: ends.get(extent.name, NOMINAL) for extent in self.extents}

    def _bounds(self, extent: tirx.Var) -> list[int]:
        """Where the choice changes along an extent, the others being of nominal size.

        Where some design is the best at both ends of a range and in its middle, it is taken for that of the range: each
        look takes up to seconds. Records may be of any bucket, and all are asked for.
        """
        ends = [*self.space.ends, 2 * self.space.ends[-1]]

        def at(place: int) -> Chosen:
            return self.at({one.name: ends[place] if one is extent else NOMINAL for one in self.extents})

        def between(first: int, last: int) -> list[int]:
            middle = (first + last) // 2
            same = _alike([at(first), at(middle), at(last)])
            if last - first == 1 or (same and self.asked is None):
                return [] if same else [ends[first]]
            found = between(first, middle) + between(middle, last)
            return found if found or same else [ends[middle]]

        return between(0, len(ends) - 1)

    def _kernels(self, cells: Sequence[Chosen]) -> list[Design]:
        """Designs for some buckets: each saves more in one of them than estimates tell apart."""
        if all(one.loss(self.space.default) == 0.0 for one in cells):
            return [self.space.default]
        candidates = list(dict.fromkeys(design for one in cells for design in one.losses))
        candidates.sort(key=lambda design: (sum(map(bool, design)), sum(design), design))
        found: list[Design] = []
        for _ in range(2 * self.most):
            now = [min((one.order(design) for design in found), default=_NOTHING) for one in cells]

            def left(design: Design, now: Sequence[tuple[float, float]] = tuple(now)) -> tuple[float, float]:
                each = [min(one.order(design), before) for one, before in zip(cells, now, strict=True)]
                return sum(apart for apart, _ in each), sum(all_of_it for _, all_of_it in each)

            best = min(candidates, key=left)
            if left(best)[0] >= sum(apart for apart, _ in now):
                break
            found = [*found, best]
            used = {_least(one, found) for one in cells}
            found = [design for place, design in enumerate(found) if place in used]
            if len(found) > self.most:
                return found[:-1]
        return found


def _others_nominal(sizes: tuple[tuple[str, int], ...], name: str) -> bool:
    return all(size == NOMINAL for other, size in sizes if other != name)


def _model(why: str) -> str:
    return f"{MODEL}: {why}" if why else MODEL


def _alike(several: Sequence[Chosen]) -> bool:
    """Whether some design is the best of all, as far as is told apart, and comes from the same source."""
    first, *others = several
    same = any(all(one.loss(design) == 0.0 for one in several) for design in first.losses)
    return same and all(one.origin == first.origin for one in others)


def _least(one: Chosen, designs: Sequence[Design]) -> int:
    """The place of the design that takes least in a bucket, of several alike the first."""
    return min(range(len(designs)), key=lambda place: one.order(designs[place]))
