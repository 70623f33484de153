"""Proof obligations of a fold, each by exact evaluation at random points and splits, and symbolically where SymPy can.

1. ⊕ of every component is commutative and associative, and the empty state holds its identity.
2. shift: B(x, c′) = A(c, c′)·B(x, c), so that a state may be held at any reference, and finished from there.
3. finish(merge over any split) = the cascade's own definition.

Evaluation is in mpmath; an error above 1e-25 of the largest term fails the obligation. Digits are 60, and more where
that does not suffice: exponentials of exponentials cancel thousands of them. Only a difference at digits that span
every value on the way is one of the fold; where those are too many, nearer data are drawn.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import mpmath
import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, POSITION, Reduction, is_truth
from tvm_cascade.algebra.fold import Component, Fold, Reference
from tvm_cascade.algebra.gauge import LAZY_DISTANCE, Move
from tvm_cascade.algebra.monoid import TIES, evaluator_of
from tvm_cascade.algebra.reducer import EXTREMES, ON_NUMBERS, Selection
from tvm_cascade.algebra.sampling import IN_RANGE, as_function
from tvm_cascade.algebra.separate import strip_rounding
from tvm_cascade.algebra.work import charge
from tvm_cascade.errors import FoldError

DIGITS = 60
MOST_DIGITS = 2000
"""Values that span more than that are not evaluated again."""

COSTLY_DIGITS = 1000
"""Digits at which a value costs as much as an operation of an expression that is simplified."""

EVALUATIONS = 4
"""At growing digits: with them, values may turn out to span more."""

ATTEMPTS = 8
ROUNDS = ((1.0, 1), (0.5, -1), (0.5, 1), (0.0, -1))
"""Odds of truth values, and the sign of real numbers, round by round: a conjunction must hold now and then, and a
disjunction fail; each second round mirrors the one before, so that both ends of an extremum decide."""

MASK_ODDS = (0.6, 0.6, 0.6, 0.6, 1.0, 1.0, 0.0, 0.0)
"""Of a mask to hold, attempt by attempt, where no conjunction or disjunction needs other odds: what is masked out, such
as exp(10000), may be out of every range."""

ROUNDS_OF_SELECTIONS = 3

TOLERANCE = mpmath.mpf(10) ** -25
LARGEST = mpmath.mpf(10) ** 10_000
"""Results above this are taken for infinite, and the point for one at which there is nothing to compare."""
REACHES = (2.0, 2.0, 0.5, 0.1)
"""How far data are drawn from zero, attempt by attempt: exponentials of sums of exponentials are soon out of range."""

Values = dict[sp.Symbol, mpmath.mpf]

COMMUTATIVE, ASSOCIATIVE, IDENTITY = "merge commutative", "merge associative", "empty is the identity"
SHIFT, ANYWHERE = "shift between references", "finish from any free reference"
GROUPED = "finish over any split = definition"
OBLIGATIONS = (COMMUTATIVE, ASSOCIATIVE, IDENTITY, SHIFT, ANYWHERE, GROUPED)


class UndefinedError(Exception):
    """The definition is not real and finite at any point that was tried: there is nothing to compare a fold with."""


class UnverifiedError(Exception):
    """The fold's values span more than MOST_DIGITS digits wherever it was tried and differs from the definition."""


class _Differs(Exception):
    """An obligation fails at some digits: `result` is `found` rather than `wanted`."""

    def __init__(self, obligation: str, result: sp.Symbol, found: mpmath.mpf, wanted: mpmath.mpf) -> None:
        super().__init__(obligation)
        self.obligation, self.result, self.found, self.wanted = obligation, result, found, wanted

    def error(self, fold: Fold) -> FoldError:
        """What `prove` raises."""
        return FoldError(
            f"{self.obligation}: {self.result} = {mpmath.nstr(self.wanted, 12)}",
            mpmath.nstr(self.found, 12),
            f"fold of {', '.join(map(str, fold.cascade.results))}",
            "this is a defect of tvm-cascade; please report the program",
        )


NO_VALUE = (TypeError, ValueError, ArithmeticError)
"""What evaluation raises where an expression has no real value, or none that can be computed with."""


@dataclass(frozen=True)
class State:
    """A fold's state with numbers in it; `count` positions folded, none when empty."""

    count: int
    values: Values


