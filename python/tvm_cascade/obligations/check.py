"""Obligations of a fold, each checked by a randomised identity test of its step program in balls.

1. ⊕ of every component is commutative and associative, and the empty state holds its identity.
2. shift: B(x, c′) = A(c, c′)·B(x, c), so that a state may be at any reference, and finished from there.
3. finish(folding in by tiles) = finish(merging segments, empty ones too) = the cascade's own definition.

Data are drawn exactly, and evaluated in balls, which enclose the real numbers. So at the data drawn an answer is
rigorous: the two sides of an obligation differ by at most `TOLERANCE` of the largest term, all of both balls; or they
differ by more, and the fold fails. Where the balls do not tell, as exponentials of exponentials cancel thousands of
bits, they are made smaller by bits twice as many, up to MOST_BITS; and where these do not tell either, such as whether
keys tie that are computed in two ways, other data are drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, POSITION, Reduction
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.reducer import EXTREMES, Reducer, Selection
from tvm_cascade.algebra.tuple_law import TIES
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.definition import definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Balls, Numbers
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import Move, Reduce, Scale, StepProgram, Tuple, program_of
from tvm_cascade.symbolic.balls import Ball, UndecidedError, same, workprec
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.work import charge

BITS, MOST_BITS = 256, 8192
"""Of an evaluation: the first, and the last."""

COSTLY_BITS = 4096
"""Bits at which a value costs as much as an operation of an expression that is simplified."""

ATTEMPTS = 8
ROUNDS = ((1.0, 1), (0.5, -1), (0.5, 1), (0.0, -1))
"""Odds of truth values, and the sign of real numbers, round by round: a conjunction must hold now and then, and a
disjunction fail; each second round mirrors the one before, so that both ends of an extremum decide."""

MASK_ODDS = (0.6, 0.6, 0.6, 0.6, 1.0, 1.0, 0.0, 0.0)
"""Of a mask to hold, attempt by attempt, where no conjunction or disjunction needs other odds: what is masked out, such
as exp(10000), may be out of every range."""

ROUNDS_OF_SELECTIONS = 3

TILES = (1, 2, 3)
"""Positions that are folded in together, and states that are merged with one more."""

REACHES = (2.0, 2.0, 0.5, 0.1)
"""How far data are drawn from zero, attempt by attempt: exponentials of sums of exponentials are soon out of range."""

Drawn = dict[sp.Symbol, float]
Pairs = Iterator[tuple[Numbers, Numbers]]
"""What is found, and what is expected."""


class UndefinedError(Exception):
    """The definition is not real and finite at any point that was tried: there is nothing to compare a fold with."""


class UnverifiedError(Exception):
    """The balls of MOST_BITS, or a fold without a value, do not tell wherever the fold was tried."""


@dataclass(frozen=True)
class _Trial:
    """A fold on data: its steps in balls, and rows to fold."""

    fold: Fold
    steps: NumericSteps
    arithmetic: Balls
    rows: list[Numbers]
    source: random.Random

    @cached_property
    def expected(self) -> Numbers:
        """The results as the cascade is written."""
        return definition(self.fold.cascade, self.rows, self.arithmetic, self.steps.known)

    @cached_property
    def lifts(self) -> dict[Component, list[Ball]]:
        """Finite lifts of the rows, of every component that combines by itself, with all references at 1."""
        at = {**self.steps.known, **{r.symbol: self.arithmetic.number(1) for r in self.fold.references}}
        scalars = [c for c in self.fold.components if c.reducer.whole is None]
        values = {c: [self.arithmetic.value(c.lift, {**at, **row}) for row in self.rows] for c in scalars}
        return {c: [*filter(self.arithmetic.finite, drawn)] for c, drawn in values.items()}

    def number_for(self, symbol: sp.Symbol) -> Ball:
        """A number near zero for a reference."""
        return self.arithmetic.number(number_for(symbol, self.source, None, 0.3))


def check(fold: Fold, seed: int = 1, length: int = 7) -> dict[str, int]:
    """Checks every obligation of `OBLIGATIONS`; returns the comparisons that were made for each.

    Obligations on ⊕ are met by every tuple that is read as one, so a fold of such alone has no comparison for them.

    Raises
    ------
    FoldError
        Naming the obligation, the result and the values that differ.
    UndefinedError, UnverifiedError
        Where no data were found on which that can be told.
    """
    program, counted = program_of(fold), Counter[str]()
    most = max((s.count for r in fold.cascade.reductions if (s := _selection_of(r)) is not None), default=0)
    # Which end of a key's range is selected, and whether by a tie, differs from round to round.
    for number, (odds, sign) in enumerate(ROUNDS * (ROUNDS_OF_SELECTIONS if most else 1)):
        draw = _Draw(fold, random.Random(seed + number // 2), max(length, most + 2), odds, sign)
        counted += _check_round(draw, program)
    return {obligation: counted[obligation] for obligation in OBLIGATIONS}


def _selection_of(reduction: Reduction) -> Selection | None:
    return None if reduction.reducer.whole is None else reduction.reducer.whole.selection


def _check_round(draw: _Draw, program: StepProgram) -> Counter[str]:
    """The obligations on the first data drawn on which balls tell; comparisons by obligation."""
    is_defined = False
    for attempt in range(ATTEMPTS):
        in_balls, bits = draw.data(attempt), BITS
        while bits <= MOST_BITS:
            charge(len(program.steps) * draw.length * bits / COSTLY_BITS, "evaluating a fold")
            with workprec(bits):
                try:
                    trial = in_balls(program)
                    if not all(map(trial.arithmetic.finite, trial.expected.values())):
                        break
                    is_defined = True
                    return _compared(trial)
                except UndecidedError:
                    bits *= 2
                except NO_VALUE:
                    break
    names = ", ".join(map(str, draw.fold.cascade.results))
    raise UnverifiedError(names) if is_defined else UndefinedError(names)


def _compared(trial: _Trial) -> Counter[str]:
    """Comparisons by obligation; a FoldError at the first that fails."""
    counted = Counter[str]()
    for obligation, pairs in OBLIGATIONS.items():
        for found, expected in pairs(trial):
            for result, value in expected.items():
                if not same(found[result], value, expected.values()):
                    raise FoldError(
                        f"{obligation}: {result} = {value.str(12, radius=False)}",
                        found[result].str(12, radius=False),
                        f"fold of {', '.join(map(str, trial.fold.cascade.results))}",
                        "this is a defect of tvm-cascade; please report the program",
                    )
            counted[obligation] += 1
    return counted


def _in_tiles(trial: _Trial) -> State:
    """The state of all rows, folded in one tile after the other."""
    state, start = EMPTY, 0
    while start < len(trial.rows):
        stop = start + trial.source.choice(TILES)
        state, start = trial.steps.fold_in(state, trial.rows[start:stop]), stop
    return state


def _in_segments(trial: _Trial) -> State:
    """The state of all rows, each folded alone, merged in random order and grouping, an empty state among them."""
    states = [EMPTY, *(trial.steps.fold_in(EMPTY, [row]) for row in trial.rows)]
    trial.source.shuffle(states)
    while len(states) > 1:
        width = trial.source.choice(TILES) + 1
        k = trial.source.randrange(max(len(states) - width, 0) + 1)
        states[k : k + width] = [trial.steps.merge(*states[k : k + width])]
    return states[0]


_A, _B, _C = sp.symbols("a b c", real=True)


def _over_lifts(sides: Callable[[Reducer], tuple[sp.Expr, sp.Expr]]) -> Callable[[_Trial], Pairs]:
    """Two sides of a law of ⊕ for every component, as its reducer writes them, on three lifts of the rows."""

    def pairs(trial: _Trial) -> Pairs:
        for component, lifts in trial.lifts.items():
            if lifts:
                at = dict(zip((_A, _B, _C), lifts * 3, strict=False))
                left, right = (trial.arithmetic.value(side, at) for side in sides(component.reducer))
                yield {component.symbol: left}, {component.symbol: right}

    return pairs


@cache
def _swapped(reducer: Reducer) -> tuple[sp.Expr, sp.Expr]:
    return reducer.combine(_A, _B), reducer.combine(_B, _A)


@cache
def _regrouped(reducer: Reducer) -> tuple[sp.Expr, sp.Expr]:
    return reducer.combine(reducer.combine(_A, _B), _C), reducer.combine(_A, reducer.combine(_B, _C))


@cache
def _from_empty(reducer: Reducer) -> tuple[sp.Expr, sp.Expr]:
    return reducer.combine(reducer.identity, _A), _A


def _shifted(trial: _Trial) -> Pairs:
    """T(c′) = shift(T(c)) between two random references, for every component.

    References that lifts are compared with are extrema, of these rows and of further ones.
    """
    fold, steps, rows = trial.fold, trial.steps, trial.rows
    old, new = ({r.symbol: trial.number_for(r.symbol) for r in fold.references} for _ in range(2))
    if _read_by_lifts(fold):
        some = rows[: trial.source.randint(1, len(rows))]
        old, new, rows = old | _extrema(trial, some), new | _extrema(trial, rows), some
    # Parts of a tuple stay where they are; they are looked at only where the shift of another component reads them.
    read = set().union(*(c.shift.free_symbols for c in fold.components if not c.parts))
    passes = [s for s in _passes(steps.program) if isinstance(s, Reduce) or read & set(s.components)]
    before, after = (steps.over(passes, rows, at) for at in (old, new))
    scope = {**steps.known, **old, **before, COUNT: trial.arithmetic.number(len(rows))}
    for move in steps.program.moves:
        scope[move.moved], scope[move.step] = new[move.reference], new[move.reference] - old[move.reference]
    for step in steps.program.steps:
        if isinstance(step, Scale):
            scope[step.symbol] = trial.arithmetic.value(step.expression, scope)
    for component, value in after.items():
        found = trial.arithmetic.value(steps.program.shifts[component], scope)
        yield {component: found}, {component: value}


def _passes(program: StepProgram) -> list[Reduce | Tuple]:
    """The steps that go over positions."""
    return [step for step in program.steps if isinstance(step, (Reduce, Tuple))]


def _read_by_lifts(fold: Fold) -> list[Reference]:
    sides = {symbol for c in fold.components for equal in c.lift.atoms(sp.Eq) for symbol in equal.free_symbols}
    return [reference for reference in fold.references if reference.symbol in sides]


def _extrema(trial: _Trial, rows: list[Numbers]) -> Numbers:
    """The references that lifts are compared with, at their values over the rows."""
    compared = _read_by_lifts(trial.fold)
    read = set().union(*(reference.value.free_symbols for reference in compared))
    passes = [s for s in _passes(trial.steps.program) if read & _computed(s)]
    state = trial.steps.over(passes, rows, {})
    return {reference.symbol: trial.arithmetic.value(reference.value, state) for reference in compared}


def _computed(step: Reduce | Tuple) -> set[sp.Symbol]:
    return {step.component} if isinstance(step, Reduce) else set(step.components)


def _at_any_reference(trial: _Trial) -> State:
    """The state of all rows, with references that need not end at their quantity put anywhere."""
    values, extrema = Numbers(), _extrema(trial, trial.rows)
    references = {reference.symbol: reference for reference in trial.fold.references}
    for step in trial.steps.program.steps:
        if isinstance(step, (Reduce, Tuple)):
            values |= trial.steps.over([step], trial.rows, values)
        elif isinstance(step, Move):
            reference = references[step.reference]
            if step.reference in extrema:
                values[step.reference] = extrema[step.reference]
            elif reference.free:
                values[step.reference] = trial.number_for(step.reference)
            else:
                values[step.reference] = trial.arithmetic.value(
                    reference.tracks, {**trial.steps.known, **trial.expected}
                )
    return State(len(trial.rows), values)


@dataclass(frozen=True)
class _Draw:
    """How data are drawn in a round: see `ROUNDS`."""

    fold: Fold
    source: random.Random
    length: int
    odds: float
    sign: int

    def data(self, attempt: int) -> Callable[[StepProgram], _Trial]:
        """Random parameters and rows, and what is drawn of splits, for balls of the surrounding `workprec`."""
        reach = REACHES[attempt // 2]
        low = 0.1 * reach if attempt % 2 else -reach  # roots and logarithms may need positive numbers
        known = {**parameters_of(self.fold, self.source, low, reach), LENGTH: float(self.length)}
        drawn, seed = [known, *self._rows(attempt, low, reach)], self.source.randrange(1 << 30)

        def in_balls(program: StepProgram) -> _Trial:
            balls = Balls()
            known, *rows = ({s: balls.number(v) for s, v in row.items()} for row in drawn)
            return _Trial(self.fold, NumericSteps(program, balls, known), balls, rows, random.Random(seed))

        return in_balls

    def _rows(self, attempt: int, low: float, reach: float) -> list[Drawn]:
        cascade, source = self.fold.cascade, self.source
        logical = any(r.reducer.logical for r in cascade.reductions)
        truth = self.odds if logical else MASK_ODDS[attempt]
        rows = [{e: number_for(e, source, truth, low, reach) for e in cascade.elements} for _ in range(self.length)]
        if low < 0:
            rows = [{e: value if e.is_nonnegative else self.sign * value for e, value in row.items()} for row in rows]
        if self.odds < 1 and any(_selection_of(r) is not None for r in cascade.reductions):
            rows = [{e: source.choice(rows[:TIES])[e] for e in row} for row in rows]
        return [{e: float(k) if e == POSITION else row[e] for e in row} for k, row in enumerate(rows)]


def parameters_of(fold: Fold, source: random.Random, low: float, reach: float) -> Drawn:
    """Random numbers for what does not vary along the axis; see `number_for`."""
    known = {LENGTH, COUNT, *EXTREMES, *fold.cascade.elements, *fold.cascade.results}
    free = set().union(*(r.element.free_symbols for r in fold.cascade.reductions)) - known
    return {s: number_for(s, source, None, low, reach) for s in free}


def number_for(symbol: sp.Symbol, source: random.Random, odds: float | None, low: float, reach: float = 2.0) -> float:
    """A value for a symbol: 0 or 1 where truth values are asked for, else a number of few bits, `low` to `reach`."""
    if is_truth(symbol) or (odds is not None and symbol.is_nonnegative and not symbol.is_positive):
        return float(source.random() < (MASK_ODDS[0] if odds is None else odds))
    if symbol.is_nonnegative:
        low = max(low, 0.05 * reach)
    return source.randint(int(low * 1000), int(reach * 1000)) / 1024


def _from_anywhere(trial: _Trial) -> Pairs:
    yield trial.steps.finish(_at_any_reference(trial)), trial.expected


def _split(trial: _Trial) -> Pairs:
    for state in (_in_tiles, _in_segments):
        yield trial.steps.finish(state(trial)), trial.expected


OBLIGATIONS: dict[str, Callable[[_Trial], Pairs]] = {
    "merge commutative": _over_lifts(_swapped),
    "merge associative": _over_lifts(_regrouped),
    "empty is the identity": _over_lifts(_from_empty),
    "shift between references": _shifted,
    "finish from any free reference": _from_anywhere,
    "finish over any split = definition": _split,
}
"""What is checked of a fold, in order: name -> what has to be equal."""
