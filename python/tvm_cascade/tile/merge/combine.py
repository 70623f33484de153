"""The merge of any fold: each state is shifted to the common reference, then all are combined by ⊕.

    c′ = value(⊕ of the components so far, n)        the same for all holders
    T′ = ⊕ over holders of shift(T; c → c′)           one exchange a component

An exchange is a level's: it all-reduces one value of every holder. A holder may have several states, which it combines
first. Fragments are merged in place, register by register, after all scalars. A state of no positions takes part as the
identity.
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
from tvm_cascade.algebra.facts.weight import Offsets
from tvm_cascade.algebra.reducer import Reducer, first, second
from tvm_cascade.analysis.reducers import combiner_of
from tvm_cascade.steps.move import destination, displacement, may_stay
from tvm_cascade.steps.program import Combine, Move, Scale, Step, StepProgram, Tuple
from tvm_cascade.tile.emit import bind, in_register
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.merge.ranks import ranks_of
from tvm_cascade.tile.state import COUNTER, Number, State
from tvm_cascade.transform.values import TirValues

Binary = Callable[[ir.Expr, ir.Expr], ir.Expr]
Parts = dict[sp.Symbol, ir.Expr]
"""Values of a tuple, by component."""


class Reducing(Protocol):
    """How threads reduce single values with each other."""

    def all_reduce(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        """⊕ of all threads' values, in every thread, with the same bits."""


class Exchange(Reducing, Protocol):
    """An exchange: how the threads of one level reduce values with each other."""

    def all_reduce_tuple(self, values: Parts, combine: Callable[[Parts, Parts], Parts], ordered: bool = True) -> Parts:
        """As `all_reduce`, for tuples.

        Parameters
        ----------
        ordered : the first argument of `combine` comes from the lower thread; otherwise it may be either.
        """


class Alone:
    """The exchange of a single thread."""

    def all_reduce(self, value: ir.Expr, combine: Binary) -> ir.Expr:
        return value

    def all_reduce_tuple(self, values: Parts, combine: Callable[[Parts, Parts], Parts], ordered: bool = True) -> Parts:
        return values


def merge(
    program: StepProgram,
    state: State,
    exchange: Exchange,
    inputs: Mapping[sp.Symbol, ir.Expr],
    offsets: Offsets | None = None,
    others: Sequence[State] = (),
) -> None:
    """Every thread's state becomes the merged state of all.

    Parameters
    ----------
    inputs : what shifts and references read beside the state: N, and inputs that have one value a row.
    others : further states of the row that each holder has, of the positions that follow, in order.
    """
    _Merge(program, (state, *others), exchange, inputs, offsets).run()


def combined(step: Tuple, left: Parts, right: Parts, dtypes: Mapping[sp.Symbol, str]) -> Parts:
    if (ranks := ranks_of(step, dtypes)) is not None:
        return ranks.merge(left, right)
    parts = dict(zip(step.components, step.parts, strict=True))
    bindings = {first(k): left[s] for s, k in parts.items()} | {second(k): right[s] for s, k in parts.items()}
    return {s: TilePrinter(bindings, dtypes[s], {})(step.reducer.combined[k]) for s, k in parts.items()}


