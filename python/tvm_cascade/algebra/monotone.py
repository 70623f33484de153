"""max, min and their positions through maps: of φ(a(x_l)) from max a and min a, for monotone and for convex φ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.facts.trend import direction, is_convex
from tvm_cascade.algebra.invariants import Invariant
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.masks import is_truth, masks_in
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
) -> tuple[Map, tuple[Reducer, ...], sp.Expr | None] | str:
    """φ(a), the reducers of a to keep, with ⊕_l function = ⊕ over those ends of φ(end), and φ's direction, if any.

    The code of a refusal where there are none.

    | φ in a                         | kept for max | kept for min |
    |--------------------------------|--------------|--------------|
    | non-decreasing                 | max a        | min a        |
    | non-increasing                 | min a        | max a        |
    | convex (max), concave (min)    | both         | both         |
    | falls, then rises (max)        | both         |              |
    | rises, then falls (min)        |              | both         |
    | either of the first two, by d  | both         | both         |

    With `strictly`, unequal a stay unequal on each side of a turn, or where the direction is not 0: among equal keys,
    indices decide a selection.
    """
    found = _of_one_part(function, elements, invariants)
    if found is None:
        return "several_element_parts"
    (variable,) = found.symbols
    way = direction(found.value, variable, strictly)
    if way is not None:
        return found, kept_by(way, reducer), way
    turns = is_convex(found.value, variable, 1 if reducer is MAX else -1, strictly)
    return (found, (MAX, MIN), None) if turns else "not_monotone"


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


@dataclass(frozen=True)
class Order:
    """What a key is ordered by, whatever results are.

    Attributes
    ----------
    lift : over elements.
    key : the key as a map of data.
    ends : of the lift, at one of which the best key is.
    way : positive where the key rises with the lift, negative where it falls, 0 where it is the same at all positions,
        over invariants; None where it turns.
    """

    lift: sp.Expr
    key: Map
    ends: tuple[Reducer, ...]
    way: sp.Expr | None

    @property
    def may_be_constant(self) -> bool:
        return self.way is not None and not self.way.is_nonzero

    def decided(self, best: Reducer) -> list[sp.Basic]:
        """When the best key, by max or min, is at each end, and when all are the same, where they may be."""
        if self.way is None or (len(self.ends) == 1 and not self.may_be_constant):
            return [sp.true for _ in self.ends]
        at_ends = [sp.Gt(self.way, 0) if end is best else sp.Lt(self.way, 0) for end in self.ends]
        return [*at_ends, sp.Eq(self.way, 0)] if self.may_be_constant else at_ends


def order_of(
    key: sp.Expr, best: Reducer, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]
) -> Order | str:
    """What a key is ordered by that is equal for equal keys alone; the code of a refusal where none is known.

    | key                       | ordered by                                      |
    |---------------------------|-------------------------------------------------|
    | a map of one part         | the part (`through_order`)                      |
    | M(x)·exp(a(x))·H(d) + K(d)| M·exp(a), as its sign and log |M| + a tell      |
    """
    if not key.has(*elements):
        return Order(sp.S.Zero, Map((), (), key), (best,), sp.S.One)
    if not key.has(*invariants):
        itself = sp.Dummy(real=True)
        return Order(key, Map((key,), (itself,), itself), (best,), sp.S.One)
    passed = through_order(key, best, elements, invariants, strictly=True)
    if not isinstance(passed, str):
        found, ends, way = passed
        return Order(found.parts[0], found, ends, way)
    product, data = _product(key, elements, invariants), map_of(key, elements, invariants)
    if product is None or data is None:
        return passed
    lift, way = product
    return Order(lift, data, kept_by(way, best), way)


def _product(
    key: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr] | None:
    """What is ordered as G, and H, of a key G(x)·H(d) + K(d); None where it is no such product."""
    body = sp.factor_terms(key.as_independent(*elements, as_Add=True)[1])
    factor, varying = body.as_independent(*elements, as_Add=False)
    weight, exponent = sp.S.One, sp.S.Zero
    for part in sp.Mul.make_args(varying):
        if isinstance(part, sp.exp):
            moved, still = sp.expand(part.args[0]).as_independent(*elements, as_Add=True)
            factor, exponent = factor * sp.exp(moved), exponent + still
        else:
            weight *= part
    if sp.Tuple(weight, exponent).has(*invariants):
        return None
    if exponent == 0:
        return weight, factor
    size = sp.expand_log(sp.log(sp.Abs(weight))) + exponent
    return size if weight.is_positive else _signed_size(weight, size), factor


def _signed_size(weight: sp.Expr, size: sp.Expr) -> sp.Expr:
    """A number of the sign of a weight, ordered as sign(weight)·exp(size), which may be out of range.

    It is sign(weight)·ψ(size), ψ(t) = 1 + t for t ≥ 0 and 1/(1 − t) elsewhere: rising, and as good as t.
    """
    ordered = sp.Piecewise((1 + size, size >= 0), (1 / (1 - size), True))
    return sp.Piecewise((ordered, weight > 0), (-ordered, weight < 0), (sp.S.Zero, True))


Kept = TypeVar("Kept")

MOST_MASKS = 4
"""Masks by which one element is taken apart into cases."""


@dataclass(frozen=True)
class Cases(Generic[Kept]):
    """Elements whose extremum is asked for, taken apart by masks where no law is known that holds for all of them.

    Attributes
    ----------
    proved : the code where numbers show that there is no fold.
    used : the invariants that they read.
    """

    proved: ClassVar[str] = "not_monotone"
    derivation: Derivation
    reduction: Reduction
    used: Sequence[Invariant]

    def at_once(self, element: sp.Expr) -> list[Kept] | str:
        """What is kept of elements without masks; the code of a refusal where no law is known."""
        raise NotImplementedError

    def refused(self, code: str, element: sp.Expr) -> Exception:
        """With positions each of which decides the result of some data, where such are found."""
        shown = self.derivation.counterexample("not_monotone", self.reduction, element, self.derivation.where)
        code = self.proved if shown else "order_unknown" if code == "not_monotone" else code
        return self.derivation.refuse(self.reduction, code, element, shown=shown)

    def kept(self, element: sp.Expr) -> list[Kept]:
        """What is kept of an element, by cases.

        Raises
        ------
        Refused
            Where there is no fold of a case, or none is known.
        """
        found = self.at_once(element)
        if not isinstance(found, str):
            return found
        masks = masks_in(element, self.derivation.elements)
        sides = [(m > 0 if holds else sp.Le(m, 0), element.subs(m, holds)) for m in masks[:1] for holds in (1, 0)]
        if not masks or len(masks) > MOST_MASKS or any(side.has(sp.nan, sp.zoo, sp.oo) for _, side in sides):
            raise self.refused(found, element)
        return [each for where, side in sides for each in self._over(where, side)]

    def _over(self, where: sp.Basic, element: sp.Expr) -> list[Kept]:
        with self.derivation.over(sp.And(self.derivation.where, where)):
            return self.kept(element)
