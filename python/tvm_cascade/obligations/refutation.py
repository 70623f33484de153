"""Numbers on which a law fails: points of elements and of earlier results, drawn at random and shown exactly.

| code                           | what is shown                                                                     |
|--------------------------------|-----------------------------------------------------------------------------------|
| infinite_rank, prod_dependence | x_i and d_j at which F(x_i, d_j), or its logarithm, has a rank above RANK_LIMIT    |
| not_monotone                   | positions x_i, more than RANK_LIMIT, each the only extremum at a d of its own      |
| rounding, rounding_rank        | an element that rounds to another value at another scale                          |
| rounding_range                 | one that leaves its dtype's range at the scale of a part of the data              |

Where F(x, d) = Σ_r G_r(x)·H_r(d) with R terms, no matrix F(x_i, d_j) has a rank above R; where a maximum over x is kept
by R of the positions, no more than R of them are it for some d. Each d is what some data give, of its own, so what is
shown is of F as a function of both: whether some x and d meet in no data is not asked. That nothing is found says
nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tvm_cascade.algebra.cascade import LENGTH, POSITION, Cascade, Reduction
from tvm_cascade.algebra.reducer import MAX, MIN, PROD, SUM
from tvm_cascade.algebra.verdict import Counterexample, Question, Values
from tvm_cascade.obligations.definition import definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Arithmetic, Digits, Float64
from tvm_cascade.symbolic.functions import Round, innermost
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.rounding import FORMATS, round_to
from tvm_cascade.symbolic.separate import RANK_LIMIT, strip_rounding

_SIZE = RANK_LIMIT + 1
"""Rank, or number of kept positions, that no state of `RANK_LIMIT` components gives."""


@dataclass(frozen=True)
class _Effort:
    """Draws, and positions and data of each; data begin with the first `base` positions."""

    draws: int
    rows: int
    data: int
    base: int = 0


_OF_MATRIX, _OF_ENVELOPE, _OF_ROUNDING = _Effort(30, 50, 40), _Effort(30, 400, 40), _Effort(30, 50, 2)
_OF_PART = _Effort(100, 3, 3, base=3)

_CENTRES, _WIDTHS, _FURTHER = (-2.0, 1.0), (0.1, 1.0), (-1.0, 2.0)
"""Powers of ten: about which a symbol's sizes lie, how far from there, and by what those of some data are larger."""

_POSITIONS = 4
"""Of the data that results are of."""

_DIGITS = 60, 120
"""At which a determinant is computed: it is not zero where both are the same."""

_SAME = mpmath.mpf(10) ** -6
"""Share of a determinant by which the two may differ."""

_CLEAR = 1e-9
"""Share by which the only extremum is beyond the next one."""

_ROUNDS_APART = 1e-5
"""Share by which two rounded values differ that are not the same."""

_ROUNDINGS = 4
"""By how many roundings of the largest element another one may be off."""

_REACHES = (0.2, 1.0, 0.5)
"""Shares of these, draw by draw: exponentials are soon out of range."""

_LESS = (0.0, 1.5, 3.0)
"""Powers of ten by which a position's numbers are smaller that are not asked about: others make the results."""

_LARGEST = 1e300
"""Numbers beyond this are no float64, in which roundings are computed."""

_WHOLE = 12
"""How far whole numbers are drawn from zero."""

Point = dict[sp.Symbol, Any]


def refutation(code: str, question: Question) -> Counterexample | None:
    """Numbers on which the law behind a code fails; None where it has none of this kind, or none were found."""
    find = _SEARCHES.get(code)
    return None if find is None else find(_Numbers(question))


