"""Random data for counterexample search, drawn so that elements cross results: |x/16 − Σ y| has its kink there.

One attempt draws all its data alike, the next ones otherwise, for no one way suits every cascade:

| an element symbol that          | has at the positions that are asked about       | has at further positions         |
|---------------------------------|-------------------------------------------------|----------------------------------|
| no earlier reduction reads      | numbers of every size                           | the same                         |
| earlier reductions read alone   | small numbers, which leave results to others    | numbers of a size that differs   |
| both read                       | numbers of one size, or near each other         | from one draw to the next        |
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, POSITION
from tvm_cascade.algebra.refute.reached import REST, SHORTEST, SMALL, Earlier, Point, Reached
from tvm_cascade.symbolic.masks import is_truth

PLAIN = 3
"""First attempts, in which all symbols are of the same size."""

ODDS = (0.5, 1.0, 0.0)
"""Odds of masks to hold, attempt by attempt: where one is needed, or not to be, few rows of a random draw count."""

EVERY_SIZE, OF_ONE_SIZE = (-3.0, 3.0), (-1.0, 0.5)
SIZES, SMALLER, FURTHER, FIXED = (-1.5, 1.5), (-3.0, 1.0), (-1.5, 2.5), (-1.0, 1.5)
"""Powers of ten between which sizes are drawn: of numbers, of symbols, of the further positions, of parameters."""

NEAR = (0.3, 1.5)
"""Between which shares of one number those lie that are near each other."""

BESIDE = (0.1, 0.7)
"""By what share numbers are moved to others beside them."""

SAME_SIZE = 0.3
"""Odds of further positions to be of the size of those that are asked about."""


@dataclass(frozen=True)
class _Size:
    """How a symbol's numbers are drawn: `near` one of that magnitude, of one sign, or between powers of ten of it."""

    magnitude: float
    powers: tuple[float, float] | None
    sign: int

    def number(self, symbol: sp.Symbol, source: random.Random, scale: float) -> float:
        if self.powers is None:
            drawn = self.sign * self.magnitude * scale * source.uniform(*NEAR)
        else:
            reach = self.magnitude * scale * 10 ** source.uniform(*self.powers)
            drawn = source.uniform(-reach, reach)
        return _short(abs(drawn) if symbol.is_nonnegative else drawn)


def _short(number: float) -> float:
    """A number of few digits, for people to read."""
    return float(f"{number:.3g}")


class Draws:
    """The random draws of one attempt.

    Parameters
    ----------
    earlier : the reductions that the data are for.
    function : what is asked about, plain.
    attempt : 0, 1, …; the same for ever.

    Attributes
    ----------
    fixed : the parameters and N, the same for all data.
    source : of further random choices.
    """

    def __init__(self, earlier: Earlier, function: sp.Expr, attempt: int) -> None:
        self.source = random.Random(7 + attempt)
        self._earlier, self._attempt = earlier, attempt
        varying, _, self._indexed = earlier.for_function(function)
        self._odds = ODDS[attempt % len(ODDS)]
        fixed = earlier.parameters(function, self.source, self._indexed)
        self.fixed = {
            s: value * self._power(FIXED) if attempt % 2 and s != LENGTH else value for s, value in fixed.items()
        }
        read = set(earlier.read)
        self._sizes = {s: self._size(s in read, s in varying) for s in earlier.varying}

    def _power(self, powers: tuple[float, float]) -> float:
        return _short(10 ** self.source.uniform(*powers))

    def _size(self, read: bool, asked: bool) -> _Size:
        if not read:
            return _Size(1.0, EVERY_SIZE, 1)
        if self._attempt < PLAIN:
            return _Size(1.0 if asked else SMALL, OF_ONE_SIZE, 1)
        magnitude = self._power(SIZES if asked else SMALLER)
        return _Size(magnitude, self.source.choice((OF_ONE_SIZE, None)), self.source.choice((-1, 1)))

    def rows(self, count: int) -> list[Point]:
        """Candidate positions, at distinct indices where there are enough."""
        rows = [self._row(1.0, self._odds) for _ in range(count)]
        if not self._indexed:
            return rows
        indices = self.source.sample(range(int(self.fixed[LENGTH])), min(count, int(self.fixed[LENGTH])))
        return [{**row, POSITION: float(index)} for row, index in zip(rows, indices, strict=False)]

    def beside(self, rows: Sequence[Point], count: int) -> list[Point]:
        """Positions near given ones, as further candidates; none where indices distinguish them."""
        if self._indexed or not rows:
            return []
        return [self._moved(rows[k % len(rows)]) for k in range(count)]

    def _moved(self, row: Point) -> Point:
        share = self.source.choice(BESIDE)
        return {
            s: v if s.is_integer else float(f"{v * self.source.uniform(1 - share, 1 + share):.3g}")
            for s, v in row.items()
        }

    def data(self, base: Sequence[Point], count: int) -> list[Reached]:
        """Data that start with the given positions: of this many draws, those with real, finite results."""
        return [found for _ in range(count) if (found := self._datum(base)) is not None]

    def _datum(self, base: Sequence[Point]) -> Reached | None:
        length = int(self.fixed[LENGTH])
        count = max(REST, length - len(base)) if self._indexed or length <= SHORTEST else REST
        often = max(1, length - len(base) - count + 1)  # how often the last one stands there: sums stay of one size
        scale = 1.0 if self.source.random() < SAME_SIZE else 10 ** self.source.uniform(*FURTHER)
        odds = self.source.choice((self._odds, self._odds, 0.5))
        rest = [self._row(scale * (min(1.0, 2 / often) if k == count - 1 else 1.0), odds) for k in range(count)]
        return self._earlier.reached([*base, *rest], self.fixed)

    def _row(self, scale: float, odds: float) -> Point:
        return {s: self._number(s, size, scale, odds) for s, size in self._sizes.items()}

    def _number(self, symbol: sp.Symbol, size: _Size, scale: float, odds: float) -> float:
        if is_truth(symbol):
            return float(self.source.random() < odds)
        if symbol.is_integer:
            return self._earlier.drawn(symbol, self.source, 1.0)
        return size.number(symbol, self.source, scale)
