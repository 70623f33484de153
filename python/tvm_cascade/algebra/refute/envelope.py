"""Lower bounds for max and min: an upper envelope of unboundedly many pieces has no finite state.

Let ⊕ be max, and let x_1, …, x_n and d_1, …, d_n be such that F(x_k, d_k) > F(x_i, d_k) for all i ≠ k. Each x_k then
decides the result at its own d_k, so the state must remember all n of them, where further positions can give each d_k.
A monotone map allows n = 1, a convex one n = 2; what allows more than any limit has no finite state.

Where F has two parts there always are such points: as soon as F and ∂F/∂d can be given any values near some x, take a
curve h(d) that bends upwards more than F does, and for each d_k the x_k at which F(x_k, ·) touches h from below in d_k.
Where F(·, d) has a peak inside its domain that moves with d, the peaks are such points. Else random ones are tried.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, POSITION
from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.refute.reached import Earlier, Point, Reached
from tvm_cascade.symbolic.sampling import as_function

CANDIDATES = 800
"""Positions to choose from for each further piece."""

POINTS = 30
"""Values of the results at which they are looked for."""

POSITIONS = 80
"""Positions of random data among which extrema are looked for."""

CLEAR_MARGIN = 1e-9
"""An extremum counts as the only one where the next is further away than this share of the larger of both."""

REACHES = ((1.0, 1.0), (3.0, 3.0), (3.0, 3.0), (10.0, 10.0), (10.0, 1.0), (1.0, 10.0))
"""How far elements and results are drawn from zero, attempt by attempt."""

BUILT = 4
"""Attempts in which an envelope is also built from random candidates, which takes longest."""

ANCHORS = 6
"""Random points near which peaks and touching families are looked for, attempt by attempt."""

CLIMB, CLIMB_FROM = 60, 0.5
"""Steps that lead to a peak, and the first one's length, which is doubled or, where it leads nowhere, halved."""

SPACINGS, BENDS = (0.03, 0.2), (0.5, 4.0)
"""Distances between the d_k, as shares of how far results of data are apart, at most 1; and how much more than F the
curve bends there."""

NEWTON_STEPS = 8
DIFFERENCE = 1e-4
"""Step of the differences that stand for derivatives: they serve the search alone."""

STARTS = 3
"""Data of near results, from which those of an envelope are looked for."""


@dataclass(frozen=True)
class Envelope:
    """Positions each of which alone decides the result at its point: `positions[k]` at `points[k]`, of `data[k]`.

    Attributes
    ----------
    positions : elements.
    points : what the function reads beside elements: results, parameters and N.
    """

    positions: tuple[Point, ...]
    points: tuple[Point, ...]
    data: tuple[Reached, ...]


def envelope(
    function: sp.Expr, reducer: Reducer, earlier: Earlier, enough: int, where: sp.Basic = sp.true
) -> Envelope | None:
    """That many positions, each the only extremum at results of its own, which data reach; None where none were found.

    Parameters
    ----------
    function : F, over elements, earlier results and parameters, which are the same everywhere.
    where : the condition on elements under which it is the element.
    """
    plain, counted = earlier.plain(function), sp.Piecewise((1, earlier.plain(where)), (0, True))
    found = _looked_for(_ordered_alike(plain, earlier), reducer, earlier, enough, counted, True)
    return found or _looked_for(plain, reducer, earlier, enough, counted, False)


