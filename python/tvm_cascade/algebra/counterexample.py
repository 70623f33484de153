"""Counterexamples: numbers on which a law fails, found by random search, which a refusal then shows.

| code                                  | what is shown                                                             |
|---------------------------------------|---------------------------------------------------------------------------|
| infinite_rank, prod_dependence        | values at which F(x, d) (log F of a product) has a rank above RANK_LIMIT   |
| not_monotone, not_order_preserving    | positions each of which alone decides the result at some d                |
| rounding, rounding_rank               | an element that rounds to another value at another scale                  |
| rounding_range                        | one that leaves its dtype's range at the scale of a part (`rounded_range`) |

Values of earlier results are those of data, which are shown too: what no data reach breaks no law (see `reached`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, POSITION, Round
from tvm_cascade.algebra.envelope import Envelope
from tvm_cascade.algebra.rank import FullRank, full_rank
from tvm_cascade.algebra.reached import NO_VALUE, REST, Earlier, Point, Reached
from tvm_cascade.algebra.reducer import PROD, Reducer
from tvm_cascade.algebra.rounding import round_to
from tvm_cascade.algebra.separate import RANK_LIMIT, strip_rounding

LARGEST_ROUNDED = 1e300
"""Numbers beyond this are no float64, in which roundings are computed."""

ROUNDED_ATTEMPTS = 60
REACHES = (3.0, 30.0, 300.0)
"""How far elements are drawn from zero, attempt by attempt: int8 must be left, and an element be above its results."""

ROUNDS_APART = 1e-5


Numbers = tuple[tuple[str, tuple[float, ...]], ...]
"""Values by the name of their symbol."""


@dataclass(frozen=True)
class Counterexample:
    """Numbers on which a law fails.

    Attributes
    ----------
    claim : what they show, with the numbers.
    at : the values of each symbol.
    outcomes : the two numbers that would have to agree.
    data : for each of the shown values of earlier results, the elements that give them: by symbol, the last one
        repeated until there are N.
    """

    claim: str
    at: Numbers
    outcomes: tuple[float, float]
    data: tuple[Numbers, ...] = ()

    def __str__(self) -> str:
        return self.claim


@dataclass(frozen=True)
class Question:
    """An element F that has no fold.

    Attributes
    ----------
    reducer : of its reduction.
    function : F, over elements, handles and parameters.
    handles : what each symbol stands for that is made of earlier results.
    earlier : the reductions that F reads.
    names : what a symbol is called; itself where it is not among them.
    """

    reducer: Reducer
    function: sp.Expr
    handles: Mapping[sp.Symbol, sp.Expr]
    earlier: Earlier
    names: Mapping[sp.Symbol, sp.Expr] = field(default_factory=dict)

    @property
    def over_results(self) -> sp.Expr:
        """F over earlier results."""
        return self.function.xreplace(dict(self.handles))

    def name(self, symbol: sp.Symbol) -> str:
        """The expression that a symbol replaces."""
        return str(self.names.get(symbol, symbol))


def counterexample(code: str, question: Question) -> Counterexample | None:
    """Numbers on which the law behind a code fails; None where it has none of this kind, or none was found."""
    find = _FINDERS.get(code)
    return None if find is None else find(question)


def rank_grows(question: Question) -> Counterexample | None:
    """Values at which the matrix of the element, or of a factor's logarithm, exceeds the rank limit."""
    function, size = strip_rounding(question.over_results), RANK_LIMIT + 1
    product = question.reducer is PROD
    found = full_rank(sp.log(sp.Abs(function)) if product else function, question.earlier, size)
    return None if found is None else rank_of(found, question)


def rank_of(found: FullRank, question: Question) -> Counterexample:
    """A matrix of full rank as a counterexample."""
    function, size = strip_rounding(question.over_results), len(found.rows)
    varying, read = _read(question.earlier, function)
    at: Numbers = tuple((str(e), tuple(float(row[e]) for row in found.rows)) for e in varying)
    at += tuple((question.name(d), tuple(float(column[d]) for column in found.columns)) for d in read)
    at += _parameters(found.data[0])
    given = " and ".join(f"{name} = {_listed(values)}" for name, values in at)
    what = "log of the element" if question.reducer is PROD else "element"
    claim = f"at {given} the {what} is a matrix of rank {size}: no {size - 1} sums determine the result"
    return _with_data(claim, at, (float(size), float(RANK_LIMIT)), found, question.earlier)


def deciding_positions(found: Envelope, question: Question) -> Counterexample:
    """An envelope as a counterexample."""
    varying, read = _read(question.earlier, question.over_results)
    at: Numbers = tuple((str(e), tuple(row[e] for row in found.positions)) for e in varying)
    at += tuple((question.name(d), tuple(point[d] for point in found.points)) for d in read)
    at += _parameters(found.data[0])
    given = "; ".join(f"{name} = {_listed(values)}" for name, values in at)
    kept = len(found.positions)
    chosen = f"the only {question.reducer.name} at its own one of these results"
    claim = f"{given}: each of the {kept} positions is {chosen}"
    return _with_data(claim, at, (float(kept), float(RANK_LIMIT)), found, question.earlier)


