"""Trend and curvature: which way an expression goes as a variable rises, and whether it bends one way alone."""

from __future__ import annotations

import sympy as sp

from tvm_cascade.symbolic.elementary import RISING
from tvm_cascade.symbolic.sampling import has_both_signs
from tvm_cascade.symbolic.work import factored, simplified


def trend(expression: sp.Expr, variable: sp.Symbol, strictly: bool = False) -> int | None:
    """1 where the expression rises with the variable, −1 where it falls, 0 where it is free of it; None if unknown."""
    if not expression.has(variable):
        return 0
    way = direction(expression, variable, strictly)
    if way is None or (strictly and not way.is_nonzero):
        return None
    return 1 if way.is_nonnegative else -1 if way.is_nonpositive else None


def direction(expression: sp.Expr, variable: sp.Symbol, strictly: bool = False) -> sp.Expr | None:
    """A term free of the variable, of the sign with which the expression rises as the variable does; None if unknown.

    Read off its structure: a kink, as of max(x − u, 0), has no slope, and that of tanh has a sign that SymPy misses.
    Of d·exp(x) + c it is d: results may decide it. Where it is 0, the expression is constant; elsewhere, with
    `strictly`, unequal values of the variable stay unequal.
    """
    if expression == variable:
        return sp.S.One
    if isinstance(expression, RISING):
        return direction(expression.args[0], variable, strictly)
    if isinstance(expression, sp.Pow) and not expression.exp.has(variable):
        return _direction_of_power(expression, variable, strictly)
    if isinstance(expression, sp.Mul):
        scale, rest = expression.as_independent(variable, as_Add=False)
        inner = None if isinstance(rest, sp.Mul) else direction(rest, variable, strictly)
        return None if inner is None else scale * inner
    if isinstance(expression, (sp.Add, sp.Max, sp.Min)):
        kinked = not isinstance(expression, sp.Add)
        moving = [a for a in expression.args if a.has(variable)]
        if len(moving) == 1 and not kinked:
            return direction(moving[0], variable, strictly)
        trends = {trend(a, variable, strictly) for a in (expression.args if strictly and kinked else moving)}
        (way,) = trends if len(trends) == 1 else (None,)
        return sp.Integer(way) if way else None
    return None


def _direction_of_power(power: sp.Pow, variable: sp.Symbol, strictly: bool) -> sp.Expr | None:
    inner = direction(power.base, variable, strictly)
    if inner is None or not power.exp.is_nonzero:
        return None
    odd = power.exp.is_integer and power.exp.is_odd and power.exp.is_positive
    if odd or power.exp == sp.Rational(1, 2):
        return inner
    return inner * sp.sign(power.exp) if power.base.is_nonnegative else None


def is_convex(outer: sp.Expr, variable: sp.Symbol, way: int, strictly: bool) -> bool:
    """Whether the function, times −1 where `way` is −1, is convex, or falls and then rises.

    | shown by                                                     |                                          |
    |--------------------------------------------------------------|------------------------------------------|
    | an absolute value of something affine, times a factor        | the factor is not negative               |
    | a slope of positive factors and one linear in the variable   | that changes its sign once, from − to +  |
    | the second derivative                                        | it is not negative                       |
    """
    if outer.has(sp.Abs):
        rest, body = outer.as_independent(variable, as_Add=True)
        factor, absolute = body.as_independent(variable, as_Add=False)
        if not isinstance(absolute, sp.Abs) or absolute.args[0].diff(variable, 2) != 0 or rest.has(variable):
            return False
        bend = factor * absolute.args[0].diff(variable) ** 2
    elif outer.has(sp.Max, sp.Min):
        return False
    else:
        slope = sp.diff(outer, variable)
        turning = sp.Mul(*(_of_one_sign(f) for f in sp.Mul.make_args(factored(slope)) if not f.is_positive))
        tilt = sp.diff(turning, variable)
        if not tilt.has(variable) and (way * tilt).is_positive:
            return True
        bend = sp.diff(slope, variable)
        if has_both_signs(bend):
            return False
        bend = simplified(bend)
    bend *= way
    return bool(bend.is_positive if strictly else bend.is_nonnegative)


def _of_one_sign(factor: sp.Expr) -> sp.Expr:
    """What a factor has the sign of: the base, of an odd power."""
    odd = factor.is_Pow and factor.exp.is_odd and factor.exp.is_positive
    return factor.base if odd else factor
