"""The steps that fold positions into a state, as data, and their order, read off the fold.

    reduce     row_max_0: max over x
    combine    row_max_0 = row_max_0 max partial
    move       c_row_max to row_max_0
    row        scale_c_row_max_0 = exp(-Δc_row_max)
    …

What positions are held in (registers of an accumulator, elements of a chunk) is a skeleton's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.fold import Component, Fold, Reference, formula
from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.steps.shifts import plan_shifts, update_order
from tvm_cascade.tile.operand import dtypes_text
from tvm_cascade.tile.shape import Product
from tvm_cascade.transform.dims import Dims
from tvm_cascade.transform.elements import plan_elements

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


@dataclass(frozen=True)
class FoldTuple:
    """state = state ∘ lifts, position after position: tuples have no shift."""

    unit: tuple[Component, ...]
    lifts: tuple[sp.Expr, ...]

    def __str__(self) -> str:
        whole = self.unit[0].reducer.whole
        names = ", ".join(str(c.symbol) for c in self.unit)
        return f"fold       ({names}): {whole.name if whole else ''} over ({', '.join(map(formula, self.lifts))})"


Step = Reduce | Combine | Move | RowValue | ElementValue | FoldTuple


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


class StepPlanner:
    """Plans the steps of a fold's components that have one value a row.

    Parameters
    ----------
    components : of the fold; the others are computed elsewhere.
    """

    def __init__(self, fold: Fold, components: Collection[Component], dims: Dims) -> None:
        self.fold, self.components = fold, components
        plan = plan_elements(fold.components, [], dims)
        self.temporaries, self.lifts = list(plan.temporaries), plan.lifts
        self.shifts = plan_shifts(fold)
        self.across: set[sp.Symbol] = set()
        self.steps: list[Step] = []

    def plan(self) -> None:
        """Appends the steps of every unit of the fold, in order."""
        units = list(self.fold.units)
        while units:
            unit = units.pop(0)
            if isinstance(unit, Reference):
                self._move(unit)
                continue
            run = [unit]
            while units and not isinstance(following := units[0], Reference):
                run.append(following)
                units.pop(0)
            for together in run:
                if together[0].parts:
                    lifts = tuple(self.lowered(self.lifts[c.symbol]) for c in together)
                    self.steps.append(FoldTuple(together, lifts))
            self._reductions([c for together in run for c in together if not c.parts and c in self.components])

    def _move(self, reference: Reference) -> None:
        self.steps.append(Move(reference))
        for coefficient in self.shifts.coefficients:
            if coefficient.home == reference.symbol:
                self.steps.append(RowValue(coefficient.symbol, coefficient.expression, of_move=True))

    def _reductions(self, components: list[Component]) -> None:
        for component in components:
            lift = self.lowered(self.lifts[component.symbol])
            reducer, inner, outer = self.outward(component.reducer, lift)
            self.steps.append(Reduce(component.symbol, reducer, inner, outer, component.symbol in self.across))
        for together in update_order(components, self.shifts.shifts):
            for component in together:
                shift = self.shifts.shifts[component.symbol]
                self.steps.append(Combine(component.symbol, component.reducer, shift))

    def outward(self, reducer: Reducer, lift: sp.Expr) -> tuple[Reducer, sp.Expr, sp.Expr]:
        """(⊕, what is reduced, the map of the whole) of a reduction over the tile."""
        return reducer, lift, PARTIAL

    def lowered(self, expression: sp.Expr) -> sp.Expr:
        """A lift over elements; the temporaries that it needs are computed first."""
        for temporary in list(self.temporaries):
            if temporary.symbol in expression.free_symbols:
                self.temporaries.remove(temporary)
                self.element_value(temporary.symbol, self.lowered(temporary.expression))
        return expression

    def element_value(self, symbol: sp.Symbol, expression: sp.Expr) -> sp.Symbol:
        """A value per position, computed next."""
        self.steps.append(ElementValue(symbol, expression))
        return symbol
