"""The sign of an expression, as SymPy takes it for a symbol that stands for the expression."""

from __future__ import annotations

import sympy as sp


def sign_of(expression: sp.Expr) -> dict[str, bool]:
    """The assumptions of a symbol that has the sign of an expression; none where the sign is not known."""
    if expression.is_positive:
        return {"positive": True}
    return {"nonnegative": True} if expression.is_nonnegative else {}


def stand_in(part: sp.Expr, name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True, **sign_of(part))
