"""The merge of any fold: every holder of a state shifts its own to the common reference, then all combine by ⊕.

    c′ = value(⊕ of the components so far, n)        the same for all holders
    T′ = ⊕ over holders of shift(T; c → c′)           one exchange a component

An exchange is a level's: it combines one value of every holder and gives all of them the whole. A state of no
positions takes part as the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.algebra.fold import Component, Reference
from tvm_cascade.algebra.reducer import first, second
from tvm_cascade.analysis.reducers import combiner_of
from tvm_cascade.steps.move import destination, displacement, may_stay
from tvm_cascade.steps.program import move_of
from tvm_cascade.tile.emit import bind
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.state import COUNTER, State
from tvm_cascade.transform.values import TirValues

Binary = Callable[[ir.Expr, ir.Expr], ir.Expr]
Tuple = dict[sp.Symbol, ir.Expr]


class Exchange(Protocol):
    """How the holders of states at one level come together."""

    def whole(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """⊕ of every holder's value, in all of them; the same bits."""

    def whole_tuple(self, values: Tuple, combine: Callable[[Tuple, Tuple], Tuple]) -> Tuple:
        """As `whole`, for tuples; the first argument of `combine` is of the lower holder."""


def merge(
    state: State, exchange: Exchange, inputs: Mapping[sp.Symbol, ir.Expr], decay: Mapping[sp.Symbol, float]
) -> None:
    """Every holder's state becomes the merged state of all.

    Parameters
    ----------
    inputs : what shifts and references read beside the state: N, and inputs that have one value a row.
    decay : see `ShiftPlan`.
    """
    _Merge(state, exchange, inputs, decay).run()


def combined(unit: tuple[Component, ...], left: Tuple, right: Tuple, dtypes: Mapping[sp.Symbol, str]) -> Tuple:
    """left ∘ right, part by part."""
    whole = unit[0].reducer.whole
    assert whole is not None
    bindings: dict[sp.Symbol, ir.Expr] = {}
    for component in unit:
        bindings[first(component.reducer.part)] = left[component.symbol]
        bindings[second(component.reducer.part)] = right[component.symbol]
    return {
        c.symbol: TilePrinter(bindings, dtypes[c.symbol], {})(whole.combined[c.reducer.part])
        for c in unit
    }  # fmt: skip


class _Merge:
    def __init__(
        self, state: State, exchange: Exchange, inputs: Mapping[sp.Symbol, ir.Expr], decay: Mapping[sp.Symbol, float]
    ) -> None:
        self.state, self.exchange, self.inputs, self.decay = state, exchange, inputs, decay
        self.fold, self.dtype = state.fold, state.reference_dtype
        self.merged = state.another("_whole")
        self.moved: dict[sp.Symbol, ir.Expr] = {}

    def run(self) -> None:
        self.merged.counter.put(self.exchange.whole(self.state.count, prim.Add))
        for unit in self.fold.units:
            if isinstance(unit, Reference):
                self._reference(unit)
            elif unit[0].parts:
                self._tuple(unit)
            else:
                self._component(unit[0])
        self.state.copy(self.merged)

    def _known(self, of: State) -> dict[sp.Symbol, ir.Expr]:
        return {COUNT: of.count, **self.inputs}

    def _reference(self, reference: Reference) -> None:
        """Where it goes depends on what all holders have in common alone."""
        start = tirx.const(int(reference.scale), self.dtype)
        own: dict[sp.Symbol, ir.Expr] = {reference.symbol: start, reference.moved: start}
        symbols = Symbols(own, self._known(self.merged), self.merged.symbols())
        value = TilePrinter(symbols, self.dtype, {})(reference.value)
        move, kind = move_of(reference, self.decay.get(reference.symbol)), TirValues(self.dtype)
        if may_stay(move):
            value = bind("target", value)
            value = destination(move, value, self._standing(reference, start), self.merged.empty, kind)
        part = self.merged.references[reference.symbol]
        part.put(value)
        self.moved[reference.moved] = part[0]
        self.moved[reference.step] = bind(
            "step", displacement(move, part[0], self.state.references[reference.symbol][0], kind)
        )

    def _standing(self, reference: Reference, start: ir.Expr) -> ir.Expr:
        """Where one of the holders stands that has positions: its state has numbers there."""
        own = tirx.Select(self.state.empty, tirx.max_value(self.dtype), self.state.references[reference.symbol][0])
        least = self.exchange.whole(own, prim.Min)
        return tirx.Select(self.merged.empty, start, bind("standing", least))

    def _component(self, component: Component) -> None:
        own = self.state.components[component.symbol][0]
        if component.moves:
            symbols = Symbols(self.moved, self._known(self.state), self.state.symbols())
            shifted = TilePrinter(symbols, self.state.dtypes[component.symbol], {})(component.shift)
            own = tirx.Select(self.state.empty, self.state.identity(component), shifted)
        whole = self.exchange.whole(own, combiner_of(component.reducer))
        self.merged.components[component.symbol].put(whole)

    def _tuple(self, unit: tuple[Component, ...]) -> None:
        """Counts go along: a program's ∘ may have no value for two states of no positions."""
        zero, dtypes = tirx.const(0, COUNTER), self.state.dtypes

        def combine(left: Tuple, right: Tuple) -> Tuple:
            both = combined(unit, left, right, dtypes)
            no_left, no_right = tirx.EQ(left[COUNT], zero), tirx.EQ(right[COUNT], zero)
            chosen = {s: tirx.Select(no_left, right[s], tirx.Select(no_right, left[s], both[s])) for s in both}
            return {**chosen, COUNT: left[COUNT] + right[COUNT]}

        values = {c.symbol: self.state.components[c.symbol][0] for c in unit}
        whole = self.exchange.whole_tuple({**values, COUNT: self.state.count}, combine)
        for symbol in values:
            self.merged.components[symbol].put(whole[symbol])
