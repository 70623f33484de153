"""max and min of G(x)·H(d) + K(d): the extremum of G, relative to a reference where G is unbounded.

| H                      | state                                                                          |
|------------------------|--------------------------------------------------------------------------------|
| a factor free of x     | max G where H ≥ 0, min G where H ≤ 0, both where its sign is data              |
| in an exponent with x  | max of G(x)·exp(x − c), multiplied by exp(c − c′) as c moves: positive, so that |
|                        | order is kept                                                                  |
| so, G of either sign   | the best G(x) and x (see `best_product`)                                         |
"""

from __future__ import annotations

import sympy as sp

from tvm_cascade.algebra.best_product import extremum_of_products, split_product
from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Handle, exponents, factor_in
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.algebra.reference import reference_of
from tvm_cascade.algebra.sampling import varies_numerically
from tvm_cascade.algebra.sum_law import Summand, in_exponent_units
from tvm_cascade.algebra.work import simplified


def scaled_extremum(
    derivation: Derivation, reduction: Reduction, function: sp.Expr, used: list[Handle], met: sp.Basic = sp.true
) -> sp.Expr | None:
    """The result over handles and new components; None where the element has another form.

    `met` says whether a state has met a position that counts: until then there is nothing to move.
    """
    apart = [term for term in sp.Add.make_args(function) if not term.has(*derivation.elements)]
    body = sp.factor_terms(function - sp.Add(*apart))
    factor, tracked = sp.Integer(1), []
    for handle in used:
        if handle.symbol not in body.free_symbols:
            continue
        weight = factor_in(body, handle.symbol, derivation.elements)
        if weight is None:
            tracked.append(handle)
        else:
            factor, body = factor * weight, body.subs(handle.symbol, 1)
    summand = in_exponent_units(derivation, Summand(body, body, sp.Integer(1), tracked))
    body, tracked = summand.function, summand.tracked
    kept = _kept(factor, reduction.reducer)
    if product := split_product(derivation, body, tracked, kept):
        ends = [factor * extremum_of_products(derivation, reduction, reducer, *product) for reducer in kept]
        return reduction.reducer.over(ends) + sp.Add(*apart)
    moves = _moves(derivation, reduction, body, tracked)
    if moves is None:
        return None
    lift = body.subs({h.symbol: r.symbol for h, (r, _) in zip(tracked, moves, strict=True)}, simultaneous=True)
    ends = []
    for reducer in kept:
        taken = derivation.masked(reducer, lift)
        symbol = derivation.known(reducer, taken)
        if symbol is None:
            symbol = derivation.unused(reduction)
            shift = symbol * sp.Mul(*(sp.exp(rate * r.step) for r, rate in moves))
            if met != sp.true and shift != symbol:
                shift = sp.Piecewise((shift, met), (symbol, True))
            derivation.add(reduction, reducer, taken, shift)
        # A reference that ends at its quantity needs no last move.
        free = [(h, r, k) for h, (r, k) in zip(tracked, moves, strict=True) if r.guarded or r.auxiliary]
        final = sp.Mul(*(sp.exp(k * (h.value - r.symbol)) for h, r, k in free))
        ends.append(symbol * final * factor)
    return reduction.reducer.over(ends) + sp.Add(*apart)


def _kept(factor: sp.Expr, reducer: Reducer) -> tuple[Reducer, ...]:
    opposite = MIN if reducer is MAX else MAX
    return (reducer,) if factor.is_nonnegative else (opposite,) if factor.is_nonpositive else (MAX, MIN)


def _moves(
    derivation: Derivation, reduction: Reduction, body: sp.Expr, tracked: list[Handle]
) -> list[tuple[Reference, sp.Expr]] | None:
    """For each tracked handle a reference and the rate k at which body(u) grows as exp(k·u); None if it does not."""
    rates = []
    for handle in tracked:
        rate = sp.diff(body, handle.symbol) / body
        if varies_numerically(rate, list(rate.free_symbols)):
            return None
        rate = simplified(rate)
        if not rate.is_number or not exponents(body, handle.symbol, derivation.elements):
            return None
        rates.append(rate)
    return [(reference_of(derivation, reduction, h, body), k) for h, k in zip(tracked, rates, strict=True)]
