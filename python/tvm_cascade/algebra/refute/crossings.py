"""Positions beside an edge at which an element chooses by results: data put the edge between each and the next.

Let data start with n equal positions at which a = d, where F is f(x, d) above the edge and g(x, d) below. The n
positions are moved apart a little, x_1 … x_n with a_1 < … < a_n, and further positions so little that d passes from
below all of them to above all. Data with d between each and the next tell them apart:

| ⊕                            | are told apart where                                                             |
|------------------------------|----------------------------------------------------------------------------------|
| Σ                            | the matrix F(x_i, d_j) is invertible                                             |
| max, f > g at the edge       | f falls along the positions: the lowest one above d is the only maximum of all   |
| max, f < g at the edge       | g rises along them: the highest one below d is it                                |

The edge is met by bisection between random data on whose first positions a is above d, and below. So d may be made of
the compared elements: x² ≥ Σ exp(x − mean) is met where all x are alike. Absolute values, maxima and minima choose too.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import sympy as sp
from sympy.core.relational import Relational

from tvm_cascade.algebra.cascade import POSITION
from tvm_cascade.algebra.reducer import MAX, Reducer
from tvm_cascade.algebra.refute.beside import data_of_equals, moved, of_sign, without_index
from tvm_cascade.algebra.refute.envelope import Envelope, is_clear, is_only_extremum
from tvm_cascade.algebra.refute.rank import FullRank, full_rank_among
from tvm_cascade.algebra.refute.reached import NO_VALUE, Earlier, Point, Reached
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.work import charge

BATCHES, DRAWS, PAIRS = 6, 48, 6
"""Batches, draws in each with the same whole numbers, and pairs on either side of an edge, between which it is met."""

HALVINGS = 50
APART = 1e-3
"""By what share the positions are moved apart."""

MOVES = (0.03, 0.3, 1.0)
"""By what share further positions are moved, so that the edge is on either side of all of the others."""

TRIED = 2
"""How many of these ways are tried beside one edge."""

WAYS = 16
"""Random directions in which positions are moved, and further positions."""

BATCH_WORK = 20
"""What a batch counts for of the budget of work."""


def rank_at_crossings(function: sp.Expr, earlier: Earlier, size: int) -> FullRank | None:
    """Points at which the matrix of a sum over choices has that rank; None where none were found."""
    for search, source in _attempts(function, earlier, size):
        for edge in search.edges(source):
            for rows in itertools.islice(search.moved_apart(edge, source), TRIED):
                data = search.between(rows, edge, source) if search.differs(rows[0], edge) else []
                if data and (found := full_rank_among(search.function, earlier, rows, data)) is not None:
                    return found
    return None


def envelope_at_crossings(
    function: sp.Expr, reducer: Reducer, earlier: Earlier, enough: int, ties: bool = False
) -> Envelope | None:
    """That many positions, each the only extremum of some data, for choices; None where none were found.

    With `ties` each is the first extremum: where the branch that wins is the same everywhere, positions have indices
    in the order in which they win.
    """
    way = 1.0 if reducer is MAX else -1.0
    for search, source in _attempts(function, earlier, enough):
        for edge in search.edges(source):
            if (above := search.wins(edge, way)) is None:
                continue
            tied = ties and search.is_tied(above)
            every = (search.in_order(rows, edge, way, above, tied) for rows in search.moved_apart(edge, source))
            for ordered in itertools.islice((rows for rows in every if rows is not None), TRIED):
                data = search.between(ordered, edge, source)
                if data and (found := search.decided(ordered, data, way, above, tied)) is not None:
                    return found
    return None


def _attempts(function: sp.Expr, earlier: Earlier, size: int) -> Iterator[tuple[_Search, random.Random]]:
    """A search for each choice by elements and results, and what its batches are drawn from."""
    plain = _by_choices(earlier.plain(function), earlier)
    behind = earlier.behind(plain)
    searches = [_search(plain, relation, behind, size) for relation in sorted(plain.atoms(Relational), key=str)]
    for number in range(BATCHES):
        for search in searches:
            if search is not None:
                charge(BATCH_WORK, "looking for data that cut between positions")
                yield search, random.Random(number)


def _by_choices(function: sp.Expr, earlier: Earlier) -> sp.Expr:
    """The function with absolute values and extrema that read results and elements as choices."""

    def reads_both(part: sp.Basic) -> bool:
        return part.has(*earlier.results) and part.has(*earlier.varying, POSITION)

    def larger(*arguments: sp.Expr) -> sp.Expr:
        first, *others = arguments
        return sp.Piecewise((first, first - (rest := larger(*others)) >= 0), (rest, True)) if others else first

    function = function.replace(
        lambda e: isinstance(e, sp.Abs) and reads_both(e), lambda e: larger(e.args[0], -e.args[0])
    )
    function = function.replace(lambda e: isinstance(e, sp.Max) and reads_both(e), lambda e: larger(*e.args))
    return function.replace(
        lambda e: isinstance(e, sp.Min) and reads_both(e), lambda e: -larger(*(-argument for argument in e.args))
    )


def _search(function: sp.Expr, relation: sp.Basic, earlier: Earlier, size: int) -> _Search | None:
    if not isinstance(relation, (sp.Gt, sp.Ge, sp.Lt, sp.Le)) or not earlier.results:
        return None
    gap = relation.gts - relation.lts
    moving = [s for s in earlier.varying if s in gap.free_symbols and not s.is_integer]
    if not moving or not gap.has(*earlier.results):
        return None
    above, below = (function.xreplace({relation: truth}) for truth in (sp.true, sp.false))
    return _Search(earlier, function, gap, above, below, size)


@dataclass(frozen=True)
class _Edge:
    """Data whose first positions are equal, and on an edge."""

    data: Reached
    size: int

    @property
    def first(self) -> Point:
        return self.data.rows[0]

    @property
    def further(self) -> list[Point]:
        return [without_index(row) for row in self.data.rows[self.size :]]


@dataclass(frozen=True)
class _Search:
    """Looks for positions about an edge.

    Attributes
    ----------
    function : F, plain, with the choice by gap > 0 among its conditions.
    above, below : F where the gap is positive, and elsewhere.
    size : how many positions there are to be.
    """

    earlier: Earlier
    function: sp.Expr
    gap: sp.Expr
    above: sp.Expr
    below: sp.Expr
    size: int

    def edges(self, source: random.Random) -> Iterator[_Edge]:
        """Data whose first positions are on the edge, by bisection between draws on either side."""
        drawn = list(data_of_equals(self.earlier, self.function, self.size, DRAWS, source))
        sides = [[d for d in drawn if way * self._gap(d.rows[0], d) > 0] for way in (-1, 1)]
        for _ in range(PAIRS if all(sides) else 0):
            ends = [source.choice(side) for side in sides]
            if (met := self._met(ends, lambda data: self._gap(data.rows[0], data), 0, 0.0)) is not None:
                yield _Edge(met, self.size)

    def moved_apart(self, edge: _Edge, source: random.Random) -> Iterator[list[Point]]:
        """Positions beside that on the edge, sorted by how far they are above it."""
        moving = [s for s in self.earlier.varying if s in self.function.free_symbols and not s.is_integer]
        for _ in range(WAYS):
            way = {s: APART * source.uniform(-1, 1) * (abs(edge.first[s]) or 1.0) for s in moving}
            steps = range(-(self.size // 2), self.size - self.size // 2)
            rows = [moved(edge.first, way, step) for step in steps]
            gaps = [self._gap(row, edge.data) for row in rows]
            if gaps == sorted(gaps, reverse=True):
                rows, gaps = rows[::-1], gaps[::-1]
            if all(is_clear(b, a) or b - a > 1e-12 for a, b in itertools.pairwise(gaps)):
                yield rows

    def between(self, rows: list[Point], edge: _Edge, source: random.Random) -> list[Reached]:
        """Data that start with the positions and have the edge below all, between each and the next, above all."""
        step = {s: rows[1][s] - v for s, v in rows[0].items() if s != POSITION}
        marks = [moved(rows[0], step, -0.5), *(moved(row, step, 0.5) for row in rows)]
        ends = self._beyond(rows, marks, edge, source)
        if ends is None:
            return []
        levels = [self._gap(mark, edge.data) for mark in marks]
        near = min(abs(b - a) for a, b in itertools.pairwise(levels)) / 4
        found = list[Reached]()
        for mark in marks:
            if (data := self._met(ends, partial(self._gap, mark), self.size, near)) is None:
                return []
            found.append(data)
        return found

    def _beyond(
        self, rows: list[Point], marks: list[Point], edge: _Edge, source: random.Random
    ) -> list[Reached] | None:
        """Data with the edge above all marks, and below."""
        above = below = None
        for number in range(WAYS):
            share = MOVES[number % len(MOVES)]
            further = [
                {s: v if s.is_integer else v + share * source.uniform(-1, 1) * (abs(v) or 1.0) for s, v in row.items()}
                for row in edge.further
            ]
            further = [{s: of_sign(s, v) for s, v in row.items()} for row in further]
            data = self._reached([*rows, *further], edge.data.parameters)
            if data is None:
                continue
            if above is None and self._gap(marks[-1], data) < 0:
                above = data
            if below is None and self._gap(marks[0], data) > 0:
                below = data
            if above is not None and below is not None:
                return [above, below]
        return None

    def differs(self, row: Point, edge: _Edge) -> bool:
        """Whether the branches are two functions beside the edge."""
        above, below = (self._of(f, {**edge.data.results, **row}) for f in (self.above, self.below))
        return is_clear(max(above, below), min(above, below))

    def wins(self, edge: _Edge, way: float) -> bool | None:
        """Whether the branch above the edge is the better one there; None where neither is."""
        above, below = (way * self._of(f, {**edge.data.results, **edge.first}) for f in (self.above, self.below))
        return True if is_clear(above, below) else False if is_clear(below, above) else None

    def is_tied(self, above: bool) -> bool:
        """Whether a branch is one number, or one of few that masks tell, at all positions; so that equal is equal."""
        read = (self.above if above else self.below).free_symbols
        return POSITION not in self.function.free_symbols and all(map(is_truth, read & {*self.earlier.varying}))

    def in_order(self, rows: list[Point], edge: _Edge, way: float, above: bool, tied: bool) -> list[Point] | None:
        """The positions, where the nearest one beyond the edge is the best of those beyond; None elsewhere."""
        branch = self.above if above else self.below
        values = [way * self._of(branch, {**edge.data.results, **row}) for row in rows][:: 1 if above else -1]
        if tied:
            return [{**row, POSITION: float(k if above else len(rows) - 1 - k)} for k, row in enumerate(rows)]
        return rows if all(is_clear(a, b) for a, b in itertools.pairwise(values)) else None

    def decided(self, rows: list[Point], data: list[Reached], way: float, above: bool, tied: bool) -> Envelope | None:
        """The envelope, if each position is the only extremum of all in its data, or the first of equal ones."""
        found = data[:-1] if above else data[1:]
        for k, one in enumerate(found):
            values = [way * self._of(self.function, {**one.results, **row}) for row in one.rows]
            later = [row[POSITION] > one.rows[k][POSITION] for row in one.rows]
            rivals = [v for j, v in enumerate(values) if j != k and not (tied and later[j] and v == values[k])]
            if not is_only_extremum([values[k], *rivals], 0):
                return None
        read = [s for s in self.function.free_symbols if s not in found[0].rows[0]]
        points = tuple({s: d.results[s] for s in read} for d in found)
        return Envelope(found[0].rows[: self.size], points, tuple(found))

    def _met(self, ends: Sequence[Reached], off: Callable[[Reached], float], kept: int, near: float) -> Reached | None:
        """Data between two, the first `kept` positions of which are the same, at which a function is near 0."""
        below, above = 0.0, 1.0
        rising, found = off(ends[1]) > 0, None
        for _ in range(HALVINGS):
            share = (below + above) / 2
            pairs = list(zip(ends[0].rows, ends[1].rows, strict=True))
            rows = [
                one if k < kept else {s: v + share * (two[s] - v) for s, v in one.items()}
                for k, (one, two) in enumerate(pairs)
            ]
            found = self._reached(rows, ends[0].parameters)
            if found is None or math.isnan(value := off(found)):
                return None
            if abs(value) <= near:
                break
            below, above = (below, share) if (value > 0) is rising else (share, above)
        return found

    def _reached(self, rows: Sequence[Point], fixed: Point) -> Reached | None:
        return self.earlier.reached([dict(row) for row in rows], fixed)

    def _gap(self, row: Point, at: Reached) -> float:
        return self._of(self.gap, {**at.results, POSITION: 0.0, **row})

    def _of(self, function: sp.Expr, at: Point) -> float:
        try:
            return float(self.earlier.value(function, at))
        except NO_VALUE:
            return math.nan
