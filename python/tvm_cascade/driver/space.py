"""What a lowering offers to choose from: knobs with ranked values, and how a design of them is lowered."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm_cascade.driver.backend import Lowered
from tvm_cascade.transform.fuse_function import Outcome

Design: TypeAlias = tuple[int, ...]
"""Of each knob, the place of the chosen value; all 0 is the model's own choice."""

Sizes: TypeAlias = Mapping[str, int]
"""Of symbolic extents, by name."""

ENDS = tuple(1 << k for k in range(13))
"""Of the buckets of a symbolic extent, but that of longer ones."""

ENDS_ON_GPUS = (*ENDS, 1 << 13, 1 << 14)
"""The same where what registers keep of a row, and whether that is all, depends on its length."""

_MOST_DESIGNS = 4096
"""Of which a space tells the estimates: knobs of more values lose their last ones."""

TOLD_APART = math.log(1.05)
"""Of the ratio of two estimates, what tells that one design is better: models err by more."""

NOISE = 1.01
"""What the default may take of the best time and still be chosen: repeated runs of one kernel differ by as much."""


def steps_over(seconds: float, least: float) -> int:
    """A time over another, in steps that an estimate tells apart; 0 where nothing is known."""
    return math.floor(math.log(seconds / least) / TOLD_APART + 1e-9) if seconds > 0.0 and least > 0.0 else 0


@dataclass(frozen=True)
class Knob:
    """One decision of a lowering.

    Attributes
    ----------
    name : among those that are in use together.
    values : in words that tell them apart, from the most to the least preferred by the model.
    under : the place of an earlier knob and that of its value, with which alone this one is in use; None for always.
    """

    name: str
    values: tuple[str, ...]
    under: tuple[int, int] | None = None

    def is_used(self, places: Sequence[int]) -> bool:
        """Whether the knob means anything beside those places of the knobs before it."""
        return self.under is None or places[self.under[0]] == self.under[1]


@dataclass(frozen=True)
class Space:
    """The ways in which one function may be lowered for one goal.

    Attributes
    ----------
    knobs : decisions.
    seconds : the estimated time of a design; 0 where the model knows none.
    lower : (a design, the function's name where it has another) -> what the pass makes of it, and the lowered function.
    at : of a function with symbolic extents, the estimated times of its designs for lengths in the bucket that ends at
        given sizes.
    ends : of the buckets of such an extent, but that of longer ones.
    """

    knobs: tuple[Knob, ...]
    seconds: Callable[[Design], float]
    lower: Callable[..., tuple[Outcome, Lowered]]
    at: Callable[[Sizes], Callable[[Design], float]] = lambda _sizes: lambda _design: 0.0
    ends: tuple[int, ...] = ENDS

    @property
    def default(self) -> Design:
        """The model's own choice: what is compiled without tuning."""
        return (0,) * len(self.knobs)

    def for_sizes(self, sizes: Sizes) -> Space:
        """The space with the estimates for lengths of a bucket; the same where no extent is symbolic."""
        return dataclasses.replace(self, seconds=self.at(sizes)) if sizes else self

    def words(self, design: Design) -> dict[str, str]:
        """The values of a design, by knob in use."""
        pairs = zip(self.knobs, design, strict=True)
        return {knob.name: knob.values[place] for knob, place in pairs if knob.is_used(design)}

    def find(self, words: Mapping[str, str]) -> Design | None:
        """The design of those values; None where knobs or values are others, such as those of another release."""
        places: list[int] = []
        for knob in self.knobs:
            if not knob.is_used(places):
                places.append(0)
            elif (word := words.get(knob.name)) in knob.values:
                places.append(knob.values.index(word))
            else:
                return None
        design = tuple(places)
        return design if words.keys() == self.words(design).keys() else None

    def designs(self) -> list[Design]:
        """Every sensible design: the default, then by estimate.

        Of estimates that the model hardly tells apart, fewer changes come before more, since they tell which value it
        is; then values go by their own order, in which a knob's first ones need less or cut larger.
        """
        default = self.seconds(self.default)

        def order(design: Design) -> tuple[object, ...]:
            seconds, changes = self.seconds(design), sum(map(bool, design))
            return any(design), steps_over(seconds, default), changes, sum(design), seconds, design

        return sorted(self._combined(self._counts()), key=order)

    def _counts(self) -> list[int]:
        """Values of each knob, so few that a space holds no more designs than are looked at."""
        counts = [len(knob.values) for knob in self.knobs]
        while max(counts, default=1) > 1 and self._count(counts) > _MOST_DESIGNS:
            counts[counts.index(max(counts))] -= 1
        return counts

    def _count(self, counts: Sequence[int], under: tuple[int, int] | None = None) -> int:
        """Designs of the knobs that are in use under a value."""
        below = [k for k, knob in enumerate(self.knobs) if knob.under == under]
        return math.prod(sum(self._count(counts, (k, place)) for place in range(counts[k])) for k in below)

    def _combined(self, counts: Sequence[int], places: Design = ()) -> Iterator[Design]:
        """The designs that begin with those places."""
        if len(places) == len(counts):
            yield places
            return
        used = self.knobs[len(places)].is_used(places)
        for place in range(counts[len(places)] if used else 1):
            yield from self._combined(counts, (*places, place))