def _looked_for(
    plain: sp.Expr, reducer: Reducer, earlier: Earlier, enough: int, counted: sp.Expr, spared: bool
) -> Envelope | None:
    """An envelope of a plain function, by random attempts; see `_Search` for the last parameter."""
    symbols = sorted(plain.free_symbols, key=str)
    varying, read, indexed = earlier.for_function(plain)
    if not read or not (varying or indexed):
        return None
    try:
        evaluate = as_function(symbols, plain, "math")
    except (TypeError, ValueError, NotImplementedError):
        return None
    spared = spared and not indexed
    for attempt, (reach, far) in enumerate(REACHES):
        source = random.Random(attempt)
        fixed = earlier.parameters(plain, source, indexed)
        below = fixed[LENGTH] if indexed else 0
        pool = [earlier.row(source, reach, index_below=below, read=varying) for _ in range(CANDIDATES)]
        if counted != 1:
            pool = [row for row in pool if earlier.holds(counted, {**fixed, **row})]
        if len(pool) < enough:
            continue
        spare = [earlier.row(source, far * min(1.0, 2 / enough))] * enough if spared else []
        drawn = [earlier.draw(source, far, fixed, spare, indexed) for _ in range(POINTS)]
        starts = [data for data in drawn if data is not None]
        if attempt % 2 == 0:
            starts.sort(key=lambda data: data.results[read[0]])
        search = _Search(evaluate, symbols, 1.0 if reducer is MAX else -1.0, earlier, fixed, starts, spared)
        points = [data.results for data in starts]
        anchors = [{**row, **point} for row, point in zip(pool[:ANCHORS], points, strict=False)]
        found = search.met(pool[:POSITIONS], points, enough) or search.near(anchors, varying, read, enough)
        if found is None and attempt < BUILT:
            found = search.built(pool, points, enough)
        if found is not None:
            return found
    return None


def _ordered_alike(plain: sp.Expr, earlier: Earlier) -> sp.Expr:
    """A function that orders positions as F does at any results: u of exp(u), and F/|H(d)| of a product with H(d)."""
    varying = {*earlier.varying, POSITION}
    while True:
        if isinstance(plain, sp.exp):
            plain = plain.args[0]
            continue
        fixed, moving = plain.as_independent(*varying, as_Add=False)
        if fixed.is_number or moving.is_number:
            return plain
        plain = moving if fixed.is_positive else sp.sign(fixed) * moving
        if fixed.is_positive is not True:
            return plain


