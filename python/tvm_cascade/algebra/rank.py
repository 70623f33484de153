"""The proof that an element is of no finite rank: points at which a matrix F(x_i, d_j) has full rank.

Where F(x, d) = Σ_r G_r(x)·H_r(d) with R terms, no such matrix has a rank above R. So a matrix of rank R + 1 proves that
no R sums determine the result. Its rows and columns are chosen from many at random, by elimination with full pivoting.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
import sympy as sp

from tvm_cascade.algebra.cascade import is_truth
from tvm_cascade.algebra.separate import strip_rounding

DIGITS = 120
PIVOT = mpmath.mpf(10) ** -60
"""A pivot below this, of a matrix whose largest entry in each row is 1, counts as zero."""

POOL = 40
"""Positions, and values of the results, from which rows and columns are chosen."""

REACHES = ((2.0, 2.0), (8.0, 8.0), (60.0, 1.0), (8.0, 1.0), (1.0, 8.0), (2.0, 60.0), (3.0, 0.2))
"""How far elements and results are drawn from zero, attempt by attempt: a kink of |x/16 − d| must be met."""

MASKS = (0.5, 1.0, 0.0)
"""Odds of a mask to hold: where it is needed, or not to be, few rows of a random draw count."""

Point = dict[sp.Symbol, mpmath.mpf]


@dataclass(frozen=True)
class FullRank:
    """Points at which F(x_i, d_j) is an invertible matrix; rows hold elements and parameters, columns results."""

    rows: tuple[Point, ...]
    columns: tuple[Point, ...]


def numeric_rank_exceeds(
    function: sp.Expr, elements: Sequence[sp.Symbol], results: Sequence[sp.Symbol], limit: int
) -> bool:
    """Whether the rank of the function between elements and results is proved to be above the limit."""
    return full_rank(function, elements, results, limit + 1) is not None


def full_rank(
    function: sp.Expr, elements: Sequence[sp.Symbol], results: Sequence[sp.Symbol], size: int
) -> FullRank | None:
    """Points of an invertible matrix of that size; None where none were found.

    Parameters
    ----------
    function : F; roundings are left out.
    elements, results : the symbols that vary from row to row, and from column to column.
    """
    bare = strip_rounding(function)
    symbols = sorted(bare.free_symbols, key=str)
    try:
        compiled = sp.lambdify(symbols, bare, "mpmath")
    except (TypeError, ValueError, NotImplementedError):
        return None

    def at(point: Point) -> mpmath.mpf:
        try:
            value = mpmath.mpf(compiled(*(point[s] for s in symbols)))
        except (ValueError, ArithmeticError, TypeError, NameError):
            return mpmath.nan
        return value if mpmath.isfinite(value) else mpmath.nan

    with mpmath.workdps(DIGITS):
        masks = MASKS if any(map(is_truth, symbols)) else MASKS[:1]
        for attempt, (reaches, odds) in enumerate(itertools.product(REACHES, masks)):
            rows, columns = _drawn(symbols, elements, results, reaches, odds, random.Random(7 + attempt))
            found = _pivoted(at, rows, columns, size)
            if found is not None:
                return found
    return None


def _drawn(
    symbols: Sequence[sp.Symbol],
    elements: Sequence[sp.Symbol],
    results: Sequence[sp.Symbol],
    reaches: tuple[float, float],
    odds: float,
    source: random.Random,
) -> tuple[list[Point], list[Point]]:
    """Rows, parameters among them, which are the same in all; and columns. Numbers have few decimals, to be shown."""

    def number(symbol: sp.Symbol, reach: float) -> mpmath.mpf:
        if is_truth(symbol):
            return mpmath.mpf(source.random() < odds)
        low = 0.05 * reach if symbol.is_nonnegative else -reach
        return mpmath.mpf(str(round(source.uniform(low, reach), 3)))

    fixed = {s: mpmath.mpf(str(round(source.uniform(0.5, 2.0), 3))) for s in symbols}
    varying, read = [s for s in symbols if s in elements], [s for s in symbols if s in results]
    rows = [{**fixed, **{s: number(s, reaches[0]) for s in varying}} for _ in range(POOL)]
    return rows, [{s: number(s, reaches[1]) for s in read} for _ in range(POOL)]


def _pivoted(
    evaluate: Callable[[Point], mpmath.mpf], rows: list[Point], columns: list[Point], size: int
) -> FullRank | None:
    """The rows and columns of the first pivots, where there are enough of them."""
    values = [[evaluate({**row, **column}) for column in columns] for row in rows]
    defined = [j for j in range(len(columns)) if sum(mpmath.isnan(line[j]) for line in values) <= POOL // 3]
    if len(defined) < size:
        return None
    left: dict[int, dict[int, mpmath.mpf]] = {}
    for i, line in enumerate(values):
        largest = max((abs(line[j]) for j in defined), default=mpmath.mpf(0))
        if largest and not any(mpmath.isnan(line[j]) for j in defined):
            left[i] = {j: line[j] / largest for j in defined}
    chosen: list[tuple[int, int]] = []
    while left and len(chosen) < size:
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
    if len(chosen) < size:
        return None
    return FullRank(tuple(rows[i] for i, _ in chosen), tuple(columns[j] for _, j in chosen))
