"""The merge of any fold: every holder of a state shifts its own to the common reference, then all combine by ⊕.

    c′ = value(⊕ of the components so far, n)        the same for all holders
    T′ = ⊕ over holders of shift(T; c → c′)           one exchange a component

An exchange is a level's: it combines one value of every holder and gives all of them the whole. A holder may have
several states, which it combines first. Fragments are merged in place, register by register, after all scalars. A state
of no positions takes part as the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Protocol

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.algebra.fold import Component, Reference
from tvm_cascade.algebra.reducer import first, second
from tvm_cascade.analysis.reducers import combiner_of
from tvm_cascade.steps.move import destination, displacement, may_stay
from tvm_cascade.steps.program import move_of
from tvm_cascade.tile.emit import bind
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.state import COUNTER, Number, State
from tvm_cascade.transform.values import TirValues

Binary = Callable[[ir.Expr, ir.Expr], ir.Expr]
Tuple = dict[sp.Symbol, ir.Expr]


class Exchange(Protocol):
    """How the holders of states at one level come together."""

    def whole(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """⊕ of every holder's value, in all of them; the same bits."""

    def whole_tuple(self, values: Tuple, combine: Callable[[Tuple, Tuple], Tuple]) -> Tuple:
        """As `whole`, for tuples; the first argument of `combine` is of the lower holder."""


class Alone:
    """The exchange of a thread that has all states of the row itself."""

    def whole(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """The value."""
        return value

    def whole_tuple(self, values: Tuple, combine: Callable[[Tuple, Tuple], Tuple]) -> Tuple:
        """The values."""
        return values


def merge(
    state: State,
    exchange: Exchange,
    inputs: Mapping[sp.Symbol, ir.Expr],
    decay: Mapping[sp.Symbol, float],
    others: Sequence[State] = (),
) -> None:
    """Every holder's state becomes the merged state of all.

    Parameters
    ----------
    inputs : what shifts and references read beside the state: N, and inputs that have one value a row.
    decay : see `ShiftPlan`.
    others : further states of the row that each holder has, of the positions that follow, in order.
    """
    _Merge((state, *others), exchange, inputs, decay).run()


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
        self,
        states: Sequence[State],
        exchange: Exchange,
        inputs: Mapping[sp.Symbol, ir.Expr],
        decay: Mapping[sp.Symbol, float],
    ) -> None:
        self.states, self.exchange, self.inputs, self.decay = states, exchange, inputs, decay
        self.state, self.fold, self.dtype = states[0], states[0].fold, states[0].reference_dtype
        self.merged = self.state.another("_whole")
        self.moved: list[dict[sp.Symbol, ir.Expr]] = [{} for _ in states]

    def run(self) -> None:
        self.merged.counter.put(self._whole([state.count for state in self.states], prim.Add))
        for unit in self.fold.units:
            if isinstance(unit, Reference):
                self._reference(unit)
            elif unit[0].parts:
                self._tuple(unit)
            elif unit[0].symbol in self.merged.components:
                self._scalar(unit[0])
        self._fragments()
        self.state.copy(self.merged)

    def _whole(self, values: Sequence[ir.Expr], combine: Binary) -> ir.Expr:
        """⊕ of all states' values."""
        return self.exchange.whole(reduce(combine, values), combine)

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
        for state, moved in zip(self.states, self.moved, strict=True):
            step = displacement(move, part[0], state.references[reference.symbol][0], kind)
            moved[reference.moved], moved[reference.step] = part[0], bind("step", step)

    def _standing(self, reference: Reference, start: ir.Expr) -> ir.Expr:
        """Where one of the states stands that have positions: it has numbers there."""
        none = tirx.max_value(self.dtype)
        standing = [tirx.Select(state.empty, none, state.references[reference.symbol][0]) for state in self.states]
        least = self._whole(standing, prim.Min)
        return tirx.Select(self.merged.empty, start, bind("standing", least))

    def _shifted(self, component: Component, number: Number = 0) -> list[ir.Expr]:
        """A register of the component in every state, brought to the common references."""
        values = []
        for state, moved in zip(self.states, self.moved, strict=True):
            own = state.components[component.symbol]
            value = own[number]
            if component.moves:
                symbols = Symbols(moved, self._known(state), state.symbols(number))
                shifted = TilePrinter(symbols, own.dtype, {})(component.shift)
                value = tirx.Select(state.empty, state.identity(component), shifted)
            values.append(value)
        return values

    def _scalar(self, component: Component) -> None:
        whole = self._whole(self._shifted(component), combiner_of(component.reducer))
        self.merged.components[component.symbol].put(whole)

    def _fragments(self) -> None:
        """In place, register by register, as no scalar and no reference reads them: they take the most registers."""
        fragments = self.state.fragments
        for width in dict.fromkeys(part.width for part in fragments.values()):
            alike = [c for c in self.fold.components if c.symbol in fragments and fragments[c.symbol].width == width]
            with T.unroll(width) as number:
                whole = {c.symbol: self._whole(self._shifted(c, number), combiner_of(c.reducer)) for c in alike}
                whole = {symbol: bind(f"{symbol}_whole", value) for symbol, value in whole.items()}
                for symbol, value in whole.items():
                    fragments[symbol].put(value, number)

    def _tuple(self, unit: tuple[Component, ...]) -> None:
        """Counts go along: a program's ∘ may have no value for two states of no positions."""
        zero, dtypes = tirx.const(0, COUNTER), self.state.dtypes

        def combine(left: Tuple, right: Tuple) -> Tuple:
            both = combined(unit, left, right, dtypes)
            no_left, no_right = tirx.EQ(left[COUNT], zero), tirx.EQ(right[COUNT], zero)
            chosen = {s: tirx.Select(no_left, right[s], tirx.Select(no_right, left[s], both[s])) for s in both}
            return {**chosen, COUNT: left[COUNT] + right[COUNT]}

        symbols = [component.symbol for component in unit]
        sides = [{**{s: state.components[s][0] for s in symbols}, COUNT: state.count} for state in self.states]
        whole = self.exchange.whole_tuple(reduce(combine, sides), combine)
        for symbol in symbols:
            self.merged.components[symbol].put(whole[symbol])
