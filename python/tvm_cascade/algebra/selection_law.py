"""Argmax, argmin and top-k: order-preserving maps are dropped from the key, and applied at the end.

| φ_d strictly              | argmax_l φ_d(a(x_l)) is             |
|---------------------------|-------------------------------------|
| increasing for every d    | argmax_l a(x_l)                     |
| decreasing for every d    | argmin_l a(x_l)                     |
| convex, as |a − d|        | the better of both; of one rank     |

Equal keys are decided by the total order in which tuples select (`selection`), as a program decides them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation, Refused
from tvm_cascade.algebra.monotone import through_order
from tvm_cascade.algebra.reducer import HIGHEST, LOWEST, MAX, MIN, Selection, TupleReducer, first, second
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
    best = replace(block[0], reducer=MAX if selection.largest else MIN)
    if derivation.by_both(best.element) is not None:
        raise _refused(derivation, block[0], "select_on_result", best.element)
    element, used = derivation.take_in(best)
    if any(rounded.has(*(invariant.symbol for invariant in used)) for rounded in element.atoms(Round)):
        raise derivation.refuse(block[0], "not_order_preserving", element)  # what rounding makes equal ties by index
    carried = [_carried(derivation, reduction) for reduction in block[1 : selection.per_rank]]
    key = strip_rounding(element)
    if not used:
        order = sp.Dummy(real=True)
        return _finished(selection, [_selected(derivation, block, selection, [key, *carried], order, order)])
    values = {invariant.symbol: invariant.value for invariant in used}
    passed = through_order(key, best.reducer, derivation.elements, list(values), strictly=True)
    if isinstance(passed, str) or len(passed[1]) > 1 < selection.count:
        code = passed if isinstance(passed, str) and passed != "not_monotone" else "order_unknown"
        raise _refused(derivation, block[0], code, key)
    derivation.deferred[best.result] = tuple(map(derivation.plain, values.values()))
    found, kept = passed
    lifts, mapped = [*found.parts, *carried], found.value.xreplace(values)
    turned = (replace(selection, largest=end is MAX) for end in kept)
    ends = [_selected(derivation, block, each, lifts, found.symbols[0], mapped) for each in turned]
    return _finished(selection, ends)


def _refused(derivation: Derivation, reduction: Reduction, code: str, key: sp.Expr) -> Refused:
    """With positions each of which is selected for some data, where such are found."""
    shown = derivation.counterexample("not_monotone", reduction, key)
    return derivation.refuse(reduction, "not_order_preserving" if shown else code, key, shown=shown)


def _carried(derivation: Derivation, reduction: Reduction) -> sp.Expr:
    """An index or a payload."""
    element, used = derivation.take_in(reduction)
    if used:
        raise derivation.refuse(reduction, "tuple_dependence", element)
    return element


def _selected(
    derivation: Derivation,
    block: Sequence[Reduction],
    selection: Selection,
    lifts: Sequence[sp.Expr],
    order: sp.Symbol,
    key: sp.Expr,
) -> list[Parts]:
    """The selected elements by rank, in the components that this adds.

    Parameters
    ----------
    lifts : what elements are selected by, and their other parts.
    order, key : a symbol for the former, and the key as a map of it, over results.
    """
    width = selection.per_rank
    state = derivation.tuple_of(selecting(selection), block, [*lifts, *bottom(selection)[width:]])
    ranks = [state[start : start + width] for start in range(0, len(state), width)]
    return [(key.xreplace({order: first}), *others) for first, *others in ranks]


def _finished(selection: Selection, ends: Sequence[Sequence[Parts]]) -> list[sp.Expr]:
    """The better one of both ends, by rank; what a program starts from in place of those that do not beat it."""
    finish: list[sp.Expr] = []
    for rank in range(selection.count):
        found = [elements[rank] for elements in ends]
        missing = sp.And(*(sp.Not(_beats_start(selection, parts[0])) for parts in found))
        if selection.count > 1:
            missing = sp.Or(sp.Eq(found[0][1], nowhere(selection)), missing)
        absent = selection.absent[rank * selection.per_rank :]
        conditions = [sp.true] if len(found) == 1 else [better(selection, *found[0][:2], *found[1][:2]), sp.true]
        for part in range(selection.per_rank):
            chosen = ((parts[part], holds) for parts, holds in zip(found, conditions, strict=True))
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
