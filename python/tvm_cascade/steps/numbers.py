"""Interprets a step program on numbers: fold positions in, merge states, finish, in a given arithmetic.

Positions are what the arithmetic takes: rows of numbers, or arrays with a value per position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.algebra.reducer import MIN
from tvm_cascade.steps.arithmetic import NO_VALUE, Arithmetic, Number, Numbers
from tvm_cascade.steps.move import destination, displacement
from tvm_cascade.steps.program import Combine, Element, Move, Reduce, Scale, Shift, Step, StepProgram, Tuple


@dataclass(frozen=True)
class State:
    """A state of numbers.

    Attributes
    ----------
    count : positions that were folded in; none in the empty state, which is the identity of merging.
    values : of components, and of references where they stand; none when empty.
    """

    count: int = 0
    values: Numbers = field(default_factory=dict)


EMPTY = State()


class NumericSteps:
    """Interprets a step program.

    Parameters
    ----------
    arithmetic : of all numbers.
    known : what does not vary along the axis: parameters, and the length N.
    """

    def __init__(self, program: StepProgram, arithmetic: Arithmetic, known: Mapping[sp.Symbol, Number]) -> None:
        self.program, self.arithmetic, self.known = program, arithmetic, dict(known)

    def fold_in(self, state: State, positions: Any) -> State:
        """The state after folding some positions, as one tile of a loop does."""
        return _Run(self, self.program.steps, [state], positions).state()

    def merge(self, *states: State) -> State:
        return _Run(self, self.program.merge, states, None).state()

    def finish(self, state: State) -> Numbers:
        """The results of a state that has folded the whole axis."""
        results: Numbers = {}
        scope = {**self.known, **state.values, COUNT: self.arithmetic.number(state.count)}
        for step in self.program.finish:
            results[step.result] = self.arithmetic.value(step.expression, {**scope, **results})
        return results

    def over(self, steps: Sequence[Step], positions: Any, references: Mapping[sp.Symbol, Number]) -> Numbers:
        """The partial components of the positions, as some steps compute them, at given references."""
        shares: Numbers = {}
        for step in steps:
            scope = {**self.known, **references}
            if isinstance(step, Element):
                positions = self.arithmetic.extended(positions, step.symbol, step.expression, scope)
            elif isinstance(step, Reduce):
                lifts = self.arithmetic.lifts(step.lift, positions, scope)
                shares[step.component] = self.arithmetic.total(step.reducer, lifts)
            elif isinstance(step, Tuple):
                lifts = zip(*(self.arithmetic.lifts(lift, positions, scope) for lift in step.lifts), strict=True)
                shares |= self.folded(step, [dict(zip(step.components, one, strict=True)) for one in lifts])
        return shares

    def folded(self, step: Tuple, sides: Sequence[Numbers]) -> Numbers:
        """∘ of tuples, in order. A part that the fold does not keep is read by none that it does."""
        zero = self.arithmetic.number(0)
        by_part = [{part: side[s] for part, s in zip(step.parts, step.components, strict=True)} for side in sides]
        whole = [tuple(side.get(part, zero) for part in range(step.reducer.width)) for side in by_part]
        total = reduce(lambda left, right: self.arithmetic.combine_tuples(step.reducer, left, right), whole)
        return {s: total[part] for part, s in zip(step.parts, step.components, strict=True)}


class _Run:
    """One execution of the steps over states and positions."""

    def __init__(self, fold: NumericSteps, steps: Sequence[Step], states: Sequence[State], positions: Any) -> None:
        self.fold, self.arithmetic, self.positions = fold, fold.arithmetic, positions
        self.holding = [state for state in states if state.count]
        self.count = sum(state.count for state in states) + (len(positions) if positions is not None else 0)
        self.values: Numbers = {}
        self.scopes = [
            {**fold.known, **state.values, COUNT: self.arithmetic.number(state.count)} for state in self.holding
        ]
        self.parts: dict[sp.Symbol, list[Number]] = {}
        for step in steps if self.count else ():
            self._step(step)

    def state(self) -> State:
        """The values of components and references."""
        return State(self.count, self.values)

    def _step(self, step: Step) -> None:
        if isinstance(step, Move):
            self._move(step)
        elif isinstance(step, Scale):
            for scope in self.scopes:
                scope[step.symbol] = self.arithmetic.value(step.expression, scope)
        elif isinstance(step, Shift):
            value = self.arithmetic.value
            shifted = [value(step.expression, scope) if step.moves else scope[step.component] for scope in self.scopes]
            self.parts.setdefault(step.component, []).extend(shifted)
        elif isinstance(step, Combine):
            for component, reducer in step.combined:
                self.values[component] = self.arithmetic.total(reducer, self.parts[component])
        elif isinstance(step, Tuple):
            sides = [{s: state.values[s] for s in step.components} for state in self.holding]
            sides += [self._share(step)] if self.positions is not None else []
            self.values |= self.fold.folded(step, sides)
        elif isinstance(step, Element):
            scope = {**self.fold.known, **self.values}
            self.positions = self.arithmetic.extended(self.positions, step.symbol, step.expression, scope)
        else:
            self.parts[step.component] = [self._share(step)[step.component]]

    def _share(self, step: Reduce | Tuple) -> Numbers:
        return self.fold.over([step], self.positions, self.values)

    def _move(self, step: Move) -> None:
        scope = {**self.fold.known, **self.values, COUNT: self.arithmetic.number(self.count)}
        standing = [state.values[step.reference] for state in self.holding]
        stay = self.arithmetic.total(MIN, standing) if standing else self.arithmetic.number(step.start)
        new = destination(step, self._value(step, scope), stay, not standing, self.arithmetic)
        self.values[step.reference] = new
        for own, stands in zip(self.scopes, standing, strict=True):
            own[step.moved], own[step.step] = new, displacement(step, new, stands, self.arithmetic)

    def _value(self, step: Move, scope: Numbers) -> Number:
        """Where a reference would move to; a guarded one, which may have no value, then has none that is usable."""
        try:
            return self.arithmetic.value(step.value, scope)
        except OverflowError:
            raise
        except NO_VALUE:
            if not step.guarded:
                raise
            return self.arithmetic.no_value
