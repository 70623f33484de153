"""Argmax, argmin and top-k as reducers of tuples: the k best of two sorted tuples, in a total order.

Elements are ordered by key, equal keys by index, so that ∘ is commutative whatever the keys are. Where there is no
element, a key stands at ∓∞ with an index beyond all others: the bottom of the order, below an element of key −∞.
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
    """The identity: the tuple of no element."""
    key = -sp.oo if selection.largest else sp.oo
    rank = (key, nowhere(selection), *selection.absent[2 : selection.per_rank])
    return rank * selection.count


def nowhere(selection: Selection) -> sp.Symbol:
    """The index of a missing element, which loses every tie."""
    return HIGHEST if selection.lower else LOWEST


def better(
    selection: Selection, key: sp.Expr, index: sp.Expr, other_key: sp.Expr, other_index: sp.Expr, or_same: bool = True
) -> sp.Basic:
    """The total order: whether one element precedes another, or equals it."""
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
    """A part of the t-th best of both tuples, found from the last a_i that beats b_{t−i}; those before it do as well.

    The search is by halves: TVM's analysis of selections takes exponential time in the depth to which they nest.
    """
    width = selection.per_rank

    def after(i: int) -> sp.Expr:
        """The element at a rank where a_i is the last of a's: a_i, if everything better in b precedes it."""
        above = rank - i
        if i < 0 or not above:
            return first(i * width + role) if i >= 0 else second(rank * width + role)
        theirs = second((above - 1) * width + role)
        return sp.Piecewise((theirs, beats(first, i, second, above - 1)), (first(i * width + role), True))

    def last(low: int, high: int) -> sp.Expr:
        """The same, for a range of possible last elements."""
        if low == high:
            return after(low)
        middle = (low + high + 1) // 2
        found = beats(first, middle, second, rank - middle)
        return sp.Piecewise((last(middle, high), found), (last(low, middle - 1), True))

    return last(-1, rank)
