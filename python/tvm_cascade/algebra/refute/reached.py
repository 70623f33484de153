"""Reachable results: a law is broken only by values of earlier results that some data produce.

d = Σ (1 + x²) is never below N, p = exp(x)/Σ exp(x) never above 1, and no element exceeds its maximum. So results are
never drawn: elements are, and the earlier reductions are run on them. And where a search moved results on its own, the
elements that it found are completed by others until all of them together have those results (Gauss and Newton's way).
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import sympy as sp
from sympy.core.relational import Relational

from tvm_cascade.algebra.cascade import COUNT, LENGTH, POSITION, Cascade, Reduction
from tvm_cascade.algebra.counterexample import Numbers
from tvm_cascade.algebra.monoid import on_numbers
from tvm_cascade.algebra.reducer import EXTREMES
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.sampling import IN_RANGE, as_function
from tvm_cascade.symbolic.separate import strip_rounding

REST = 3
"""Positions appended to a segment to reach given results; the last one is repeated up to N."""

SHORTEST, LONGEST = 10, 48
"""N where it is not known; and most positions where each has to be written out, for its index is read."""

STEPS, SLOPE_STEP, HALVINGS = 12, 1e-6, 4
CLOSE = 1e-9
"""Results are those that were asked for when they differ by less than this share."""

SMALL = 0.1
WHOLE_REACH = 12
"""How far whole numbers are drawn from zero; twice as far as constants that they are compared with."""

Point = dict[sp.Symbol, float]
NO_VALUE = (ArithmeticError, ValueError, TypeError, NameError)


@dataclass(frozen=True)
class Reached:
    """Elements, and the results computed from them.

    Attributes
    ----------
    rows : the elements of each position; the last row stands at every further one, up to N.
    results : the results, N and the parameters.
    parameters : what is the same for all data.
    """

    rows: tuple[Point, ...]
    results: Point
    parameters: Point


class Earlier:
    """The reductions that an element reads, on numbers.

    Parameters
    ----------
    reductions : whole ones, in dependency order.
    elements : the symbols that vary along the axis.
    meaning : what symbols stand for: numbers, elements in terms of others, N where it is fixed; a symbol that varies
        along the axis, though no reduction reads it, stands for itself.
    """

    def __init__(
        self,
        reductions: Sequence[Reduction],
        elements: Sequence[sp.Symbol],
        meaning: Mapping[sp.Symbol, sp.Expr] | None = None,
    ) -> None:
        self._meaning = {s: value for s, value in (meaning or {}).items() if s != LENGTH}
        self._blocks = Cascade([Reduction(r.result, r.reducer, self.plain(r.element)) for r in reductions], []).blocks
        self.results = [r.result for r in reductions]
        own = [s for s in elements if s not in self._meaning]
        named = sorted((s for s, value in self._meaning.items() if s == value and s not in own), key=str)
        self.varying = [s for s in (*own, *named) if s != POSITION]
        compared = set().union(*(c.atoms(sp.Integer) for f in self._meaning.values() for c in f.atoms(Relational)))
        self._whole = max([WHOLE_REACH, *(2 * abs(int(number)) for number in compared)])
        self._known_length = (meaning or {}).get(LENGTH)
        self._compiled: dict[str, dict[sp.Expr, tuple[list[sp.Symbol], Callable[..., Any]]]] = {}

    def plain(self, function: sp.Expr) -> sp.Expr:
        """The function with its symbols written out, without roundings."""
        return strip_rounding(function.xreplace(self._meaning)).xreplace(EXTREMES)

    def behind(self, function: sp.Expr) -> Earlier:
        """The reductions that a plain function depends on; others may be undefined where these are not."""
        needed, blocks = set(function.free_symbols), list[tuple[Reduction, ...]]()
        for block in reversed(self._blocks):
            if any(r.result in needed for r in block):
                needed |= set().union(*(r.element.free_symbols for r in block))
                blocks.insert(0, block)
        found = copy.copy(self)
        found._blocks, found.results = blocks, [r.result for block in blocks for r in block]
        return found

    @property
    def read(self) -> list[sp.Symbol]:
        """The elements that the reductions read."""
        mentioned = set().union(*(r.element.free_symbols for block in self._blocks for r in block))
        return [s for s in self.varying if s in mentioned]

    def shown(self, data: Reached) -> Numbers:
        """The elements of data that the reductions read."""
        return tuple((str(e), tuple(row[e] for row in data.rows)) for e in self.read)

    def for_function(self, function: sp.Expr) -> tuple[list[sp.Symbol], list[sp.Symbol], bool]:
        """The elements and the results that a plain function reads, and whether it or an earlier one reads indices."""
        varying = [s for s in self.varying if s in function.free_symbols]
        indexed = any(f.has(POSITION) for f in (function, *(r.element for block in self._blocks for r in block)))
        return varying, [s for s in self.results if s in function.free_symbols], indexed

    def parameters(self, function: sp.Expr, source: random.Random, indexed: bool) -> Point:
        """Random values for loop-invariant inputs, and N."""
        read = set().union(function.free_symbols, *(r.element.free_symbols for block in self._blocks for r in block))
        fixed = read - {*self.varying, *self.results, LENGTH, COUNT, POSITION}
        known = int(self._known_length) if self._known_length is not None else 0
        length = max(SHORTEST, min(known, LONGEST) if indexed else known)
        return {s: self.drawn(s, source, 1.0) for s in sorted(fixed, key=str)} | {LENGTH: float(length)}

    def row(
        self,
        source: random.Random,
        reach: float,
        odds: float = 0.5,
        index_below: float = 0,
        read: Sequence[sp.Symbol] | None = None,
    ) -> Point:
        """Random elements of one position, and its index where there is a bound for it.

        Those that are not `read` by what is asked about are small: they leave what results are to further positions.
        """
        index = {POSITION: float(source.randrange(int(index_below)))} if index_below else {}
        small = set(self.varying) - set(self.varying if read is None else read)
        return {s: self.drawn(s, source, reach * SMALL if s in small else reach, odds) for s in self.varying} | index

    def drawn(self, symbol: sp.Symbol, source: random.Random, reach: float, odds: float = 0.5) -> float:
        """A number that the symbol may be, of few decimals."""
        if is_truth(symbol):
            return float(source.random() < odds)
        if symbol.is_integer:
            return float(source.randint(0 if symbol.is_nonnegative else -self._whole, self._whole))
        return round(source.uniform(0.05 * reach if symbol.is_nonnegative else -reach, reach), 3)

    def draw(
        self, source: random.Random, reach: float, fixed: Point, base: Sequence[Point] = (), indexed: bool = False
    ) -> Reached | None:
        """Random data that start with a given segment; None where they have no real, finite results."""
        length = int(fixed[LENGTH])
        count = max(REST, length - len(base)) if indexed or length <= SHORTEST else REST
        often = max(1, length - len(base) - count + 1)  # how often the last one stands there: sums stay of one size
        reaches = [reach] * (count - 1) + [reach * min(1.0, 2 / often)]
        rows = [*base, *(self.row(source, far) for far in reaches)]
        return self.reached(rows, fixed)

    def reached(self, rows: Sequence[Point], fixed: Point, arithmetic: str = "math") -> Reached | None:
        """The results of the rows; None where they are not real and finite."""
        repeated = max(1, int(fixed[LENGTH]) - len(rows) + 1)
        taken = {row[POSITION] for row in rows if POSITION in row}
        others = (float(k) for k in itertools.count() if k not in taken)
        rows = [row if POSITION in row else {**row, POSITION: next(others)} for row in rows]
        known: dict[sp.Symbol, Any] = {**fixed, COUNT: fixed[LENGTH], LENGTH: max(fixed[LENGTH], len(rows))}
        try:
            for block in self._blocks:
                lifted = [[self.value(r.element, {**known, **row}, arithmetic) for row in rows] for r in block]
                known |= zip((r.result for r in block), _reduced(block, lifted, repeated), strict=True)
        except NO_VALUE:
            return None
        is_finite = math.isfinite if arithmetic == "math" else mpmath.isfinite
        return Reached(tuple(rows), known, fixed) if all(map(is_finite, known.values())) else None

    def value(self, function: sp.Expr, at: Mapping[sp.Symbol, Any], arithmetic: str = "math") -> Any:
        """A plain function where its symbols have those values, in Python's arithmetic or mpmath's."""
        compiled, number = self._compiled.setdefault(arithmetic, {}), float if arithmetic == "math" else mpmath.mpf
        found = compiled.get(function)
        if found is None:
            symbols = sorted(function.free_symbols, key=str)
            evaluate = as_function(symbols, function, IN_RANGE if arithmetic == "mpmath" else arithmetic)
            found = compiled[function] = symbols, evaluate
        symbols, evaluate = found
        return number(evaluate(*[number(at[s]) for s in symbols]))

    def holds(self, condition: sp.Expr, at: Mapping[sp.Symbol, Any]) -> bool:
        """Whether a plain condition, as the number 1 or 0, holds there; not where it has no value."""
        try:
            return bool(self.value(condition, at))
        except NO_VALUE:
            return False

    def completed(self, base: Sequence[Point], rest: Sequence[Point], fixed: Point, wanted: Point) -> Reached | None:
        """The base and further rows, near those given, that together have the wanted results; None where none do."""
        rest = [{s: value for s, value in row.items() if s != POSITION} for row in rest]
        if not wanted:
            return self.reached([*base, *rest], fixed)
        moving = [(k, s) for k, row in enumerate(rest[:REST]) for s in row if not s.is_integer]
        values, names = [rest[k][s] for k, s in moving], list(wanted)

        def at(numbers: Sequence[float]) -> Reached | None:
            rows = [dict(row) for row in rest]
            for (k, s), number in zip(moving, numbers, strict=True):
                rows[k][s] = number
            return self.reached([*base, *rows], fixed)

        def missing(found: Reached | None) -> list[float] | None:
            return None if found is None else [wanted[s] - found.results[s] for s in names]

        found = at(values)
        for _ in range(STEPS):
            off = missing(found)
            if off is None or all(abs(o) <= CLOSE * (1 + abs(wanted[s])) for o, s in zip(off, names, strict=True)):
                return found
            beside = [missing(at([*values[:k], values[k] + SLOPE_STEP, *values[k + 1 :]])) for k in range(len(values))]
            slopes = [[(o - n) / SLOPE_STEP for o, n in zip(off, b or off, strict=True)] for b in beside]
            move = _least_move(slopes, off)
            for part in (0.5**k for k in range(HALVINGS if move else 0)):
                trial = [_moved(s, v, part * m) for (_, s), v, m in zip(moving, values, move, strict=True)]
                nearer = missing(at(trial))
                if nearer is not None and max(map(abs, nearer)) < max(map(abs, off)):
                    values, found = trial, at(trial)
                    break
            else:
                return None
        return None


def _least_move(slopes: list[list[float]], off: list[float]) -> list[float]:
    """The least change of the numbers that makes up for what is off, to first order; empty where there is none."""
    jacobian = mpmath.matrix(slopes).T
    try:
        move = jacobian.T * mpmath.lu_solve(jacobian * jacobian.T, mpmath.matrix(off))
    except NO_VALUE:
        return []
    return [float(m) for m in move] if all(map(mpmath.isfinite, move)) else []


def _moved(symbol: sp.Symbol, value: float, by: float) -> float:
    """The number changed, and still positive where it has to be."""
    return value / 8 if symbol.is_nonnegative and value + by <= 0 else value + by


def _reduced(block: tuple[Reduction, ...], lifted: list[list[Any]], repeated: int) -> tuple[Any, ...]:
    """Each part of the block over the rows, of which the last is repeated."""
    reducer = block[0].reducer
    if reducer.whole is None:
        total = functools.reduce(reducer.on_numbers, lifted[0])
        return (reducer.on_numbers(total, reducer.repeated(lifted[0][-1], repeated - 1)),)
    in_order = sorted(range(len(block)), key=lambda k: block[k].reducer.part)
    tuples = list(zip(*(lifted[k] for k in in_order), strict=True))
    if repeated > LONGEST:
        raise ValueError("too many tuples to combine")
    tuples += [tuples[-1]] * (repeated - 1)
    merged = functools.reduce(on_numbers(reducer.whole), tuples)
    number = type(lifted[0][0])
    return tuple(number(merged[block[k].reducer.part]) for k in range(len(block)))
