"""Lower bounds on rank: points at which the matrix F(x_i, d_j) has full rank, so that no finite state exists.

Where F(x, d) = Σ_r G_r(x)·H_r(d) with R terms, no such matrix has a rank above R. So a matrix of rank R + 1 proves that
no R sums determine the result. Each column is what some data give which start with the elements x_i of all the rows.

Rows are chosen among many for the data at hand, by elimination with full pivoting; then data are drawn that start with
them, and so on until both fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy as sp

from tvm_cascade.algebra.refute.draws import Draws
from tvm_cascade.algebra.refute.reached import NO_VALUE, Earlier, Point, Reached

DIGITS, MORE_DIGITS = 120, 1200
"""Digits of the first attempts, and of the last: tanh(d − x) at d = 100 differs from 1 in its 87th digit."""

FLOAT_PIVOT = 1e-9
"""The same for the search among functions with kinks, whose pivots are as large as their entries."""

AGREES = mpmath.mpf(10) ** -6
"""A determinant is not zero where it is the same, up to this share, to twice as many digits."""

KINKS = (sp.Abs, sp.Max, sp.Min, sp.Piecewise)


@dataclass(frozen=True)
class Effort:
    """The effort of a search: attempts, and positions and data per round."""

    attempts: int
    positions: int
    data: int


KINKED, SMOOTH, SMOOTH_AT_MORE = Effort(40, 30, 60), Effort(12, 20, 30), Effort(6, 8, 10)
"""Non-smooth points need random search; smooth functions have full rank nearly everywhere, which many digits show."""

ENOUGH = (3, 4, 5, 5)
"""Pivots with which an attempt goes on after each round but the last."""


@dataclass(frozen=True)
class FullRank:
    """Points at which F(x_i, d_j) is an invertible matrix: elements, and the results of data that start with them all.

    Attributes
    ----------
    rows : elements.
    columns : results, parameters and N.
    data : what gives each column.
    """

    rows: tuple[Point, ...]
    columns: tuple[Point, ...]
    data: tuple[Reached, ...]


def full_rank(function: sp.Expr, earlier: Earlier, size: int) -> FullRank | None:
    """Points of an invertible matrix of that size; None where none were found.

    Parameters
    ----------
    function : F, over elements, earlier results and parameters; roundings are left out.
    """
    plain = earlier.plain(function)
    varying, read, indexed = earlier.for_function(plain)
    if not read or not (varying or indexed):
        return None
    if plain.has(*KINKS):
        efforts = [("math", DIGITS, KINKED)]
    else:
        efforts = [("mpmath", DIGITS, SMOOTH), ("mpmath", MORE_DIGITS, SMOOTH_AT_MORE)]
    for arithmetic, digits, effort in efforts:
        search = _Search(earlier.behind(plain), plain, size, arithmetic, digits, effort)
        with mpmath.workdps(digits):
            for number in range(effort.attempts):
                if (found := search.attempt(number)) is not None:
                    return found
    return None


def full_rank_among(
    function: sp.Expr, earlier: Earlier, rows: Sequence[Point], data: Sequence[Reached]
) -> FullRank | None:
    """Points of an invertible matrix of those rows, with columns among data that start with them; None without one."""
    plain = earlier.plain(function)
    with mpmath.workdps(DIGITS):
        return _Search(earlier.behind(plain), plain, len(rows), "math", DIGITS, KINKED).among(list(rows), list(data))


@dataclass(frozen=True)
class _Search:
    """Looks for the points; `_proved` decides.

    Attributes
    ----------
    arithmetic, digits, effort : those of the search; the proof's arithmetic is mpmath's.
    """

    earlier: Earlier
    function: sp.Expr
    size: int
    arithmetic: str
    digits: int
    effort: Effort

    @property
    def least(self) -> Any:
        """A pivot below this, of a matrix whose largest entry in each row and column is about 1, counts as zero."""
        return mpmath.mpf(10) ** (-self.digits // 2)

    def attempt(self, number: int) -> FullRank | None:
        """Alternates: rows for given data, data for given rows."""
        draws = Draws(self.earlier, self.function, number)
        pool = draws.rows(self.effort.positions)
        rows, aims = pool[: self.size], list[Reached]()
        for enough in (*ENOUGH, self.size):
            data = draws.data(rows, self.effort.data)
            found = self.among(rows, data) or self._aimed(rows, aims)
            if found is not None:
                return found
            chosen = self._pivots(pool, data)
            if len(chosen) < min(enough, self.size):
                return None
            picked = [pool[i] for i, _ in chosen]
            others = draws.beside(picked, len(pool) // 2) + draws.source.sample(pool, len(pool))
            others = [row for row in others if row not in picked]
            aims = [data[j] for _, j in chosen] if len(picked) == self.size else []
            pool = picked + others[: len(pool) - len(picked)]
            rows = pool[: self.size]
        return None

    def among(self, rows: list[Point], data: list[Reached]) -> FullRank | None:
        """Columns among data that start with the rows."""
        chosen = sorted(self._pivots(rows, data))
        return self._proved(rows, [data[j] for _, j in chosen]) if len(chosen) == self.size else None

    def _aimed(self, rows: list[Point], aims: list[Reached]) -> FullRank | None:
        """Columns from data that are completed to the results of others, to which the rows were chosen."""
        _, read, _ = self.earlier.for_function(self.function)
        data = []
        for aim in aims:
            wanted = {s: aim.results[s] for s in read}
            found = self.earlier.completed(rows, aim.rows[self.size :], aim.parameters, wanted)
            if found is None:
                return None
            data.append(found)
        return self.among(rows, data)

    def _pivots(self, rows: list[Point], data: list[Reached]) -> list[tuple[int, int]]:
        values = [[self._at({**row, **found.results}, self.arithmetic) for found in data] for row in rows]
        return pivots(values, self.size, self.least if self.arithmetic == "mpmath" else FLOAT_PIVOT)

    def _proved(self, rows: list[Point], data: list[Reached]) -> FullRank | None:
        """The points where their matrix certainly is invertible."""
        found = []
        for digits in (self.digits, 2 * self.digits):
            with mpmath.workdps(digits):
                exact = [self.earlier.reached(d.rows, d.parameters, "mpmath") for d in data]
                columns = [column for column in exact if column is not None]
                values = [[self._at({**row, **c.results}, "mpmath") for c in columns] for row in rows]
                if len(columns) < len(data) or len(pivots(values, self.size, self.least)) < self.size:
                    return None
                found.append((columns, determinant(mpmath.matrix(values))))
        (columns, first), (_, second) = found
        if abs(first - second) > AGREES * abs(second):
            return None
        return FullRank(tuple(rows), tuple(c.results for c in columns), tuple(columns))

    def _at(self, point: Point, arithmetic: str) -> Any:
        try:
            value = self.earlier.value(self.function, point, arithmetic)
        except (*NO_VALUE, NotImplementedError):
            return math.nan
        return value if mpmath.isfinite(value) else math.nan


def pivots(values: Sequence[Sequence[Any]], size: int, least: Any) -> list[tuple[int, int]]:
    """The row and column of each of the first pivots that are above the least, at most `size`, by full pivoting.

    Rows without a value in many columns do not count, nor columns without a value in the other rows.
    """
    left = _equilibrated(values)
    chosen: list[tuple[int, int]] = []
    while len(chosen) < size and left:
        entries = ((i, j) for i, line in left.items() for j in line)
        row, column = max(entries, key=lambda at: abs(left[at[0]][at[1]]), default=(None, None))
        if row is None or column is None or abs(left[row][column]) <= least:
            break
        chosen.append((row, column))
        head = left.pop(row)
        pivot = head.pop(column)
        for other in left.values():
            if ratio := other.pop(column) / pivot:
                for j, value in head.items():
                    other[j] -= ratio * value
    return chosen


def _equilibrated(values: Sequence[Sequence[Any]]) -> dict[int, dict[int, Any]]:
    """The matrix by row and column, each column and then each row divided by its largest entry: exp(900) or exp(-9)."""
    lines = {i: line for i, line in enumerate(values) if sum(value != value for value in line) <= len(line) // 3}
    defined = [j for j in range(len(values[0]) if values else 0) if all(line[j] == line[j] for line in lines.values())]
    sizes = {j: max((abs(line[j]) for line in lines.values()), default=0) for j in defined}
    found = {}
    for i, line in lines.items():
        scaled = {j: line[j] / size for j, size in sizes.items() if size}
        if largest := max(map(abs, scaled.values()), default=0):
            found[i] = {j: value / largest for j, value in scaled.items()}
    return found


def determinant(matrix: mpmath.matrix) -> mpmath.mpf:
    """The determinant of a real square matrix; mpmath's fails where a column vanishes during elimination."""
    rows = [[matrix[i, j] for j in range(matrix.cols)] for i in range(matrix.rows)]
    total = mpmath.mpf(1)
    while rows:
        pivot = max(range(len(rows)), key=lambda i: abs(rows[i][0]))
        head = rows.pop(pivot)
        if head[0] == 0:
            return mpmath.mpf(0)
        total *= -head[0] if pivot % 2 else head[0]
        rows = [[v - row[0] / head[0] * h for v, h in zip(row[1:], head[1:], strict=True)] for row in rows]
    return total
