"""Argmax, argmin and top-k: order-preserving maps are dropped from the key, and applied at the end.

argmax_l φ_d(a(x_l)) = argmax_l a(x_l)          φ_d strictly increasing for every d
= argmin_l a(x_l)          strictly decreasing
= the better of both       convex: each end of a, mapped

A rank of the result is one of several elements of the state, each under a condition on the state: by case, or by end.
They are chosen by the total order in which tuples select (`selection`), so that equal keys are decided as a program
decides them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.handles import Handle
from tvm_cascade.algebra.monotone import Map, kept_by, map_of, through_order
from tvm_cascade.algebra.order_law import Case, by_cases
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, MAX, MIN, Reducer, Selection
from tvm_cascade.algebra.selection import better, bottom, nowhere, selecting
from tvm_cascade.symbolic.functions import Round, SignedSize
from tvm_cascade.symbolic.separate import strip_rounding

MOST_CHOICES, MOST_RANKS_OF_ENDS = 12, 4
"""Elements among which one rank is chosen at the end, and ranks that are found from both ends of a part."""


def selection_law(derivation: Derivation, block: Sequence[Reduction], selection: Selection) -> list[sp.Expr]:
    """What each part of the selected elements is at the end: the best of those of each case of the key.

    Raises
    ------
    Refused
        Where a key or a payload reads earlier results in a way that no state keeps.
    """
    best = replace(block[0], reducer=MAX if selection.largest else MIN)
    if derivation.by_both(best.element) is not None:
        shown = derivation.counterexample("not_monotone", block[0], best.element)
        code = "not_order_preserving" if shown else "select_on_result"
        raise derivation.refuse(block[0], code, best.element, shown=shown)
    element, used = derivation.take_in(best)
    if any(rounded.has(*(handle.symbol for handle in used)) for rounded in element.atoms(Round)):
        raise derivation.refuse(block[0], "not_order_preserving", element)  # what rounding makes equal ties by index
    key = strip_rounding(element)
    carried = tuple(_carried(derivation, reduction) for reduction in block[1 : selection.per_rank])
    cases = by_cases(_Keys(derivation, best, tuple(used), key, key, (), tuple(block), selection, carried))
    if used:
        derivation.deferred[best.result] = tuple(derivation.plain(handle.value) for handle in used)
    found = [ranked for _, lists in cases for ranked in lists]
    if len(found) > 1 and sum(map(len, (rank for own in found for rank in own.ranks))) > MOST_CHOICES:
        raise derivation.refuse(block[0], "work_limit", key)
    return best_of(selection, found)


def _carried(derivation: Derivation, reduction: Reduction) -> Map:
    """A part beside the key; only the index has to be known at once."""
    element, used = derivation.take_in(reduction)
    found = _from_data(derivation, element, used)
    if found is None or (used and reduction.reducer.part == 1):
        raise derivation.refuse(reduction, "tuple_dependence", element)
    return found


def _from_data(derivation: Derivation, element: sp.Expr, used: Sequence[Handle]) -> Map | None:
    """An element as a map of data, over results; None where it is not made of parts that read none."""
    if not used:
        return replace(ITSELF, parts=(element,))
    values = {handle.symbol: handle.value for handle in used}
    found = map_of(element, derivation.elements, list(values))
    return None if found is None else replace(found, value=found.value.xreplace(values))


ITSELF = Map((), (_order := sp.Dummy(real=True),), _order)
"""What positions are ordered by."""


@dataclass(frozen=True)
class _Keys(Case):
    """The keys of a selection over the positions where some masks have some values.

    Attributes
    ----------
    block : the reductions of the tuple.
    carried : the parts of a rank beside the key, the index first.
    """

    block: tuple[Reduction, ...]
    selection: Selection
    carried: tuple[Map, ...]

    def at_ends(self) -> tuple[Ranked, ...] | str:
        """The selected elements where keys are a map of one part, and unequal ones stay unequal, or all are equal."""
        reducer, symbols = self.reduction.reducer, [handle.symbol for handle in self.used]
        if not self.function.has(*self.derivation.elements):
            return (self._ranked(sp.S.Zero, reducer, self._ordered(replace(ITSELF, value=self.function))),)
        if not symbols:
            return (self._ranked(self.function, reducer, ITSELF),)
        asked = self.function, reducer, self.derivation.elements, symbols, True
        passed, either = through_order(*asked), through_order(*asked, or_constant=True)
        if isinstance(passed, str):
            if isinstance(either, str):
                return either
            (inner,), key = either[0].parts, self._ordered(either[0])
            return self._either(inner, key)
        found, kept = passed
        (inner,), key = found.parts, self._ordered(found)
        if len(kept) > 1 and self.selection.count > 1:
            few = self.selection.count <= MOST_RANKS_OF_ENDS
            return (self._from_ends(inner, key),) if few else "not_monotone"
        return tuple(self._ranked(inner, end, key) for end in kept)

    def scaled(self) -> tuple[Ranked, ...] | None:
        """The selected elements of keys G·exp(a)·H(d) + K(d), by the order of G·exp(a)."""
        body = sp.factor_terms(self.function.as_independent(*self.derivation.elements, as_Add=True)[1])
        exact = _from_data(self.derivation, self.function, self.used)
        apart = _order_and_factor(body, self.derivation.elements, [handle.symbol for handle in self.used])
        if exact is None or apart is None:
            return None
        inner, factor = apart
        if not factor.is_nonzero or len(kept := kept_by(factor, self.reduction.reducer)) > 1:
            return self._either(inner, exact)
        return (self._ranked(inner, kept[0], exact),)

    def arguments(self) -> list[Case] | None:
        """As of a maximum; for several ranks a position would have to be left out once it is taken for one argument."""
        return super().arguments() if self.selection.count == 1 else None

    def refused(self, code: str) -> Exception:
        """Of a key whose maximum has no finite state, with its data; else as no law applies."""
        shown = self.derivation.counterexample("not_monotone", self.block[0], self.whole, self.holds)
        code = code if shown is None and code != "not_monotone" else "not_order_preserving"
        return self.derivation.refuse(self.block[0], code, self.whole, shown=shown)

    def _ordered(self, key: Map) -> Map:
        """The key as a map of what it is selected by, over results."""
        return replace(key, parts=(), value=key.value.xreplace({h.symbol: h.value for h in self.used}))

    def _either(self, inner: sp.Expr, key: Map) -> tuple[Ranked, ...]:
        """The selected elements where results decide whether keys rise with a part, fall, or are all the same."""
        top, low = (self._ranked(inner, end, key) for end in (MAX, MIN))
        ((((high, *_), _),), *_), ((((other, *_), _),), *_) = top.ranks, low.ranks
        same = self._ranked(sp.S.Zero, self.reduction.reducer, replace(ITSELF, value=high))
        rising, falling = high > other, high < other
        of_top, of_low = (rising, falling) if self.selection.largest else (falling, rising)
        return (one_of([(top, of_top), (low, of_low), (same, sp.Eq(high, other))]),)

    def _from_ends(self, inner: sp.Expr, key: Map) -> Ranked:
        """The best elements by a convex map of a part."""
        keys = [[self._ranked(inner, end, of) for of in (key, ITSELF)] for end in (MAX, MIN)]
        elements = [[[rank[0][0] for rank in found.ranks] for found in pair] for pair in keys]
        return from_ends(self.selection, [(mapped, [parts[0] for parts in bare]) for mapped, bare in elements])

    def _ranked(self, inner: sp.Expr, end: Reducer, key: Map) -> Ranked:
        """The elements with the largest or smallest `inner`, by rank; keys are a map of that, or of data."""
        width, count, absent = self.selection.per_rank, self.selection.count, self.selection.absent
        parts, turned = (*self.carried, key), replace(self.selection, largest=end is MAX)
        kept = [lift for part in parts for lift in part.parts]
        of = [0, *(k + 1 for k, part in enumerate(self.carried) for _ in part.parts), *([0] * len(key.parts))]
        if len(kept) >= width:
            starts = (*absent[:2], *(sp.S.Zero for _ in kept[1:]))
            turned = replace(turned, payloads=len(kept) - 1, absent=starts * count)
        whole = selecting(turned)
        with self.derivation.over(self.holds):
            lifts = [self.derivation.masked(whole.of(part), lift) for part, lift in enumerate((inner, *kept))]
        owners = [self.block[rank * width + part] for rank in range(count) for part in of]
        state = iter(self.derivation.tuple_of(whole, owners, [*lifts, *bottom(turned)[len(lifts) :]]))
        elements = [self._at_rank(state, key) for _ in range(count)]
        return ranked(self.selection, elements, sure=count == 1 and not self.where)

    def _at_rank(self, state: Iterator[sp.Symbol], key: Map) -> tuple[sp.Expr, ...]:
        """The parts of one rank, of its components."""
        best = next(state)
        beside = [part.at(*(next(state) for _ in part.parts)) for part in self.carried]
        return key.at(*([next(state) for _ in key.parts] or [best])), *beside


def _order_and_factor(
    body: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr] | None:
    """What orders positions as G·exp(a) does, and H, of G·exp(a)·H(d); None where the body is no such product.

    Exponents of data are out of range, so the order is that of log |G| + a and the sign of G.
    """
    factor, varying = body.as_independent(*elements, as_Add=False)
    weight, exponent = sp.S.One, sp.S.Zero
    for part in sp.Mul.make_args(varying):
        if not part.has(*handles):
            weight *= part
            continue
        if not isinstance(part, sp.exp):
            return None
        moved, still = sp.expand(part.args[0]).as_independent(*elements, as_Add=True)
        if still.has(*handles):
            return None
        factor, exponent = factor * sp.exp(moved), exponent + still
    if exponent == 0:
        return weight, factor
    size = sp.expand_log(sp.log(sp.Abs(weight))) + exponent
    return size if weight.is_positive else SignedSize(weight, size), factor


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
