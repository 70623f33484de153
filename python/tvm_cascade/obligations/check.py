"""Obligations of a fold, each checked by a randomised identity test of its step program at many digits.

1. ⊕ of every component is commutative and associative, and the empty state holds its identity.
2. shift: B(x, c′) = A(c, c′)·B(x, c), so that a state may be at any reference, and finished from there.
3. finish(folding in by tiles) = finish(merging segments, empty ones too) = the cascade's own definition.

Evaluation is in mpmath; an error above 1e-25 of the largest term fails the obligation. Digits are 60, and more where
that does not suffice: exponentials of exponentials cancel thousands of them. Only a difference that is the same at
several numbers of digits, each of which spans every value on the way, is one of the fold; where those are too many,
nearer data are drawn. So are other data where digits decide: g·(v/g) ties with v, and need not at any number of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import mpmath
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, POSITION, Reduction
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.reducer import EXTREMES, Reducer, Selection
from tvm_cascade.algebra.tuple_law import TIES
from tvm_cascade.errors import FoldError
from tvm_cascade.obligations.definition import as_named, definition
from tvm_cascade.steps.arithmetic import NO_VALUE, Digits
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import Move, Reduce, Scale, StepProgram, Tuple, program_of
from tvm_cascade.symbolic.masks import is_truth
from tvm_cascade.symbolic.work import charge

DIGITS = 60
MOST_DIGITS = 2000
"""Values that span more than that are not evaluated again."""

COSTLY_DIGITS = 1000
"""Digits at which a value costs as much as an operation of an expression that is simplified."""

EVALUATIONS = 4
"""At growing digits: with them, values may turn out to span more."""

CONFIRMATIONS, MORE_DIGITS = 5, 7
"""Evaluations at so many more digits, each, that give the same difference before it is one of the fold."""

ATTEMPTS = 8
ROUNDS = ((1.0, 1), (0.5, -1), (0.5, 1), (0.0, -1))
"""Odds of truth values, and the sign of real numbers, round by round: a conjunction must hold now and then, and a
disjunction fail; each second round mirrors the one before, so that both ends of an extremum decide."""

MASK_ODDS = (0.6, 0.6, 0.6, 0.6, 1.0, 1.0, 0.0, 0.0)
"""Of a mask to hold, attempt by attempt, where no conjunction or disjunction needs other odds: what is masked out, such
as exp(10000), may be out of every range."""

ROUNDS_OF_SELECTIONS = 3

TOLERANCE = mpmath.mpf(10) ** -25
TILES = (1, 2, 3)
"""Positions that are folded in together, and states that are merged with one more."""

REACHES = (2.0, 2.0, 0.5, 0.1)
"""How far data are drawn from zero, attempt by attempt: exponentials of sums of exponentials are soon out of range."""

Values = dict[sp.Symbol, mpmath.mpf]


class UndefinedError(Exception):
    """The definition is not real and finite at any point that was tried: there is nothing to compare a fold with."""


class UnverifiedError(Exception):
    """The fold's values span more than MOST_DIGITS digits wherever it was tried and differs from the definition."""


class _Differs(Exception):
    """An obligation fails at some digits: `result` is `found` rather than `wanted`."""

    def __init__(self, obligation: str, result: sp.Symbol, found: mpmath.mpf, wanted: mpmath.mpf) -> None:
        super().__init__(obligation)
        self.obligation, self.result, self.found, self.wanted = obligation, result, found, wanted

    def same_as(self, other: _Differs) -> bool:
        """Whether the same is found, and wanted, of the same result."""
        scale = TOLERANCE * max(1, abs(self.wanted))
        same = self.obligation == other.obligation and self.result == other.result
        pairs = (self.found, other.found), (self.wanted, other.wanted)
        return same and not any(abs(mine - theirs) > scale for mine, theirs in pairs)  # what is NaN twice is the same

    def error(self, fold: Fold) -> FoldError:
        return FoldError(
            f"{self.obligation}: {self.result} = {mpmath.nstr(self.wanted, 12)}",
            mpmath.nstr(self.found, 12),
            f"fold of {', '.join(map(str, fold.cascade.results))}",
            "this is a defect of tvm-cascade; please report the program",
        )


