"""Reductions of tuples: what is a commutative monoid on what its elements reach keeps its own state.

Elements that read earlier results have no law but in selections (`selection_law`).

Tuples are reached from lifts, so the laws of a monoid are asked for there and nowhere else: Welford's merge divides by
a count that is never zero, a top-k merge takes sorted tuples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.reducer import EXTREMES, MAX, MIN, REDUCERS, Reducer, TupleReducer, first, second
from tvm_cascade.symbolic.balls import Ball, Computed, UndecidedError, enclosed, same, workprec
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


BITS = 256
ROUNDS = 12
TIES = 3
"""Distinct values that a symbol takes in the rounds with ties."""

Numbers = tuple[Ball, ...]


def broken_law(reducer: TupleReducer, lifts: Sequence[sp.Expr]) -> str | None:
    """A law that fails, with a counterexample; None where ∘ is associative and commutative with its identity neutral.

    Parameters
    ----------
    lifts : the tuple of one element; its symbols are drawn at random, of their sign, from few values in half of the
        rounds.
    """
    source, computed = random.Random(3), Computed()
    symbols = sorted(set().union(*(one.free_symbols for one in lifts)), key=str)

    def in_balls(parts: Sequence[sp.Expr]) -> Callable[[Mapping[sp.Symbol, Ball]], Numbers]:
        functions = [enclosed(sp.sympify(part).xreplace(EXTREMES)) for part in parts]
        return lambda at: tuple(function(at, computed) for function in functions)

    combined, empty, lifted = map(in_balls, (reducer.combined, reducer.identity, lifts))

    def combine(left: Numbers, right: Numbers) -> Numbers:
        return combined({side(k): v for side, own in ((first, left), (second, right)) for k, v in enumerate(own)})

    def drawn(pool: list[Ball]) -> Numbers:
        values = [(symbol, source.choice(pool)) for symbol in symbols]
        return lifted({symbol: computed(abs, value) if symbol.is_nonnegative else value for symbol, value in values})

    with workprec(BITS):
        for round_ in range(ROUNDS):
            pool = [Ball(source.randint(100 if round_ % 4 > 1 else -2000, 2000)) / 1024 for _ in range(99)]
            pool = pool[:TIES] if round_ % 2 else pool
            try:
                reached = [drawn(pool) for _ in range(3)]
                grown = [reached[0], combine(reached[1], reached[2]), drawn(pool)]
                found = _broken(combine, empty({}), reached) or _broken(combine, empty({}), grown)
            except (TypeError, ValueError, ArithmeticError, UndecidedError):
                continue
            if found:
                return found
    return None


def _broken(combine: Callable[[Numbers, Numbers], Numbers], identity: Numbers, states: list[Numbers]) -> str | None:
    a, b, c = states
    laws = (
        ("identity ∘ a = a", lambda: combine(identity, a), lambda: a),
        ("a ∘ identity = a", lambda: combine(a, identity), lambda: a),
        ("a ∘ b = b ∘ a", lambda: combine(a, b), lambda: combine(b, a)),
        ("(a ∘ b) ∘ c = a ∘ (b ∘ c)", lambda: combine(combine(a, b), c), lambda: combine(a, combine(b, c))),
    )
    for law, left, right in laws:
        found, expected = left(), right()
        if not all(same(one, other, (*found, *expected)) for one, other in zip(found, expected, strict=True)):
            at = "; ".join(f"{name} = {_text(state)}" for name, state in zip("abc", states, strict=True))
            return f"{law} fails at {at}: {_text(found)} is not {_text(expected)}"
    return None


def _text(state: Numbers) -> str:
    return "(" + ", ".join(value.str(4, radius=False) for value in state) + ")"
