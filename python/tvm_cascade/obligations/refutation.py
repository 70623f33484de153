"""Numbers on which a law fails: positions and data, drawn at random and shown exactly.

| code                           | what is shown                                                                     |
|--------------------------------|-----------------------------------------------------------------------------------|
| infinite_rank, prod_dependence | x_i and d_j at which F(x_i, d_j), or its logarithm, has a rank above RANK_LIMIT    |
| not_monotone                   | positions x_i, more than RANK_LIMIT, each the only extremum at a d of its own      |
| logical_dependence             | so many, each the only one for which a condition holds, or fails, at such a d      |
| rounding, rounding_rank        | an element that rounds to another value at another scale                          |

Where F(x, d) = Σ_r G_r(x)·H_r(d) with R terms, no matrix F(x_i, d_j) has a rank above R; where a maximum over x is kept
by R of the positions, no more than R of them are it for some d. Each d is what some data give, of its own, so what is
shown is of F as a function of both: whether some x and d meet in no data is not asked. That nothing is found says
nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from flint import arb_mat
from numpy.typing import NDArray

from tvm_cascade.algebra.cascade import LENGTH, POSITION, Cascade, Reduction
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, PROD, SUM
from tvm_cascade.algebra.verdict import Counterexample, Question, Values
from tvm_cascade.obligations.definition import definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Balls, Float64, of_float64
from tvm_cascade.symbolic.balls import UndecidedError, workprec
from tvm_cascade.symbolic.functions import Round, innermost
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.rounding import round_to
from tvm_cascade.symbolic.separate import RANK_LIMIT, strip_rounding

_SIZE = RANK_LIMIT + 1
"""Rank, or number of kept positions, that no state of `RANK_LIMIT` components gives."""

_COUNTS = float(_SIZE), float(RANK_LIMIT)

_DRAWS, _DATA, _POSITIONS = 30, 40, 4
"""Draws; data of each, and their positions."""

_ROWS = 400
"""Positions of a draw that are asked about."""

_SIZES, _SPREAD, _LARGER, _FURTHER = (-2.0, 1.0), (-0.7, 0.7), (-1.0, 2.0), (-2.0, 4.0)
"""Powers of ten: of a symbol, of each of its values, and by which all values of some data are larger."""

_REACHES = (0.2, 1.0, 0.5)
"""Shares of these, draw by draw: exponentials are soon out of range."""

_WHOLE = 12
"""How far whole numbers are drawn from zero."""

_BITS = 2048
"""Of the balls of a determinant."""

_CLEAR = 1e-9
"""Share by which the only extremum is beyond the next one."""

_ROUNDS_APART = 1e-5
"""Share by which two rounded values differ that are not the same."""

_LARGEST = 1e30
"""Of numbers that are rounded."""

Point = dict[sp.Symbol, Any]


def refutation(code: str, question: Question) -> Counterexample | None:
    """Numbers on which the law behind a code fails; None where it has none of this kind, or none were found."""
    search = _SEARCHES.get(code)
    return None if search is None else search(_Numbers(question))


@dataclass(frozen=True)
class _Drawn:
    """A function at positions and data, each of which may meet all of the others.

    Attributes
    ----------
    data : the positions behind the results that are read, and these results with parameters and N.
    values : of the function, a row per position.
    """

    rows: Sequence[Point]
    data: Sequence[tuple[list[Point], Point]]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class _Numbers:
    """What is drawn for a question."""

    question: Question
    arithmetic: Float64 = field(default_factory=Float64)

    def plain(self, expression: sp.Expr) -> sp.Expr:
        """An expression over elements, results and parameters, without roundings."""
        known = {symbol: value for symbol, value in self.question.meaning.items() if symbol != LENGTH}
        return strip_rounding(expression.xreplace(dict(self.question.invariants)).xreplace(known))

    @cached_property
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
        return varying, [r.result for r in self.earlier if r.result in function.free_symbols]

    def draws(self, function: sp.Expr, where: sp.Expr = sp.S.One) -> Iterator[_Drawn]:
        """A plain function at so many positions, where a condition is 1, and data; the same ones each time."""
        if not all(read := self.read(function)):
            return
        symbols = set().union(function.free_symbols, *(r.element.free_symbols for r in self.earlier))
        fixed = sorted(symbols - {*self.varying, *(r.result for r in self.earlier), LENGTH, POSITION}, key=str)
        cascade = Cascade(self.earlier, self.varying)
        for attempt in range(_DRAWS):
            draw = _Sizes(random.Random(attempt), _REACHES[attempt % len(_REACHES)], self.varying)
            parameters = {s: _number(s, draw.source, draw.source.uniform(*_SPREAD)) for s in fixed}
            data, larger = [], (draw.reach * _LARGER[0], draw.reach * _LARGER[1])
            for sizes in (draw.moved(larger) for _ in range(_DATA)):
                positions = [sizes.position(k) for k in range(_POSITIONS)]
                found = definition(cascade, positions, self.arithmetic, parameters)
                if all(math.isfinite(found[result]) for result in read[1]):
                    data.append((positions, {**parameters, LENGTH: float(_POSITIONS), **found}))
            met = [abs(found[result]) for _, found in data for result in read[1] if found[result]]
            rows = [draw.for_row(k, met).position(k) for k in range(_ROWS)]
            rows = [one for one, holds in zip(rows, self._at(where, rows, [{}]), strict=True) if holds]
            if rows and data:
                yield self._drawn(function, rows, data)

    def _at(self, function: sp.Expr, rows: Sequence[Point], results: Sequence[Point]) -> NDArray[np.float64]:
        """A plain function at each of the positions and results; NaN where it has no value."""
        symbols, compiled = of_float64(function)
        at = [np.array([[one[s]] for one in rows] if s in rows[0] else [[d[s] for d in results]]) for s in symbols]
        with np.errstate(all="ignore"):
            value = np.asarray(compiled(*np.broadcast_arrays(*at)), np.float64)  # NumPy joins conditions of one shape
        return np.array(np.broadcast_to(value, (len(rows), len(results))))

    def _drawn(self, function: sp.Expr, rows: list[Point], data: list[tuple[list[Point], Point]]) -> _Drawn:
        """The function where a position may be among the data: as one of them is in what the function does not read."""
        read, results = self.read(function)[0], [found for _, found in data]
        values, met = self._at(function, rows, results), [{s: one[s] for s in read} for one in rows]
        beside = ([{**positions[k], **found} for positions, found in data] for k in range(_POSITIONS))
        values[~np.any([self._are_within(met, other) for other in beside], axis=0)] = math.nan
        kept, lost = [np.arange(len(rows)), np.arange(len(data))], ~np.isfinite(values)
        while lost.any():
            shares = lost.mean(axis=1), lost.mean(axis=0)
            axis = int(shares[0].max() < shares[1].max())
            worst = shares[axis].argmax()
            kept[axis], lost = np.delete(kept[axis], worst), np.delete(lost, worst, axis)
        return _Drawn([rows[k] for k in kept[0]], [data[k] for k in kept[1]], values[np.ix_(*kept)])

    def _are_within(self, rows: Sequence[Point], results: Sequence[Point]) -> NDArray[np.bool_]:
        """Where no position is beyond an extremum of its data, or a sum of what is not negative."""
        within = np.ones((len(rows), len(results)), bool)
        for reduction in self.earlier:
            bounded = reduction.reducer is SUM and bool(reduction.element.is_nonnegative)
            if bounded or reduction.reducer in (MAX, MIN):
                above = self._at(reduction.element - reduction.result, rows, results)
                within &= ~((above < 0) if reduction.reducer is MIN else (above > 0))
        return within

    def shown(
        self, function: sp.Expr, drawn: _Drawn, rows: Sequence[int], columns: Sequence[int]
    ) -> tuple[str, Values, tuple[Values, ...]]:
        """Some of the positions and data: what the function reads of them, in words and by name, and the data."""
        varying, read = self.read(function)
        data = [drawn.data[k] for k in columns]
        at = [(str(s), tuple(float(drawn.rows[k][s]) for k in rows)) for s in varying]
        at += [(self.question.name(d), tuple(float(found[d]) for _, found in data)) for d in read]
        others = sorted(function.free_symbols - {*varying, *read}, key=str)
        at += [(str(s), (float(data[0][1][s]),)) for s in others if s in data[0][1]]
        words = "; ".join(f"{name} = {', '.join(f'{value:g}' for value in values)}" for name, values in at)
        given = (tuple((str(s), tuple(one[s] for one in made)) for s in self.varying) for made, _ in data)
        return words, tuple(at), tuple(given)


_LARGEST = 100.0
"""Power of ten of positions of the size of results, which may be as large as floats are."""


class _Sizes:
    """The sizes of a draw's numbers.

    Parameters
    ----------
    reach : share of the powers of ten that they differ by.
    """

    def __init__(self, source: random.Random, reach: float, varying: Sequence[sp.Symbol]) -> None:
        self.source, self.reach, self.share = source, reach, 0.5
        self.centres = {symbol: self.power(_SIZES) for symbol in varying}

    def power(self, between: tuple[float, float]) -> float:
        return self.reach * self.source.uniform(*between)

    def for_row(self, number: int, results: Sequence[float]) -> _Sizes:
        """These sizes, further ones, or those of results, with which elements may be compared."""
        if number % 3 == 2 and results:
            sizes = [min(math.log10(result), _LARGEST) for result in results]
            return self._with({symbol: self.source.choice(sizes) for symbol in self.centres})
        return self.moved(_FURTHER) if number % 3 else self

    def moved(self, by: tuple[float, float]) -> _Sizes:
        """Sizes between these powers of ten larger."""
        return self._with({symbol: centre + self.source.uniform(*by) for symbol, centre in self.centres.items()})

    def _with(self, centres: dict[sp.Symbol, float]) -> _Sizes:
        """Other sizes, and another share of masks that hold and of numbers that are positive."""
        other = copy(self)
        other.centres, other.share = centres, self.source.random()
        return other

    def position(self, number: int) -> Point:
        powers = {symbol: centre + self.power(_SPREAD) for symbol, centre in self.centres.items()}
        numbers = {s: _number(s, self.source, power, self.share) for s, power in powers.items()}
        return {**numbers, POSITION: float(number)}


def _number(symbol: sp.Symbol, source: random.Random, power: float, share: float = 0.5) -> float:
    """A number of few digits that a symbol may be, of the order of a power of ten; a share of them holds, or is > 0."""
    above = source.random() < share or bool(symbol.is_nonnegative)
    if is_truth(symbol):
        return float(source.random() < share)
    if symbol.is_integer:
        return float(source.randint(0, _WHOLE) if above else -source.randint(0, _WHOLE))
    return float(f"{(1 if above else -1) * source.uniform(0.05, 1.0) * 10**power:.3g}")


def _rank_grows(numbers: _Numbers) -> Counterexample | None:
    """Points at which the matrix of the element, or of a factor's logarithm, exceeds the rank limit."""
    function, product = numbers.plain(numbers.question.function), numbers.question.reducer is PROD
    of_rank, what = (sp.log(sp.Abs(function)), "log of the element") if product else (function, "element")
    for drawn in numbers.draws(of_rank):
        rows, columns = _pivots(drawn.values)
        if len(rows) == _SIZE and _is_regular(of_rank, drawn, rows, columns):
            words, at, data = numbers.shown(function, drawn, rows, columns)
            claim = f"at {words} the {what} has rank {_SIZE}: it is no sum of {RANK_LIMIT} products G(x)·H(d)"
            return Counterexample(claim, at, _COUNTS, data)
    return None


