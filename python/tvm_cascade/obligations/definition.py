"""The results of a cascade as it is written, one pass over the rows per reduction, in a given arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction
from tvm_cascade.algebra.fold import Fold
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


# Positions that a selection may name as well: those whose keys are one number at the digits of an evaluation.
#
# log(1 + exp(x − 1000)) rises with x, and is 0 at sixty digits for every x of the size of one. There the definition
# takes the first positions and a fold, which keeps x itself, the right ones. Where the fold's own keys are equal,
# positions tie, and the first are asked for. A position whose own key is another number is wrong in any case.


SAME = 1e-25
"""Share of a key, or of one, by which keys that are one number may differ."""


def as_named(
    fold: Fold,
    found: Numbers,
    expected: Numbers,
    rows: Sequence[Mapping[sp.Symbol, Number]],
    arithmetic: Arithmetic,
    known: Numbers,
) -> Numbers:
    """What was found, with the expected positions where others are named by equal keys.

    Parameters
    ----------
    found, expected : results of the fold, and of its definition, over the rows.
    known : parameters.
    """
    as_good = {}
    for block in fold.cascade.blocks:
        whole = block[0].reducer.whole
        if whole is None or whole.selection is None:
            continue
        results = {reduction.reducer.part: reduction.result for reduction in block}
        ranks = [(results[k], results[k + 1]) for k in range(0, whole.width, whole.selection.per_rank)]
        own_key = next(reduction.element for reduction in block if reduction.reducer.part == 0)
        read = fold.finish[results[0]].free_symbols  # of its own tuples, or of an earlier selection's
        bests = {c.parts[0] for c in fold.components if c.parts and c.symbol in read}
        keys = [c.lift for c in fold.components if c.symbol in bests]
        for key, place in ranks:
            level = expected[key]
            if found[place] == expected[place] or not _same(found[key], level):
                continue
            tied = [own[at] for own in (found, expected) for other, at in ranks if _same(own[other], level)]
            named = [rows[int(position)] for position in tied if 0 <= position < len(rows)]
            if not all(_same(arithmetic.value(own_key, {**known, **expected, **row}), level) for row in named):
                continue
            if any(len({arithmetic.value(lift, {**known, **row}) for row in named}) > 1 for lift in keys):
                as_good[place] = expected[place]
    return {**found, **as_good}


def _same(key: Number, other: Number) -> bool:
    return bool(key == other or abs(key - other) <= SAME * max(1, abs(other)))
