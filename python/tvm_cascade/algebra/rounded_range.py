"""Casts that overflow at the scale of a partial result: float16(y/Π x) where Π x is tiny at first.

An element that is rounded at the scale of the results so far, and moved to the final ones, is as good as one that is
rounded there only while it stays in range. |x|/max|x| does, since the maximum of any part bounds that part, and so does
x/√(Σx²/N) but for the root of a length. Whether others do is decided by data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Round
from tvm_cascade.algebra.counterexample import Counterexample, Question, evaluated, rounded_otherwise
from tvm_cascade.algebra.draws import Draws
from tvm_cascade.algebra.reached import Point, Reached
from tvm_cascade.algebra.rounding import FORMATS, Format, round_to
from tvm_cascade.algebra.separate import strip_rounding

ATTEMPTS, ROWS, WHOLES = 24, 3, 3
"""How often a part is drawn, its positions, and the data that it is drawn to be a part of."""

ROUNDINGS = 4
"""By how many roundings of the largest element another one may be off."""


def leaves_range_in_part(question: Question) -> Counterexample | None:
    """Data with a prefix at which an element overflows though no element of the full data does; None if not found."""
    for rounded in sorted(question.function.atoms(Round), key=str):
        inner, dtype = rounded.args
        value = question.earlier.plain(strip_rounding(inner).xreplace(dict(question.handles)))
        if not value.has(*question.earlier.results) or str(dtype) not in FORMATS:
            continue
        for attempt in range(ATTEMPTS):
            draws = Draws(question.earlier, value, attempt)
            rows = draws.rows(ROWS)
            part = question.earlier.reached(rows, {**draws.fixed, LENGTH: float(len(rows))})
            if part is None:
                continue
            for whole in draws.data(rows, WHOLES):
                shown = _lost(question, value, str(dtype), rows, (part, whole))
                if shown is not None:
                    return shown
    return None


def _lost(
    question: Question, value: sp.Expr, dtype: str, rows: Sequence[Point], data: tuple[Reached, Reached]
) -> Counterexample | None:
    """A row that is off by more than rounding is when it is rounded at the results of the first data."""
    values, kind = evaluated(question.earlier, value, rows, data), FORMATS[dtype]
    if values is None or any(before == 0 for before, _ in values):
        return None
    right = [round_to(after, dtype) for _, after in values]
    largest = max(map(abs, right))
    allowed = ROUNDINGS * (largest * 2.0**-kind.bits + 2.0**kind.smallest)
    for row, (before, after), wanted in zip(rows, values, right, strict=True):
        moved = _in_range(round_to(before, dtype), kind) * (after / before)
        if largest <= kind.largest and not abs(moved - wanted) <= allowed:
            return rounded_otherwise(question, value, dtype, row, data, (moved, wanted))
    return None


def _in_range(rounded: float, kind: Format) -> float:
    return rounded if abs(rounded) <= kind.largest else math.copysign(kind.overflow, rounded)
