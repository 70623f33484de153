"""Argmax, argmin and top-k: order-preserving maps are dropped from the key, and applied at the end.

| keys are                                    | argmax_l of them is                                       |
|---------------------------------------------|-----------------------------------------------------------|
| φ_d(a(x_l)), φ_d strictly increasing        | argmax_l a(x_l)                                           |
| strictly decreasing                         | argmin_l a(x_l)                                           |
| convex, as |a − d|                          | the better of both; of one rank                           |
| G(x_l)·H(d) + K(d)                          | argmax_l G where H > 0, argmin_l G where H < 0, and where |
|                                             | H = 0 the first position: all keys are the same           |
| f where a mask holds, g elsewhere           | the better one of both cases; of one rank                 |

Equal keys are decided by the total order in which tuples select (`selection`), as a program decides them. Exponentials
of data are out of range, so the order of M·exp(a) is told by the sign of M and by log |M| + a.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import ClassVar

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.monotone import Cases, Map, Order, order_of
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, MAX, MIN, Reducer, Selection, TupleReducer, first, second
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.separate import strip_rounding

Parts = tuple[sp.Expr, ...]
"""Key, index and payloads of one element."""


def selection_law(derivation: Derivation, block: Sequence[Reduction], selection: Selection) -> list[sp.Expr]:
    """What each part of the selected elements is at the end.

    Raises
    ------
    Refused
        Where a key reads earlier results in a way that no state keeps, or an index or a payload reads any.
    """
    keys = _Keys(derivation, block[0], (), block, selection)
    if derivation.by_both(block[0].element) is not None:
        raise keys.refused("select_on_result", block[0].element)
    element, used = derivation.take_in(replace(block[0], reducer=keys.best))
    if any(rounded.has(*(invariant.symbol for invariant in used)) for rounded in element.atoms(Round)):
        raise derivation.refuse(block[0], "not_order_preserving", element)  # what rounding makes equal ties by index
    carried = [_carried(derivation, reduction) for reduction in block[1 : selection.per_rank]]
    found = replace(keys, used=used, carried=carried).kept(strip_rounding(element))
    if used:
        derivation.deferred[block[0].result] = tuple(derivation.plain(invariant.value) for invariant in used)
    return _finished(selection, found)


def _carried(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    """An index or a payload."""
    element, used = derivation.take_in(reduction)
    if used:
        raise derivation.refuse(reduction, "tuple_dependence", element)
    return element


@dataclass(frozen=True)
class _Kept:
    """Selected elements, best first: of all positions, or of those of one case.

    Attributes
    ----------
    where : the condition on elements by which a position is of the case.
    holds : the condition on results under which they are the selected ones; true where keys decide among some.
    """

    ranks: Sequence[Parts]
    where: sp.Basic
    holds: sp.Basic = sp.true

    def there(self, selection: Selection, rank: int) -> sp.Basic:
        """Whether there is an element of a rank that may be the selected one."""
        sure = selection.count == 1 and self.where == sp.true
        return sp.And(self.holds, sp.true if sure else sp.Ne(self.ranks[rank][1], nowhere(selection)))

    def precedes(self, other: _Kept, selection: Selection, rank: int) -> sp.Basic:
        """Whether the element of a rank is as good as one that may not be there; of one case, results decide."""
        if self.where == other.where and self.holds != sp.true:
            return sp.true
        own, that = self.ranks[rank][:2], other.ranks[rank][:2]
        return sp.Or(sp.Not(other.there(selection, rank)), better(selection, *own, *that))


@dataclass(frozen=True)
class _Keys(Cases[_Kept]):
    """The keys of a selection.

    Attributes
    ----------
    carried : the parts of a rank beside the key.
    """

    proved: ClassVar[str] = "not_order_preserving"
    block: Sequence[Reduction]
    selection: Selection
    carried: Sequence[sp.Expr] = ()

    def at_once(self, element: sp.Expr) -> list[_Kept] | str:
        """The elements at the ends of what keys are ordered by; of several ranks, where results tell which end."""
        order = order_of(element, self.best, self.derivation.elements, list(self._values))
        if isinstance(order, Order) and (order.way is not None or self.selection.count == 1):
            return self._at_ends(order)
        code = order if isinstance(order, str) else "order_unknown"
        if self.selection.count > 1:
            raise self.refused(code, element)
        return code

    @property
    def best(self) -> Reducer:
        """Of the keys."""
        return MAX if self.selection.largest else MIN

    @cached_property
    def _values(self) -> dict[sp.Symbol, sp.Expr]:
        return {invariant.symbol: invariant.value for invariant in self.used}

    def _at_ends(self, order: Order) -> list[_Kept]:
        """The elements at each end, and the first ones where all keys are the same."""
        found = [self._selected(end, order.lift, order.key) for end in order.ends]
        if order.may_be_constant:
            same = self._selected(self.best, sp.S.Zero, Map((), (), sp.S.Zero))
            found.append([(best[0], *first[1:]) for best, first in zip(found[0], same, strict=True)])
        holds = (where.xreplace(self._values) for where in order.decided(self.best))
        return [_Kept(ranks, self.derivation.where, at) for ranks, at in zip(found, holds, strict=True)]

    def _selected(self, end: Reducer, lift: sp.Expr, key: Map) -> list[Parts]:
        """The elements at an end of what orders them, by rank; data that only the key needs are payloads."""
        width, selection = self.selection.per_rank, replace(self.selection, largest=end is MAX)
        beside = [part for part in key.parts if part != lift]
        absent = [self.selection.absent[k : k + width] for k in range(0, len(self.selection.absent), width)]
        payloads = [part for rank in absent for part in (*rank, *(sp.S.Zero for _ in beside))]
        selection = replace(selection, payloads=selection.payloads + len(beside), absent=tuple(payloads))
        whole, own = selecting(selection), (lift, *self.carried, *beside)
        lifts = [self.derivation.masked(whole.of(part), value) for part, value in enumerate(own)]
        roles = [*range(width), *(0 for _ in beside)]
        owners = [self.block[rank * width + role] for rank in range(selection.count) for role in roles]
        state = self.derivation.tuple_of(whole, owners, [*lifts, *bottom(selection)[len(own) :]])
        ranks = [state[start : start + len(own)] for start in range(0, len(state), len(own))]
        return [self._parts(rank, key, lift) for rank in ranks]

    def _parts(self, rank: Sequence[sp.Symbol], key: Map, lift: sp.Expr) -> Parts:
        """The parts of one rank from its components."""
        best, beside = rank[0], iter(rank[self.selection.per_rank :])
        value = key.at(*(best if part == lift else next(beside) for part in key.parts))
        return (value.xreplace(self._values), *rank[1 : self.selection.per_rank])


def _finished(selection: Selection, found: Sequence[_Kept]) -> list[sp.Expr]:
    """The best elements of those kept, by rank; what a program starts from in place of those that do not beat it."""
    finish: list[sp.Expr] = []
    for rank in range(selection.count):
        there = [kept.there(selection, rank) for kept in found]
        keys = [kept.ranks[rank][0] for kept in found]
        starts = (sp.Not(_beats_start(selection, key)) for key in keys)  # false of NaN, which stays
        missing = sp.And(*(sp.Or(sp.Not(at), start) for at, start in zip(there, starts, strict=True)))
        before = [[kept.precedes(other, selection, rank) for other in found[k + 1 :]] for k, kept in enumerate(found)]
        best = [sp.And(at, *others) for at, others in zip(there[:-1], before, strict=False)]
        absent = selection.absent[rank * selection.per_rank :]
        for part in range(selection.per_rank):
            chosen = ((kept.ranks[rank][part], holds) for kept, holds in zip(found, [*best, sp.true], strict=True))
            finish.append(sp.Piecewise((absent[part], missing), *chosen))
    return finish


def _beats_start(selection: Selection, key: sp.Expr) -> sp.Basic:
    return sp.Gt(key, LOWEST) if selection.largest else sp.Lt(key, HIGHEST)


# Argmax, argmin and top-k as reducers of tuples: the k best of two sorted tuples, in a total order.
#
# Elements are ordered by key, equal keys by index, so that ∘ is commutative whatever the keys are. Where there is no
# element, a key stands at ∓∞ with an index beyond all others: the bottom of the order, below an element of key −∞.


Side = Callable[[int], sp.Symbol]
Beats = Callable[[Side, int, Side, int], sp.Basic]


@cache
def selecting(selection: Selection) -> TupleReducer:
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
