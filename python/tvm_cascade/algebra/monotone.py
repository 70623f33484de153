"""max and min through maps: max_l φ(a(x_l)) from max a and min a alone, for monotone and for convex φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.facts.trend import direction, is_convex
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.signs import stand_in


@dataclass(frozen=True)
class Map:
    """An element as a function of data that are kept of it, whatever results are.

    Attributes
    ----------
    parts : the data, over elements.
    symbols : what stands for them in
    value : the element, over invariants.
    """

    parts: tuple[sp.Expr, ...]
    symbols: tuple[sp.Symbol, ...]
    value: sp.Expr

    def at(self, *data: sp.Expr) -> sp.Expr:
        """The element of given data."""
        return self.value.xreplace(dict(zip(self.symbols, data, strict=True)))

    def over(self, reducer: Reducer, kept: Sequence[Reducer], end: Callable[[Reducer, sp.Expr], sp.Expr]) -> sp.Expr:
        """⊕ of the element at the kept ends of its one part."""
        return reducer.over([self.at(end(each, *self.parts)) for each in kept])


def map_of(function: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]) -> Map | None:
    """A function of its largest parts that read no invariant; None where it is not made of such parts."""
    parts: dict[sp.Expr, sp.Symbol] = {}
    value = _collected(function, elements, invariants, parts)
    return None if value.has(*elements) else Map(tuple(parts), tuple(parts.values()), value)


def through_order(
    function: sp.Expr,
    reducer: Reducer,
    elements: Sequence[sp.Symbol],
    invariants: Sequence[sp.Symbol],
    strictly: bool = False,
) -> tuple[Map, tuple[Reducer, ...]] | str:
    """φ(a) and the reducers of a to keep, with ⊕_l function = ⊕ over those ends of φ(end); or the code of a refusal.

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
    found = _of_one_part(function, elements, invariants)
    if found is None:
        return "several_element_parts"
    (variable,) = found.symbols
    kept = _kept(found.value, variable, reducer, strictly)
    return "not_monotone" if kept is None else (found, kept)


def _of_one_part(function: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]) -> Map | None:
    """The map of the one part that varies along the axis and reads no result."""
    found = map_of(function, elements, invariants)
    if found is not None and len(found.parts) == 1:
        return found
    varying = [s for s in function.free_symbols if s in elements]
    if len(varying) != 1 or is_truth(varying[0]) or function.has(sp.Piecewise):
        return None
    variable = stand_in(varying[0], "_a0")  # x² + x·u has two parts, and is convex in x itself
    return Map((varying[0],), (variable,), function.xreplace({varying[0]: variable}))


def _collected(
    function: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol], parts: dict[sp.Expr, sp.Symbol]
) -> sp.Expr:
    """The function with its largest parts that vary along the axis and read no result replaced by symbols.

    Terms of a sum, or factors of a product, are taken together, and numbers are left outside: (x + y)/8 − u reads
    x + y.
    """
    if not function.has(*elements) or isinstance(function, sp.Piecewise):  # a choice is no part, nor are its sides
        return function
    if not function.has(*invariants):
        return _placed(function, parts)
    if isinstance(function, (sp.Add, sp.Mul)):
        alone = [a for a in function.args if a.has(*elements) and not a.has(*invariants)]
        rest = [_collected(a, elements, invariants, parts) for a in function.args if a not in alone]
        return function.func(*rest, _placed(function.func(*alone), parts)) if alone else function.func(*rest)
    return function.func(*(_collected(a, elements, invariants, parts) for a in function.args))


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


def _kept(outer: sp.Expr, variable: sp.Symbol, reducer: Reducer, strictly: bool) -> tuple[Reducer, ...] | None:
    way = None if outer.has(sp.Abs) else direction(outer, variable, strictly)
    if way is not None and (way.is_nonzero or not strictly):
        return kept_by(way, reducer)
    return (MAX, MIN) if is_convex(outer, variable, 1 if reducer is MAX else -1, strictly) else None
