"""Selected elements at the end: of lists of them, by case or by end, the best ones, rank by rank.

A rank of the result is one of several elements of the state, each under a condition on the state. They are chosen by
the total order in which tuples select (`selection`), so that equal keys are decided as a program decides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product

import sympy as sp

from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, Selection
from tvm_cascade.algebra.selection import better, nowhere

Parts = tuple[sp.Expr, ...]
"""Key, index and payloads of one element."""


@dataclass(frozen=True)
class Ranked:
    """Selected elements, best first.

    Attributes
    ----------
    ranks : for each, the elements that it may be, with the conditions on the state under which it is the one.
    there : whether there is an element of that rank that counts.
    """

    ranks: tuple[tuple[tuple[Parts, sp.Basic], ...], ...]
    there: tuple[sp.Basic, ...]


def ranked(selection: Selection, elements: Sequence[Parts], sure: bool) -> Ranked:
    """Elements as they are in a state; where it is not sure that there are as many, an index says so."""
    there = (sp.true if sure else sp.Ne(parts[1], nowhere(selection)) for parts in elements)
    return Ranked(tuple(((parts, sp.true),) for parts in elements), tuple(there))


def one_of(lists: Sequence[tuple[Ranked, sp.Basic]]) -> Ranked:
    """The list whose condition on the state holds; all are of the same positions."""
    by_rank = zip(*(found.ranks for found, _ in lists), strict=True)
    ranks = (
        tuple(
            (parts, sp.And(where, holds))
            for alternatives, (_, holds) in zip(rank, lists, strict=True)
            for parts, where in alternatives
        )
        for rank in by_rank
    )
    return Ranked(tuple(ranks), lists[0][0].there)


def from_ends(selection: Selection, ends: Sequence[tuple[Sequence[Parts], Sequence[sp.Expr]]]) -> Ranked:
    """The best elements by a convex map of a part, from both its ends: of what is left, one at an end is the best.

    Once equal parts are left, all of which have equal keys, those of the end go on at which some were taken already.

    Parameters
    ----------
    ends : from each, the elements by rank, and their parts.
    """
    (top, highest), (low, lowest) = ends

    def of_top(i: int, j: int) -> sp.Basic:
        """Whether the next is taken from the top, once so many are taken from either end."""
        equal, begun = sp.Eq(highest[i], lowest[j]), sp.Eq(lowest[j - 1], lowest[j]) if j else sp.false
        return sp.Or(sp.And(equal, sp.Not(begun)), sp.And(sp.Not(equal), better(selection, *top[i][:2], *low[j][:2])))

    def reached(i: int, j: int) -> sp.Basic:
        """Whether so many are taken from either end."""
        by_top = sp.And(reached(i - 1, j), of_top(i - 1, j)) if i else sp.false
        by_low = sp.And(reached(i, j - 1), sp.Not(of_top(i, j - 1))) if j else sp.false
        return sp.Or(by_top, by_low) if i or j else sp.true

    ranks = []
    for rank in range(selection.count):
        taken = [(i, rank - i, reached(i, rank - i)) for i in range(rank + 1)]
        ranks.append(
            tuple((top[i], sp.And(at, of_top(i, j))) for i, j, at in taken)
            + tuple((low[j], sp.And(at, sp.Not(of_top(i, j)))) for i, j, at in taken)
        )
    return Ranked(tuple(ranks), tuple(sp.Ne(parts[1], nowhere(selection)) for parts in top))


def best_of(selection: Selection, lists: Sequence[Ranked]) -> list[sp.Expr]:
    """The best elements of all lists together; what a program starts from in place of those that do not beat it.

    Conditions are on elements as they are in the state: nested selections take SymPy and TVM exponential time.
    """
    finish: list[sp.Expr] = []
    for rank in range(selection.count):
        found = _at(selection, lists, rank)
        beaten = [sp.Not(_beats_start(selection, parts[0])) for parts, _ in found]
        sure = all(own.there[0] == sp.true for own in lists)
        absent = selection.absent[rank * selection.per_rank :]
        for part in range(selection.per_rank):
            values = [(parts[part], where) for parts, where in found]
            if len(found) == 1 or sure:  # one of them is it
                missing = sp.And(*beaten) if sure else sp.Or(sp.Not(found[0][1]), *beaten)
                cases = [(absent[part], missing), *values[:-1], (values[-1][0], True)]
            else:
                cases = [(v, sp.And(where, sp.Not(no))) for (v, where), no in zip(values, beaten, strict=True)]
                cases.append((absent[part], True))
            finish.append(sp.Piecewise(*_joined(cases)))
    return finish


def _joined(cases: Sequence[tuple[sp.Expr, sp.Basic]]) -> list[tuple[sp.Expr, sp.Basic]]:
    """The cases, those in a row with one value as one: SymPy would join their conditions, and multiply them out."""
    return [(value, sp.Or(*(holds for _, holds in same))) for value, same in groupby(cases, lambda case: case[0])]


def _at(selection: Selection, lists: Sequence[Ranked], rank: int) -> list[tuple[Parts, sp.Basic]]:
    """The elements that may be of a rank among all lists, and when they are: so many of the others precede them."""
    found = [
        (parts, sp.And(own.there[k], where, _follows(selection, lists, own, parts, rank - k)))
        for own in lists
        for k in range(min(rank + 1, len(own.ranks)))
        for parts, where in own.ranks[k]
    ]
    return [(parts, where) for parts, where in found if where != sp.false]


def _follows(selection: Selection, lists: Sequence[Ranked], own: Ranked, parts: Parts, taken: int) -> sp.Basic:
    """Whether so many elements of the other lists precede an element."""
    others = [other for other in lists if other is not own]

    def precedes(other: Ranked, k: int, holds: bool) -> sp.Basic:
        """Whether the k-th of another list does, or does not."""
        if k < 0 or k >= len(other.ranks):
            return sp.sympify((k < 0) is holds)
        sooner = lists.index(other) < lists.index(own)
        beats = []
        for that, where in other.ranks[k]:
            pair = (that, parts) if holds else (parts, that)
            better_one = better(selection, pair[0][0], pair[0][1], pair[1][0], pair[1][1], sooner is holds)
            beats.append(sp.And(where, better_one))
        return sp.And(other.there[k], sp.Or(*beats)) if holds else sp.Or(sp.Not(other.there[k]), *beats)

    ways = (
        sp.And(*(sp.And(precedes(o, t - 1, True), precedes(o, t, False)) for o, t in zip(others, counts, strict=True)))
        for counts in product(range(taken + 1), repeat=len(others))
        if sum(counts) == taken
    )
    return sp.Or(*ways)


def _beats_start(selection: Selection, key: sp.Expr) -> sp.Basic:
    return sp.Gt(key, LOWEST) if selection.largest else sp.Lt(key, HIGHEST)
