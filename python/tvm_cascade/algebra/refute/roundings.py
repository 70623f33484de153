"""Refutations by rounding: an element that rounds to another value, or overflows, at the scale of a partial result.

An element that is rounded at the scale of the results so far, and moved to the final ones, is as good as one that is
rounded there only where it rounds to the same digits and stays in range. |x|/max|x| stays, since the maximum of any
part bounds that part, and so does x/√(Σx²/N) but for the root of a length; float16(y/Π x) does not where Π x is tiny at
first. Whether others do is decided by data.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, POSITION
from tvm_cascade.algebra.counterexample import Counterexample, Numbers
from tvm_cascade.algebra.refute.asked import Asked
from tvm_cascade.algebra.refute.draws import Draws
from tvm_cascade.algebra.refute.reached import NO_VALUE, Earlier, Point, Reached
from tvm_cascade.symbolic.functions import Round, innermost
from tvm_cascade.symbolic.rounding import FORMATS, Format, round_to
from tvm_cascade.symbolic.separate import strip_rounding

LARGEST_ROUNDED = 1e300
"""Numbers beyond this are no float64, in which roundings are computed."""

ROUNDED_ATTEMPTS = 60
REACHES = (3.0, 30.0, 300.0)
"""How far elements are drawn from zero, attempt by attempt: int8 must be left, and an element be above its results."""

ROUNDS_APART = 1e-5

ATTEMPTS, ROWS, WHOLES = 24, 3, 3
"""How often a part is drawn, its positions, and the data that it is drawn to be a part of."""

ROUNDINGS = 4
"""By how many roundings of the largest element another one may be off."""


def rounds_elsewhere(question: Asked) -> Counterexample | None:
    """Rounded at one scale and moved to another, against rounded there."""
    rounded = sorted(question.function.atoms(Round), key=innermost)
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
        values = _evaluated(earlier, value, (row, other), data)
        if values is None:
            continue
        (before, after), elsewhere = values
        scales = bool(elsewhere[0] and before) and abs(elsewhere[1] / elsewhere[0] - after / before) < 1e-9 * abs(
            after / before
        )
        kept, wanted = round_to(before, str(dtype)), round_to(after, str(dtype))
        moved = kept * (after / before) if scales else kept + after - before
        if math.isfinite(moved) and abs(moved - wanted) > ROUNDS_APART * max(abs(wanted), 1e-6):
            return _rounded_otherwise(question, value, str(dtype), row, [r for r in data if r], (moved, wanted))
    return None


def leaves_range_in_part(question: Asked) -> Counterexample | None:
    """Data with a prefix at which an element overflows though no element of the full data does; None if not found."""
    for rounded in sorted(question.function.atoms(Round), key=innermost):
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
    question: Asked, value: sp.Expr, dtype: str, rows: Sequence[Point], data: tuple[Reached, Reached]
) -> Counterexample | None:
    """A row that is off by more than rounding is when it is rounded at the results of the first data."""
    values, kind = _evaluated(question.earlier, value, rows, data), FORMATS[dtype]
    if values is None or any(before == 0 for before, _ in values):
        return None
    right = [round_to(after, dtype) for _, after in values]
    largest = max(map(abs, right))
    allowed = ROUNDINGS * (largest * 2.0**-kind.bits + 2.0**kind.smallest)
    for row, (before, after), wanted in zip(rows, values, right, strict=True):
        moved = _in_range(round_to(before, dtype), kind) * (after / before)
        if largest <= kind.largest and not abs(moved - wanted) <= allowed:
            return _rounded_otherwise(question, value, dtype, row, data, (moved, wanted))
    return None


def _in_range(rounded: float, kind: Format) -> float:
    return rounded if abs(rounded) <= kind.largest else math.copysign(kind.overflow, rounded)


def _evaluated(
    earlier: Earlier, value: sp.Expr, rows: Sequence[Point], data: Sequence[Reached | None]
) -> list[list[float]] | None:
    """A value of each row at the results of each of the data; None where it is out of range."""
    try:
        found = [[earlier.value(value, {**d.results, POSITION: 0.0, **row}) for d in data if d] for row in rows]
    except NO_VALUE:
        return None
    complete = all(len(line) == len(data) for line in found)
    return found if complete and all(abs(v) < LARGEST_ROUNDED for line in found for v in line) else None


def _rounded_otherwise(
    question: Asked, value: sp.Expr, dtype: str, row: Point, data: Sequence[Reached], outcomes: tuple[float, float]
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
    return Counterexample(claim, at, outcomes, tuple(earlier.shown(r) for r in data))
