"""The sign of an expression, as SymPy takes it for a symbol that stands for the expression."""

from __future__ import annotations

import sympy as sp


def sign_of(expression: sp.Expr) -> dict[str, bool]:
    """The assumptions of a symbol that has the sign of an expression; none where the sign is not known.

    Where it has a value, nothing that it divides by is zero: 1/d² is positive.
    """
    below = {p.base for p in expression.atoms(sp.Pow) if p.exp.is_negative and p.base.is_Symbol}
    expression = expression.xreplace({base: sp.Dummy(**{**base.assumptions0, "zero": False}) for base in below})
    if expression.is_positive:
        return {"positive": True}
    return {"nonnegative": True} if expression.is_nonnegative else {}


def stand_in(part: sp.Expr, name: str) -> sp.Symbol:
    return sp.Symbol(name, real=True, **sign_of(part))