def _read(earlier: Earlier, function: sp.Expr) -> tuple[list[sp.Symbol], list[sp.Symbol]]:
    """The elements, the index among them, and the results that a function reads."""
    plain = earlier.plain(function)
    varying, read, _ = earlier.for_function(plain)
    return varying + [POSITION] * plain.has(POSITION), read


def _parameters(data: Reached) -> Numbers:
    """What is the same for all data; N among it where not every position is written out."""
    whole = data.parameters[LENGTH] <= len(data.rows)
    return tuple((str(s), (value,)) for s, value in data.parameters.items() if s != LENGTH or not whole)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _with_data(
    claim: str, at: Numbers, outcomes: tuple[float, float], found: Envelope | FullRank, earlier: Earlier
) -> Counterexample:
    """The counterexample, with what completes the shown elements to data that have the shown results."""
    shown, kept = {name for name, _ in at}, len(found.rows if isinstance(found, FullRank) else found.positions)
    read = earlier.read
    further = [
        f"{e} = " + " | ".join(_listed([row[e] for row in data.rows[kept : kept + REST]]) for data in found.data)
        for e in read
    ]
    beside = [f"{e} = {_listed([row[e] for row in found.data[0].rows[:kept]])}" for e in read if str(e) not in shown]
    if further:
        claim += f"; the results are those of these positions{', with ' if beside else ''}{'; '.join(beside)}"
        claim += f", and of further ones with {'; '.join(further)}"
    return Counterexample(claim, at, outcomes, tuple(_data(earlier, data) for data in found.data))


def _data(earlier: Earlier, data: Reached) -> Numbers:
    return tuple((str(e), tuple(row[e] for row in data.rows)) for e in earlier.read)


def _rounds_elsewhere(question: Question) -> Counterexample | None:
    """Rounded at one scale and moved to another, against rounded there."""
    rounded = sorted(question.function.atoms(Round), key=str)
    if not rounded:
        return None
    inner, dtype = rounded[0].args
    earlier = question.earlier
    value = earlier.plain(strip_rounding(inner).xreplace(dict(question.handles)))
    _, read, indexed = earlier.for_function(value)
    for attempt in range(ROUNDED_ATTEMPTS if read else 0):
        source = random.Random(attempt)
        fixed = earlier.parameters(value, source, indexed)
        row, other = (earlier.row(source, reach) for reach in (REACHES[attempt % 3], 2.0))
        data = [earlier.draw(source, reach, fixed, [row], indexed) for reach in (3.0, 300.0)]
        values = evaluated(earlier, value, (row, other), data)
        if values is None:
            continue
        (before, after), elsewhere = values
        scales = bool(elsewhere[0] and before) and abs(elsewhere[1] / elsewhere[0] - after / before) < 1e-9 * abs(
            after / before
        )
        kept, wanted = round_to(before, str(dtype)), round_to(after, str(dtype))
        moved = kept * (after / before) if scales else kept + after - before
        if math.isfinite(moved) and abs(moved - wanted) > ROUNDS_APART * max(abs(wanted), 1e-6):
            return rounded_otherwise(question, value, str(dtype), row, [r for r in data if r], (moved, wanted))
    return None


def rounded_otherwise(
    question: Question, value: sp.Expr, dtype: str, row: Point, data: Sequence[Reached], outcomes: tuple[float, float]
) -> Counterexample:
    """A value whose rounding at the results of some data does not commute with rescaling to those of others."""
    earlier = question.earlier
    varying, read, _ = earlier.for_function(value)
    at: Numbers = tuple((str(e), (row[e],)) for e in varying)
    at += tuple((question.name(d), tuple(r.results[d] for r in data)) for d in read)
    elements, first, second = (
        ", ".join(f"{n} = {v[0]:g}" for n, v in at[: len(varying)]),
        *(", ".join(f"{n} = {v[k]:g}" for n, v in at[len(varying) :]) for k in (0, 1)),
    )
    claim = (
        f"{elements}: rounded to {dtype} at {first} and moved to {second} it is {outcomes[0]:.6g}, "
        f"rounded there it is {outcomes[1]:.6g}"
    )
    return Counterexample(claim, at, outcomes, tuple(_data(earlier, r) for r in data))


def evaluated(
    earlier: Earlier, value: sp.Expr, rows: Sequence[Point], data: Sequence[Reached | None]
) -> list[list[float]] | None:
    """A value of each row at the results of each of the data; None where it is out of range."""
    try:
        found = [[earlier.value(value, {**d.results, POSITION: 0.0, **row}) for d in data if d] for row in rows]
    except NO_VALUE:
        return None
    complete = all(len(line) == len(data) for line in found)
    return found if complete and all(abs(v) < LARGEST_ROUNDED for line in found for v in line) else None


_FINDERS: dict[str, Callable[[Question], Counterexample | None]] = {
    "prod_dependence": rank_grows,
    "rounding": _rounds_elsewhere,
    "rounding_rank": _rounds_elsewhere,
}
"""What is searched for once a law is known to fail; the other codes are given for a counterexample alone."""