@dataclass(frozen=True)
class _Numbers:
    question: Question
    arithmetic: Arithmetic = field(default_factory=Float64)

    def plain(self, expression: sp.Expr) -> sp.Expr:
        """An expression over elements, results and parameters, without roundings."""
        known = {symbol: value for symbol, value in self.question.meaning.items() if symbol != LENGTH}
        return strip_rounding(expression.xreplace(dict(self.question.handles)).xreplace(known))

    @property
    def earlier(self) -> list[Reduction]:
        """The reductions that results come from."""
        return [Reduction(r.result, r.reducer, self.plain(r.element)) for r in self.question.reductions]

    @cached_property
    def varying(self) -> list[sp.Symbol]:
        """What is drawn for each position: elements, and what stands for itself though no reduction reads it."""
        meaning = self.question.meaning
        own = [symbol for symbol in self.question.elements if symbol not in meaning]
        named = sorted((s for s, value in meaning.items() if s == value and s not in own), key=str)
        return [symbol for symbol in (*own, *named) if symbol != POSITION]

    def read(self, function: sp.Expr) -> tuple[list[sp.Symbol], list[sp.Symbol]]:
        """The elements, and the earlier results, that a plain function reads."""
        varying = [s for s in (*self.varying, POSITION) if s in function.free_symbols]
        return varying, [r.result for r in self.question.reductions if r.result in function.free_symbols]

    def behind(self, function: sp.Expr) -> list[Reduction]:
        """The reductions that a plain function depends on; others may be undefined where these are not."""
        needed, found = set(function.free_symbols), list[Reduction]()
        for block in reversed(Cascade(self.earlier, []).blocks if self.question.reductions else []):
            if any(r.result in needed for r in block):
                needed |= set().union(*(r.element.free_symbols for r in block))
                found[:0] = block
        return found

    def draws(self, function: sp.Expr, effort: _Effort) -> Iterator[_Draw]:
        """Positions and data at random, draw by draw the same ones for ever."""
        behind = self.behind(function)
        cascade = Cascade(behind, self.varying) if behind else None
        symbols = set().union(function.free_symbols, *(r.element.free_symbols for r in behind))
        unread = [symbol not in function.free_symbols for symbol in self.varying]
        fixed = symbols - {*self.varying, *(r.result for r in behind), LENGTH, POSITION}
        for attempt in range(effort.draws):
            source = random.Random(attempt)
            parameters = {s: _drawn(s, source, (-0.5, 0.5)) for s in sorted(fixed, key=str)}
            reach, less = _REACHES[attempt % len(_REACHES)], source.choice(_LESS)
            spread = [(reach * source.uniform(*_CENTRES), reach * source.uniform(*_WIDTHS)) for _ in self.varying]
            sizes = [(c - w, c + w) for c, w in spread]
            beside = [(c - w - less * u, c + w - less * u) for (c, w), u in zip(spread, unread, strict=True)]
            further_by = [reach * power for power in _FURTHER]
            rows = [self._row(source, beside, k % 2 * source.uniform(*further_by), k) for k in range(effort.rows)]
            data = []
            for _ in range(effort.data):
                larger = source.uniform(*further_by)
                further = [self._row(source, sizes, larger, effort.base + k) for k in range(_POSITIONS)]
                found = self._results(cascade, [*rows[: effort.base], *further], parameters)
                if found is not None:
                    data.append((further, found))
            part = self._results(cascade, rows[: effort.base], parameters) if effort.base else None
            yield _Draw(behind, rows, data, part)

    def _row(self, source: random.Random, sizes: Sequence[tuple[float, float]], larger: float, position: int) -> Point:
        powers = [(low + larger, high + larger) for low, high in sizes]
        drawn = {symbol: _drawn(symbol, source, of) for symbol, of in zip(self.varying, powers, strict=True)}
        return drawn | {POSITION: float(position)}

    def _results(self, cascade: Cascade | None, rows: Sequence[Point], parameters: Point) -> Point | None:
        """Results, parameters and N; None where they are not finite."""
        known = {**parameters, LENGTH: float(len(rows))}
        if cascade is None:
            return known
        try:
            results = definition(cascade, rows, self.arithmetic, parameters)
        except NO_VALUE:
            return None
        return {**known, **results} if all(map(self.arithmetic.finite, results.values())) else None

    def values(self, function: sp.Expr, rows: Sequence[Point], data: Sequence[Point]) -> NDArray[np.float64]:
        """A plain function at each of the positions and results; NaN where it has no value."""
        (symbols, compiled), shape = self.arithmetic.function(function), (len(rows), len(data))
        at = [
            np.array([[row[s]] for row in rows]) if s in rows[0] else np.array([[found[s] for found in data]])
            for s in symbols
        ]
        with np.errstate(all="ignore"):
            value = compiled(*(np.broadcast_to(numbers, shape) for numbers in at))
        return np.broadcast_to(np.asarray(value, np.float64), shape)

    def compatible(self, function: sp.Expr, draw: _Draw) -> tuple[_Draw, NDArray[np.float64]]:
        """A plain function at positions and data of a draw each of which may meet all of the others.

        No position is beyond an extremum of its data, nor above a sum of elements that are not negative.
        """
        if not draw.rows or not draw.data:
            return draw, np.zeros((0, 0))
        results = [found for _, found in draw.data]
        values = self.values(function, draw.rows, results).copy()
        for reduction in draw.behind:
            bounded = reduction.reducer is SUM and bool(reduction.element.is_nonnegative)
            if bounded or reduction.reducer in (MAX, MIN):
                apart = self.values(reduction.element - reduction.result, draw.rows, results)
                values[apart < 0 if reduction.reducer is MIN else apart > 0] = math.nan
        rows, columns = np.arange(len(draw.rows)), np.arange(len(results))
        while (lost := ~np.isfinite(values[np.ix_(rows, columns)])).any():
            of_rows, of_columns = lost.mean(axis=1), lost.mean(axis=0)
            if of_rows.max() >= of_columns.max():
                rows = np.delete(rows, of_rows.argmax())
            else:
                columns = np.delete(columns, of_columns.argmax())
        kept = replace(draw, rows=[draw.rows[i] for i in rows], data=[draw.data[j] for j in columns])
        return kept, values[np.ix_(rows, columns)]

    def shown(
        self, function: sp.Expr, rows: Sequence[Point], data: Sequence[tuple[list[Point], Point]]
    ) -> tuple[Values, tuple[Values, ...], str]:
        """The values that a function reads, by name; the data of the results; and the former in words."""
        varying, read = self.read(function)
        at = tuple((str(s), tuple(float(row[s]) for row in rows)) for s in varying)
        at += tuple((self.question.name(d), tuple(float(found[d]) for _, found in data)) for d in read)
        others = function.free_symbols - {*varying, *read}
        at += tuple((str(s), (float(data[0][1][s]),)) for s in sorted(others, key=str) if s in data[0][1])
        given = tuple(tuple((str(s), tuple(row[s] for row in further)) for s in self.varying) for further, _ in data)
        return at, given, "; ".join(f"{name} = {', '.join(f'{value:g}' for value in values)}" for name, values in at)