def _pivots(matrix: NDArray[np.float64]) -> tuple[list[int], list[int]]:
    """The rows and columns of the pivots, by full pivoting; each column and row is scaled to the size of 1 before."""
    left, chosen = matrix, list[tuple[int, int]]()
    for axis in (0, 1):
        left = left / np.maximum(np.abs(left).max(axis=axis, initial=0, keepdims=True), np.finfo(float).tiny)
    while len(chosen) < _SIZE and left.any():
        row, column = np.unravel_index(np.abs(left).argmax(), left.shape)
        chosen.append((int(row), int(column)))
        left = left - np.outer(left[:, column], left[row] / left[row, column])
        left[row], left[:, column] = 0, 0
    return sorted(row for row, _ in chosen), sorted(column for _, column in chosen)


def _is_regular(function: sp.Expr, drawn: _Drawn, rows: Sequence[int], columns: Sequence[int]) -> bool:
    """Whether the matrix of a function at some points is invertible: the ball of its determinant is without zero."""
    points = [[{**drawn.data[j][1], **drawn.rows[i]} for j in columns] for i in rows]
    with workprec(_BITS):
        balls = Balls()
        exact = [[{s: balls.number(value) for s, value in at.items()} for at in line] for line in points]
        try:
            matrix = arb_mat([[balls.value(function, at) for at in line] for line in exact])
        except (*NO_VALUE, UndecidedError):
            return False
        return bool(matrix.det().abs_lower() > 0)


