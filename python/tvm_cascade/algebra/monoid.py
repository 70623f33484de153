"""Checks whether an operation on tuples is a commutative monoid, on the tuples that a reduction reaches.

Tuples are reached from lifts, so the laws are asked for there and nowhere else: Welford's merge divides by a count
that is never zero, a top-k merge takes sorted tuples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import mpmath
import sympy as sp

from tvm_cascade.algebra.reducer import EXTREMES, TupleReducer, first, second
from tvm_cascade.symbolic.sampling import as_function

DIGITS = 60
TOLERANCE = mpmath.mpf(10) ** -25
ROUNDS = 12
TIES = 3
"""Distinct values that a symbol takes in the rounds with ties."""

Numbers = tuple[mpmath.mpf, ...]


@cache
def on_numbers(reducer: TupleReducer) -> Callable[[Numbers, Numbers], Numbers]:
    """∘ on numbers, compiled once."""
    symbols = [side(k) for side in (first, second) for k in range(reducer.width)]
    combined = as_function(symbols, [e.xreplace(EXTREMES) for e in reducer.combined], "mpmath")
    return lambda left, right: tuple(mpmath.mpf(value) for value in combined(*left, *right))


def broken_law(reducer: TupleReducer, lifts: Sequence[sp.Expr]) -> str | None:
    """A law that fails, with a counterexample; None where ∘ is associative and commutative with its identity neutral.

    Parameters
    ----------
    lifts : the tuple of one element; its symbols are drawn at random, of their sign, from few values in half of the
        rounds.
    """
    source, combine = random.Random(3), on_numbers(reducer)
    empty = sp.lambdify([], [e.xreplace(EXTREMES) for e in reducer.identity], "mpmath")
    symbols = sorted(set().union(*(lift.free_symbols for lift in lifts)), key=str)
    lift = as_function(symbols, [sp.sympify(e).xreplace(EXTREMES) for e in lifts], "mpmath")
    with mpmath.workdps(DIGITS):
        for round_ in range(ROUNDS):
            pool = [mpmath.mpf(source.randint(100 if round_ % 4 > 1 else -2000, 2000)) / 997 for _ in range(99)]
            pool = pool[:TIES] if round_ % 2 else pool
            try:
                reached = [_drawn(lift, symbols, pool, source) for _ in range(3)]
                grown = [reached[0], combine(reached[1], reached[2]), _drawn(lift, symbols, pool, source)]
                identity = tuple(mpmath.mpf(value) for value in empty())
                found = _broken(combine, identity, reached) or _broken(combine, identity, grown)
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                continue
            if found:
                return found
    return None


def _drawn(lift: object, symbols: list[sp.Symbol], pool: list[mpmath.mpf], source: random.Random) -> Numbers:
    drawn = [(symbol, source.choice(pool)) for symbol in symbols]
    values = [abs(value) if symbol.is_nonnegative else value for symbol, value in drawn]
    return tuple(mpmath.mpf(value) for value in lift(*values))  # type: ignore[operator]


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
        if not _equal(found, expected):
            at = "; ".join(f"{name} = {_text(state)}" for name, state in zip("abc", states, strict=True))
            return f"{law} fails at {at}: {_text(found)} is not {_text(expected)}"
    return None


def _equal(left: Numbers, right: Numbers) -> bool:
    scale = max([abs(v) for v in (*left, *right) if mpmath.isfinite(v)] + [mpmath.mpf(1)])
    return all(a == b or abs(a - b) <= TOLERANCE * scale for a, b in zip(left, right, strict=True))


def _text(state: Numbers) -> str:
    return "(" + ", ".join(mpmath.nstr(value, 4) for value in state) + ")"