@dataclass(frozen=True)
class _Trial:
    """A fold on data: its steps at mpmath's digits, and rows to fold."""

    fold: Fold
    steps: NumericSteps
    rows: list[Values]

    @cached_property
    def expected(self) -> Values:
        """The results as the cascade is written, at DIGITS digits."""
        return self.definition()

    @property
    def arithmetic(self) -> Digits:
        assert isinstance(self.steps.arithmetic, Digits)
        return self.steps.arithmetic

    def definition(self) -> Values:
        """The results as the cascade is written."""
        return definition(self.fold.cascade, self.rows, self.arithmetic, self.steps.known)


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
    program, arithmetic, compared = program_of(fold), Digits(), Counter[str]()
    most = max((s.count for r in fold.cascade.reductions if (s := _selection_of(r)) is not None), default=0)
    with mpmath.workdps(DIGITS):
        # Which end of a key's range is selected, and whether by a tie, differs from round to round.
        for number, (odds, sign) in enumerate(ROUNDS * (ROUNDS_OF_SELECTIONS if most else 1)):
            draw = _Draw(fold, random.Random(seed + number // 2), max(length, most + 2), odds, sign)
            compared += _check_round(draw, program, arithmetic)
    return {obligation: compared[obligation] for obligation in OBLIGATIONS}


def _selection_of(reduction: Reduction) -> Selection | None:
    return None if reduction.reducer.whole is None else reduction.reducer.whole.selection


def _check_round(draw: _Draw, program: StepProgram, arithmetic: Digits) -> Counter[str]:
    """The obligations on the first data drawn on which the digits suffice; comparisons by obligation."""
    drawn = False
    for attempt in range(ATTEMPTS):
        arithmetic.span = 0
        trial = draw.trial(attempt, program, arithmetic)
        if trial is None:
            continue
        drawn = True
        compared = _decided(trial, draw.source.randrange(1 << 30))
        if compared is not None:
            return compared
    names = ", ".join(map(str, draw.fold.cascade.results))
    raise UnverifiedError(names) if drawn else UndefinedError(names)


def _decided(trial: _Trial, seed: int) -> Counter[str] | None:
    """Comparisons by obligation, all of which hold; None where more than MOST_DIGITS would be needed to tell.

    Raises
    ------
    FoldError
        Where they fail at digits that span all values.
    """
    digits, settled = DIGITS, list[_Differs]()
    for _ in range(EVALUATIONS + CONFIRMATIONS):
        charge(len(trial.fold.steps) * len(trial.rows) * digits / COSTLY_DIGITS, "evaluating a fold")
        with mpmath.workdps(digits):
            try:
                expected = trial.expected if digits == DIGITS else trial.definition()
                return _compared(_Evaluation(trial, random.Random(seed), expected))
            except _Differs as differs:
                needed = DIGITS + 2 * trial.arithmetic.span  # twice: a product of two values has it twice
                settled += [differs] if digits >= needed else []
            except NO_VALUE:  # beyond the numbers there are, or not real where the definition multiplies by zero
                return None
        if len(settled) > CONFIRMATIONS:
            raise settled[-1].error(trial.fold)
        if needed > MOST_DIGITS or (settled and not settled[-1].same_as(settled[0])):
            return None
        digits = max(needed, digits + MORE_DIGITS) if settled else needed
    return None


@dataclass(frozen=True)
class _Evaluation:
    """A trial at some digits: what the obligations are checked on, with the results as the cascade defines them."""

    trial: _Trial
    source: random.Random
    expected: Values

    @cached_property
    def lifts(self) -> dict[Component, list[sp.Float]]:
        """Finite lifts of the rows, of every component that combines by itself, with all references at 1."""
        trial = self.trial
        at = {**trial.steps.known, **{r.symbol: mpmath.mpf(1) for r in trial.fold.references}}
        scalars = [c for c in trial.fold.components if c.reducer.whole is None]
        values = {c: [trial.arithmetic.value(c.lift, {**at, **row}) for row in trial.rows] for c in scalars}
        return {c: [sp.Float(v, mpmath.mp.dps) for v in drawn if mpmath.isfinite(v)] for c, drawn in values.items()}


Pairs = Iterator[tuple[Values, Values]]
"""What is found, and what is expected."""


def _compared(evaluation: _Evaluation) -> Counter[str]:
    """Comparisons by obligation.

    Raises
    ------
    _Differs
        At the first that fails.
    """
    compared = Counter[str]()
    for obligation, pairs in OBLIGATIONS.items():
        for found, expected in pairs(evaluation):
            _same(obligation, found, expected)
            compared[obligation] += 1
    return compared


def _in_tiles(trial: _Trial, source: random.Random) -> State:
    """The state of all rows, folded in one tile after the other."""
    state, start = EMPTY, 0
    while start < len(trial.rows):
        stop = start + source.choice(TILES)
        state, start = trial.steps.fold_in(state, trial.rows[start:stop]), stop
    return state


def _in_segments(trial: _Trial, source: random.Random) -> State:
    """The state of all rows, each folded alone, merged in random order and grouping, an empty state among them."""
    states = [EMPTY, *(trial.steps.fold_in(EMPTY, [row]) for row in trial.rows)]
    source.shuffle(states)
    while len(states) > 1:
        width = source.choice(TILES) + 1
        k = source.randrange(max(len(states) - width, 0) + 1)
        states[k : k + width] = [trial.steps.merge(*states[k : k + width])]
    return states[0]


def _over_lifts(sides: Callable[[Reducer, list[sp.Float]], tuple[sp.Expr, sp.Expr]]) -> Callable[[_Evaluation], Pairs]:
    """Two sides of a law of ⊕ for every component, as its reducer writes them, on three lifts of the rows."""

    def pairs(evaluation: _Evaluation) -> Pairs:
        for component, lifts in evaluation.lifts.items():
            if lifts:
                left, right = sides(component.reducer, (lifts * 3)[:3])
                yield {component.symbol: _plain_number(left)}, {component.symbol: _plain_number(right)}

    return pairs


def _swapped(reducer: Reducer, lifts: list[sp.Float]) -> tuple[sp.Expr, sp.Expr]:
    a, b, _ = lifts
    return reducer.combine(a, b), reducer.combine(b, a)


def _regrouped(reducer: Reducer, lifts: list[sp.Float]) -> tuple[sp.Expr, sp.Expr]:
    a, b, c = lifts
    return reducer.combine(reducer.combine(a, b), c), reducer.combine(a, reducer.combine(b, c))


def _from_empty(reducer: Reducer, lifts: list[sp.Float]) -> tuple[sp.Expr, sp.Expr]:
    return reducer.combine(reducer.identity, lifts[0]), lifts[0]


def _plain_number(value: sp.Expr) -> mpmath.mpf:
    return mpmath.mpf(sp.Float(value, mpmath.mp.dps)._mpf_) if value.is_finite else mpmath.mpf(str(float(value)))


def _shifted(evaluation: _Evaluation) -> Pairs:
    """T(c′) = shift(T(c)) between two random references, for every component.

    References that lifts are compared with are extrema, of these rows and of further ones.
    """
    trial, source = evaluation.trial, evaluation.source
    fold, steps, rows = trial.fold, trial.steps, trial.rows
    old, new = ({r.symbol: number_for(r.symbol, source, None, 0.3) for r in fold.references} for _ in range(2))
    if _read_by_lifts(fold):
        some = rows[: source.randint(1, len(rows))]
        old, new, rows = old | _extrema(trial, some), new | _extrema(trial, rows), some
    # Parts of a tuple stay where they are; they are looked at only where the shift of another component reads them.
    read = set().union(*(c.shift.free_symbols for c in fold.components if not c.parts))
    passes = [s for s in _passes(steps.program) if isinstance(s, Reduce) or read & set(s.components)]
    before, after = (steps.over(passes, rows, at) for at in (old, new))
    scope = {**steps.known, **old, **before, COUNT: mpmath.mpf(len(rows))}
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


def _extrema(trial: _Trial, rows: list[Values]) -> Values:
    """The references that lifts are compared with, at their values over the rows."""
    compared = _read_by_lifts(trial.fold)
    read = set().union(*(reference.value.free_symbols for reference in compared))
    passes = [s for s in _passes(trial.steps.program) if read & _computed(s)]
    state = trial.steps.over(passes, rows, {})
    return {reference.symbol: trial.arithmetic.value(reference.value, state) for reference in compared}


def _computed(step: Reduce | Tuple) -> set[sp.Symbol]:
    return {step.component} if isinstance(step, Reduce) else set(step.components)


def _at_any_reference(trial: _Trial, source: random.Random, results: Values) -> State:
    """The state of all rows, with references that need not end at their quantity put anywhere."""
    values, extrema = dict[sp.Symbol, mpmath.mpf](), _extrema(trial, trial.rows)
    references = {reference.symbol: reference for reference in trial.fold.references}
    for step in trial.steps.program.steps:
        if isinstance(step, (Reduce, Tuple)):
            values |= trial.steps.over([step], trial.rows, values)
        elif isinstance(step, Move):
            reference = references[step.reference]
            if step.reference in extrema:
                values[step.reference] = extrema[step.reference]
            elif reference.free:
                values[step.reference] = number_for(step.reference, source, None, 0.3)
            else:
                values[step.reference] = trial.arithmetic.value(reference.tracks, {**trial.steps.known, **results})
    return State(len(trial.rows), values)


@dataclass(frozen=True)
class _Draw:
    """How data are drawn in a round: see `ROUNDS`."""

    fold: Fold
    source: random.Random
    length: int
    odds: float
    sign: int

    def trial(self, attempt: int, program: StepProgram, arithmetic: Digits) -> _Trial | None:
        """Random parameters and rows; None where the definition is not real and finite there."""
        reach = REACHES[attempt // 2]
        low = 0.1 * reach if attempt % 2 else -reach  # roots and logarithms may need positive numbers
        known = {**parameters_of(self.fold, self.source, low, reach), LENGTH: mpmath.mpf(self.length)}
        trial = _Trial(self.fold, NumericSteps(program, arithmetic, known), self._rows(attempt, low, reach))
        try:
            expected = trial.expected
        except NO_VALUE:
            return None
        return trial if all(mpmath.isfinite(value) for value in expected.values()) else None

    def _rows(self, attempt: int, low: float, reach: float) -> list[Values]:
        cascade, source = self.fold.cascade, self.source
        logical = any(r.reducer.logical for r in cascade.reductions)
        truth = self.odds if logical else MASK_ODDS[attempt]
        rows = [{e: number_for(e, source, truth, low, reach) for e in cascade.elements} for _ in range(self.length)]
        if low < 0:
            rows = [{e: value if e.is_nonnegative else self.sign * value for e, value in row.items()} for row in rows]
        if self.odds < 1 and any(_selection_of(r) is not None for r in cascade.reductions):
            rows = [{e: source.choice(rows[:TIES])[e] for e in row} for row in rows]
        return [{e: mpmath.mpf(k) if e == POSITION else row[e] for e in row} for k, row in enumerate(rows)]


def parameters_of(fold: Fold, source: random.Random, low: float, reach: float) -> Values:
    """Random numbers for what does not vary along the axis; see `number_for`."""
    known = {LENGTH, COUNT, *EXTREMES, *fold.cascade.elements, *fold.cascade.results}
    free = set().union(*(r.element.free_symbols for r in fold.cascade.reductions)) - known
    return {s: number_for(s, source, None, low, reach) for s in free}


def number_for(
    symbol: sp.Symbol, source: random.Random, odds: float | None, low: float, reach: float = 2.0
) -> mpmath.mpf:
    """A value for a symbol: 0 or 1 where truth values are asked for, else a number from `low` to `reach`."""
    if is_truth(symbol) or (odds is not None and symbol.is_nonnegative and not symbol.is_positive):
        return mpmath.mpf(int(source.random() < (MASK_ODDS[0] if odds is None else odds)))
    if symbol.is_nonnegative:
        low = max(low, 0.05 * reach)
    return mpmath.mpf(source.randint(int(low * 1000), int(reach * 1000))) / 997


def _same(obligation: str, found: Values, expected: Values) -> None:
    scale = max([abs(v) for v in expected.values() if mpmath.isfinite(v)] + [mpmath.mpf(1)])
    for result, value in expected.items():
        if found[result] != value and not abs(found[result] - value) <= TOLERANCE * scale:
            raise _Differs(obligation, result, found[result], value)


def _from_anywhere(evaluation: _Evaluation) -> Pairs:
    state = _at_any_reference(evaluation.trial, evaluation.source, evaluation.expected)
    yield _finished(evaluation, state), evaluation.expected


def _split(evaluation: _Evaluation) -> Pairs:
    for state in (_in_tiles, _in_segments):
        yield _finished(evaluation, state(evaluation.trial, evaluation.source)), evaluation.expected


def _finished(evaluation: _Evaluation, state: State) -> Values:
    """The results of a state, with positions as the definition names them where keys do not tell."""
    trial = evaluation.trial
    found = trial.steps.finish(state)
    return as_named(trial.fold, found, evaluation.expected, trial.rows, trial.arithmetic, trial.steps.known)


OBLIGATIONS: dict[str, Callable[[_Evaluation], Pairs]] = {
    "merge commutative": _over_lifts(_swapped),
    "merge associative": _over_lifts(_regrouped),
    "empty is the identity": _over_lifts(_from_empty),
    "shift between references": _shifted,
    "finish from any free reference": _from_anywhere,
    "finish over any split = definition": _split,
}
"""What is checked of a fold, in order: name -> what has to be equal."""
