"""max and min through maps: max_l φ(a(x_l)) from max a and min a alone, for monotone and for convex φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.algebra.sampling import has_both_signs

Through = tuple[sp.Expr, tuple[Reducer, ...], Callable[[sp.Expr], sp.Expr]]


def through_order(
    function: sp.Expr, reducer: Reducer, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> Through | str:
    """(a, reducers of a to keep, φ) with ⊕_l function = ⊕ over the kept ends of φ(end); or the code of a refusal.

    | φ in a                         | kept for max | kept for min |
    |--------------------------------|--------------|--------------|
    | non-decreasing                 | max a        | min a        |
    | non-increasing                 | min a        | max a        |
    | convex (max), concave (min)    | both         | both         |
    | falls, then rises (max)        | both         |              |
    | rises, then falls (min)        |              | both         |
    """
    parts: dict[sp.Expr, sp.Symbol] = {}
    outer = _collected(function, elements, handles, parts)
    if len(parts) != 1 or outer.has(*elements):
        return "several_element_parts"
    ((inner, variable),) = parts.items()
    kept = _kept(outer, variable, reducer)
    if kept is None:
        return "not_monotone"
    return inner, kept, lambda end: outer.xreplace({variable: end})


def _collected(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol], parts: dict[sp.Expr, sp.Symbol]
) -> sp.Expr:
    """The function with its largest parts that vary along the axis and read no result replaced by symbols.

    Terms of a sum, or factors of a product, are taken together, and numbers are left outside: (x + y)/8 − u reads
    x + y.
    """
    if not function.has(*elements):
        return function
    if not function.has(*handles):
        return _placed(function, parts)
    if isinstance(function, (sp.Add, sp.Mul)):
        alone = [a for a in function.args if a.has(*elements) and not a.has(*handles)]
        rest = [_collected(a, elements, handles, parts) for a in function.args if a not in alone]
        return function.func(*rest, _placed(function.func(*alone), parts)) if alone else function.func(*rest)
    return function.func(*(_collected(a, elements, handles, parts) for a in function.args))


def _placed(part: sp.Expr, parts: dict[sp.Expr, sp.Symbol]) -> sp.Expr:
    scale, bare = part.primitive() if isinstance(part, sp.Add) else part.as_coeff_Mul()
    if bare not in parts:
        facts = {"positive": True} if bare.is_positive else {"nonnegative": True} if bare.is_nonnegative else {}
        parts[bare] = sp.Symbol(f"_a{len(parts)}", real=True, **facts)
    return scale * parts[bare]


def _kept(outer: sp.Expr, variable: sp.Symbol, reducer: Reducer) -> tuple[Reducer, ...] | None:
    opposite = MIN if reducer is MAX else MAX
    if isinstance(outer, sp.Abs) or outer.has(sp.Abs):
        return _kept_through_abs(outer, variable, reducer)
    if direction := _direction(outer, variable):
        return (reducer,) if direction > 0 else (opposite,)
    if outer.has(sp.Max, sp.Min):
        return None
    slope = sp.diff(outer, variable)
    if not has_both_signs(slope):
        slope = sp.simplify(slope)
        if slope.is_nonnegative:
            return (reducer,)
        if slope.is_nonpositive:
            return (opposite,)
    if _turns_once(slope, variable, 1 if reducer is MAX else -1):
        return (MAX, MIN)
    curvature = sp.diff(slope, variable)
    if has_both_signs(curvature):
        return None
    curvature = sp.simplify(curvature)
    if (curvature.is_nonnegative and reducer is MAX) or (curvature.is_nonpositive and reducer is MIN):
        return (MAX, MIN)
    return None


def _turns_once(slope: sp.Expr, variable: sp.Symbol, way: int) -> bool:
    """Whether the slope is a positive factor times one that is linear in the variable and rises (way 1) or falls."""
    factors = sp.Mul.make_args(sp.factor(slope))
    turning = sp.Mul(*(f for f in factors if not f.is_positive))
    tilt = sp.diff(turning, variable)
    return not tilt.has(variable) and bool((way * tilt).is_positive)


def _direction(outer: sp.Expr, variable: sp.Symbol) -> int | None:
    """1 where the expression is built from increasing steps alone, −1 where it falls; None where that is not plain."""
    if outer == variable:
        return 1
    inner = [arg for arg in outer.args if arg.has(variable)]
    if isinstance(outer, (sp.Max, sp.Min, sp.Add, sp.exp, sp.tanh, sp.log)):
        ways = {_direction(arg, variable) for arg in inner}
        return ways.pop() if len(ways) == 1 else None
    if isinstance(outer, sp.Mul) and len(inner) == 1:
        factor = outer / inner[0]
        sign = 1 if factor.is_nonnegative else -1 if factor.is_nonpositive else None
        way = _direction(inner[0], variable)
        return None if sign is None or way is None else sign * way
    return None


def _kept_through_abs(outer: sp.Expr, variable: sp.Symbol, reducer: Reducer) -> tuple[Reducer, ...] | None:
    """|affine in a| times a non-negative factor, plus what is free of a, is convex."""
    rest, body = outer.as_independent(variable, as_Add=True)
    factor, absolute = body.as_independent(variable, as_Add=False)
    if not isinstance(absolute, sp.Abs) or absolute.args[0].diff(variable, 2) != 0 or rest.has(variable):
        return None
    convex = factor.is_nonnegative
    concave = factor.is_nonpositive
    return (MAX, MIN) if (convex and reducer is MAX) or (concave and reducer is MIN) else None
