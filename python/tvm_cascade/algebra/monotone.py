"""max and min through maps: max_l φ(a(x_l)) from max a and min a alone, for monotone and for convex φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import is_truth
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.algebra.sampling import has_both_signs
from tvm_cascade.algebra.work import factored, simplified

_RISING = (sp.exp, sp.log, sp.tanh, sp.sinh, sp.atan)
"""Functions of one argument that rise wherever they are defined."""

Through = tuple[sp.Expr, tuple[Reducer, ...], Callable[[sp.Expr], sp.Expr]]


def through_order(
    function: sp.Expr,
    reducer: Reducer,
    elements: Sequence[sp.Symbol],
    handles: Sequence[sp.Symbol],
    strictly: bool = False,
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

    With `strictly`, unequal a stay unequal on each side of a turn: among equal keys, indices decide a selection.
    """
    split = _one_part(function, elements, handles)
    if split is None:
        return "several_element_parts"
    inner, variable, outer = split
    kept = _kept(outer, variable, reducer, strictly)
    if kept is None:
        return "not_monotone"
    return inner, kept, lambda end: outer.xreplace({variable: end})


def one_way_or_constant(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> Through | None:
    """(a, both ends, φ) where φ is strictly monotone or constant at any results; None elsewhere."""
    split = _one_part(function, elements, handles)
    if split is None:
        return None
    inner, variable, outer = split
    if not _one_way(outer, variable, strictly=True):
        return None
    return inner, (MAX, MIN), lambda end: outer.xreplace({variable: end})


def _one_part(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Symbol, sp.Expr] | None:
    """The one part that varies along the axis and reads no result, its symbol, and the function of that."""
    parts: dict[sp.Expr, sp.Symbol] = {}
    outer = _collected(function, elements, handles, parts)
    varying = [s for s in function.free_symbols if s in elements]
    alone = len(varying) == 1 and not is_truth(varying[0]) and not function.has(sp.Piecewise)
    if (len(parts) != 1 or outer.has(*elements)) and alone:
        parts.clear()  # x² + x·u has two parts, and is convex in x itself
        outer = function.xreplace({varying[0]: _placed(varying[0], parts)})
    if len(parts) != 1 or outer.has(*elements):
        return None
    ((inner, variable),) = parts.items()
    return inner, variable, outer


def _collected(
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
        rest = [_collected(a, elements, handles, parts) for a in function.args if a not in alone]
        return function.func(*rest, _placed(function.func(*alone), parts)) if alone else function.func(*rest)
    return function.func(*(_collected(a, elements, handles, parts) for a in function.args))


def _placed(part: sp.Expr, parts: dict[sp.Expr, sp.Symbol]) -> sp.Expr:
    scale, bare = part.primitive() if isinstance(part, sp.Add) else part.as_coeff_Mul()
    if bare not in parts:
        facts = {"positive": True} if bare.is_positive else {"nonnegative": True} if bare.is_nonnegative else {}
        parts[bare] = sp.Symbol(f"_a{len(parts)}", real=True, **facts)
    return scale * parts[bare]


def _kept(outer: sp.Expr, variable: sp.Symbol, reducer: Reducer, strictly: bool) -> tuple[Reducer, ...] | None:
    opposite = MIN if reducer is MAX else MAX
    if isinstance(outer, sp.Abs) or outer.has(sp.Abs):
        return _kept_through_abs(outer, variable, reducer, strictly)
    if way := trend(outer, variable, strictly):
        return (reducer,) if way > 0 else (opposite,)
    if not strictly and _one_way(outer, variable):
        return (MAX, MIN)
    if outer.has(sp.Max, sp.Min):
        return None
    slope = sp.diff(outer, variable)
    if not has_both_signs(slope):
        slope = simplified(slope)
        if slope.is_positive if strictly else slope.is_nonnegative:
            return (reducer,)
        if slope.is_negative if strictly else slope.is_nonpositive:
            return (opposite,)
    if not strictly and _slope_has_one_sign(slope, variable):
        return (MAX, MIN)
    way = 1 if reducer is MAX else -1
    if _turns_once(slope, variable, way):
        return (MAX, MIN)
    bend = sp.diff(slope, variable)
    if has_both_signs(bend):
        return None
    bend = simplified(bend) * way
    return (MAX, MIN) if (bend.is_positive if strictly else bend.is_nonnegative) else None


def _one_way(expression: sp.Expr, variable: sp.Symbol, strictly: bool = False) -> bool:
    """Whether the expression is monotone in the variable at any results, which may decide the direction: d·exp(x).

    With `strictly`, it keeps unequal ones unequal, or all are equal: d·exp(x) where d is 0.
    """
    if trend(expression, variable, strictly) is not None:
        return True
    if isinstance(expression, _RISING) or (isinstance(expression, sp.Pow) and expression.exp.is_odd):
        inner = expression.args[0]
        rises = isinstance(expression, _RISING) or (expression.exp.is_positive and not expression.exp.has(variable))
        return bool(rises) and _one_way(inner, variable, strictly)
    if isinstance(expression, (sp.Add, sp.Mul)):
        moving = expression.as_independent(variable, as_Add=isinstance(expression, sp.Add))[1]
        apart = moving != expression and not isinstance(moving, type(expression))
        return apart and _one_way(moving, variable, strictly)
    return False


def _slope_has_one_sign(slope: sp.Expr, variable: sp.Symbol) -> bool:
    """Whether what varies of the slope has one sign, whatever that of its other factors."""
    varying = factored(slope).as_independent(variable, as_Add=False)[1]
    return bool(varying.is_nonnegative or varying.is_nonpositive)


def _turns_once(slope: sp.Expr, variable: sp.Symbol, way: int) -> bool:
    """Whether the slope is a positive factor times one that is linear in the variable and rises (way 1) or falls."""
    factors = sp.Mul.make_args(factored(slope))
    turning = sp.Mul(*(f for f in factors if not f.is_positive))
    tilt = sp.diff(turning, variable)
    return not tilt.has(variable) and bool((way * tilt).is_positive)


def _kept_through_abs(
    outer: sp.Expr, variable: sp.Symbol, reducer: Reducer, strictly: bool
) -> tuple[Reducer, ...] | None:
    """|affine in a| times a non-negative factor, plus what is free of a, is convex."""
    rest, body = outer.as_independent(variable, as_Add=True)
    factor, absolute = body.as_independent(variable, as_Add=False)
    if not isinstance(absolute, sp.Abs) or absolute.args[0].diff(variable, 2) != 0 or rest.has(variable):
        return None
    bend = factor * absolute.args[0].diff(variable) ** 2 * (1 if reducer is MAX else -1)
    return (MAX, MIN) if (bend.is_positive if strictly else bend.is_nonnegative) else None


def trend(expression: sp.Expr, variable: sp.Symbol, strictly: bool = False) -> int | None:
    """1 where the expression rises with the variable, −1 where it falls, 0 where it is free of it; None if unknown.

    Read off its structure: a kink, as of max(x − u, 0), has no slope, and that of tanh has a sign that SymPy misses.
    """
    if not expression.has(variable):
        return 0
    if expression == variable:
        return 1
    if isinstance(expression, _RISING):
        return trend(expression.args[0], variable, strictly)
    if isinstance(expression, sp.Pow) and not expression.exp.has(variable):
        return _trend_of_power(expression, variable, strictly)
    if isinstance(expression, sp.Mul):
        scale, rest = expression.as_independent(variable, as_Add=False)
        inner = None if isinstance(rest, sp.Mul) else trend(rest, variable, strictly)
        rises = scale.is_positive if strictly else scale.is_nonnegative
        falls = scale.is_negative if strictly else scale.is_nonpositive
        return None if inner is None or not (rises or falls) else inner if rises else -inner
    if isinstance(expression, (sp.Add, sp.Max, sp.Min)):
        trends = {trend(argument, variable, strictly) for argument in expression.args}
        flat = isinstance(expression, sp.Add) or not strictly
        moving = trends - {0} if flat else trends
        return next(iter(moving)) if len(moving) == 1 else None
    return None


def _trend_of_power(power: sp.Pow, variable: sp.Symbol, strictly: bool) -> int | None:
    inner = trend(power.base, variable, strictly)
    odd = power.exp.is_integer and power.exp.is_odd and power.exp.is_positive
    if inner is None or not (odd or power.base.is_nonnegative or power.exp == sp.Rational(1, 2)):
        return None
    return inner if power.exp.is_positive else -inner if power.exp.is_negative and power.base.is_nonnegative else None
