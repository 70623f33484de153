"""A trial of the algebra: the derived fold against the cascade's definition, in balls.

The step program is interpreted as by `obligations.check`, in balls, on other points, other lengths and other splits,
with empty segments. What differs is wrong; where balls do not tell, they are made smaller.
"""

from __future__ import annotations

import random
import time

import sympy as sp

from campaigns.case import Case
from campaigns.numeric_fold import NumericFold
from campaigns.trial import Record, first_line
from tvm_cascade.algebra.cascade import COUNT, LENGTH, POSITION, Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.obligations.definition import definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.steps.arithmetic import NO_VALUE, Balls, Numbers
from tvm_cascade.symbolic.balls import UndecidedError, same, workprec

BITS, MOST_BITS = 256, 1 << 16
"""Of an evaluation: the first, and the last, from which on others are drawn."""
LENGTHS = (1, 2, 3, 5, 8, 11)
SPLITS = 2
ATTEMPTS = 6

Drawn = dict[sp.Symbol, float]
"""Exact numbers."""


def algebra_trial(case: Case) -> Record:
    """Derives the case's fold and evaluates it; never raises."""
    start = time.perf_counter()
    try:
        cascade = case.cascade()
        outcome = derive(cascade)
    except Exception as error:  # whatever is raised is what the trial looks for
        return Record(
            "algebra", case.seed, "unknown", "defect", time.perf_counter() - start, "error", first_line(error)
        )
    seconds = round(time.perf_counter() - start, 4)
    if not isinstance(outcome, Fold):
        reason = outcome.reason
        return Record("algebra", case.seed, str(reason.verdict), reason.code, seconds, detail=str(outcome)[:300])
    finding, detail = "", ""
    try:
        mismatch = evaluated(outcome, case.seed)
        finding, detail = ("wrong", mismatch) if mismatch else ("", "")
    except Exception as error:  # as above
        finding, detail = "error", first_line(error)
    return Record("algebra", case.seed, "fused", "fold", seconds, finding, detail)


def evaluated(fold: Fold, seed: int) -> str:
    """How the fold differs from the definition on random data; empty where it does not, or where there is no value."""
    source = random.Random(seed)
    for _ in range(ATTEMPTS):
        rows, parameters = _drawn(fold.cascade, source)
        splits = source.randrange(1 << 30)
        try:
            mismatch = _settled_mismatch(fold, rows, parameters, splits)
        except _Undefined:
            continue
        return mismatch
    return ""


def _settled_mismatch(fold: Fold, rows: list[Drawn], parameters: Drawn, splits: int) -> str:
    """What differs; empty where nothing does.

    Raises
    ------
    _Undefined
        Where that would take too many bits.
    """
    bits = BITS
    while bits <= MOST_BITS:
        with workprec(bits):
            balls = Balls()
            known, *wide = ({s: balls.number(v) for s, v in row.items()} for row in (parameters, *rows))
            try:
                return _mismatch(fold, wide, known, balls, splits)
            except UndecidedError:
                bits *= 2
    raise _Undefined


class _Undefined(Exception):
    """The definition has no finite real value on the data."""


def _mismatch(fold: Fold, rows: list[Numbers], parameters: Numbers, balls: Balls, seed: int) -> str:
    try:
        expected = definition(fold.cascade, rows, balls, parameters)
    except NO_VALUE as error:
        raise _Undefined from error
    if not all(map(balls.finite, expected.values())):
        raise _Undefined
    return _compared(NumericFold(fold, len(rows), balls, parameters), rows, expected, random.Random(seed))


def _compared(numeric: NumericFold, rows: list[Numbers], expected: Numbers, source: random.Random) -> str:
    for _ in range(SPLITS):
        try:
            found = numeric.scattered(rows, source)
        except NO_VALUE as error:
            return f"no value where the definition has one: {first_line(error)}"
        for result, value in expected.items():
            if not same(found[result], value, expected.values()):
                own, other = (number.str(12, radius=False) for number in (found[result], value))
                return f"{result} = {own}, expected {other}"
    return ""


def _drawn(cascade: Cascade, source: random.Random) -> tuple[list[Drawn], Drawn]:
    """Random rows and parameters: generic numbers, or few that repeat, so that extrema tie and sums vanish."""
    repeats, length = source.random() < 0.25, source.choice(LENGTHS)
    rows = [{e: _number(e, source, repeats) for e in cascade.elements} for _ in range(length)]
    if POSITION in cascade.elements:
        rows = [{**row, POSITION: float(k)} for k, row in enumerate(rows)]
    known = {LENGTH, COUNT, *cascade.elements, *cascade.results}
    free: set[sp.Symbol] = set().union(*(r.element.free_symbols for r in cascade.reductions)) - known
    return rows, {s: _number(s, source, repeats) for s in sorted(free, key=str)}


def _number(symbol: sp.Symbol, source: random.Random, repeats: bool) -> float:
    if symbol.is_nonnegative and not symbol.is_positive:
        return float(source.random() < 0.6)
    if repeats:
        return float(source.choice((0.5, 1, 2) if symbol.is_positive else (-1, 0, 1)))
    low = 100 if symbol.is_positive else -2000
    return source.randint(low, 2000) / 1024
