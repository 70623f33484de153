"""Argmax, argmin and top-k as reducers of tuples: the k best of two sorted tuples, in a total order.

Elements are ordered by key, equal keys by index, so that ∘ is commutative whatever the keys are. Where there is no
element, a key stands at ∓∞ with an index beyond all others: the bottom of the order, below an element of key −∞.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

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


@dataclass(frozen=True)
class Ranked:
    """Selected elements, best first.

    Attributes
    ----------
    ranks : the parts of each.
    sure : there are as many; elsewhere an index says of its rank that there is no element.
    when : a condition on the state under which they count.
    """

    ranks: tuple[tuple[sp.Expr, ...], ...]
    sure: bool
    when: sp.Basic = sp.true

    def has(self, rank: int, selection: Selection) -> sp.Basic:
        """Whether there is an element of that rank."""
        if rank >= len(self.ranks):
            return sp.false
        return sp.And(self.when, sp.true if self.sure else sp.Ne(self.ranks[rank][1], nowhere(selection)))


def best_of(selection: Selection, lists: Sequence[Ranked]) -> list[sp.Expr]:
    """The best elements of all lists together; what a program starts from in place of those that do not beat it.

    Conditions are on the lists as they are: nested selections take SymPy and TVM exponential time.
    """
    finish: list[sp.Expr] = []
    for rank in range(selection.count):
        found = [(own.ranks[k], _follows(selection, lists, own, k, rank)) for own in lists for k in range(rank + 1)]
        found = [(parts, where) for parts, where in found if where != sp.false]
        absent = selection.absent[rank * selection.per_rank :]
        for part in range(selection.per_rank):
            values = ((parts[part], sp.And(where, _beats_start(selection, parts[0]))) for parts, where in found)
            if len(lists) == 1:
                ((parts, where),) = found
                value, missing = parts[part], sp.Or(sp.Not(where), sp.Not(_beats_start(selection, parts[0])))
                finish.append(sp.Piecewise((absent[part], missing), (value, True)))
            else:
                finish.append(sp.Piecewise(*values, (absent[part], True)))
    return finish


def _follows(selection: Selection, lists: Sequence[Ranked], own: Ranked, k: int, rank: int) -> sp.Basic:
    """Whether the k-th of its own list is of that rank among all: so many of the others precede it as are missing."""
    others = [other for other in lists if other is not own]

    def precedes(other: Ranked, t: int) -> sp.Basic:
        sooner = lists.index(other) < lists.index(own)
        if t < 0:
            return sp.true
        there = other.has(t, selection)
        return (
            there
            if there == sp.false
            else sp.And(there, better(selection, *other.ranks[t][:2], *own.ranks[k][:2], sooner))
        )

    ways = [
        sp.And(*(sp.And(precedes(o, t - 1), sp.Not(precedes(o, t))) for o, t in zip(others, taken, strict=True)))
        for taken in product(range(rank - k + 1), repeat=len(others))
        if sum(taken) == rank - k
    ]
    return sp.And(own.has(k, selection), sp.Or(*ways))


def _beats_start(selection: Selection, key: sp.Expr) -> sp.Basic:
    return sp.Gt(key, LOWEST) if selection.largest else sp.Lt(key, HIGHEST)


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


@cache
def where_extreme(selection: Selection, largest: bool) -> TupleReducer:
    """The reducer of (a, key, index, first, other) that selects one of the positions with the largest, or smallest, a.

    `first` is the first of all these by index, and `other` the first position with another a: what leaves the extremum
    joins the others.
    """
    (a, key, at, lead, left), (b, others_key, others_at, others_lead, others_left) = (
        tuple(map(side, range(5))) for side in (first, second)
    )
    sooner = sp.Min if selection.lower else sp.Max
    wins, loses = (a > b, a < b) if largest else (a < b, a > b)
    before = better(selection, key, at, others_key, others_at)

    def merged(mine: sp.Expr, theirs: sp.Expr, tie: sp.Expr) -> sp.Expr:
        return sp.Piecewise((mine, wins), (theirs, loses), (tie, True))

    chosen = [
        sp.Piecewise((mine, sp.Or(wins, sp.And(sp.Eq(a, b), before))), (theirs, True))
        for mine, theirs in ((key, others_key), (at, others_at))
    ]
    combined = (
        merged(a, b, a),
        *chosen,
        merged(lead, others_lead, sooner(lead, others_lead)),
        sooner(left, others_left, merged(others_lead, lead, nowhere(selection))),
    )
    worst = (-sp.oo if largest else sp.oo, -sp.oo if selection.largest else sp.oo)
    name = f"{'argmax' if selection.largest else 'argmin'}_where_{'max' if largest else 'min'}"
    return TupleReducer(name, combined, (*worst, *[nowhere(selection)] * 3))
