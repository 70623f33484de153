"""max and min of G(x)·exp(a(x) − u) with a G of either sign: G and a of the best element so far, as a tuple.

exp(−u) is positive, so the order of the elements does not depend on u, and no reference is needed. The
largest exponent would be a bad one: the best element of min x·exp(x) over positive x is that of the smallest exponent,
and underflows beside the largest. Elements of two signs are compared by G alone, those of one sign by
G·exp(a) / exp(the larger a).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import sympy as sp

from tvm_cascade.algebra.cascade import GuardedProduct, Reduction, conditions_that_keep
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import Handle, exponents
from tvm_cascade.algebra.reducer import MAX, Reducer, TupleReducer, first, second
from tvm_cascade.algebra.work import simplified


@cache
def best_product(reducer: Reducer) -> TupleReducer:
    """The reducer of (G, a) that keeps the pair with the largest, or smallest, G·exp(a).

    It starts with an exponent above all others, so that every element of its sign is better.
    """
    (g, a), (h, b) = ((side(0), side(1)) for side in (first, second))
    at_least = sp.Ge if reducer is MAX else sp.Le
    gap = sp.exp(-sp.Abs(a - b))
    of_one_sign = sp.Or(sp.And(g > 0, h > 0), sp.And(g < 0, h < 0))
    scaled = sp.Or(sp.And(a < b, at_least(g * gap, h)), sp.And(a >= b, at_least(g, h * gap)))
    better = sp.Or(sp.And(of_one_sign, scaled), sp.And(sp.Not(of_one_sign), at_least(g, h)))
    combined = tuple(sp.Piecewise((mine, better), (theirs, True)) for mine, theirs in ((g, h), (a, b)))
    return TupleReducer(f"{reducer.name}_product", combined, (reducer.identity, sp.oo))


def split_product(
    derivation: Derivation, function: sp.Expr, tracked: list[Handle], kept: tuple[Reducer, ...]
) -> tuple[sp.Expr, sp.Expr] | None:
    """(G, exponent) where the function is their product G·exp(exponent), and needs to be kept as a pair.

    Not where the results bound the exponent, nor where G has the sign with which the largest exponent is best.
    """
    found = {e for handle in tracked for e in exponents(function, handle.symbol, derivation.elements)}
    if len(found) != 1:
        return None
    (exponent,) = found
    if derivation.bounds(exponent, conditions_that_keep(function, derivation.elements)):
        return None
    weight = simplified(function / sp.exp(exponent))
    moving = sp.expand(exponent - _still(exponent, tracked))
    if weight.has(*(handle.symbol for handle in tracked)) or moving.has(*derivation.elements):
        return None
    best_at_largest = weight.is_nonnegative if kept == (MAX,) else len(kept) == 1 and weight.is_nonpositive
    return None if best_at_largest else (weight, exponent)


def _still(exponent: sp.Expr, handles: Iterable[Handle]) -> sp.Expr:
    """a(x) of the exponent a(x) − u."""
    return exponent.subs({handle.symbol: 0 for handle in handles})


def extremum_of_products(
    derivation: Derivation, reduction: Reduction, reducer: Reducer, weight: sp.Expr, exponent: sp.Expr
) -> sp.Expr:
    """max or min of weight·exp(exponent), in results and in the components that this adds."""
    still = _still(exponent, derivation.handles)
    moving = (exponent - still).xreplace({handle.symbol: handle.value for handle in derivation.handles})
    whole = best_product(reducer)
    lifts = [derivation.masked(whole.of(part), lift) for part, lift in enumerate((weight, still))]
    factor, power = derivation.tuple_of(whole, [reduction] * 2, lifts)
    return GuardedProduct(factor, sp.exp(moving + power))
