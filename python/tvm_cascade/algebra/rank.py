"""The proof that an element is of no finite rank: points at which a matrix F(x_i, d_j) has full rank.

Where F(x, d) = Σ_r G_r(x)·H_r(d) with R terms, no such matrix has a rank above R. So a matrix of rank R + 1 proves that
no R sums determine the result. Its rows and columns are chosen from many at random, by elimination with full pivoting.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, is_truth
from tvm_cascade.algebra.reached import REST, Earlier, Reached

DIGITS = 120
PIVOT = mpmath.mpf(10) ** -60
"""A pivot below this, of a matrix whose largest entry in each row is 1, counts as zero."""

POOL = 40
"""Positions, and values of the results, from which rows and columns are chosen."""

REACHES = ((2.0, 2.0), (8.0, 8.0), (60.0, 1.0), (8.0, 1.0), (1.0, 8.0), (2.0, 60.0), (3.0, 0.2))
"""How far elements and results are drawn from zero, attempt by attempt: a kink of |x/16 − d| must be met."""

MASKS = (0.5, 1.0, 0.0)
"""Odds of a mask to hold: where it is needed, or not to be, few rows of a random draw count."""

Point = dict[sp.Symbol, Any]


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

    def at(point: Point) -> mpmath.mpf:
        try:
            value = earlier.value(plain, point, "mpmath")
        except (ValueError, ArithmeticError, TypeError, NameError, NotImplementedError):
            return mpmath.nan
        return value if mpmath.isfinite(value) else mpmath.nan

    with mpmath.workdps(DIGITS):
        masks = MASKS if any(map(is_truth, varying)) else MASKS[:1]
        for attempt, (reaches, odds) in enumerate(itertools.product(REACHES, masks)):
            source = random.Random(7 + attempt)
            fixed = earlier.parameters(plain, source, indexed)
            below = fixed[LENGTH] if indexed else 0
            rows = [earlier.row(source, reaches[0], odds, below, varying) for _ in range(POOL)]
            drawn = [earlier.draw(source, reaches[1], fixed, indexed=indexed) for _ in range(POOL)]
            data = earlier.beside(rows, [found for found in drawn if found is not None], size)
            chosen = _pivoted(at, rows, [found.results for found in data], size)
            if chosen is not None:
                picked = [rows[i] for i, _ in chosen], [data[j] for _, j in chosen]
                if (found := _reached(at, earlier, *picked, read)) is not None:
                    return found
    return None


def _reached(
    at: Callable[[Point], mpmath.mpf],
    earlier: Earlier,
    rows: list[Point],
    starts: list[Reached],
    read: list[sp.Symbol],
) -> FullRank | None:
    """The rows with columns that data reach which start with them: as they come, or completed to the given results."""
    for wanted in ((), read):
        data = []
        for start in starts:
            rest = start.rows[len(rows) :] if len(start.rows) > len(rows) else start.rows[-REST:]
            found = earlier.completed(rows, rest, start.parameters, {s: start.results[s] for s in wanted})
            exact = None if found is None else earlier.reached(found.rows, start.parameters, "mpmath")
            if exact is None:
                break
            data.append(exact)
        columns = [found.results for found in data]
        if len(data) == len(rows) and _pivoted(at, rows, columns, len(rows)) is not None:
            return FullRank(tuple(rows), tuple(columns), tuple(data))
    return None


def _pivoted(
    evaluate: Callable[[Point], mpmath.mpf], rows: list[Point], columns: list[Point], size: int
) -> list[tuple[int, int]] | None:
    """The row and column of each of the first pivots, where there are enough of them."""
    values = [[evaluate({**row, **column}) for column in columns] for row in rows]
    defined = [j for j in range(len(columns)) if sum(mpmath.isnan(line[j]) for line in values) <= len(rows) // 3]
    if len(defined) < size:
        return None
    left: dict[int, dict[int, mpmath.mpf]] = {}
    for i, line in enumerate(values):
        largest = max((abs(line[j]) for j in defined), default=mpmath.mpf(0))
        if largest and not any(mpmath.isnan(line[j]) for j in defined):
            left[i] = {j: line[j] / largest for j in defined}
    chosen: list[tuple[int, int]] = []
    while any(left.values()) and len(chosen) < size:
        row, column = max(((i, j) for i, line in left.items() for j in line), key=lambda at: abs(left[at[0]][at[1]]))
        head = left.pop(row)
        pivot = head.pop(column)
        if abs(pivot) <= PIVOT:
            return None
        chosen.append((row, column))
        for other in left.values():
            ratio = other.pop(column) / pivot
            for j, value in head.items():
                other[j] -= ratio * value
    return chosen if len(chosen) == size else None
