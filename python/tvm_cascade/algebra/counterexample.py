"""Counterexamples: numbers on which a law fails, found by search, so that a refusal can be checked by hand.

| code                                  | what is shown                                                             |
|---------------------------------------|---------------------------------------------------------------------------|
| infinite_rank, prod_dependence        | values at which F(x, d) (log F of a product) has a rank above RANK_LIMIT   |
| not_monotone, several_element_parts   | two segments of equal extrema whose results differ                        |
| rounding, rounding_rank               | an element that rounds to another value at another scale                  |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import mpmath
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Round
from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.algebra.rounding import round_to
from tvm_cascade.algebra.separate import RANK_LIMIT, determinant, strip_rounding

DIGITS = 120
SINGULAR = mpmath.mpf(10) ** -90
"""A determinant below this, of a matrix whose largest entry is 1, counts as zero."""

LENGTH_SHOWN = 4
LARGEST_ROUNDED = 1e300
"""Numbers beyond this are no float64, in which roundings are computed."""

DIFFERENT, ROUNDS_APART = 1e-3, 1e-5
Point = dict[sp.Symbol, float]


@dataclass(frozen=True)
class Counterexample:
    """Numbers on which a law fails.

    Attributes
    ----------
    claim : what they show, with the numbers.
    at : the values of each symbol.
    outcomes : the two numbers that would have to agree.
    """

    claim: str
    at: tuple[tuple[str, tuple[float, ...]], ...]
    outcomes: tuple[float, float]

    def __str__(self) -> str:
        return self.claim


@dataclass(frozen=True)
class Question:
    """An element F that has no fold.

    Attributes
    ----------
    reducer : of its reduction.
    function : F, over elements, handles and parameters.
    elements : the symbols that vary along the axis.
    handles : what each of the other symbols stands for, where that is an earlier result.
    numbers : symbols that stand for constants.
    """

    reducer: Reducer
    function: sp.Expr
    elements: Sequence[sp.Symbol]
    handles: Mapping[sp.Symbol, sp.Expr]
    numbers: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)

    @property
    def varying(self) -> list[sp.Symbol]:
        """Element symbols of F."""
        return sorted((s for s in self.function.free_symbols if s in self.elements), key=str)

    @property
    def read(self) -> list[sp.Symbol]:
        """Earlier results of F."""
        return sorted((s for s in self.function.free_symbols if s in self.handles), key=str)

    def name(self, symbol: sp.Symbol) -> str:
        """What a symbol stands for."""
        return str(self.handles.get(symbol, symbol))

    def evaluator(self, function: sp.Expr) -> Callable[[Point], mpmath.mpf]:
        """The function on numbers; parameters are 1, N is LENGTH_SHOWN. NaN where it is not real."""
        plain = function.xreplace(dict(self.numbers)).subs({LENGTH: LENGTH_SHOWN, COUNT: LENGTH_SHOWN})
        symbols = sorted(plain.free_symbols, key=str)
        compiled = sp.lambdify(symbols, plain, "mpmath")

        def at(point: Point) -> mpmath.mpf:
            try:
                value = compiled(*(mpmath.mpf(point.get(s, 1)) for s in symbols))
            except (ValueError, ZeroDivisionError, TypeError, OverflowError):
                return mpmath.nan
            return value if isinstance(value, mpmath.mpf) else mpmath.nan

        return at


def counterexample(code: str, question: Question) -> Counterexample | None:
    """Numbers on which the law behind a code fails; None where it has none of this kind, or none was found."""
    find = _FINDERS.get(code)
    if find is None or not question.varying or not question.read:
        return None
    with mpmath.workdps(DIGITS):
        return find(question)


def _rank_grows(question: Question) -> Counterexample | None:
    function = strip_rounding(question.function)
    if question.reducer.name == "prod":
        function = sp.log(sp.Abs(function))
    evaluate, size = question.evaluator(function), RANK_LIMIT + 1
    for start in (0.3, 5.3):
        rows = [{e: round(start + 0.4 * k + 0.11 * i, 2) for i, e in enumerate(question.varying)} for k in range(size)]
        columns = [{h: round(0.15 + 0.35 * k + 0.07 * i, 2) for i, h in enumerate(question.read)} for k in range(size)]
        matrix = mpmath.matrix([[evaluate({**row, **column}) for column in columns] for row in rows])
        largest = max(abs(value) for value in matrix)
        if not mpmath.isfinite(sum(matrix)) or largest == 0:
            continue
        if abs(determinant(matrix / largest)) > SINGULAR:
            at = tuple((str(e), tuple(row[e] for row in rows)) for e in question.varying)
            at += tuple((question.name(h), tuple(column[h] for column in columns)) for h in question.read)
            given = " and ".join(f"{name} = {', '.join(f'{v:g}' for v in values)}" for name, values in at)
            what = "log of the element" if question.reducer.name == "prod" else "element"
            claim = f"at {given} the {what} is a matrix of rank {size}: no {RANK_LIMIT} sums determine the result"
            return Counterexample(claim, at, (float(size), float(RANK_LIMIT)))
    return None


def _segments(varying: Sequence[sp.Symbol]) -> Iterator[tuple[list[Point], list[Point]]]:
    """Pairs of segments in which each symbol has the same extrema."""
    values = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
    if len(varying) == 1:
        for low, high in itertools.combinations(values, 2):
            inner = [v for v in values if low < v < high]
            for a, b in itertools.combinations(inner, 2):
                yield [{varying[0]: v} for v in (low, a, high)], [{varying[0]: v} for v in (low, b, high)]
        return
    first, second, *_ = varying
    for (a, b), (c, d) in itertools.product(itertools.combinations(values, 2), repeat=2):
        yield [{first: a, second: c}, {first: b, second: d}], [{first: a, second: d}, {first: b, second: c}]


def _extrema_do_not_tell(question: Question) -> Counterexample | None:
    evaluate, choose = question.evaluator(strip_rounding(question.function)), max
    if question.reducer.name == "min":
        choose = min
    for left, right in _segments(question.varying):
        for held in (0.25, 0.75, 1.5, -0.75, 3.0):
            results: Point = dict.fromkeys(question.read, held)
            outcomes = [choose(evaluate({**row, **results}) for row in rows) for rows in (left, right)]
            if all(map(mpmath.isfinite, outcomes)) and abs(outcomes[0] - outcomes[1]) > DIFFERENT:
                found = float(outcomes[0]), float(outcomes[1])
                named = ", ".join(f"{question.name(h)} = {held:g}" for h in question.read)
                claim = (
                    f"segments {_shown(left)} and {_shown(right)} have the same extrema, "
                    f"yet at {named} they give {found[0]:.6g} and {found[1]:.6g}"
                )
                at = tuple(
                    (str(e), tuple(row.get(e, 1.0) for row in (*left, *right))) for e in question.varying
                ) + tuple((question.name(h), (held,)) for h in question.read)
                return Counterexample(claim, at, found)
    return None


def _shown(rows: Sequence[Point]) -> str:
    return "; ".join(f"{s} = {', '.join(f'{row[s]:g}' for row in rows)}" for s in rows[0])


def _rounds_elsewhere(question: Question) -> Counterexample | None:
    """Rounded at one scale and moved to another, against rounded there."""
    rounded = sorted(question.function.atoms(Round), key=str)
    if not rounded:
        return None
    value, dtype = rounded[0].args
    value, evaluate = strip_rounding(value), question.evaluator(strip_rounding(value))
    read = [h for h in question.read if value.has(h)]
    for x, first, second in itertools.product((0.3, 1.1, 2.3, 30.7, 307.0), (3.0, 5.0), (7.0, 11.0)):
        point: Point = dict.fromkeys(question.varying, x)
        before, after = (evaluate({**point, **dict.fromkeys(read, held)}) for held in (first, second))
        if not max(abs(before), abs(after)) < LARGEST_ROUNDED:
            continue
        other = {**dict.fromkeys(question.varying, 1.7)}
        ratio, difference = after / before if before else mpmath.nan, after - before
        scales = _is_scale(evaluate, other, read, (first, second), ratio)
        kept, wanted = round_to(float(before), str(dtype)), round_to(float(after), str(dtype))
        moved = kept * float(ratio) if scales else kept + float(difference)
        if math.isfinite(moved) and abs(moved - wanted) > ROUNDS_APART * max(abs(wanted), 1e-6):
            names = ", ".join(map(question.name, read))
            elements = ", ".join(f"{e} = {x:g}" for e in question.varying if value.has(e))
            claim = (
                f"{elements}: rounded to {dtype} at {names} = {first:g} and moved to {second:g} it is {moved:.6g}, "
                f"rounded at {second:g} it is {wanted:.6g}"
            )
            at = tuple((str(e), (x,)) for e in question.varying) + tuple(
                (question.name(h), (first, second)) for h in read
            )
            return Counterexample(claim, at, (moved, wanted))
    return None


def _is_scale(
    evaluate: Callable[[Point], mpmath.mpf],
    point: Point,
    read: Sequence[sp.Symbol],
    scales: tuple[float, float],
    ratio: mpmath.mpf,
) -> bool:
    """Whether another element changes by the same ratio: the results are factors."""
    before, after = (evaluate({**point, **dict.fromkeys(read, held)}) for held in scales)
    return bool(before) and abs(after / before - ratio) < mpmath.mpf(10) ** -30


_FINDERS: dict[str, Callable[[Question], Counterexample | None]] = {
    "infinite_rank": _rank_grows,
    "prod_dependence": _rank_grows,
    "not_monotone": _extrema_do_not_tell,
    "several_element_parts": _extrema_do_not_tell,
    "rounding": _rounds_elsewhere,
    "rounding_rank": _rounds_elsewhere,
}
