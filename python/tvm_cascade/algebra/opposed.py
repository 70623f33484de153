"""Combines exp(a)·exp(−b) into exp(a − b), so that two overflows do not give inf·0."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp


def joined_where_opposed(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression with exponentials distributed into sums of exponentials that have the opposite trend.

    (c − exp(m − x))·exp(2·x − 2·m), inf·0 at an x far below m   ->   c·exp(2·x − 2·m) − exp(x − m)
    (c − exp(m − x))²·exp(2·x − 2·m)                             ->   (c·exp(x − m) − 1)²
    """
    return expression.replace(lambda e: isinstance(e, sp.Mul), lambda product: _joined(product, elements))


def _joined(product: sp.Mul, elements: Sequence[sp.Symbol]) -> sp.Expr:
    exponentials = [f for f in product.args if isinstance(f, sp.exp)]
    exponent = sp.Add(*(f.args[0] for f in exponentials))
    for factor in product.args:
        base, power = factor.as_base_exp()
        if not (isinstance(base, sp.Add) and power.is_Integer and power > 0):
            continue
        within = {e.args[0] for e in base.atoms(sp.exp)}
        if any(_is_opposed(exponent, other, element) for other in within for element in elements):
            share = sp.exp(exponent / power)
            inner = sp.Add(*(sp.powsimp(sp.expand_mul(term * share)) for term in base.args))
            return sp.Mul(*(f for f in product.args if f not in (*exponentials, factor)), inner**power)
    return product


def _is_opposed(exponent: sp.Expr, other: sp.Expr, element: sp.Symbol) -> bool:
    slopes = sp.diff(exponent, element) * sp.diff(other, element)
    return bool(slopes.is_negative)
