"""max and min through maps: max_l φ(a(x_l)) from max a and min a alone, for monotone and for convex φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.sampling import has_both_signs
from tvm_cascade.symbolic.work import factored, simplified

_RISING = (sp.exp, sp.log, sp.tanh, sp.sinh, sp.atan)
"""Functions of one argument that rise wherever they are defined."""

Through = tuple[sp.Expr, tuple[Reducer, ...], Callable[[sp.Expr], sp.Expr]]


def through_order(
    function: sp.Expr,
    reducer: Reducer,
    elements: Sequence[sp.Symbol],
    handles: Sequence[sp.Symbol],
    strictly: bool = False,
    or_constant: bool = False,
) -> Through | str:
    """(a, reducers of a to keep, φ) with ⊕_l function = ⊕ over the kept ends of φ(end); or the code of a refusal.

    | φ in a                         | kept for max | kept for min |
    |--------------------------------|--------------|--------------|
    | non-decreasing                 | max a        | min a        |
    | non-increasing                 | min a        | max a        |
    | convex (max), concave (min)    | both         | both         |
    | falls, then rises (max)        | both         |              |
    | rises, then falls (min)        |              | both         |
    | either of the first two, by d  | both         | both         |

    With `strictly`, unequal a stay unequal on each side of a turn: among equal keys, indices decide a selection. With
    `or_constant`, φ may be constant instead, as results have it.
    """
    split = _one_part(function, elements, handles)
    if split is None:
        return "several_element_parts"
    inner, variable, outer = split
    kept = _kept(outer, variable, reducer, strictly, or_constant)
    if kept is None:
        return "not_monotone"
    return inner, kept, lambda end: outer.xreplace({variable: end})


def _one_part(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Symbol, sp.Expr] | None:
    """The one part that varies along the axis and reads no result, its symbol, and the function of that."""
    parts: dict[sp.Expr, sp.Symbol] = {}
    outer = collected(function, elements, handles, parts)
    varying = [s for s in function.free_symbols if s in elements]
    alone = len(varying) == 1 and not is_truth(varying[0]) and not function.has(sp.Piecewise)
    if (len(parts) != 1 or outer.has(*elements)) and alone:
        parts.clear()  # x² + x·u has two parts, and is convex in x itself
        outer = function.xreplace({varying[0]: _placed(varying[0], parts)})
    if len(parts) != 1 or outer.has(*elements):
        return None
    ((inner, variable),) = parts.items()
    return inner, variable, outer


def collected(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol], parts: dict[sp.Expr, sp.Symbol]
) -> sp.Expr:
    """The function with its largest parts that vary along the axis and read no result replaced by symbols.

    Terms of a sum, or factors of a product, are taken together, and numbers are left outside: (x + y)/8 − u reads
    x + y.
    """
    if not function.has(*elements) or isinstance(function, sp.Piecewise):  # a choice is no part, nor are its sides
        return function
    if not function.has(*handles):
        return _placed(function, parts)
    if isinstance(function, (sp.Add, sp.Mul)):
        alone = [a for a in function.args if a.has(*elements) and not a.has(*handles)]
        rest = [collected(a, elements, handles, parts) for a in function.args if a not in alone]
        return function.func(*rest, _placed(function.func(*alone), parts)) if alone else function.func(*rest)
    return function.func(*(collected(a, elements, handles, parts) for a in function.args))


def _placed(part: sp.Expr, parts: dict[sp.Expr, sp.Symbol]) -> sp.Expr:
    scale, bare = part.primitive() if isinstance(part, sp.Add) else part.as_coeff_Mul()
    if bare not in parts:
        parts[bare] = stand_in(bare, f"_a{len(parts)}")
    return scale * parts[bare]


def stand_in(part: sp.Expr, name: str) -> sp.Symbol:
    """A symbol for a part, with its sign."""
    facts = {"positive": True} if part.is_positive else {"nonnegative": True} if part.is_nonnegative else {}
    return sp.Symbol(name, real=True, **facts)


def kept_by(way: sp.Expr, reducer: Reducer) -> tuple[Reducer, ...]:
    """The extrema of a from which ⊕ φ(a) follows, where φ rises while its direction is positive, and falls elsewhere.

    Rising maps take each of the pair (max a, min a) to that of φ(a), falling ones to the other: max(−a) = −min a.
    Where the sign is data both are kept, and ⊕ is over φ of both at the end: one of them is it.
    """
    if way.is_nonnegative:
        return (reducer,)
    if way.is_nonpositive:
        return (MIN if reducer is MAX else MAX,)
    return (MAX, MIN)


def _kept(
    outer: sp.Expr, variable: sp.Symbol, reducer: Reducer, strictly: bool, or_constant: bool
) -> tuple[Reducer, ...] | None:
    way = None if outer.has(sp.Abs) else direction(outer, variable, strictly)
    if way is None and not outer.has(sp.Abs, sp.Max, sp.Min):
        way = _direction_of_slope(outer, variable, strictly)
    if way is not None and (way.is_nonzero or not strictly):
        return kept_by(way, reducer)
    if _is_convex(outer, variable, 1 if reducer is MAX else -1, strictly) or (or_constant and way is not None):
        return (MAX, MIN)
    return None


def _direction_of_slope(outer: sp.Expr, variable: sp.Symbol, strictly: bool) -> sp.Expr | None:
    """The factors of the slope that are free of the variable, where the others have one sign."""
    scale, factors = factored(sp.diff(outer, variable)).as_independent(variable, as_Add=False)
    open_ones = [f for f in sp.Mul.make_args(factors) if not f.is_positive]
    varying = sp.expand(sp.Mul(*open_ones))  # 4·a⁴ + 1 is positive, but SymPy does not see it of its factors
    if varying.is_positive if strictly else varying.is_nonnegative:
        return scale
    return -scale if (varying.is_negative if strictly else varying.is_nonpositive) else None


def _is_convex(outer: sp.Expr, variable: sp.Symbol, way: int, strictly: bool) -> bool:
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
    if isinstance(expression, _RISING):
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
