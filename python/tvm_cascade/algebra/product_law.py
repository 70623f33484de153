"""Π of elements G(x)·H(d): loop-invariant factors are deferred, as powers of the number of positions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.invariants import Invariant, factor_in
from tvm_cascade.algebra.reducer import PROD, SUM
from tvm_cascade.symbolic.masks import indicator, masks_in
from tvm_cascade.symbolic.separate import strip_rounding

Law = Callable[[Derivation, Reduction, sp.Expr, list[Invariant]], sp.Expr]


def product_law(
    sum_law: Law, derivation: Derivation, reduction: Reduction, element: sp.Expr, used: list[Invariant]
) -> sp.Expr:
    """Π of G(x)·H(d) over the positions where masks have given values, for each of them; Π exp(E) = exp(Σ E).

    Of E = a(x) + b(d) the exp(a) stay factors: each is rounded relatively, where Σ a is off by its largest partial sum.
    """
    exponent, function = _exponent_and_rest(derivation, strip_rounding(element), used)
    final = sp.exp(sum_law(derivation, reduction, exponent, used))
    read = [h for h in used if h.symbol in function.free_symbols]
    deferrable = all(factor_in(function, h.symbol, derivation.elements) is not None for h in read)
    masks = [] if deferrable else masks_in(function, derivation.elements)
    cases = (dict(zip(masks, values, strict=True)) for values in itertools.product((1, 0), repeat=len(masks)))
    return final * sp.Mul(*(_product_where(derivation, reduction, kept, function.subs(kept), read) for kept in cases))


def _product_where(
    derivation: Derivation,
    reduction: Reduction,
    kept: Mapping[sp.Symbol, int],
    function: sp.Expr,
    read: list[Invariant],
) -> sp.Expr:
    """Π of G(x)·H(d) where masks are so: H(d) is applied at the end, once for each position."""
    rest, factor = _factors(derivation, reduction, function, read)
    where = indicator(kept)
    symbol = derivation.component(reduction, PROD, where * rest + 1 - where) if rest != 1 else sp.S.One
    return symbol if factor == 1 else symbol * factor ** _count(derivation, reduction, kept)


def _count(derivation: Derivation, reduction: Reduction, kept: Mapping[sp.Symbol, int]) -> sp.Expr:
    """The number of positions of a case; of the first one, all that are not of another."""
    if not kept:
        return LENGTH
    if all(kept.values()):
        return LENGTH - derivation.component(reduction, SUM, 1 - indicator(kept))
    return derivation.component(reduction, SUM, indicator(kept))


def _factors(
    derivation: Derivation, reduction: Reduction, function: sp.Expr, read: list[Invariant]
) -> tuple[sp.Expr, sp.Expr]:
    """(G(x), H(d)) whose product a function is."""
    rest, factor = function, sp.S.One
    for invariant in read:
        weight = factor_in(rest, invariant.symbol, derivation.elements) if rest.has(invariant.symbol) else sp.S.One
        if weight is None:
            raise derivation.refuse(reduction, "prod_dependence", function)
        factor, rest = factor * weight.subs(invariant.symbol, invariant.value), rest.subs(invariant.symbol, 1)
    return rest, factor


def _exponent_and_rest(derivation: Derivation, function: sp.Expr, used: list[Invariant]) -> tuple[sp.Expr, sp.Expr]:
    """(E, R) with function = exp(E)·R, where E is all terms under exponentials that read an invariant.

    Positive factors that do not vary join them: apart, one may overflow and the other be zero.
    """
    elements, invariants = derivation.elements, [h.symbol for h in used]
    factors = sp.Mul.make_args(sp.powsimp(function))
    reading = [f for f in factors if isinstance(f, sp.exp) and f.has(*invariants)]
    fixed = [f for f in factors if reading and f not in reading and f.is_positive and not f.has(*elements)]
    scale, total = sp.Add(*(f.args[0] for f in reading)).as_independent(*elements, *invariants, as_Add=False)
    still, moving = total.as_independent(*invariants, as_Add=True)
    rest = (f for f in factors if f not in (*reading, *fixed))
    return scale * moving + sp.log(sp.Mul(*fixed)), sp.Mul(sp.exp(scale * still), *rest)
