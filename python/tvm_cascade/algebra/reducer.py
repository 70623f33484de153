"""Reducers: the commutative monoids ⊕ that a reduction may use, as data; on numbers, and on tuples of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import sympy as sp


@dataclass(frozen=True)
class Reducer:
    """A commutative monoid on the extended reals.

    Attributes
    ----------
    name : stable name, used in reports and attributes.
    sign, latex : how a reduction with it is written.
    combine : the operation ⊕ on two expressions.
    identity : its neutral element, exactly; a program uses the dtype's own lowest or highest value for ∓∞.
    ordered : ⊕ selects one of its arguments by order (max, min).
    whole, part : the reducer of tuples that this is one part of, and which; None for a reducer of numbers.
    infinite : a program starts it at an infinite identity itself, ∓∞, not at the dtype's own lowest or highest value.
    """

    name: str
    sign: str
    latex: str
    combine: Callable[[sp.Expr, sp.Expr], sp.Expr]
    identity: sp.Expr
    ordered: bool = False
    whole: TupleReducer | None = None
    part: int = 0
    infinite: bool = False

    @property
    def keeps_sign(self) -> bool:
        """Whether positive elements give a positive result (of at least one element)."""
        return self.name in ("sum", "prod", "max", "min")

    @property
    def neutral(self) -> sp.Expr:
        """The identity as a program has it: the dtype's own lowest or highest value for most infinite ones."""
        return self.identity if self.infinite else {-sp.oo: LOWEST, sp.oo: HIGHEST}.get(self.identity, self.identity)

    @property
    def plain(self) -> Reducer:
        """The same monoid, started as most programs do."""
        return REDUCERS[self.name] if self.infinite else self

    @property
    def from_infinity(self) -> Reducer:
        """The same monoid, started at ∓∞ itself."""
        return replace(self, infinite=True)

    def over(self, values: Iterable[sp.Expr]) -> sp.Expr:
        """⊕ of all the values; the identity of an empty collection."""
        return reduce(self.combine, values, self.identity)

    def __repr__(self) -> str:
        return self.name


LOWEST, HIGHEST = sp.Symbol("lowest", negative=True), sp.Symbol("highest", positive=True)
"""The dtype's own lowest and highest value; in exact arithmetic ∓∞."""

EXTREMES: dict[sp.Symbol, sp.Expr] = {LOWEST: -sp.oo, HIGHEST: sp.oo}


def first(part: int) -> sp.Symbol:
    """A part of ∘'s first argument."""
    return sp.Symbol(f"a_{part}", real=True)


def second(part: int) -> sp.Symbol:
    """A part of ∘'s second argument."""
    return sp.Symbol(f"b_{part}", real=True)


@dataclass(frozen=True)
class Selection:
    """What a reducer of tuples selects: the `count` best elements by key, best first.

    A tuple holds, rank by rank, the key, the index and the payloads of an element.

    Attributes
    ----------
    largest : larger keys are better; smaller ones otherwise.
    lower : of equal keys the one with the lower index is better; the one with the higher index otherwise.
    payloads : values that each rank carries beside key and index.
    absent : by part, what a program gives where there is no element of that rank.
    """

    count: int
    largest: bool
    lower: bool
    payloads: int
    absent: tuple[sp.Expr, ...]

    @property
    def per_rank(self) -> int:
        """Parts of one rank."""
        return 2 + self.payloads


@dataclass(frozen=True)
class TupleReducer:
    """A commutative monoid ∘ on tuples.

    Attributes
    ----------
    name : of the operation, used in reports.
    combined : each part of a ∘ b, in `first` and `second`.
    identity : the neutral tuple.
    selection : what ∘ selects, where that is all it does.
    """

    name: str
    combined: tuple[sp.Expr, ...]
    identity: tuple[sp.Expr, ...]
    selection: Selection | None = None

    @property
    def width(self) -> int:
        """Parts of a tuple."""
        return len(self.combined)

    def of(self, part: int) -> Reducer:
        """The reducer of one part, which cannot be combined by itself."""
        name = f"{self.name}[{part}]"
        return Reducer(name, name, name, _inseparable, self.identity[part], whole=self, part=part)

    def combine(self, left: Sequence[sp.Expr], right: Sequence[sp.Expr]) -> tuple[sp.Expr, ...]:
        """left ∘ right."""
        values = {first(k): value for k, value in enumerate(left)} | {second(k): v for k, v in enumerate(right)}
        return tuple(expression.xreplace(values) for expression in self.combined)

    def reads(self, part: int) -> frozenset[int]:
        """The parts that a part of a ∘ b depends on."""
        symbols = self.combined[part].free_symbols
        return frozenset(k for k in range(self.width) if symbols & {first(k), second(k)})


def _inseparable(_left: sp.Expr, _right: sp.Expr) -> sp.Expr:
    raise TypeError("a part of a tuple is combined with the others: use Reducer.whole")


SUM = Reducer("sum", "Σ", r"\sum", lambda a, b: a + b, sp.Integer(0))
PROD = Reducer("prod", "Π", r"\prod", lambda a, b: a * b, sp.Integer(1))
MAX = Reducer("max", "max", r"\max", lambda a, b: sp.Max(a, b), -sp.oo, ordered=True)
MIN = Reducer("min", "min", r"\min", lambda a, b: sp.Min(a, b), sp.oo, ordered=True)
# Truth values are the numbers 0 and 1, on which conjunction is min and disjunction is max.
AND = Reducer("and", "∧", r"\bigwedge", lambda a, b: sp.Min(a, b), sp.Integer(1))
OR = Reducer("or", "∨", r"\bigvee", lambda a, b: sp.Max(a, b), sp.Integer(0))

REDUCERS: dict[str, Reducer] = {reducer.name: reducer for reducer in (SUM, PROD, MAX, MIN, AND, OR)}

ON_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": max,
    "min": min,
    "and": min,
    "or": max,
}
"""⊕ on numbers of any one arithmetic: Python's, or mpmath's."""
