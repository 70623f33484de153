"""Scales that stay where they are: they move only where a tile has a weight that does not fit beside its row's scale.

    followed   M = max(M, max |w|);  c′ = 2·2^⌊log₂ M⌋;  T = T·c/c′ + Σ (w/c′)·v
    standing   T = T + Σ (w/c)·v                         where |w| ≤ most·c;  c′ = most·c, and again, where not

Any power of two serves that is no larger than the one that follows, down to where w/c leaves the dtype: small weights
have all the digits then that they have beside the largest, or more. So a tile is lifted at the scales that there are.
Weights are looked at once they are packed, and rows with one that is too large move on, until all fit. Nothing else is
alive where that is decided: a warp group has no registers left for a tile and for what moves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.fold import Component, Reference
from tvm_cascade.steps.program import Combine, Move, Scale, Shift, Step
from tvm_cascade.symbolic.rounding import FORMATS
from tvm_cascade.tile.attention.shape import Stream
from tvm_cascade.tile.attention.steps import Accumulate, Hoisted, TileReduce


@dataclass(frozen=True)
class Limit:
    """Of the weights of a row.

    Attributes
    ----------
    largest : the component that the scale follows.
    scale, inverse : c, and 1/c, which alone is kept in registers.
    weight, dtype : w/c, as it is packed.
    """

    largest: Component
    scale: Move
    inverse: sp.Symbol
    weight: sp.Symbol
    dtype: str

    @property
    def most(self) -> float:
        """The largest power of two that the dtype holds."""
        return math.ldexp(1.0, math.frexp(FORMATS[self.dtype].largest)[1] - 1)

    @property
    def largest_there(self) -> sp.Expr:
        """A largest weight so far that has the scale as it stands."""
        return self.scale.reference / 2

    def __str__(self) -> str:
        return f"stays     {self.scale.reference} where |{self.weight}| ≤ {self.most:.0f}"


@dataclass(frozen=True)
class Standing:
    """How all scales of a program stay where they are.

    Attributes
    ----------
    steps : by which they move.
    """

    limits: tuple[Limit, ...]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.limits))


def find_standing(stream: Stream, steps: Sequence[Step], accumulations: Sequence[Accumulate]) -> Standing | None:
    """How the scales of a program stay; None without any, or where a tile that is done again would add twice."""
    scales = {r.symbol: r for r in stream.fold.references if r.scale and r.auxiliary}
    largest = {r.tracks: r for r in scales.values()}
    if not scales or len(scales) < len(stream.fold.references) or len(largest) < len(stream.row_components):
        return None
    own = tuple(step for step in steps if _moves(step, scales, largest))
    inverses = {1 / step.expression: step.symbol for step in own if isinstance(step, Hoisted)}
    components = {component.symbol: component for component in stream.row_components}
    weights = {symbol: a for a in accumulations for symbol in a.shift.free_symbols & scales.keys()}
    limits = (
        Limit(
            components[scales[c.reference].tracks], c, inverses[c.reference],
            weights[c.reference].weight, weights[c.reference].dtype,
        )
        for c in own
        if isinstance(c, Move)
    )  # fmt: skip
    return Standing(tuple(limits), own)


def _moves(step: Step, scales: Mapping[sp.Symbol, Reference], largest: Collection[sp.Symbol]) -> bool:
    """Whether a step is of the scales alone: of what they follow, of themselves, and of what is made of them."""
    match step:
        case TileReduce() | Shift():
            return step.component in largest
        case Combine():
            return all(component in largest for component in step.components)
        case Move() | Scale():
            return step.reference in scales
        case Hoisted():
            return bool(step.expression.free_symbols & scales.keys())
        case _:
            return False
