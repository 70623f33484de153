"""The steps of a tile program, as data: what is computed, and at which level."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.fold import Reference, formula
from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.tile.shape import Product

PARTIAL = sp.Symbol("p", real=True)
"""What a reduction over a tile gives, before its outer map."""


@dataclass(frozen=True)
class Reduce:
    """partial = outer(⊕ over the tile's positions of lift).

    Attributes
    ----------
    across_lanes : every lane that shares the row gets the whole; otherwise each keeps its own part until the end.
    """

    component: sp.Symbol
    reducer: Reducer
    lift: sp.Expr
    outer: sp.Expr
    across_lanes: bool

    def __str__(self) -> str:
        lanes = ", across lanes" if self.across_lanes else ""
        then = "" if self.outer == PARTIAL else f", then {formula(self.outer)}"
        return f"reduce     {self.component}: {self.reducer} over {formula(self.lift)}{lanes}{then}"


@dataclass(frozen=True)
class Combine:
    """component = shift ⊕ partial."""

    component: sp.Symbol
    reducer: Reducer
    shift: sp.Expr

    def __str__(self) -> str:
        return f"combine    {self.component} = {formula(self.shift)} {self.reducer} partial"


@dataclass(frozen=True)
class Move:
    """A reference moves to its value; its step is what it moved by."""

    reference: Reference

    def __str__(self) -> str:
        return f"move       {self.reference.symbol} to {formula(self.reference.value)}"


@dataclass(frozen=True)
class RowValue:
    """A value per row and tile. `of_move`: a factor of shifts, which reads what references were before their moves."""

    symbol: sp.Symbol
    expression: sp.Expr
    of_move: bool = False

    def __str__(self) -> str:
        return f"row        {self.symbol} = {formula(self.expression)}"


@dataclass(frozen=True)
class ElementValue:
    """A value per register; `in_place` where the register itself is not needed any more."""

    symbol: sp.Symbol
    expression: sp.Expr
    in_place: bool = False

    def __str__(self) -> str:
        place = ", in place" if self.in_place else ""
        return f"element    {self.symbol} = {formula(self.expression)}{place}"


Step = Reduce | Combine | Move | RowValue | ElementValue


@dataclass(frozen=True)
class Accumulate:
    """accumulator = shift + weight @ V, by the tensor cores; the weight is rounded to V's dtype."""

    product: Product
    weight: sp.Symbol
    shift: sp.Expr

    def __str__(self) -> str:
        symbol = self.product.component.symbol
        return f"accumulate {symbol} = {formula(self.shift)} + {self.weight} @ {self.product.value}"
