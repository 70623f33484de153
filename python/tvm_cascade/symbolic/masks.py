"""Truth values and masks: symbols that are 1 where a condition on the position holds, and 0 elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy as sp

TRUTH = {"integer": True, "nonnegative": True, "prime": False, "composite": False}
"""What SymPy is told of a truth value, the number 1 or 0: a natural number that is neither prime nor composite."""


class Condition(sp.Symbol):
    """A mask symbol: a product with it is 0 where it is 0, whatever the other factors are.

    A truth value of any other kind is a number that multiplies: 0·∞ is NaN there, as it is unfused.
    """


def truth(names: str) -> tuple[Condition, ...] | Condition:
    """Symbols of conditions on the position: 1 where they hold, 0 elsewhere."""
    return sp.symbols(names, cls=Condition, **TRUTH)


def choice(condition: sp.Basic, chosen: sp.Expr, other: sp.Expr) -> sp.Expr:
    """One value where the condition holds, another elsewhere: case by case where it compares a selection.

    SymPy would solve for where those cases hold, which it cannot for most functions. And it may turn a comparison of
    two sums that hold logarithms round for ever; their difference it leaves alone.
    """
    if compared := condition.atoms(sp.Piecewise):
        selection = max(compared, key=sp.count_ops)
        cases = ((condition.xreplace({selection: term}), guard) for term, guard in selection.args)
        return sp.Piecewise(*((choice(case, chosen, other), guard) for case, guard in cases))
    try:
        return sp.Piecewise((chosen, condition), (other, True))
    except RecursionError:
        apart = condition.replace(lambda part: part.is_Relational, lambda part: part.func(part.lhs - part.rhs, 0))
        return sp.Piecewise((chosen, apart), (other, True))


def is_truth(symbol: sp.Expr) -> bool:
    """Whether a symbol is 0 or 1 and nothing else."""
    return (
        bool(symbol.is_Symbol and symbol.is_nonnegative) and symbol.is_prime is False and symbol.is_composite is False
    )


def masks_in(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> list[sp.Symbol]:
    """The conditions on the position that an expression reads, by name."""
    return sorted((s for s in expression.free_symbols if s in elements and is_truth(s)), key=str)


def masks_that_keep(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> dict[sp.Symbol, int]:
    """The masks that are factors of the expression, with the values at which they keep a position."""
    masks = masks_in(expression, elements)
    return {mask: 1 - zero for mask in masks for zero in (0, 1) if expression.subs(mask, zero) == 0}


def conditions_that_keep(expression: sp.Expr, elements: Sequence[sp.Symbol]) -> dict[sp.Symbol, int]:
    """The masks that exclude positions: excluded values take no part in the sum and may be out of range."""
    kept = masks_that_keep(expression, elements)
    return {mask: holds for mask, holds in kept.items() if isinstance(mask, Condition)}


def indicator(kept: Mapping[sp.Symbol, int]) -> sp.Expr:
    """1 where every mask has its value, 0 elsewhere."""
    return sp.Mul(*(mask if holds else 1 - mask for mask, holds in kept.items()))


def under_its_masks(term: sp.Expr, elements: Sequence[sp.Symbol]) -> sp.Expr:
    """The term with masks simplified by idempotence: keep·(keep·x + (1 − keep)·w) is keep·x, as keep² = keep."""
    kept = masks_that_keep(term, elements)
    return indicator(kept) * term.subs(kept) if kept else term
