"""Separation of an expression into products, F(x, u) = Σ_r G_r(x)·H_r(u), and expressions in steps of references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.symbolic.elementary import SEPARABLE
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.signs import sign_of
from tvm_cascade.symbolic.work import expanded, factored, simplified

RANK_LIMIT = 6
"""Components that one reduction's state may have."""


def strip_rounding(expression: sp.Expr) -> sp.Expr:
    """The expression with every rounding replaced by its argument, roundings of roundings included."""
    while expression.has(Round):
        expression = expression.xreplace({rounded: rounded.args[0] for rounded in expression.atoms(Round)})
    return expression


def separate(
    expression: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> dict[sp.Expr, sp.Expr] | None:
    """{G(x): H(u)} with expression = Σ G·H, or None where a term mixes the two by this route."""
    trig = expression.has(*SEPARABLE)
    hints = {"power_exp": True, "power_base": True, "log": True, "mul": True, "multinomial": True, "trig": trig}
    frozen = _frozen_reciprocals(expression, elements, handles)
    elements = [*elements, *(symbol for power, symbol in frozen.items() if power.has(*elements))]
    handles = [*handles, *(symbol for power, symbol in frozen.items() if power.has(*handles))]
    joined = sp.powsimp(expression.xreplace(frozen))
    terms: dict[sp.Expr, sp.Expr] = {}
    for term in sp.Add.make_args(sp.expand(expanded(joined, **hints))):
        generator, weight = sp.Integer(1), sp.Integer(1)
        for factor in sp.Mul.make_args(term):
            if factor.has(*elements):
                if factor.has(*handles):
                    return None
                generator *= factor
            else:
                weight *= factor
        terms[generator] = terms.get(generator, sp.Integer(0)) + weight
    meaning = {symbol: power for power, symbol in frozen.items()}
    simpler = {g.xreplace(meaning): simplified(weight.xreplace(meaning)) for g, weight in terms.items()}
    return {generator: weight for generator, weight in simpler.items() if weight != 0}


def _frozen_reciprocals(
    expression: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> dict[sp.Expr, sp.Symbol]:
    """A symbol for each reciprocal that does not mix the two: exp(x − u)/(x² + 1) expands to 1/(x²·exp(u) + exp(u))."""
    found: dict[sp.Expr, sp.Symbol] = {}
    for power in sorted(expression.atoms(sp.Pow), key=str):
        mixes = power.has(*elements) and power.has(*handles)
        if power.base.is_Add and power.exp.is_negative and power.exp.is_number and not mixes:
            found[power] = sp.Dummy(f"reciprocal{len(found)}", real=True, **sign_of(power))
    return found


@dataclass(frozen=True)
class Step:
    """The symbols of one reference's move: from `old` to `new`, by `step` = new − old."""

    old: sp.Symbol
    new: sp.Symbol
    step: sp.Symbol


def in_steps(expression: sp.Expr, moves: Sequence[Step]) -> sp.Expr:
    """The expression in Δc where it depends on nothing else: (c′ − c)² does not cancel, c² − 2cc′ + c′² does.

    Where it depends on more, factors c′ − c are the step.
    """
    moved = expression.subs({m.new: m.old + m.step for m in moves}, simultaneous=True)
    moved = sp.powsimp(factored(_cancelling(expanded(sp.powsimp(moved)))))
    best = moved if not moved.has(*(m.old for m in moves)) else sp.powsimp(factored(_cancelling(expression)))
    # Term by term, so that exp(−Δ) − 1 does not become (1 − exp(Δ))·exp(−Δ), whose exp(Δ) overflows.
    best = sp.powsimp(sp.expand(best)) if best.has(sp.exp) else best
    return best.xreplace({sign * (m.new - m.old): sign * m.step for m in moves for sign in (1, -1)})


def _cancelling(expression: sp.Expr) -> sp.Expr:
    """What can be factored: a fraction of polynomials in symbols and exponentials as it is, since that cancels them."""
    return simplified(expression) if expression.atoms(sp.Function) - expression.atoms(sp.exp) else expression