def _positions_decide(numbers: _Numbers) -> Counterexample | None:
    """Positions each of which is the only extremum at some results, or is selected there; or holds, or fails, alone."""
    question, whole = numbers.question, numbers.question.reducer.whole
    selection = None if whole is None else whole.selection
    reducer = question.reducer if selection is None else MAX if selection.largest else MIN
    if reducer not in _ALONE:
        return None
    function, sign = numbers.plain(question.function), 1 if reducer in (MAX, OR) else -1
    where = numbers.plain(sp.Piecewise((sp.S.One, question.where), (sp.S.Zero, True)))
    for drawn in numbers.draws(function, where):
        if reducer in (AND, OR):
            decided = _apart(drawn.values == (reducer is OR))
        else:
            decided = _deciding(sign * drawn.values, selection is not None and selection.lower)
        if decided:
            words, at, data = numbers.shown(function, drawn, *zip(*decided, strict=True))
            kind = "the selected one" if selection else f"the only {_ALONE[reducer]}"
            claim = f"{words}: each of the {_SIZE} positions is {kind} at its own one of these results"
            return Counterexample(claim, at, _COUNTS, data)
    return None


_ALONE = {MAX: "max", MIN: "min", OR: "one that holds", AND: "one that fails"}


def _apart(holds: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Rows, each with a column at which it alone holds."""
    left, found = holds, list[tuple[int, int]]()
    while left.any() and len(found) < _SIZE:  # first those of fewest columns, at which fewest others hold
        others = np.add.outer(left.sum(axis=1), left.sum(axis=0))
        row, column = np.unravel_index(np.where(left, others, left.size).argmin(), left.shape)
        found.append((int(row), int(column)))
        left = left & ~left[:, [column]] & ~left[[row]]
    return sorted(found) if len(found) == _SIZE else []


def _deciding(values: NDArray[np.float64], by_index: bool) -> list[tuple[int, int]]:
    """Rows, each with a column of which it is the only largest entry, or by index the first of equal ones.

    Of all rows those are left out, one after the other, that are the largest in most columns: what others decide then
    shows.
    """
    ranked, columns = np.argsort(-values.T, axis=1, kind="stable"), np.arange(values.shape[1])
    while min(ranked.shape) >= _SIZE:
        largest, second = values[ranked[:, 0], columns], values[ranked[:, 1], columns]
        clear = (largest - second > _CLEAR * np.abs(largest)) | (by_index & (largest == second))
        if np.count_nonzero(np.bincount(ranked[clear, 0])) >= _SIZE:
            decided = {int(ranked[column, 0]): int(column) for column in np.flatnonzero(clear)[::-1]}
            return sorted(decided.items())[:_SIZE]
        ranked = ranked[ranked != np.bincount(ranked[:, 0]).argmax()].reshape(len(ranked), -1)
    return []


def _rounds_elsewhere(numbers: _Numbers) -> Counterexample | None:
    """An element that is rounded at one scale and moved to another, and is not what it is rounded there."""
    rounded = min(numbers.question.function.atoms(Round), key=innermost, default=None)
    if rounded is None:
        return None
    value, dtype = numbers.plain(rounded.args[0]), str(rounded.args[1])
    for drawn in numbers.draws(value):
        for row, (before, after) in enumerate(drawn.values[:, :2].tolist() if drawn.values.shape[1] > 1 else []):
            if not 0 < min(abs(before), abs(after)) <= max(abs(before), abs(after)) < _LARGEST:
                continue
            kept, wanted = round_to(before, dtype), round_to(after, dtype)
            found = [kept * (after / before), kept + after - before]
            if min(abs(moved - wanted) for moved in found) > _ROUNDS_APART * max(abs(wanted), 1e-6):
                _, at, data = numbers.shown(value, drawn, [row], [0, 1])
                first, second = (", ".join(f"{d} = {v[k]:g}" for d, v in at if len(v) == 2) for k in (0, 1))
                claim = (
                    f"{', '.join(f'{s} = {v[0]:g}' for s, v in at if len(v) == 1)}: rounded to {dtype} at {first} and"
                )
                claim += f" moved to {second} it is {found[0]:.6g}, rounded there it is {wanted:.6g}"
                return Counterexample(claim, at, (found[0], wanted), data)
    return None


_SEARCHES: Mapping[str, Callable[[_Numbers], Counterexample | None]] = {
    "infinite_rank": _rank_grows,
    "prod_dependence": _rank_grows,
    "not_monotone": _positions_decide,
    "logical_dependence": _positions_decide,
    "rounding": _rounds_elsewhere,
    "rounding_rank": _rounds_elsewhere,
}