@dataclass(frozen=True)
class _Draw:
    """Reductions behind a function; positions; data with their results; results of the first positions, if asked."""

    behind: list[Reduction]
    rows: list[Point]
    data: list[tuple[list[Point], Point]]
    part: Point | None


def _drawn(symbol: sp.Symbol, source: random.Random, powers: tuple[float, float]) -> float:
    """A number of few digits that a symbol may be, of a size between powers of ten."""
    truth, whole, low = _kind(symbol)
    if truth:
        return float(source.random() < 0.7)
    if whole:
        return float(source.randint(int(low * _WHOLE), _WHOLE))
    reach = 10 ** source.uniform(*powers)
    drawn = source.uniform((low or 0.05) * reach, reach)
    return float(f"{drawn:.3g}")


@cache
def _kind(symbol: sp.Symbol) -> tuple[bool, bool, int]:
    """Whether a symbol is a truth value, and an integer; and the sign of what is least, 0 of no negative number."""
    return is_truth(symbol), bool(symbol.is_integer), 0 if symbol.is_nonnegative else -1


def _rank_grows(numbers: _Numbers) -> Counterexample | None:
    """Points at which the matrix of the element, or of a factor's logarithm, exceeds the rank limit."""
    function, product = numbers.plain(numbers.question.function), numbers.question.reducer is PROD
    of_rank = sp.log(sp.Abs(function)) if product else function
    if not all(numbers.read(function)):
        return None
    for drawn in numbers.draws(function, _OF_MATRIX):
        draw, matrix = numbers.compatible(of_rank, drawn)
        chosen = sorted(_pivots(matrix))
        rows, data = [draw.rows[i] for i, _ in chosen], [draw.data[j] for _, j in chosen]
        if len(chosen) == _SIZE and _is_regular(of_rank, rows, [found for _, found in data]):
            at, given, words = numbers.shown(function, rows, data)
            what = "log of the element" if product else "element"
            claim = f"at {words} the {what} has rank {_SIZE}: it is no sum of {RANK_LIMIT} products G(x)·H(d)"
            return Counterexample(claim, at, (float(_SIZE), float(RANK_LIMIT)), given)
    return None


