"""Envelopes beside one position that is the only extremum of its data, of which the results are made too.

Let data start with n equal positions that are the maximum, and let results move with further positions along a path
of t. The n positions are moved apart so that each is the only maximum at a t of its own:

| F has beside the position               | the k-th position is moved to                                              |
|-----------------------------------------|----------------------------------------------------------------------------|
| a peak in a symbol                      | the peak at t_k                                                            |
| any value and ∂F/∂t, by two symbols     | where F touches one curve at t_k, which bends upwards more than F does     |

Moving them moves results, along with the path: so they are moved anew, a few times, to where they come to rest.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.refute.beside import data_of_equals, moved, without_index
from tvm_cascade.algebra.refute.envelope import Envelope, is_clear, is_only_extremum
from tvm_cascade.algebra.refute.reached import NO_VALUE, Earlier, Point, Reached
from tvm_cascade.symbolic.work import charge

BATCHES, DRAWS, BASES = 5, 40, 3
"""Batches, draws in each with the same whole numbers, and how many are tried whose first positions are the extremum."""

BATCH_WORK = 20
"""What a batch counts for of the budget of work."""

SPACINGS = (0.01, 0.1)
"""Steps along the path, on which further positions move by about their own size."""

BEND = 1.0
"""How much more than F the curve bends, as a share of the derivatives of F."""

ROUNDS, FARTHEST, REST_AT = 12, 0.2, 1e-9
"""Moves to where positions come to rest; the farthest of them, and what counts as none, as shares of the numbers."""

DIFFERENCE, PEAK_STEP = 1e-5, 1e-3
"""Steps of differences, as shares of the numbers."""


def envelope_at_tangents(
    function: sp.Expr, reducer: Reducer, earlier: Earlier, enough: int, where: sp.Basic
) -> Envelope | None:
    """That many positions, each the only extremum of all positions of its data; None where none were found."""
    plain, counted = earlier.plain(function), sp.Piecewise((1, earlier.plain(where)), (0, True))
    behind, way = earlier.behind(plain), 1.0 if reducer is MAX else -1.0
    varying, read, _ = earlier.for_function(plain)
    moving = [s for s in varying if not s.is_integer]
    if not read or not moving:
        return None
    for number in range(BATCHES):
        charge(BATCH_WORK, "looking for an envelope")
        source = random.Random(number)
        search = _Search(behind, plain, counted, way, enough)
        for base in itertools.islice(search.bases(source), BASES):
            for path in search.paths(base, source):
                pairs = [*itertools.combinations(moving, 2)] if len(moving) > 1 else [(moving[0],)]
                for symbols in pairs:
                    if (found := search.found(base, path, symbols)) is not None:
                        return found
    return None


@dataclass(frozen=True)
class _Path:
    """How further positions move in a step, as a share of their size."""

    way: list[Point]
    spacing: float


@dataclass(frozen=True)
class _Search:
    """Looks for an envelope of F, plain, times `way`, over the positions that are `counted`."""

    earlier: Earlier
    function: sp.Expr
    counted: sp.Expr
    way: float
    size: int

    def bases(self, source: random.Random) -> Iterator[Reached]:
        """Data whose first positions are the extremum."""
        for data in data_of_equals(self.earlier, self.function, self.size, DRAWS, source):
            values = [self.value(row, data) for row in data.rows]
            if math.isfinite(values[0]) and all(is_clear(values[0], v) for v in values[self.size :]):
                yield data

    def paths(self, base: Reached, source: random.Random) -> Iterator[_Path]:
        """Ways of the further positions, at two speeds."""
        way = [
            {s: (abs(v) or 1.0) * source.uniform(-1, 1) for s, v in without_index(row).items() if not s.is_integer}
            for row in base.rows[self.size :]
        ]
        for spacing in SPACINGS:
            yield _Path([{s: spacing * v for s, v in row.items()} for row in way], spacing)

    def found(self, base: Reached, path: _Path, symbols: Sequence[sp.Symbol]) -> Envelope | None:
        """The positions moved apart in those symbols."""
        rows = [without_index(row) for row in base.rows[: self.size]]
        for _ in range(ROUNDS):
            placed = self._placed(base, path, rows, symbols)
            if placed is None:
                return None
            pairs = list(zip(rows, placed, strict=True))
            far = max(abs(b[s] - a[s]) / (abs(a[s]) or 1.0) for a, b in pairs for s in symbols)
            rows = placed
            if far < REST_AT:
                break
        return self._checked(base, path, rows)

    def _placed(
        self, base: Reached, path: _Path, rows: list[Point], symbols: Sequence[sp.Symbol]
    ) -> list[Point] | None:
        """Each position moved once towards where its own data have it, by Newton's method."""
        along = [self._about(base, path, rows, float(k - self.size // 2)) for k in range(self.size)]
        here = self._jet(along[self.size // 2], rows[self.size // 2])
        if here is None:
            return None
        height, slope, own = here
        bend = BEND * (abs(own) + path.spacing * abs(slope))
        found = []
        for k, (data, row) in enumerate(zip(along, rows, strict=True)):
            t = k - self.size // 2
            wanted = (height + slope * t + (own / 2 + bend) * t * t, slope + (own + 2 * bend) * t)
            way = self._to_touch(data, row, symbols, wanted) if len(symbols) > 1 else self._to_peak(data, row, *symbols)
            if way is None:
                return None
            far = max(abs(way[s]) / (abs(row[s]) or 1.0) for s in symbols)
            found.append(moved(row, way, min(1.0, FARTHEST / far) if far else 1.0))
        return found

    def _to_peak(self, data: list[Reached], row: Point, symbol: sp.Symbol) -> Point | None:
        """The way to where F is largest over a symbol."""
        step = {symbol: PEAK_STEP * (abs(row[symbol]) or 1.0)}
        low, at, high = (self.value(moved(row, step, share), data[1]) if data else math.nan for share in (-1, 0, 1))
        bends = high - 2 * at + low
        return {symbol: -step[symbol] * (high - low) / (2 * bends)} if bends < 0 else None

    def _to_touch(
        self, data: list[Reached], row: Point, symbols: Sequence[sp.Symbol], wanted: tuple[float, float]
    ) -> Point | None:
        """The way to where F and its slope along the path are those wanted."""
        first, second = ({s: DIFFERENCE * (abs(row[s]) or 1.0)} for s in symbols)
        every = (self._jet(data, at) for at in (row, moved(row, first, 1), moved(row, second, 1)))
        jets = [jet for jet in every if jet is not None]
        if len(jets) < 3:
            return None
        here, *beside = jets
        (a, c), (b, d) = ([side[k] - here[k] for k in (0, 1)] for side in beside)
        off, determinant = (wanted[0] - here[0], wanted[1] - here[1]), a * d - b * c
        if not determinant:
            return None
        shares = (d * off[0] - b * off[1]) / determinant, (a * off[1] - c * off[0]) / determinant
        return {s: share * v for part, share in zip((first, second), shares, strict=True) for s, v in part.items()}

    def _jet(self, data: list[Reached], row: Point) -> tuple[float, float, float] | None:
        """F at a position, and its first two derivatives along the path, by differences."""
        values = [self.value(row, one) for one in data]
        if not values or not all(map(math.isfinite, values)):
            return None
        left, middle, right = values
        return middle, 2 * (right - left), 16 * (right - 2 * middle + left)

    def _about(self, base: Reached, path: _Path, rows: list[Point], t: float) -> list[Reached]:
        """The data just before some t, at it and just after; empty where they have no results."""
        found = [self._at(base, path, rows, t + k / 4) for k in (-1, 0, 1)]
        return [data for data in found if data is not None] if None not in found else []

    def _at(self, base: Reached, path: _Path, rows: list[Point], t: float) -> Reached | None:
        """The data with those first positions, at some t."""
        further = [moved(row, way, t) for row, way in zip(base.rows[self.size :], path.way, strict=True)]
        return self.earlier.reached([*rows, *further], base.parameters)

    def _checked(self, base: Reached, path: _Path, rows: list[Point]) -> Envelope | None:
        """The envelope, if each position is the only extremum of all positions of its data."""
        found = []
        for k in range(self.size):
            data = self._at(base, path, rows, float(k - self.size // 2))
            values = [] if data is None else [self.value(row, data) for row in data.rows]
            if data is None or not math.isfinite(values[k]) or not is_only_extremum(values, k):
                return None
            found.append(data)
        read = [s for s in self.function.free_symbols if s not in rows[0]]
        return Envelope(found[0].rows[: self.size], tuple({s: d.results[s] for s in read} for d in found), tuple(found))

    def value(self, row: Point, at: Reached) -> float:
        """F times `way`, −∞ where the position does not count."""
        point = {**at.results, **row}
        if self.counted != 1 and not self.earlier.holds(self.counted, point):
            return -math.inf
        try:
            return self.way * float(self.earlier.value(self.function, point))
        except NO_VALUE:
            return math.nan
