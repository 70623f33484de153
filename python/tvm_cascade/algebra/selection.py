"""Argmax, argmin and top-k as reducers of tuples: the k best of two sorted tuples, under a total order.

Elements are ordered by key, equal keys by index, so that ∘ is commutative whatever the keys are. Of two sorted tuples,
a_i is the t-th best of the union where it beats b_{t−i} and not b_{t−i−1}. Where there is no element, a key stands at
∓∞ with an index beyond all others: the bottom of the order, below a true element of key −∞.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sympy as sp

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Selection, TupleReducer, first, second

Side = Callable[[int], sp.Symbol]
Beats = Callable[[Side, int, Side, int], sp.Basic]


@cache
def selecting(selection: Selection) -> TupleReducer:
    """The reducer of tuples that selects so."""
    if selection.count == 1:
        name = "argmax" if selection.largest else "argmin"
    else:
        name = f"{'top' if selection.largest else 'bottom'}_{selection.count}"
    combined: list[sp.Expr] = []
    for rank in range(selection.count):
        # Keys follow from keys alone: of equal ones it does not matter which is taken.
        combined.append(_at_rank(selection, rank, 0, lambda *sides: _key_beats(selection, *sides)))
        combined += [
            _at_rank(selection, rank, role, lambda *sides: _beats(selection, *sides))
            for role in range(1, selection.per_rank)
        ]
    return TupleReducer(name, tuple(combined), bottom(selection), selection)


def bottom(selection: Selection) -> tuple[sp.Expr, ...]:
    """The tuple of no element at all."""
    key = -sp.oo if selection.largest else sp.oo
    rank = (key, nowhere(selection), *selection.absent[2 : selection.per_rank])
    return rank * selection.count


def nowhere(selection: Selection) -> sp.Symbol:
    """The index of an element that is not there: it loses against every other."""
    return HIGHEST if selection.lower else LOWEST


def better(
    selection: Selection, key: sp.Expr, index: sp.Expr, other_key: sp.Expr, other_index: sp.Expr, or_same: bool = True
) -> sp.Basic:
    """The condition that one element comes before another, or is the same: the total order."""
    below, above = (sp.Le, sp.Ge) if or_same else (sp.Lt, sp.Gt)
    sooner = (below if selection.lower else above)(index, other_index)
    larger = sp.Gt(key, other_key) if selection.largest else sp.Lt(key, other_key)
    return sp.Or(larger, sp.And(sp.Eq(key, other_key), sooner))


def _beats(selection: Selection, side: Side, i: int, other: Side, j: int) -> sp.Basic:
    """Whether side_i comes before other_j; the same element in both tuples counts as the first tuple's."""
    i, j = i * selection.per_rank, j * selection.per_rank
    return better(selection, side(i), side(i + 1), other(j), other(j + 1), or_same=side is first)


def _key_beats(selection: Selection, side: Side, i: int, other: Side, j: int) -> sp.Basic:
    """The same by keys alone, with equal keys in favour of the first tuple."""
    mine, theirs = side(i * selection.per_rank), other(j * selection.per_rank)
    if side is second:
        return sp.Gt(mine, theirs) if selection.largest else sp.Lt(mine, theirs)
    return sp.Ge(mine, theirs) if selection.largest else sp.Le(mine, theirs)


def _at_rank(selection: Selection, rank: int, role: int, beats: Beats) -> sp.Expr:
    """A part of the t-th best of both tuples."""
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    for side, other in ((first, second), (second, first)):
        for i in range(rank + 1):
            above = rank - i
            conditions = [beats(side, i, other, above)]
            if above:
                conditions.append(beats(other, above - 1, side, i))
            branches.append((side(i * selection.per_rank + role), sp.And(*conditions)))
    branches[-1] = (branches[-1][0], sp.true)
    return sp.Piecewise(*branches)