def _pivots(matrix: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The row and column of each pivot, by full pivoting; each column and row is scaled to the size of 1 before."""
    left, chosen = matrix, list[tuple[int, int]]()
    for axis in (0, 1):
        left = left / np.maximum(np.abs(left).max(axis=axis, initial=0, keepdims=True), np.finfo(float).tiny)
    while len(chosen) < _SIZE and left.any():
        row, column = np.unravel_index(np.abs(left).argmax(), left.shape)
        chosen.append((int(row), int(column)))
        left = left - np.outer(left[:, column], left[row] / left[row, column])
        left[row], left[:, column] = 0, 0
    return chosen


def _is_regular(function: sp.Expr, rows: Sequence[Point], data: Sequence[Point]) -> bool:
    """Whether the matrix of a function at some points certainly is invertible."""
    found, digits = [], Digits()
    for at_digits in _DIGITS:
        with mpmath.workdps(at_digits):
            exact = [_exact(at) for at in data]
            try:
                values = [[digits.value(function, {**at, **_exact(row)}) for at in exact] for row in rows]
                found.append(mpmath.det(mpmath.matrix(values)))
            except NO_VALUE:
                return False
    first, second = found
    return bool(second and mpmath.isfinite(second) and abs(first - second) <= _SAME * abs(second))


def _exact(row: Point) -> Point:
    return {symbol: mpmath.mpf(value) for symbol, value in row.items()}


def _positions_decide(numbers: _Numbers) -> Counterexample | None:
    """Positions each of which is the only extremum at some results, or is selected there."""
    question = numbers.question
    whole, reducer = question.reducer.whole, question.reducer
    selection = None if whole is None else whole.selection
    if selection is not None:
        reducer = MAX if selection.largest else MIN
    function = numbers.plain(question.function)
    if not reducer.ordered or not all(numbers.read(function)):
        return None
    where = numbers.plain(sp.Piecewise((sp.S.One, question.where), (sp.S.Zero, True)))
    for drawn in numbers.draws(function, _OF_ENVELOPE):
        inside = numbers.values(where, drawn.rows, [{}])
        rows = [row for row, holds in zip(drawn.rows, inside, strict=True) if holds == 1]
        draw, matrix = numbers.compatible(function, replace(drawn, rows=rows))
        decided = _deciding(matrix * (1 if reducer is MAX else -1), selection is not None and selection.lower)
        if len(decided) >= _SIZE:
            chosen = list(decided.items())
            at, given, words = numbers.shown(
                function, [draw.rows[i] for i, _ in chosen], [draw.data[j] for _, j in chosen]
            )
            kind = "the selected one" if selection else f"the only {question.reducer.name}"
            claim = f"{words}: each of the {_SIZE} positions is {kind} at its own one of these results"
            return Counterexample(claim, at, (float(_SIZE), float(RANK_LIMIT)), given)
    return None


def _deciding(matrix: NDArray[np.float64], by_index: bool) -> dict[int, int]:
    """Rows of a matrix, each with a column of which it is the only largest entry, or by index the first of equal ones.

    Of all rows those are left out, one after the other, that are the largest in most columns: what others decide then
    shows.
    """
    ranked = np.argsort(-matrix, axis=0, kind="stable")
    values = np.take_along_axis(matrix, ranked, axis=0)
    columns = list(zip(ranked.T.tolist(), values.T.tolist(), strict=True)) if matrix.shape[1] >= _SIZE else []
    out, places = set[int](), [(0, 1)] * len(columns)  # by column, of its largest entry and the next one
    for _ in range(len(matrix) - _SIZE if columns else 0):
        largest, decided = list[int](), dict[int, int]()
        for column, ((rows, entries), (first, second)) in enumerate(zip(columns, places, strict=True)):
            while rows[first] in out:
                first, second = second, second + 1
            while rows[second] in out:
                second += 1
            places[column] = first, second
            largest.append(rows[first])
            apart = entries[first] - entries[second]
            if apart > _CLEAR * abs(entries[first]) or (by_index and apart == 0):
                decided.setdefault(rows[first], column)
        if len(decided) >= _SIZE:
            return dict(sorted(decided.items())[:_SIZE])
        out.add(max(sorted(set(largest)), key=largest.count))
    return {}


def _rounds_elsewhere(numbers: _Numbers) -> Counterexample | None:
    """An element that is rounded at one scale and moved to another, and is not what it is rounded there."""
    for value, dtype in _rounded(numbers)[:1]:
        for drawn in numbers.draws(value, _OF_ROUNDING):
            draw, values = numbers.compatible(value, drawn)
            lines = [(at, line) for at, line in enumerate(values.tolist()) if len(line) == 2 and _usable(line)]
            for (at, (before, after)), (_, other) in zip(lines, [*lines[1:], *lines[:1]], strict=True):
                scales = abs(other[1] / other[0] - after / before) < 1e-9 * abs(after / before)
                kept, wanted = round_to(before, dtype), round_to(after, dtype)
                moved = kept * (after / before) if scales else kept + after - before
                if math.isfinite(moved) and abs(moved - wanted) > _ROUNDS_APART * max(abs(wanted), 1e-6):
                    return _rounded_apart(numbers, value, dtype, draw.rows[at], draw.data, (moved, wanted))
    return None


def _usable(line: Sequence[float]) -> bool:
    return all(0 < abs(value) < _LARGEST for value in line)


def _leaves_range(numbers: _Numbers) -> Counterexample | None:
    """Data with a first part at whose results an element is off, though no element of the full data overflows."""
    for value, dtype in _rounded(numbers):
        if dtype not in FORMATS or not numbers.read(value)[1]:
            continue
        for draw in numbers.draws(value, _OF_PART):
            if draw.part is None:
                continue
            for further, whole in draw.data:
                lost = _lost(numbers.values(value, draw.rows, [draw.part, whole]), dtype)
                if lost is not None:
                    at, outcomes = lost
                    data = [(draw.rows, draw.part), ([*draw.rows, *further], whole)]
                    return _rounded_apart(numbers, value, dtype, draw.rows[at], data, outcomes)
    return None


def _lost(values: NDArray[np.float64], dtype: str) -> tuple[int, tuple[float, float]] | None:
    """The row that is off by more than rounding is when it is rounded at the results of the first data; and by what."""
    kind = FORMATS[dtype]
    if not np.isfinite(values).all() or not values[:, 0].all() or np.abs(values).max() > _LARGEST:
        return None
    right = [round_to(float(after), dtype) for _, after in values]
    largest = max(map(abs, right))
    allowed = _ROUNDINGS * (largest * 2.0**-kind.bits + 2.0**kind.smallest)
    for row, (before, after) in enumerate(values):
        rounded = round_to(float(before), dtype)
        rounded = rounded if abs(rounded) <= kind.largest else math.copysign(kind.overflow, rounded)
        moved = rounded * float(after / before)
        if largest <= kind.largest and not abs(moved - right[row]) <= allowed:
            return row, (moved, right[row])
    return None


def _rounded(numbers: _Numbers) -> list[tuple[sp.Expr, str]]:
    """What is rounded in the element, without roundings, and to which dtype; the innermost first."""
    roundings = sorted(numbers.question.function.atoms(Round), key=innermost)
    return [(numbers.plain(rounded.args[0]), str(rounded.args[1])) for rounded in roundings]


def _rounded_apart(
    numbers: _Numbers,
    value: sp.Expr,
    dtype: str,
    row: Point,
    data: Sequence[tuple[list[Point], Point]],
    outcomes: tuple[float, float],
) -> Counterexample:
    """A value whose rounding at the results of some data does not commute with rescaling to those of others."""
    at, given, _ = numbers.shown(value, [row], data)
    varying, _ = numbers.read(value)
    element = ", ".join(f"{name} = {values[0]:g}" for name, values in at[: len(varying)])
    first, second = (
        ", ".join(f"{name} = {values[k]:g}" for name, values in at[len(varying) :] if len(values) == 2) for k in (0, 1)
    )
    claim = (
        f"{element}: rounded to {dtype} at {first} and moved to {second} it is {outcomes[0]:.6g}, "
        f"rounded there it is {outcomes[1]:.6g}"
    )
    return Counterexample(claim, at, outcomes, given)


_SEARCHES: Mapping[str, Callable[[_Numbers], Counterexample | None]] = {
    "infinite_rank": _rank_grows,
    "prod_dependence": _rank_grows,
    "not_monotone": _positions_decide,
    "rounding": _rounds_elsewhere,
    "rounding_rank": _rounds_elsewhere,
    "rounding_range": _leaves_range,
}
