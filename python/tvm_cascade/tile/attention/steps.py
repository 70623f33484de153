"""Steps over tiles in registers: those of the step program, and those that only tiles need.

    reduce    row_max_0: max over r, across lanes, then p/8
    shift     row_max_0: row_max_0
    combine   row_max_0
    move      c_row_max to row_max_0
    hoisted   h_0 = Clamped(-1.44*c_row_max)
    element   weights = Exp2(h_0 + 0.18*r), in place

Each is one of its steps, so that what holds of step programs (`steps.verify`) holds of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.steps.program import Element, Reduce
from tvm_cascade.symbolic.printing import formula
from tvm_cascade.tile.attention.shape import Product
from tvm_cascade.tile.operand import dtypes_text

PARTIAL = sp.Symbol("p", real=True)
"""What a reduction over a tile gives, before its outer map."""


@dataclass(frozen=True)
class TileReduce(Reduce):
    """share = outer(⊕ over the tile's positions of lift).

    Attributes
    ----------
    across_lanes : every lane that shares the row gets the whole; otherwise each keeps its own part until the end.
    """

    outer: sp.Expr
    across_lanes: bool

    def __str__(self) -> str:
        lanes = ", across lanes" if self.across_lanes else ""
        then = "" if self.outer == PARTIAL else f", then {formula(self.outer)}"
        return f"{super().__str__()}{lanes}{then}"


@dataclass(frozen=True)
class RegisterElement(Element):
    """A value per register; `in_place` where it overwrites the register."""

    in_place: bool = False

    def __str__(self) -> str:
        return super().__str__() + (", in place" if self.in_place else "")


@dataclass(frozen=True)
class Hoisted(Element):
    """A loop-invariant value, computed once a row and tile."""

    def __str__(self) -> str:
        return f"hoisted   {self.symbol} = {formula(self.expression)}"


@dataclass(frozen=True)
class Accumulate:
    """accumulator = shift + weight @ V, by the tensor cores; the weight is rounded to a dtype that multiplies V's."""

    product: Product
    weight: sp.Symbol
    dtype: str
    shift: sp.Expr

    def __str__(self) -> str:
        symbol, transposed = self.product.component.symbol, "ᵀ" if self.product.is_transposed else ""
        product = f"{self.weight} @ {self.product.value}{transposed}"
        dtypes = dtypes_text(self.dtype, self.product.value.dtype)
        return f"accumulate {symbol} = {formula(self.shift)} + {product} {dtypes}"
