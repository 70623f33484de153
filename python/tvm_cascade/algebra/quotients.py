"""Logarithms and roots of quotients split: log(x/s) as log|x| − log|s|, √(x/s) as √|x|/√|s|.

They are the same where x/s is not negative, whichever sign x and s have. Where some x/s is, the element is no number,
and neither is the sum: the least and the largest x tell.

| log(a·b), (a·b)^r, r no integer  | becomes                        | needed for a number                         |
|----------------------------------|--------------------------------|---------------------------------------------|
| b > 0                            | log a + log b                  | nothing: log a is no number where a·b has none |
| a > 0                            | log a + log b                  | nothing                                     |
| neither sign is known            | log |a| + log |b|              | min a ≥ 0 and b ≥ 0, or max a ≤ 0 and b ≤ 0 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.symbolic.masks import indicator, masks_that_keep


@dataclass(frozen=True)
class Quotient:
    """a(x)·b(d) under a logarithm or a root, of unknown signs: the varying and the loop-invariant factor."""

    varying: sp.Expr
    fixed: sp.Expr


def taken_apart(reduction: Reduction, derivation: Derivation) -> tuple[Reduction, tuple[Quotient, ...]]:
    """The sum with logarithms and roots of products split, and the products whose signs are unknown."""
    if reduction.reducer is not SUM or not derivation.results:
        return reduction, ()
    found: dict[Quotient, None] = {}
    elements, results = derivation.elements, derivation.results

    def split(base: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
        fixed, varying = sp.powsimp(base).as_independent(*elements, as_Add=False)
        if not fixed.has(*results) or varying.has(*results) or varying == 1:
            return None
        if varying.is_nonnegative or fixed.is_nonnegative:
            return varying, fixed
        found[Quotient(varying, fixed)] = None
        return sp.Abs(varying), sp.Abs(fixed)

    def logarithm(argument: sp.Expr) -> sp.Expr:
        parts = split(argument) if isinstance(argument, sp.Mul) else None
        return sp.log(argument) if parts is None else sum((_log(part) for part in parts), sp.S.Zero)

    def root(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
        parts = split(base) if isinstance(base, sp.Mul) and exponent.is_Rational and not exponent.is_Integer else None
        return base**exponent if parts is None else sp.Mul(*(part**exponent for part in parts))

    element = derivation.signed(reduction.element).replace(sp.log, logarithm).replace(sp.Pow, root)
    return Reduction(reduction.result, reduction.reducer, derivation.plain(element)), tuple(found)


def _log(part: sp.Expr) -> sp.Expr:
    """log of 1/|s| as −log|s|."""
    base, exponent = part.as_base_exp()
    return exponent * sp.log(base) if exponent.is_Integer and base.is_nonnegative else sp.log(part)


def where_real(derivation: Derivation, reduction: Reduction, quotients: Sequence[Quotient], total: sp.Expr) -> sp.Expr:
    """The total, or NaN where some quotient was negative, as its element is."""
    kept = indicator(masks_that_keep(reduction.element, derivation.elements))
    for quotient in quotients:
        least, largest = (derivation.component(reduction, reducer, kept * quotient.varying) for reducer in (MIN, MAX))
        real = sp.Or(
            sp.And(least >= 0, quotient.fixed >= 0),
            sp.And(largest <= 0, quotient.fixed <= 0),
        )
        total = sp.Piecewise((total, real), (sp.nan, True))
    return total
