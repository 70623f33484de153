"""What a lowering offers to choose from: knobs with ranked values, and how a design of them is lowered."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tvm_cascade.driver.backend import Lowered
from tvm_cascade.transform.fuse_function import Outcome

Design: TypeAlias = tuple[int, ...]
"""Of each knob, the place of the chosen value; all 0 is the model's own choice."""

_MOST_DESIGNS = 4096
"""Of which a space tells the estimates: knobs of more values lose their last ones."""


@dataclass(frozen=True)
class Knob:
    """One decision of a lowering.

    Attributes
    ----------
    name : within its function.
    values : in words that tell them apart, from the most to the least preferred by the model.
    """

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """The ways in which one function may be lowered for one goal.

    Attributes
    ----------
    knobs : decisions that do not depend on each other; those with one value are left out.
    seconds : the estimated time of a design; 0 where the model knows none.
    lower : the function in a design: what the pass makes of it, and the lowered function.
    sensible : whether a design's values are all in use; others give programs of designs with fewer changes.
    """

    knobs: tuple[Knob, ...]
    seconds: Callable[[Design], float]
    lower: Callable[[Design], tuple[Outcome, Lowered]]
    sensible: Callable[[Design], bool] = lambda _design: True

    @property
    def default(self) -> Design:
        """The model's own choice: what is compiled without tuning."""
        return (0,) * len(self.knobs)

    def words(self, design: Design) -> dict[str, str]:
        """The values of a design, by knob."""
        return {knob.name: knob.values[place] for knob, place in zip(self.knobs, design, strict=True)}

    def find(self, words: Mapping[str, str]) -> Design | None:
        """The design of those values; None where knobs or values are others, such as those of another release."""
        if words.keys() != {knob.name for knob in self.knobs}:
            return None
        if not all(words[knob.name] in knob.values for knob in self.knobs):
            return None
        return tuple(knob.values.index(words[knob.name]) for knob in self.knobs)

    def designs(self) -> list[Design]:
        """Every sensible design: the default, then by estimate, of equal ones those of fewer changes first."""
        counts = [len(knob.values) for knob in self.knobs]
        while (most := max(counts, default=1)) > 1 and _product(counts) > _MOST_DESIGNS:
            counts[counts.index(most)] -= 1
        designs = filter(self.sensible, itertools.product(*map(range, counts)))
        changes = {design: sum(place > 0 for place in design) for design in designs}
        return sorted(changes, key=lambda one: (changes[one] > 0, self.seconds(one), changes[one], sum(one)))


def _product(counts: list[int]) -> int:
    result = 1
    for count in counts:
        result *= count
    return result
