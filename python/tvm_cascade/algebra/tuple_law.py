"""Reductions of tuples: what is a commutative monoid on what its elements reach keeps its own state.

Elements that read earlier results have no law but in selections (`selection_law`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.monoid import broken_law
from tvm_cascade.algebra.reducer import MAX, MIN, REDUCERS, Reducer, TupleReducer, first, second
from tvm_cascade.symbolic.separate import strip_rounding


def tuple_law(derivation: Derivation, block: Sequence[Reduction]) -> list[sp.Expr]:
    """What each part of one tuple is at the end; adds its state.

    Raises
    ------
    Refused
        Where the operation is no commutative monoid, or an element reads earlier results.
    """
    whole = block[0].reducer.whole
    assert whole is not None
    taken = [derivation.take_in(reduction) for reduction in block]
    for part, (element, used) in enumerate(taken):
        if used:
            raise derivation.refuse(block[part], "tuple_dependence", element)
    lifts = [element for element, _ in taken]
    if counterexample := broken_law(whole, lifts):
        raise derivation.refuse(block[0], "tuple_algebra", counterexample)
    return list[sp.Expr](derivation.tuple_of(whole, block, lifts))


def note_tuple(derivation: Derivation, block: Sequence[Reduction]) -> None:
    """Marks the reductions of a tuple as derived, each as the reducer of numbers that it is by itself, if it is one."""
    whole = block[0].reducer.whole
    assert whole is not None
    signed = _of_a_sign(whole, [derivation.signed(reduction.element) for reduction in block])
    for part, reduction in enumerate(block):
        known = _by_itself(whole, part)
        derivation.note(replace(reduction, reducer=known or reduction.reducer), known is None and part in signed)


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
