"""The results of a cascade as it is written, one pass over the rows per reduction, in a given arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction
from tvm_cascade.steps.arithmetic import Arithmetic, Float64, Number, Numbers

Row = tuple[Number, ...]


def definition(
    cascade: Cascade,
    rows: Sequence[Mapping[sp.Symbol, Number]],
    arithmetic: Arithmetic | None = None,
    known: Mapping[sp.Symbol, Number] = {},
) -> Numbers:
    """The results of a cascade over rows.

    Parameters
    ----------
    arithmetic : float64 where none is given.
    known : parameters.

    Raises
    ------
    ArithmeticError, ValueError, TypeError
        Where there is no real value, or none that can be computed with.
    """
    arithmetic, results = arithmetic or Float64(), dict[sp.Symbol, Number]()
    for block in cascade.blocks:
        parts = sorted(block, key=lambda reduction: reduction.reducer.part)
        scope = {**known, **results, LENGTH: arithmetic.number(len(rows))}
        tuples = list(zip(*(arithmetic.lifts(part.element, rows, scope) for part in parts), strict=True))
        total = _total(parts, tuples, arithmetic)
        results |= {part.result: number for part, number in zip(parts, total, strict=True)}
    return results


def _total(parts: Sequence[Reduction], tuples: Sequence[Row], arithmetic: Arithmetic) -> Sequence[Number]:
    reducer = parts[0].reducer
    if reducer.whole is None:
        values = [number for (number,) in tuples] or [arithmetic.value(reducer.neutral, {})]
        return [arithmetic.total(reducer, values)]
    if reducer.whole.selection is None:
        whole = reducer.whole
        return reduce(lambda left, right: arithmetic.combine_tuples(whole, left, right), tuples)
    return arithmetic.best(reducer.whole.selection, tuples)