class _Merge:
    def __init__(
        self,
        program: StepProgram,
        states: Sequence[State],
        exchange: Exchange,
        inputs: Mapping[sp.Symbol, ir.Expr],
        offsets: Offsets | None,
    ) -> None:
        self.program, self.states, self.exchange = program, states, exchange
        self.inputs, self.offsets = inputs, offsets
        self.state, self.dtype = states[0], states[0].reference_dtype
        self.merged = self.state.another("_whole")
        self.moved: list[dict[sp.Symbol, ir.Expr]] = [{} for _ in states]
        self.fragments: list[tuple[sp.Symbol, Reducer]] = []

    def run(self) -> None:
        self.merged.counter.put(self._all_reduced([state.count for state in self.states], prim.Add))
        for step in self.program.merge:
            self._step(step)
        self._fragments()
        self.state.copy(self.merged)

    def _step(self, step: Step) -> None:
        if isinstance(step, Move):
            self._move(step)
        elif isinstance(step, Scale):
            for state, moved in zip(self.states, self.moved, strict=True):
                scale = bind(str(step.symbol), self._own(step.expression, self.dtype, state, moved))
                # TVM looks through bound variables: it would be computed anew for every register of a fragment.
                moved[step.symbol] = in_register("scale", scale) if self.state.fragments else scale
        elif isinstance(step, Tuple):
            self._tuple(step)
        elif isinstance(step, Combine):
            self.fragments += [one for one in step.combined if one[0] in self.state.fragments]
            for component, reducer in step.combined:
                if component in self.merged.components:
                    whole = self._all_reduced(self._shifted(component), combiner_of(reducer))
                    self.merged.components[component].put(whole)

    def _all_reduced(self, values: Sequence[ir.Expr], combine: Binary) -> ir.Expr:
        return self.exchange.all_reduce(reduce(combine, values), combine)

    def _own(
        self, expression: sp.Expr, dtype: str, state: State, moved: Mapping[sp.Symbol, ir.Expr], number: Number = 0
    ) -> ir.Expr:
        symbols = Symbols(moved, {COUNT: state.count, **self.inputs}, state.symbols(number))
        return TilePrinter(symbols, dtype, {}, self.offsets)(expression)

    def _move(self, step: Move) -> None:
        kind, part = TirValues(self.dtype), self.merged.references[step.reference]
        value = self._own(step.value, self.dtype, self.merged, {})
        if may_stay(step):
            value = destination(step, bind("target", value), self._standing(step), self.merged.empty, kind)
        part.put(value)
        for state, moved in zip(self.states, self.moved, strict=True):
            by = displacement(step, part[0], state.references[step.reference][0], kind)
            moved[step.moved], moved[step.step] = part[0], bind("step", by)

    def _standing(self, step: Move) -> ir.Expr:
        """The least of where states with positions stand, which have numbers there; the start where there are none."""
        none = tirx.max_value(self.dtype)
        standing = [tirx.Select(state.empty, none, state.references[step.reference][0]) for state in self.states]
        least = bind("standing", self._all_reduced(standing, prim.Min))
        return tirx.Select(self.merged.empty, tirx.const(step.start, self.dtype), least)

    def _shifted(self, component: sp.Symbol, number: Number = 0) -> list[ir.Expr]:
        """A register of the component in every state, rescaled to the common references; the identity where empty."""
        shift, dtype = self.program.shifts[component], self.state.components[component].dtype
        if shift == component:
            return [state.components[component][number] for state in self.states]
        values = [self._own(shift, dtype, *own, number) for own in zip(self.states, self.moved, strict=True)]
        empties = [(state.empty, state.identity(component)) for state in self.states]
        return [tirx.Select(*empty, value) for empty, value in zip(empties, values, strict=True)]

    def _fragments(self) -> None:
        """In place, register by register, as no scalar and no reference reads them: they take the most registers."""
        for width in dict.fromkeys(part.width for part in self.state.fragments.values()):
            with T.unroll(width) as number:
                self._fragments_at(width, number)

    def _fragments_at(self, width: int, number: Number) -> None:
        fragments = self.state.fragments
        whole = {
            component: self._all_reduced(self._shifted(component, number), combiner_of(reducer))
            for component, reducer in self.fragments
            if fragments[component].width == width
        }
        whole = {symbol: bind(f"{symbol}_whole", value) for symbol, value in whole.items()}
        for symbol, value in whole.items():
            fragments[symbol].put(value, number)

    def _tuple(self, step: Tuple) -> None:
        """Counts go along: a program's ∘ may have no value for two states of no positions."""
        zero, dtypes = tirx.const(0, COUNTER), self.state.dtypes

        def combine(left: Parts, right: Parts) -> Parts:
            both = combined(step, left, right, dtypes)
            if step.reducer.selection is not None:  # the identity is below every element
                return {**both, COUNT: left[COUNT] + right[COUNT]}
            no_left, no_right = tirx.EQ(left[COUNT], zero), tirx.EQ(right[COUNT], zero)
            chosen = {s: tirx.Select(no_left, right[s], tirx.Select(no_right, left[s], both[s])) for s in both}
            return {**chosen, COUNT: left[COUNT] + right[COUNT]}

        own = [{s: state.components[s][0] for s in step.components} for state in self.states]
        sides = [{**values, COUNT: state.count} for values, state in zip(own, self.states, strict=True)]
        ordered = step.reducer.selection is None
        whole = self.exchange.all_reduce_tuple(reduce(combine, sides), combine, ordered)
        for symbol in step.components:
            self.merged.components[symbol].put(whole[symbol])
