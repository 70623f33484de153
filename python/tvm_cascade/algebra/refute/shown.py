"""Refutations in words: the values of elements, of results and of the data that give them.

Values of earlier results are those of data, which are shown too: what no data reach breaks no law (see `reached`).
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, POSITION
from tvm_cascade.algebra.counterexample import Counterexample, Numbers
from tvm_cascade.algebra.reducer import PROD
from tvm_cascade.algebra.refute.asked import Asked
from tvm_cascade.algebra.refute.envelope import Envelope
from tvm_cascade.algebra.refute.rank import FullRank
from tvm_cascade.algebra.refute.reached import REST, Earlier, Reached
from tvm_cascade.symbolic.separate import RANK_LIMIT, strip_rounding


def rank_of(found: FullRank, question: Asked) -> Counterexample:
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


def deciding_positions(found: Envelope, question: Asked) -> Counterexample:
    """An envelope as a counterexample."""
    varying, read = _read(question.earlier, question.over_results)
    indexed = question.reducer.whole is not None and all(POSITION in row for row in found.positions)
    varying += [POSITION] * (indexed and POSITION not in varying)
    at: Numbers = tuple((str(e), tuple(row[e] for row in found.positions)) for e in varying)
    at += tuple((question.name(d), tuple(point[d] for point in found.points)) for d in read)
    at += _parameters(found.data[0])
    given = "; ".join(f"{name} = {_listed(values)}" for name, values in at)
    kept = len(found.positions)
    chosen = "the selected one" if question.reducer.whole else f"the only {question.reducer.name}"
    chosen += " at its own one of these results"
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
    return Counterexample(claim, at, outcomes, tuple(earlier.shown(data) for data in found.data))
