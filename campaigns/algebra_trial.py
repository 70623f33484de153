"""A trial of the algebra: the derived fold against the cascade's definition, at high precision.

The step program is interpreted as by `obligations.check`, on other points, other lengths and other splits, with empty
segments. What differs counts as wrong at digits that span every value on the way; until then it is evaluated again at
more of them.
"""

from __future__ import annotations

import random
import time

import mpmath
import sympy as sp

from campaigns.case import Case
from campaigns.numeric_fold import NumericFold
from campaigns.trial import Record, first_line
from tvm_cascade.algebra.cascade import COUNT, LENGTH, POSITION, Cascade
from tvm_cascade.algebra.fold import Fold
from tvm_cascade.obligations.definition import as_named, definition
from tvm_cascade.obligations.derive import derive
from tvm_cascade.steps.arithmetic import NO_VALUE, Digits, Number, Numbers

DIGITS = 50
MOST_DIGITS = 20_000
"""Values that span more than that are not compared, and others are drawn."""
TOLERANCE = mpmath.mpf(10) ** -20
LENGTHS = (1, 2, 3, 5, 8, 11)
SPLITS = 2
ATTEMPTS = 6


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


def _settled_mismatch(fold: Fold, rows: list[Numbers], parameters: Numbers, splits: int) -> str:
    """What differs with the same numbers at digits that span them all; empty where nothing does.

    Raises
    ------
    _Undefined
        Where that would be too many digits.
    """
    digits = DIGITS
    while digits <= MOST_DIGITS:
        arithmetic = Digits()
        with mpmath.workdps(digits):
            mismatch = _mismatch(fold, rows, parameters, arithmetic, splits)
        needed = DIGITS + 2 * arithmetic.span  # twice: a product of two values has it twice
        if not mismatch or needed <= digits:
            return mismatch
        digits = needed
    raise _Undefined


class _Undefined(Exception):
    """The definition has no finite real value on the data."""


def _mismatch(fold: Fold, rows: list[Numbers], parameters: Numbers, arithmetic: Digits, seed: int) -> str:
    try:
        expected = definition(fold.cascade, rows, arithmetic, parameters)
    except NO_VALUE as error:
        raise _Undefined from error
    if not all(mpmath.isfinite(value) for value in expected.values()):
        raise _Undefined
    return _compared(fold, NumericFold(fold, len(rows), arithmetic, parameters), rows, expected, random.Random(seed))


def _compared(fold: Fold, numeric: NumericFold, rows: list[Numbers], expected: Numbers, source: random.Random) -> str:
    scale = max([mpmath.mpf(1), *(abs(value) for value in expected.values())])
    for _ in range(SPLITS):
        try:
            found = numeric.scattered(rows, source)
        except OverflowError as error:
            raise _Undefined from error
        except NO_VALUE as error:
            return f"no value where the definition has one: {first_line(error)}"
        found = as_named(fold, found, expected, rows, numeric.steps.arithmetic, numeric.steps.known)
        for result, value in expected.items():
            if not abs(found[result] - value) <= TOLERANCE * scale:
                return f"{result} = {mpmath.nstr(found[result], 12)}, expected {mpmath.nstr(value, 12)}"
    return ""


def _drawn(cascade: Cascade, source: random.Random) -> tuple[list[Numbers], Numbers]:
    """Random rows and parameters: generic numbers, or few that repeat, so that extrema tie and sums vanish."""
    repeats, length = source.random() < 0.25, source.choice(LENGTHS)
    rows = [{e: _number(e, source, repeats) for e in cascade.elements} for _ in range(length)]
    if POSITION in cascade.elements:
        rows = [{**row, POSITION: mpmath.mpf(k)} for k, row in enumerate(rows)]
    known = {LENGTH, COUNT, *cascade.elements, *cascade.results}
    free: set[sp.Symbol] = set().union(*(r.element.free_symbols for r in cascade.reductions)) - known
    return rows, {s: _number(s, source, repeats) for s in sorted(free, key=str)}


def _number(symbol: sp.Symbol, source: random.Random, repeats: bool) -> Number:
    if symbol.is_nonnegative and not symbol.is_positive:
        return mpmath.mpf(source.random() < 0.6)
    if repeats:
        return mpmath.mpf(source.choice((0.5, 1, 2) if symbol.is_positive else (-1, 0, 1)))
    low = 100 if symbol.is_positive else -2000
    return mpmath.mpf(source.randint(low, 2000)) / 1009
