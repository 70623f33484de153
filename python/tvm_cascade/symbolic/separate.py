"""Separation of an expression into products, F(x, u) = Σ_r G_r(x)·H_r(u)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.symbolic.elementary import SEPARABLE
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.work import expanded, simplified

RANK_LIMIT = 6
"""Components that one reduction's state may have."""


def strip_rounding(expression: sp.Expr) -> sp.Expr:
    """The expression with every rounding replaced by its argument, roundings of roundings included."""
    while expression.has(Round):
        expression = expression.xreplace({rounded: rounded.args[0] for rounded in expression.atoms(Round)})
    return expression


def separate(
    expression: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]
) -> dict[sp.Expr, sp.Expr] | None:
    """{G(x): H(u)} with expression = Σ G·H, or None where a term mixes the two by this route."""
    trig = expression.has(*SEPARABLE)
    hints = {"power_exp": True, "power_base": True, "log": True, "mul": True, "multinomial": True, "trig": trig}
    terms: dict[sp.Expr, sp.Expr] = {}
    for term in sp.Add.make_args(sp.expand(expanded(sp.powsimp(expression), **hints))):
        generator, weight = sp.Integer(1), sp.Integer(1)
        for factor in sp.Mul.make_args(term):
            if factor.has(*elements):
                if factor.has(*invariants):
                    return None
                generator *= factor
            else:
                weight *= factor
        terms[generator] = terms.get(generator, sp.Integer(0)) + weight
    simpler = {generator: simplified(weight) for generator, weight in terms.items()}
    return {generator: weight for generator, weight in simpler.items() if weight != 0}


@dataclass(frozen=True)
class Step:
    """The symbols of one reference's move: from `old` to `new`, by `step` = new − old."""

    old: sp.Symbol
    new: sp.Symbol
    step: sp.Symbol