@dataclass(frozen=True)
class _Search:
    """Looks for an envelope; whatever finds it, `_checked` decides.

    Attributes
    ----------
    starts : data from which those of an envelope are looked for.
    spared : they begin with as many equal positions, whose place those of an envelope take: what is not asked about
        stays as it is there, so that it moves no result, and results are looked for as near as those of data are.
    """

    evaluate: Callable[..., float]
    symbols: Sequence[sp.Symbol]
    sign: float
    earlier: Earlier
    fixed: Point
    starts: Sequence[Reached]
    spared: bool

    def built(self, pool: list[Point], points: list[Point], enough: int) -> Envelope | None:
        """An envelope built piece by piece, each the least candidate above the others."""
        chosen: list[tuple[int, int, list[float]]] = []
        for left, number in zip(range(len(points), 0, -1), range(len(points)), strict=True):
            if len(chosen) >= enough or len(chosen) + left < enough:
                break
            values = self._values(pool, points[number])
            if values is None:
                continue
            if not chosen:  # a middling candidate, so that there is room above and below
                chosen.append((sorted(range(len(pool)), key=values.__getitem__)[len(pool) // 2], number, values))
                continue
            best = max(values[k] for k, *_ in chosen)
            allowed = [k for k in range(len(pool)) if is_clear(values[k], best) and _below(k, chosen)]
            if allowed:
                chosen.append((min(allowed, key=values.__getitem__), number, values))
        return self._checked([pool[k] for k, *_ in chosen], [points[n] for _, n, _ in chosen], enough)

    def met(self, positions: list[Point], points: list[Point], enough: int) -> Envelope | None:
        """The positions that are the unique extremum at some random point."""
        found: dict[int, Point] = {}
        for point in points:
            values = self._values(positions, point) or []
            best = max(values, default=0.0)
            near = [k for k, value in enumerate(values) if not is_clear(best, value)]
            if len(near) == 1:
                found.setdefault(near[0], point)
        return self._checked([positions[k] for k in found], list(found.values()), enough)

    def near(
        self, anchors: list[Point], varying: list[sp.Symbol], read: list[sp.Symbol], enough: int
    ) -> Envelope | None:
        """Peaks, or positions whose F touches one curve, near one of the anchors."""
        moving = [s for s in varying if not s.is_integer]
        for (number, at), result in itertools.product(enumerate(anchors), read):
            spacing, bend = SPACINGS[number % 2] * self._spread(result), BENDS[number // 2 % 2]
            for symbol in moving:
                if (found := self.peaks(at, symbol, result, spacing, enough)) is not None:
                    return found
            for pair in itertools.combinations(moving, 2):
                if (found := self.touching(at, pair, result, spacing, bend, enough)) is not None:
                    return found
        return None

    def peaks(self, at: Point, symbol: sp.Symbol, result: sp.Symbol, spacing: float, enough: int) -> Envelope | None:
        """The peaks of F over one element symbol, at equally spaced values of a result."""
        positions, points = [], []
        for k in range(enough):
            at = self._climbed({**at, result: at[result] + spacing * bool(k)}, symbol)
            positions.append({symbol: at[symbol]})
            points.append({s: v for s, v in at.items() if s != symbol})
            if k and positions[k] == positions[k - 1]:
                return None
        return self._checked(positions, points, enough)

    def _climbed(self, point: Point, symbol: sp.Symbol) -> Point:
        """The point moved uphill along one symbol, to where short steps lead down."""
        step = CLIMB_FROM
        (best,) = self._values([{}], point) or [-math.inf]
        for _ in range(CLIMB):
            for way in (step, -step):
                trial = {**point, symbol: point[symbol] + way}
                if trial[symbol] <= 0 and symbol.is_nonnegative:
                    continue
                (value,) = self._values([{}], trial) or [-math.inf]
                if value > best:
                    best, point, step = value, trial, 2 * step
                    break
            else:
                step /= 2
        return point

    def touching(
        self,
        at: Point,
        pair: tuple[sp.Symbol, sp.Symbol],
        result: sp.Symbol,
        spacing: float,
        bend: float,
        enough: int,
    ) -> Envelope | None:
        """Positions near `at` whose F touches one curve from below, each at its own value of the result."""
        start = self._jet(at, result)
        if start is None:
            return None
        height, slope, own = start
        bend *= abs(own) + abs(slope) + abs(height) + 1e-3
        positions, points = [], []
        for k in range(enough):
            away = spacing * (k - enough // 2)
            wanted = (height + slope * away + (own / 2 + bend) * away**2, slope + (own + 2 * bend) * away)
            found = self._solved({**at, result: at[result] + away}, pair, result, wanted)
            if found is None:
                return None
            positions.append({s: v for s, v in found.items() if s in pair})
            points.append({s: v for s, v in found.items() if s not in pair})
        return self._checked(positions, points, enough)

    def _solved(
        self, point: Point, pair: tuple[sp.Symbol, sp.Symbol], result: sp.Symbol, wanted: tuple[float, float]
    ) -> Point | None:
        """The point with the pair moved so that F and ∂F/∂d have the wanted values there: Newton's method."""
        for _ in range(NEWTON_STEPS):
            here = self._jet(point, result)
            beside = [self._jet({**point, s: point[s] + DIFFERENCE}, result) for s in pair]
            if here is None or beside[0] is None or beside[1] is None:
                return None
            (a, c), (b, d) = ([(side[k] - here[k]) / DIFFERENCE for k in (0, 1)] for side in (beside[0], beside[1]))
            off, determinant = (wanted[0] - here[0], wanted[1] - here[1]), a * d - b * c
            if abs(determinant) < 1e-9:
                return None
            moves = (d * off[0] - b * off[1]) / determinant, (a * off[1] - c * off[0]) / determinant
            point = {**point, **{s: point[s] + move for s, move in zip(pair, moves, strict=True)}}
            if not all(math.isfinite(point[s]) and (point[s] > 0 or not s.is_nonnegative) for s in pair):
                return None
        return point

    def _jet(self, point: Point, result: sp.Symbol) -> tuple[float, float, float] | None:
        """F and its first two derivatives in the result, by differences."""
        step = DIFFERENCE * 10
        values = [self._values([{}], {**point, result: point[result] + k * step}) for k in (-1, 0, 1)]
        if any(value is None for value in values):
            return None
        (left,), (middle,), (right,) = (value for value in values if value is not None)
        return middle, (right - left) / (2 * step), (right - 2 * middle + left) / step**2

    def _checked(self, positions: list[Point], points: list[Point], enough: int) -> Envelope | None:
        """The envelope of the first `enough`, where each position is indeed clearly the only extremum at its point."""
        if len(positions) < enough:
            return None
        positions, points = positions[:enough], points[:enough]
        for k, point in enumerate(points):
            values = self._values(positions, point)
            if values is None or not is_only_extremum(values, k):
                return None
        return self._reached(positions, points)

    def _reached(self, positions: list[Point], points: list[Point]) -> Envelope | None:
        """The envelope with data whose results are those points; None where none were found."""
        spare = self.starts[0].rows[0]
        beside = {s: spare[s] for s in self.earlier.varying if s not in self.symbols} if self.spared else {}
        rows = [
            {s: known[s] for s in (*self.earlier.varying, POSITION) if s in known}
            for known in ({**point, **row, **beside} for row, point in zip(positions, points, strict=True))
        ]
        if len({row.get(POSITION, float(k)) for k, row in enumerate(rows)}) < len(rows):
            return None
        found = []
        for k, point in enumerate(points):
            data = self._data(rows, point)
            values = None if data is None else self._values(rows, data.results)
            if data is None or values is None or not is_only_extremum(values, k):
                return None
            found.append(data)
        return Envelope(tuple(rows), tuple(data.results for data in found), tuple(found))

    def _data(self, rows: list[Point], point: Point) -> Reached | None:
        """Data that start with those rows and have the results of that point."""
        wanted = self._wanted(point)
        for start in self._near(point)[:STARTS]:
            rest = start.rows[len(rows) :] if len(start.rows) > len(rows) else start.rows
            if (data := self.earlier.completed(rows, rest, self.fixed, wanted)) is not None:
                return data
        return None

    def _spread(self, result: sp.Symbol) -> float:
        """How far the middle half of the values of a result are apart, at most 1."""
        if not self.spared:
            return 1.0
        values = sorted(data.results[result] for data in self.starts)
        apart = values[3 * len(values) // 4] - values[len(values) // 4]
        return min(1.0, apart) or 1.0

    def _wanted(self, point: Point) -> Point:
        """The results that F reads."""
        return {s: point[s] for s in self.symbols if s in self.earlier.results}

    def _near(self, point: Point) -> list[Reached]:
        """The data at hand, those first whose results are nearest."""
        wanted = self._wanted(point)
        return sorted(self.starts, key=lambda data: sum(abs(data.results[s] - v) for s, v in wanted.items()))

    def _values(self, pool: Sequence[Point], point: Point) -> list[float] | None:
        try:
            values = [self.sign * float(self.evaluate(*({**point, **x}[s] for s in self.symbols))) for x in pool]
        except (ArithmeticError, ValueError, TypeError, NameError):
            return None
        return values if all(map(math.isfinite, values)) else None


def _below(candidate: int, chosen: list[tuple[int, int, list[float]]]) -> bool:
    return all(is_clear(values[k], values[candidate]) for k, _, values in chosen)


def is_only_extremum(values: Sequence[float], at: int) -> bool:
    """Whether one of the values is clearly above all others."""
    return all(is_clear(values[at], value) for k, value in enumerate(values) if k != at)


def is_clear(larger: float, smaller: float) -> bool:
    """Whether a number is above another by more than rounding could make it."""
    return larger - smaller > CLEAR_MARGIN * max(abs(larger), abs(smaller), 1e-6)
