"""Counterexamples for selections [a > d] ? f : g by a d that is no extremum of a: data that d splits.

Let positions have a_1 < … < a_n, and let data that start with all of them have d_0 < a_1 < d_1 < … < a_n < d_n. The
positions above d_j are others for each j, so a sum has to tell all of them, and where

| positions above d win, for max: f falls with a, above every g  | the lowest one above d_j is the only maximum  |
|----------------------------------------------------------------|-----------------------------------------------|
| positions below d win: g rises with a, above every f           | the highest one below d_j is it               |

each of the n positions decides the result of its data. d_j is met between data with d below a_1 and above a_n: further
positions are moved from those of the one to those of the other, by bisection.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import sympy as sp
from sympy.core.relational import Relational

from tvm_cascade.algebra.cascade import POSITION
from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.refute.draws import Draws
from tvm_cascade.algebra.refute.envelope import Envelope, is_clear, is_only_extremum
from tvm_cascade.algebra.refute.rank import FullRank, full_rank_among
from tvm_cascade.algebra.refute.reached import NO_VALUE, Earlier, Point, Reached
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.work import charge

ATTEMPTS, ATTEMPT = 8, 15
"""How often each comparison is tried, and what that counts for of the budget of work."""

ROUNDS, EDGE = 5, 8
"""How often positions are chosen anew, for what they add to d moves it; and the share at either end left out."""

POSITIONS, DATA = 400, 24
"""Positions to choose from, and draws of further ones."""

PAIRS = 3
"""Pairs of data between which others are placed."""

HALVINGS = 40
"""Of a step between data: d is met to the share 2^−40."""

SHARES = (1.0, 0.75, 0.5, 0.25)
"""What share of the other side's values lies below those that win."""

DRAWS = 12
"""Draws of what no result reads, at further positions, of which the one that wins least is taken."""


@dataclass(frozen=True)
class _Cut:
    """Positions sorted by a, and data whose d is below all of them, between each and the next, above all."""

    rows: list[Point]
    data: list[Reached]


def rank_at_thresholds(function: sp.Expr, earlier: Earlier, size: int) -> FullRank | None:
    """Points at which the matrix of a sum over selections has that rank; None where none were found."""
    for search, attempt in _attempts(function, earlier):
        for cut in search.cuts(attempt, partial(search.differing, count=size)):
            if (found := full_rank_among(function, earlier, cut.rows, cut.data)) is not None:
                return found
    return None


def envelope_at_thresholds(
    function: sp.Expr, reducer: Reducer, earlier: Earlier, enough: int, ties: bool = False
) -> Envelope | None:
    """That many positions, each the unique extremum of some data, for selections; None if not found.

    With `ties`, each the first extremum: where the winning branch is the same everywhere, the first position beyond d
    is made the one of the least index.
    """
    way = 1.0 if reducer is MAX else -1.0
    for search, attempt in _attempts(function, earlier):
        for above in (True, False):
            tied = ties and search.is_tied(above)
            choose = partial(search.winning, way=way, above=above, enough=enough, tied=tied)
            for cut in search.cuts(attempt, choose):
                if (found := search.decided(cut, way, above, attempt, tied)) is not None:
                    return found
    return None


def _attempts(function: sp.Expr, earlier: Earlier) -> Iterator[tuple[_Search, Draws]]:
    """A search for each comparison, and the draws of each attempt."""
    plain = earlier.plain(function)
    behind = earlier.behind(plain)
    searches = [_search(plain, relation, behind) for relation in sorted(plain.atoms(Relational), key=str)]
    for number in range(ATTEMPTS):
        for search in searches:
            if search is not None:
                charge(ATTEMPT, "looking for data that cut between positions")
                yield search, Draws(behind, plain, number)


def _search(function: sp.Expr, relation: sp.Basic, earlier: Earlier) -> _Search | None:
    """The search for a comparison of a with d; None where a reads more than the position and its elements."""
    if not isinstance(relation, (sp.Gt, sp.Ge, sp.Lt, sp.Le)) or not earlier.results:
        return None
    rest, varying = sp.expand(relation.gts - relation.lts).as_independent(*earlier.varying, POSITION, as_Add=True)
    if varying == 0 or varying.free_symbols - {*earlier.varying, POSITION} or not rest.has(*earlier.results):
        return None
    above, below = (function.xreplace({relation: truth}) for truth in (sp.true, sp.false))
    return _Search(earlier, function, varying, -rest, above, below)


