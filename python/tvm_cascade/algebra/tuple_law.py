"""Reductions of tuples; argmax and top-k drop order-preserving maps from the key and apply them at the end.

    argmax_l φ_d(a(x_l)) = argmax_l a(x_l)          φ_d strictly increasing for every d
                         = argmin_l a(x_l)          strictly decreasing
                         = the better of both       convex: each end of a, mapped

Any other reducer of tuples keeps its own state, provided that it is a commutative monoid on what its elements reach.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import Handle
from tvm_cascade.algebra.monoid import broken_law
from tvm_cascade.algebra.monotone import Through, through_order
from tvm_cascade.algebra.reducer import (
    HIGHEST,
    LOWEST,
    MAX,
    MIN,
    REDUCERS,
    Reducer,
    Selection,
    TupleReducer,
    first,
    second,
)
from tvm_cascade.algebra.selection import bottom, nowhere, selecting
from tvm_cascade.symbolic.separate import strip_rounding


def tuple_law(derivation: Derivation, block: Sequence[Reduction]) -> None:
    """Adds the reductions of one tuple to the derivation.

    Raises
    ------
    Refused
        Where the operation is no commutative monoid, or an element reads earlier results in a way that no state keeps.
    """
    block = sorted(block, key=lambda reduction: reduction.reducer.part)
    taken = [derivation.take_in(reduction) for reduction in block]
    whole = block[0].reducer.whole
    assert whole is not None
    for part, (element, used) in enumerate(taken):
        if used and not (whole.selection and part == 0):
            raise derivation.refuse(block[part], "tuple_dependence", element)
    lifts = [element for element, _ in taken]
    if whole.selection is not None:
        finish = _selected(derivation, block, whole.selection, lifts, taken[0][1])
    elif counterexample := broken_law(whole, lifts):
        raise derivation.refuse(block[0], "tuple_algebra", counterexample)
    else:
        finish = derivation.tuple_of(whole, block, lifts)
    for part, (reduction, value) in enumerate(zip(block, finish, strict=True)):
        derivation.finish[reduction.result] = value
        known = _by_itself(whole, part)
        keeps_sign = known is None and part in _of_a_sign(whole, lifts)
        derivation.note(dataclasses.replace(reduction, reducer=known or reduction.reducer), keeps_sign)


def _by_itself(whole: TupleReducer, part: int) -> Reducer | None:
    """The reducer of numbers that a part is, regarded without the others."""
    if whole.selection is not None:
        return (MAX if whole.selection.largest else MIN) if part == 0 else None
    plain = (r for r in REDUCERS.values() if r.combine(first(part), second(part)) == whole.combined[part])
    return next(plain, None)


def _of_a_sign(whole: TupleReducer, lifts: Sequence[sp.Expr]) -> set[int]:
    """Parts that are positive, or not negative, for as many elements as there are, because they are so for one."""
    bare = [strip_rounding(lift) for lift in lifts]
    kept = {k for k, lift in enumerate(bare) if lift.is_nonnegative}
    while kept:
        facts = {k: {"positive": True} if bare[k].is_positive else {"nonnegative": True} for k in kept}
        signed = {side(k): sp.Symbol(str(side(k)), **facts[k]) for side in (first, second) for k in kept}
        merged = {k: whole.combined[k].xreplace(signed) for k in kept}
        lost = {k for k, e in merged.items() if not (e.is_positive if bare[k].is_positive else e.is_nonnegative)}
        if not lost:
            break
        kept -= lost
    return kept


def _selected(
    derivation: Derivation, block: Sequence[Reduction], selection: Selection, lifts: list[sp.Expr], used: list[Handle]
) -> list[sp.Expr]:
    """What each part is at the end; adds the states that it is found from."""
    best, key = MAX if selection.largest else MIN, strip_rounding(lifts[0])
    values = {handle.symbol: handle.value for handle in used}
    passed: Through | str = (key, (best,), lambda end: end)
    if used:
        passed = through_order(key, best, derivation.elements, list(values), strictly=True)
        derivation.deferred[block[0].result] = tuple(map(derivation.plain, values.values()))
    if isinstance(passed, str) or (len(passed[1]) > 1 and selection.count > 1):
        shown = derivation.counterexample("not_monotone", dataclasses.replace(block[0], reducer=best), key)
        unknown = passed == "several_element_parts" and shown is None
        code = "several_element_parts" if unknown else "not_order_preserving"
        raise derivation.refuse(block[0], code, key, shown=shown)
    inner, kept, outer = passed
    found: list[sp.Expr] = []
    for reducer in kept:
        turned = dataclasses.replace(selection, largest=reducer is MAX)
        width = selection.per_rank
        state = derivation.tuple_of(selecting(turned), block, [inner, *lifts[1:width], *bottom(turned)[width:]])
        mapped = [outer(s).subs(values, simultaneous=True) if k % width == 0 else s for k, s in enumerate(state)]
        found = mapped if not found else list(selecting(selection).combine(found, mapped))
    return _or_absent(selection, found)


def _or_absent(selection: Selection, found: list[sp.Expr]) -> list[sp.Expr]:
    """The selected elements; what the program starts from in place of those that do not beat it, or are not there."""
    finish: list[sp.Expr] = []
    for rank in range(0, len(found), selection.per_rank):
        key, index = found[rank : rank + 2]
        absent = sp.Le(key, LOWEST) if selection.largest else sp.Ge(key, HIGHEST)
        if selection.count > 1:
            absent = sp.Or(sp.Eq(index, nowhere(selection)), absent)
        finish += [
            sp.Piecewise((selection.absent[part], absent), (found[part], True))
            for part in range(rank, rank + selection.per_rank)
        ]
    return finish
