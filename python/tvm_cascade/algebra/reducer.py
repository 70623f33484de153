"""Reducers: the commutative monoids ⊕ that a reduction may use, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce

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
    """

    name: str
    sign: str
    latex: str
    combine: Callable[[sp.Expr, sp.Expr], sp.Expr]
    identity: sp.Expr
    ordered: bool = False

    @property
    def keeps_sign(self) -> bool:
        """Whether positive elements give a positive result (of at least one element)."""
        return self.name in ("sum", "prod", "max", "min")

    def over(self, values: Iterable[sp.Expr]) -> sp.Expr:
        """⊕ of all the values; the identity of an empty collection."""
        return reduce(self.combine, values, self.identity)

    def __repr__(self) -> str:
        return self.name


SUM = Reducer("sum", "Σ", r"\sum", lambda a, b: a + b, sp.Integer(0))
PROD = Reducer("prod", "Π", r"\prod", lambda a, b: a * b, sp.Integer(1))
MAX = Reducer("max", "max", r"\max", lambda a, b: sp.Max(a, b), -sp.oo, ordered=True)
MIN = Reducer("min", "min", r"\min", lambda a, b: sp.Min(a, b), sp.oo, ordered=True)
# Truth values are the numbers 0 and 1, on which conjunction is min and disjunction is max.
AND = Reducer("and", "∧", r"\bigwedge", lambda a, b: sp.Min(a, b), sp.Integer(1))
OR = Reducer("or", "∨", r"\bigvee", lambda a, b: sp.Max(a, b), sp.Integer(0))

REDUCERS: dict[str, Reducer] = {reducer.name: reducer for reducer in (SUM, PROD, MAX, MIN, AND, OR)}