@dataclass(frozen=True)
class _Search:
    """Looks for positions and data that cut between them.

    Attributes
    ----------
    function : F, plain, with the comparison a > d among its conditions.
    compared, threshold : a and d.
    above, below : F where a > d, and elsewhere.
    """

    earlier: Earlier
    function: sp.Expr
    compared: sp.Expr
    threshold: sp.Expr
    above: sp.Expr
    below: sp.Expr

    def cuts(self, draws: Draws, choose: Callable[[list[Point], Reached], list[Point] | None]) -> Iterator[_Cut]:
        """The positions chosen by `choose`, sorted by a, between which some data place the threshold d."""
        pool = draws.rows(POSITIONS)
        rows = pool[:1]
        for _ in range(ROUNDS):
            data = self._alike(draws, rows)
            if len(data) < 2:
                return
            below = [d for d in data if self._d(d) < self._a(rows[0])]
            above = [d for d in data if self._d(d) > self._a(rows[-1])]
            if len(rows) > 1 and below and above:
                pairs = zip(below[::-1][:PAIRS], above[:PAIRS], strict=False)
                cuts = (self._placed(rows, ends) for ends in pairs)
                yield from (cut for cut in cuts if cut is not None)
                return
            inside = sorted((row for row in pool if self._d(data[0]) < self._a(row) < self._d(data[-1])), key=self._a)
            chosen = choose(inside[len(inside) // EDGE : len(inside) - len(inside) // EDGE], data[len(data) // 2])
            if chosen is None:
                return
            rows = chosen

    def _alike(self, draws: Draws, rows: list[Point]) -> list[Reached]:
        """Data that start with the positions and differ in real numbers alone, by their d."""
        data = draws.data(rows, DATA)
        if not data:
            return []
        whole = [{s: v for s, v in row.items() if s.is_integer and s != POSITION} for row in data[0].rows]
        alike = (self._completed(rows, [{**r, **w} for r, w in self._rest(d, whole, len(rows))], d) for d in data)
        return sorted((d for d in alike if d is not None and math.isfinite(self._d(d))), key=self._d)

    def _rest(self, data: Reached, whole: list[Point], kept: int) -> Iterator[tuple[Point, Point]]:
        return zip(data.rows[kept:], whole[kept:], strict=True)

    def _completed(self, rows: list[Point], rest: Sequence[Point], like: Reached) -> Reached | None:
        bare = [{s: v for s, v in row.items() if s != POSITION} for row in rest]
        return self.earlier.reached([*rows, *bare], like.parameters)

    def _placed(self, rows: list[Point], ends: tuple[Reached, Reached]) -> _Cut | None:
        """The data, by bisection between the ends."""
        levels = [self._a(row) for row in rows]
        near = min(b - a for a, b in itertools.pairwise(levels)) / 2
        first, last = max(levels[0] - near, (self._d(ends[0]) + levels[0]) / 2), levels[-1] + near
        wanted = [first, *((a + b) / 2 for a, b in itertools.pairwise(levels))]
        wanted.append(min(last, (self._d(ends[1]) + levels[-1]) / 2))
        near = min(near, levels[0] - first, wanted[-1] - levels[-1]) / 2
        data = []
        for level in wanted:
            if (found := self._between(rows, ends, level, near)) is None:
                return None
            data.append(found)
        return _Cut(rows, data)

    def _between(self, rows: list[Point], ends: tuple[Reached, Reached], wanted: float, near: float) -> Reached | None:
        below, above = 0.0, 1.0
        for _ in range(HALVINGS):
            share = (below + above) / 2
            pairs = zip(ends[0].rows[len(rows) :], ends[1].rows[len(rows) :], strict=True)
            rest = [{s: v + share * (other[s] - v) for s, v in row.items()} for row, other in pairs]
            found = self._completed(rows, rest, ends[0])
            if found is None:
                return None
            off = self._d(found) - wanted
            if abs(off) < near:
                return found
            below, above = (share, above) if off < 0 else (below, share)
        return None

    def differing(self, rows: list[Point], at: Reached, count: int) -> list[Point] | None:
        """Positions whose branches differ; None where there are too few."""
        sides = ((row, self._sides(row, at)) for row in rows)
        return _spaced([row for row, pair in sides if is_clear(max(pair), min(pair))], count)

    def is_tied(self, above: bool) -> bool:
        """Whether a branch is one number, or one of few that masks tell, at all positions; so that equal is equal."""
        read = (self.above if above else self.below).free_symbols
        return POSITION not in self.function.free_symbols and all(map(is_truth, read & {*self.earlier.varying}))

    def winning(
        self, rows: list[Point], at: Reached, way: float, above: bool, enough: int, tied: bool
    ) -> list[Point] | None:
        """Positions in the order of a of which the first beyond d wins; None where there are too few."""
        sides = [self._sides(row, at) for row in rows]
        if not above:
            rows, sides = rows[::-1], [(g, f) for f, g in sides[::-1]]
        values = [(way * first, way * other) for first, other in sides]
        others = sorted(other for _, other in values if math.isfinite(other))
        for share in SHARES if others else ():
            level = others[int(share * (len(others) - 1))]
            allowed = [k for k, (own, other) in enumerate(values) if other <= level and is_clear(own, level)]
            best = sorted(allowed, key=lambda k: values[k][0])[len(allowed) // 2 :]
            for among in (sorted(best), allowed):  # further positions hardly win over large ones
                falling = _falling([values[k][0] for k in among], tied)
                if len(falling) >= enough:
                    chosen = _spaced([rows[among[k]] for k in falling], enough) or []
                    chosen = [{**row, POSITION: float(k)} for k, row in enumerate(chosen)] if tied else chosen
                    return chosen if above else chosen[::-1]
        return None

    def decided(self, cut: _Cut, way: float, above: bool, draws: Draws, tied: bool) -> Envelope | None:
        """The envelope, if each position is clearly the unique extremum of its data, or the first of equal ones."""
        found = []
        for k, data in enumerate(cut.data[:-1] if above else cut.data[1:]):
            tame = self._tame(data, len(cut.rows), way, draws)
            values = [way * self._of(self.function, {**data.results, **row}) for row in tame.rows]
            later = [row[POSITION] > tame.rows[k][POSITION] for row in tame.rows]
            rivals = [v for j, v in enumerate(values) if j != k and not (tied and later[j] and v == values[k])]
            if not is_only_extremum([values[k], *rivals], 0):
                return None
            found.append(tame)
        rows = tuple(found[0].rows[: len(cut.rows)])
        read = [s for s in self.function.free_symbols if s not in rows[0]]
        return Envelope(rows, tuple({s: d.results[s] for s in read} for d in found), tuple(found))

    def _tame(self, data: Reached, kept: int, way: float, draws: Draws) -> Reached:
        """The data with what no result reads drawn anew at further positions, so that these win least."""
        free = [s for s in self.earlier.varying if s not in self.earlier.read and s in self.function.free_symbols]
        if not free:
            return data
        others = [{s: row[s] for s in free} for row in draws.rows(DRAWS)]
        rows = list(data.rows)
        for k in range(kept, len(rows)):
            trials = [{**rows[k], **other} for other in ({}, *others)]
            rows[k] = min(trials, key=lambda row: _or_infinite(way * self._of(self.function, {**data.results, **row})))
        return Reached(tuple(rows), data.results, data.parameters)

    def _sides(self, row: Point, at: Reached) -> tuple[float, float]:
        """F at a position above d, and below."""
        return self._of(self.above, {**at.results, **row}), self._of(self.below, {**at.results, **row})

    def _a(self, row: Point) -> float:
        return self._of(self.compared, {POSITION: 0.0, **row})

    def _d(self, data: Reached) -> float:
        return self._of(self.threshold, data.results)

    def _of(self, function: sp.Expr, at: Point) -> float:
        try:
            return float(self.earlier.value(function, at))
        except NO_VALUE:
            return math.nan


def _or_infinite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _falling(values: Sequence[float], or_equal: bool = False) -> list[int]:
    """The longest subsequence in which each value is below the one before, or equals it, by patience sorting."""
    tops: list[float] = []
    piles: list[list[tuple[int, int]]] = []
    for k, value in enumerate(values):
        at = (bisect.bisect_right if or_equal else bisect.bisect_left)(tops, -value)
        before = piles[at - 1][-1][0] if at else -1
        if at == len(piles):
            tops.append(-value)
            piles.append([])
        tops[at] = -value
        piles[at].append((k, before))
    links = dict(link for pile in piles for link in pile)
    found = [piles[-1][-1][0]] if piles else []
    while found and links[found[-1]] >= 0:
        found.append(links[found[-1]])
    return found[::-1]


def _spaced(rows: list[Point], count: int) -> list[Point] | None:
    """That many of them, at equal distances in their order; None where there are not enough."""
    if len(rows) < count:
        return None
    return [rows[k * (len(rows) - 1) // (count - 1)] for k in range(count)]