class Compiled:
    """Expressions as functions of numbers, each compiled once for all data, without the help text that SymPy adds."""

    def __init__(self) -> None:
        self._functions: dict[sp.Expr, tuple[list[sp.Symbol], Callable[..., mpmath.mpf]]] = {}

    def __call__(self, expression: sp.Expr) -> tuple[list[sp.Symbol], Callable[..., mpmath.mpf]]:
        """The symbols that the function takes, and the function."""
        if expression not in self._functions:
            bare = strip_rounding(expression).xreplace(EXTREMES)
            symbols = sorted(bare.free_symbols, key=str)
            self._functions[expression] = symbols, as_function(symbols, bare, IN_RANGE)
        return self._functions[expression]


class Evaluator:
    """Runs a fold on numbers: lift, merge and finish as they are written, at mpmath's digits.

    Attributes
    ----------
    span : decimal orders between 1 and the value so far that is farthest from it.
    """

    def __init__(self, fold: Fold, parameters: Mapping[sp.Symbol, mpmath.mpf], length: int, compiled: Compiled) -> None:
        self.fold, self.length, self._compiled = fold, length, compiled
        self.parameters = {**parameters, LENGTH: mpmath.mpf(length)}
        self._units, self._references = fold.units, fold.references
        self.span = 0

    def value(self, expression: sp.Expr, at: Mapping[sp.Symbol, mpmath.mpf]) -> mpmath.mpf:
        """The expression's value where its symbols have the given values."""
        symbols, function = self._compiled(expression)
        value = mpmath.mpf(function(*(at[s] if s in at else self.parameters[s] for s in symbols)))
        if value and mpmath.isfinite(value):
            self.span = max(self.span, abs(int(mpmath.mag(value))) // 3)
        return value

    def lift(self, element: Values) -> State:
        """The state of one position; its references are those of its own partial results."""
        values: Values = {}
        scope = {COUNT: mpmath.mpf(1)}
        for step in self.fold.steps:
            if isinstance(step, Reference):
                values[step.symbol] = self._moved(step, {**values, **scope}, None)
            else:
                values[step.symbol] = self.value(step.lift, {**element, **values, **scope})
        return State(1, values)

    def merge(self, first: State, second: State) -> State:
        """Both states brought to one reference and combined."""
        if not first.count or not second.count:
            return second if not first.count else first
        count = first.count + second.count
        values: Values = {}
        moved: Values = {}
        for unit in self._units:
            if isinstance(unit, Reference):
                values[unit.symbol] = self._moved(unit, {**values, COUNT: mpmath.mpf(count)}, first.values[unit.symbol])
                moved[unit.moved] = values[unit.symbol]
            else:
                left, right = (self._shifted(unit, side, moved) for side in (first, second))
                values |= self._combined(unit, left, right)
        return State(count, values)

    def _combined(self, unit: tuple[Component, ...], left: Values, right: Values) -> Values:
        """left ⊕ right, of one unit. Parts of a tuple that the fold dropped are read by none that it kept."""
        whole = unit[0].reducer.whole
        if whole is None:
            (component,) = unit
            return {component.symbol: _combine(component, (left[component.symbol], right[component.symbol]))}
        zero = mpmath.mpf(0)
        sides = [tuple(side.get(part, zero) for part in unit[0].parts) for side in (left, right)]
        merged = evaluator_of(whole).combine(sides[0], sides[1])
        return {c.symbol: merged[c.reducer.part] for c in unit}

    def _shifted(self, unit: tuple[Component, ...], state: State, moved: Values) -> Values:
        """A state's values of a unit, at the references to which they move."""
        if not any(c.moves for c in unit):
            return {c.symbol: state.values[c.symbol] for c in unit}
        steps = {r.step: moved[r.moved] - state.values[r.symbol] for r in self._references if r.moved in moved}
        at = {**state.values, **moved, **steps, COUNT: mpmath.mpf(state.count)}
        return {c.symbol: self.value(c.shift, at) for c in unit}

    def _moved(self, reference: Reference, at: Values, held: mpmath.mpf | None) -> mpmath.mpf:
        stay = mpmath.mpf(int(reference.scale)) if held is None else held
        try:
            value = self.value(reference.value, at)
        except OverflowError:
            raise
        except NO_VALUE:
            if not reference.guarded:
                raise
            return stay
        if not mpmath.isfinite(value) or (reference.scale and value == 0):
            return stay if reference.guarded else value
        near = held is not None and abs(value - held) <= LAZY_DISTANCE
        return held if reference.move is Move.LAZY and near else value

    def over(self, unit: tuple[Component, ...], rows: Sequence[Values], references: Values) -> Values:
        """⊕ of a unit's lifts over rows, all at the same references."""
        total: Values | None = None
        for row in rows:
            values = {c.symbol: self.value(c.lift, {**references, **row}) for c in unit}
            total = values if total is None else self._combined(unit, total, values)
        assert total is not None
        return total

    def finish(self, state: State) -> Values:
        """The results of a state that has folded the whole axis."""
        results: Values = {}
        for result, expression in self.fold.finish.items():
            results[result] = self.value(expression, {**state.values, **results, COUNT: mpmath.mpf(state.count)})
        return results

    def definition(self, rows: Sequence[Values]) -> Values:
        """The cascade as it is written: one pass over the rows for each reduction.

        Raises
        ------
        ValueError
            Where a result is so large that computing on would take for ever: an exponential of an exponential.
        """
        results: Values = {}
        for block in self.fold.cascade.blocks:
            elements = [[self.value(r.element, {**row, **results}) for row in rows] for r in block]
            if block[0].reducer.whole is not None:
                results |= self._tuple_definition(block, elements)
                continue
            total = functools.reduce(ON_NUMBERS[block[0].reducer.name], elements[0])
            if mpmath.isfinite(total) and abs(total) > LARGEST:
                raise ValueError(f"{block[0].result} is larger than can be computed with")
            results[block[0].result] = mpmath.mpf(total)
        return results

    def _tuple_definition(self, block: tuple[Reduction, ...], elements: list[list[mpmath.mpf]]) -> Values:
        """A selection by sorting; any other reduction of tuples one position after another."""
        whole = block[0].reducer.whole
        assert whole is not None
        in_order = sorted(range(len(block)), key=lambda k: block[k].reducer.part)
        tuples = list(zip(*(elements[k] for k in in_order), strict=True))
        if whole.selection is None:
            evaluate, total = evaluator_of(whole), tuples[0]
            for values in tuples[1:]:
                total = evaluate.combine(total, values)
        else:
            total = _sorted(whole.selection, tuples)
        return {block[k].result: value for k, value in zip(in_order, total, strict=True)}


def _sorted(selection: Selection, tuples: list[tuple[mpmath.mpf, ...]]) -> tuple[mpmath.mpf, ...]:
    width, sign, way = selection.per_rank, -1 if selection.largest else 1, 1 if selection.lower else -1
    ranked = sorted((t[:width] for t in tuples), key=lambda t: (sign * t[0], way * t[1]))[: selection.count]
    return tuple(value for t in ranked for value in t)


def _combine(step: Component, values: Sequence[mpmath.mpf]) -> mpmath.mpf:
    return mpmath.mpf(ON_NUMBERS[step.reducer.name](values[0], values[1]))


def prove(fold: Fold, seed: int = 1, length: int = 7) -> tuple[str, ...]:
    """Checks every obligation; returns their names.

    Raises
    ------
    FoldError
        Naming the obligation, the result and the values that differ.
    UndefinedError, UnverifiedError
        Where no data were found on which that can be told.
    """
    compiled = Compiled()
    most = max((s.count for r in fold.cascade.reductions if (s := _selection_of(r)) is not None), default=0)
    with mpmath.workdps(DIGITS):
        # Which end of a key's range is selected, and whether by a tie, differs from round to round.
        for number, (odds, sign) in enumerate(ROUNDS * (ROUNDS_OF_SELECTIONS if most else 1)):
            _check_round(fold, random.Random(seed + number // 2), max(length, most + 2), odds, sign, compiled)
    return OBLIGATIONS


def _selection_of(reduction: Reduction) -> Selection | None:
    return None if reduction.reducer.whole is None else reduction.reducer.whole.selection


def _check_round(fold: Fold, source: random.Random, length: int, odds: float, sign: int, compiled: Compiled) -> None:
    """The obligations on the first data drawn on which the digits suffice."""
    drawn = False
    for attempt in range(ATTEMPTS):
        data = _drawn(fold, source, length, odds, sign, attempt, compiled)
        if data is None:
            continue
        drawn = True
        if _decided(*data, source.randrange(1 << 30)):
            return
    names = ", ".join(map(str, fold.cascade.results))
    raise UnverifiedError(names) if drawn else UndefinedError(names)


def _decided(evaluator: Evaluator, rows: list[Values], seed: int) -> bool:
    """Whether the obligations hold; False where that would take more than MOST_DIGITS to tell.

    Raises
    ------
    FoldError
        Where they fail at digits that span all values.
    """
    digits = DIGITS
    for _ in range(EVALUATIONS):
        charge(len(evaluator.fold.steps) * len(rows) * digits / COSTLY_DIGITS, "evaluating a fold")
        with mpmath.workdps(digits):
            try:
                _check_obligations(evaluator, rows, random.Random(seed), evaluator.definition(rows))
                return True
            except _Differs as differs:
                if digits >= (needed := DIGITS + 2 * evaluator.span):  # twice: a product of two values has it twice
                    raise differs.error(evaluator.fold) from None
            except NO_VALUE:  # beyond the numbers there are, or not real where the definition multiplies by zero
                return False
        if needed > MOST_DIGITS:
            return False
        digits = needed
    return False


def _check_obligations(evaluator: Evaluator, rows: list[Values], source: random.Random, expected: Values) -> None:
    _check_monoids(evaluator, rows)
    _check_shift(evaluator, rows, source)
    _same(ANYWHERE, evaluator.finish(_held(evaluator, rows, source, expected)), expected)
    lifted = [evaluator.lift(row) for row in rows]
    serial = State(0, {})
    for state in lifted:
        serial = evaluator.merge(serial, state)
    _same(GROUPED, evaluator.finish(serial), expected)
    shuffled = list(lifted)
    source.shuffle(shuffled)
    while len(shuffled) > 1:
        k = source.randrange(len(shuffled) - 1)
        shuffled[k : k + 2] = [evaluator.merge(shuffled[k + 1], shuffled[k])]
    _same(GROUPED, evaluator.finish(shuffled[0]), expected)


def _check_monoids(evaluator: Evaluator, rows: list[Values]) -> None:
    """⊕ of every component, as its reducer writes it, on lifts of the rows."""
    at = {r.symbol: mpmath.mpf(1) for r in evaluator.fold.references}
    for component in (c for c in evaluator.fold.components if c.reducer.whole is None):
        combine, identity = component.reducer.combine, component.reducer.identity
        values = (evaluator.value(component.lift, {**at, **row}) for row in rows)
        lifts = [sp.Float(value, mpmath.mp.dps) for value in values if mpmath.isfinite(value)]
        if not lifts:
            continue
        a, b, c = (lifts * 3)[:3]
        pairs = {
            COMMUTATIVE: (combine(a, b), combine(b, a)),
            ASSOCIATIVE: (combine(combine(a, b), c), combine(a, combine(b, c))),
            IDENTITY: (combine(identity, a), a),
        }
        for obligation, (left, right) in pairs.items():
            sides = ({component.symbol: _plain_number(side)} for side in (left, right))
            _same(obligation, *sides)


def _plain_number(value: sp.Expr) -> mpmath.mpf:
    return mpmath.mpf(sp.Float(value, mpmath.mp.dps)._mpf_) if value.is_finite else mpmath.mpf(str(float(value)))


def _check_shift(evaluator: Evaluator, rows: list[Values], source: random.Random) -> None:
    """T(c′) = shift(T(c)) between two random references, for every component.

    References that lifts are compared with are extrema, of these rows and of further ones.
    """
    fold = evaluator.fold
    old, new = ({r.symbol: _number(r.symbol, source, None, 0.3) for r in fold.references} for _ in range(2))
    if _compared(fold):
        some = rows[: source.randint(1, len(rows))]
        old, new, rows = old | _extrema(evaluator, some), new | _extrema(evaluator, rows), some
    # Parts of a tuple stay where they are; they are looked at only where the shift of another component reads them.
    read = set().union(*(c.shift.free_symbols for c in fold.components if not c.parts or c.moves))
    units = [u for u in fold.units if isinstance(u, tuple) and (not u[0].parts or read & set(u[0].parts))]
    before, after = (
        {symbol: value for unit in units for symbol, value in evaluator.over(unit, rows, at).items()}
        for at in (old, new)
    )
    scope = {**old, **before, COUNT: mpmath.mpf(len(rows))}
    for reference in fold.references:
        scope[reference.moved] = new[reference.symbol]
        scope[reference.step] = new[reference.symbol] - old[reference.symbol]
    for component in (c for c in fold.components if c.symbol in after):
        found = {component.symbol: evaluator.value(component.shift, scope)}
        _same(SHIFT, found, {component.symbol: after[component.symbol]})


def _compared(fold: Fold) -> list[Reference]:
    """The references that lifts are compared with."""
    sides = {symbol for c in fold.components for equal in c.lift.atoms(sp.Eq) for symbol in equal.free_symbols}
    return [reference for reference in fold.references if reference.symbol in sides]


def _extrema(evaluator: Evaluator, rows: list[Values]) -> Values:
    """The references that lifts are compared with, at their values over the rows."""
    compared = _compared(evaluator.fold)
    read = set().union(*(reference.value.free_symbols for reference in compared))
    units = [u for u in evaluator.fold.units if isinstance(u, tuple) and read & {c.symbol for c in u}]
    state = {symbol: value for unit in units for symbol, value in evaluator.over(unit, rows, {}).items()}
    return {reference.symbol: evaluator.value(reference.value, state) for reference in compared}


def _held(evaluator: Evaluator, rows: list[Values], source: random.Random, results: Values) -> State:
    """The state of all rows, with references that need not end at their quantity put anywhere."""
    values, extrema = dict[sp.Symbol, mpmath.mpf](), _extrema(evaluator, rows)
    for unit in evaluator.fold.units:
        if isinstance(unit, tuple):
            values |= evaluator.over(unit, rows, values)
        elif unit.symbol in extrema:
            values[unit.symbol] = extrema[unit.symbol]
        elif unit.free:
            values[unit.symbol] = _number(unit.symbol, source, None, 0.3)
        else:
            values[unit.symbol] = evaluator.value(unit.tracks, results)
    return State(len(rows), values)


def _drawn(
    fold: Fold, source: random.Random, length: int, odds: float, sign: int, attempt: int, compiled: Compiled
) -> tuple[Evaluator, list[Values]] | None:
    """Random parameters and rows; None where the definition is not real and finite there."""
    reach = REACHES[attempt // 2]
    low = 0.1 * reach if attempt % 2 else -reach  # roots and logarithms may need positive numbers
    evaluator = Evaluator(fold, _parameters(fold, source, low, reach), length, compiled)
    logical = any(r.reducer.name in ("and", "or") for r in fold.cascade.reductions)
    truth = odds if logical else MASK_ODDS[attempt]
    rows = [{e: _number(e, source, truth, low, reach) for e in fold.cascade.elements} for _ in range(length)]
    if low < 0:
        rows = [{e: value if e.is_nonnegative else sign * value for e, value in row.items()} for row in rows]
    if odds < 1 and any(_selection_of(r) is not None for r in fold.cascade.reductions):
        rows = [{e: source.choice(rows[:TIES])[e] for e in row} for row in rows]
    rows = [{e: mpmath.mpf(k) if e == POSITION else row[e] for e in row} for k, row in enumerate(rows)]
    try:
        expected = evaluator.definition(rows)
    except NO_VALUE:
        return None
    return (evaluator, rows) if all(mpmath.isfinite(value) for value in expected.values()) else None


def _parameters(fold: Fold, source: random.Random, low: float, reach: float) -> Values:
    known = {LENGTH, COUNT, *fold.cascade.elements, *fold.cascade.results}
    free = set().union(*(r.element.free_symbols for r in fold.cascade.reductions)) - known
    return {s: _number(s, source, None, low, reach) for s in free}


def _number(symbol: sp.Symbol, source: random.Random, odds: float | None, low: float, reach: float = 2.0) -> mpmath.mpf:
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
