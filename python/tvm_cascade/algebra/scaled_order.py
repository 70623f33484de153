"""max and min of G(x)·H(d) + K(d): the extremum of G, relative to references where G is unbounded.

| H                      | state                                                                          |
|------------------------|--------------------------------------------------------------------------------|
| a factor free of x     | max G where H ≥ 0, min G where H ≤ 0, both where its sign is data              |
| in an exponent with x  | max G(x)·exp(x − c), as a sum is kept whose span has one function: its move is |
|                        | positive, so that order is kept                                                |
| so, G of either sign   | G and a of the best G·exp(a) so far, as a tuple                                |

exp(−u) is positive, so the order of the elements does not depend on u, and a tuple needs no reference. The largest
exponent would be a bad one: the best element of min x·exp(x) over positive x is that of the smallest exponent, and
underflows beside the largest. Elements of two signs are compared by G alone, those of one sign by
G·exp(a) / exp(the larger a).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import expansion_of
from tvm_cascade.algebra.handles import Handle, exponents
from tvm_cascade.algebra.monotone import kept_by
from tvm_cascade.algebra.moved_state import MovedState
from tvm_cascade.algebra.order_law import Case, extremum
from tvm_cascade.algebra.reducer import MAX, Reducer, TupleReducer, first, second
from tvm_cascade.algebra.sections import reference_of
from tvm_cascade.algebra.summand import Summand, deferred, in_exponent_units
from tvm_cascade.symbolic.functions import GuardedProduct
from tvm_cascade.symbolic.separate import Step, strip_rounding
from tvm_cascade.symbolic.work import simplified

_Extremum = Callable[[Reducer], sp.Expr]


def order_law(derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Handle]) -> sp.Expr:
    """The extremum of an element that reads earlier results, in the state that this law adds."""
    function = strip_rounding(element)
    return extremum(_WithProducts(derivation, reduction, tuple(used), function, function, ()))


class _WithProducts(Case):
    """A case of an element, which may be a product with results."""

    def scaled(self) -> sp.Expr | None:
        """The extremum of products with results."""
        met = self.met()
        with self.derivation.over(self.holds):
            return _scaled_extremum(self.derivation, self.reduction, self.function, list(self.used), met)


def _scaled_extremum(
    derivation: Derivation, reduction: Reduction, function: sp.Expr, used: list[Handle], met: sp.Basic
) -> sp.Expr | None:
    """The result over handles and new components; None where the element has another form.

    `met` says whether a state has met a position that counts: until then there is nothing to move.
    """
    apart = [term for term in sp.Add.make_args(function) if not term.has(*derivation.elements)]
    body = sp.factor_terms(function - sp.Add(*apart))
    read = [handle for handle in used if handle.symbol in body.free_symbols]
    summand = in_exponent_units(derivation, deferred(derivation, reduction, body, read))
    kept = kept_by(summand.factor, reduction.reducer)
    extremum = _of_products(derivation, reduction, summand, kept) or _of_moved(derivation, reduction, summand, met)
    if extremum is None:
        return None
    return reduction.reducer.over([summand.factor * extremum(reducer) for reducer in kept]) + sp.Add(*apart)


def _of_moved(derivation: Derivation, reduction: Reduction, summand: Summand, met: sp.Basic) -> _Extremum | None:
    """Of elements that a move of the results multiplies by something positive, at references of those."""
    body, handles = summand.function, summand.tracked
    if not handles:
        return lambda reducer: derivation.component(reduction, reducer, body)
    symbols = [handle.symbol for handle in handles]
    span = expansion_of(body, derivation.elements, symbols)
    if span is None or span.rank > 1 or not span.moving[0].is_positive:
        return None
    references = [reference_of(derivation, reduction, handle, body) for handle in handles]
    shift = span.shift(symbols, [Step(r.symbol, r.moved, r.step) for r in references])
    return lambda reducer: MovedState(
        derivation, reduction, (body,), shift, handles, references, reducer=reducer, met=met
    ).final()


def _of_products(
    derivation: Derivation, reduction: Reduction, summand: Summand, kept: tuple[Reducer, ...]
) -> _Extremum | None:
    """Of products G·exp(a − u) that need to be kept as pairs.

    Not where the results bound the exponent, nor where G has the sign with which the largest exponent is best.
    """
    function, tracked = summand.function, [handle.symbol for handle in summand.tracked]
    found = {e for handle in tracked for e in exponents(function, handle, derivation.elements)}
    if len(found) != 1:
        return None
    (exponent,) = found
    if derivation.bounds(exponent, function):
        return None
    weight, still = simplified(function / sp.exp(exponent)), exponent.subs(dict.fromkeys(tracked, 0))
    moving = sp.expand(exponent - still)
    if weight.has(*tracked) or moving.has(*derivation.elements):
        return None
    if weight.is_nonnegative if kept == (MAX,) else len(kept) == 1 and weight.is_nonpositive:
        return None

    def extremum(reducer: Reducer) -> sp.Expr:
        whole = best_product(reducer)
        lifts = [derivation.masked(whole.of(part), lift) for part, lift in enumerate((weight, still))]
        best, power = derivation.tuple_of(whole, [reduction] * 2, lifts)
        return GuardedProduct(best, sp.exp(moving.xreplace(derivation.handles.values) + power))

    return extremum


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
