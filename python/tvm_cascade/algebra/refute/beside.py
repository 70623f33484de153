"""Random data that start with equal positions, which a search then moves apart a little.

Sizes of symbols and of their further numbers are drawn independently, so that results are as small beside the positions
as they are large, though they are made of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import POSITION
from tvm_cascade.algebra.refute.reached import REST, Earlier, Point, Reached

SIZES, FURTHER = (-2.0, 2.0), (-2.0, 1.5)
"""Powers of ten between which the size of a symbol is drawn, and of its further numbers beside that."""

ALIKE, NEAR = 0.4, (0.5, 1.2)
"""Odds of further numbers to be near those of the first positions, and between which shares of these."""


def data_of_equals(
    earlier: Earlier, function: sp.Expr, size: int, count: int, source: random.Random
) -> Iterator[Reached]:
    """So many draws, those with real and finite results, with the same whole numbers: equal positions, then others."""
    *_, indexed = earlier.for_function(function)
    fixed = earlier.parameters(function, source, indexed)
    odds = source.choice((0.0, 0.5, 1.0))
    whole = [{s: earlier.drawn(s, source, 1.0, odds) for s in earlier.varying if s.is_integer} for _ in range(1 + REST)]
    for _ in range(count):
        first, *further = _drawn(earlier, whole, source)
        if (data := earlier.reached([*[first] * size, *further], fixed)) is not None:
            yield data


def _drawn(earlier: Earlier, whole: Sequence[Point], source: random.Random) -> list[Point]:
    """A position, and further ones."""
    first, *further = ({**row} for row in whole)
    for s in earlier.varying:
        if s.is_integer:
            continue
        first[s] = of_sign(s, source.choice((-1, 1)) * 10 ** source.uniform(*SIZES))
        near, scale = source.random() < ALIKE, 10 ** source.uniform(*FURTHER)
        for row in further:
            row[s] = of_sign(s, first[s] * (source.uniform(*NEAR) if near else scale * source.uniform(-1, 1)))
    return [first, *further]


def moved(row: Point, way: Point, share: float) -> Point:
    """The position, without an index, moved by a share of the way."""
    return {s: of_sign(s, v + share * way.get(s, 0.0)) if s in way else v for s, v in without_index(row).items()}


def of_sign(symbol: sp.Symbol, value: float) -> float:
    """The number, or its magnitude where the symbol has no negative values."""
    return abs(value) if symbol.is_nonnegative else value


def without_index(row: Point) -> Point:
    """The elements of a position alone."""
    return {s: v for s, v in row.items() if s != POSITION}
