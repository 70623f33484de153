"""max and min through maps: max_l φ(a(x_l)) from max a and min a alone, for monotone and for convex φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy as sp

from tvm_cascade.algebra.facts.trend import direction, direction_of_slope, is_convex
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.signs import stand_in

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
        way = direction_of_slope(outer, variable, strictly)
    if way is not None and (way.is_nonzero or not strictly):
        return kept_by(way, reducer)
    if is_convex(outer, variable, 1 if reducer is MAX else -1, strictly) or (or_constant and way is not None):
        return (MAX, MIN)
    return None
