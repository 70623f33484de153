"""The obligation of a fold at infinities: at every point, each result has the class that the definition has.

The classes are NaN, ∞, −∞ and finite; finite values must be alike too. A point is a row of numbers in which

| what               | is                                                          |
|--------------------|-------------------------------------------------------------|
| one element, or all| ∞ or −∞, as its sign allows, NaN, zero, or one large number |
| one, two, or all   | so large that squares are infinite                          |
| what is left       | drawn; not negative too, where a logarithm or root is taken |
| at                 | the first position, the last, either half of them, or all   |
| conditions         | drawn, or hold nowhere (the empty state), or everywhere     |

and further rows at the dtype's own lowest and highest number, at which extrema start. An extremum that meets some NaN
is NaN or drops it, by the order of comparisons: both ways are evaluated, and where they differ nothing is asked.
Positions that are selected may be others of equal keys. What a program makes of its data
before any result is read, such as x·w, is computed from data, and left apart in the definition: a program that divides
x by a norm before it multiplies with w stays in range where x·w does not. Functions of data, such as exp(x), are drawn
as data are, and computed from them as well where both are read: x²·exp(x) is NaN where x is −∞. Both sides are
computed in float64 as programs are written (`steps.arithmetic`), the fold's in one tile, one by one, and merged with an
empty state.

This is a check at these points, no proof. A result that fails it is no defect: the algebra is of real numbers. It is
guarded (`transform.guard`), where what a guard reads tells the points at which it fails: `Fault.seen`.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tvm_cascade.algebra.cascade import LENGTH, POSITION, Cascade, Reduction
from tvm_cascade.algebra.fold import Fold, Meaning, fact
from tvm_cascade.obligations.check import number_for, parameters_of
from tvm_cascade.obligations.definition import definition
from tvm_cascade.steps.arithmetic import LARGEST, Extended, Number, Numbers
from tvm_cascade.steps.numbers import EMPTY, NumericSteps, State
from tvm_cascade.steps.program import program_of
from tvm_cascade.symbolic.masks import is_truth

POSITIONS = 6
REACH = 2.0
"""How far from zero finite data are drawn."""

ALIKE = 1e-3
"""Share of a finite value, or of one, by which it may differ: digits are another obligation."""

HUGE = LARGEST**0.9
"""At rows of the lowest number, where products leave the range on either side, this counts as infinite."""

_SEED = 1
"""Of the finite data."""

LARGE = 1e200
"""Data of this order are finite, and so are their sums; their squares are not."""

EVEN = 2.0**664
"""Of that order: sums and means of numbers that are all this one are exact, so that no rounding tells them apart."""

_PLACES = {
    "the first position": range(1),
    "the last position": range(POSITIONS - 1, POSITIONS),
    "the first half": range(POSITIONS // 2),
    "the last half": range(POSITIONS // 2, POSITIONS),
    "all positions": range(POSITIONS),
}

_ORDERS = (False, True)
"""Whether extrema drop NaN: some orders of comparisons do, others do not."""

_MASKS: dict[str, float | None] = {"": None, ", no condition holds": 0.0, ", all conditions hold": 1.0}


@dataclass(frozen=True)
class Fault:
    """How a result differs from its definition.

    Attributes
    ----------
    points : the points at which it does.
    at : one of them, in words.
    expected, found : by the definition, and by the fold.
    seen : at all of them, what a guard reads is not finite (`transform.guard`).
    told : at all of them, the result itself is not.
    by_order : there, it is what the program's own order of comparisons with NaN selects.
    """

    points: int
    at: str
    expected: float
    found: float
    seen: bool
    told: bool
    by_order: bool = False

    def __str__(self) -> str:
        if self.by_order:
            return f"which NaN comes first decides where {self.at} ({self.points} points)"
        return f"{self.expected:.4g} unfused and {self.found:.4g} fused where {self.at} ({self.points} points)"


@dataclass(frozen=True)
class Ends:
    """What was found at infinities.

    Attributes
    ----------
    points : at which a fold was compared with its definition.
    faults : of the results that differ at some, in order.
    """

    points: int
    faults: Mapping[sp.Symbol, Fault]

    def __str__(self) -> str:
        differs = [f"{result}: {fault}" for result, fault in self.faults.items()]
        return "; ".join(differs) or f"classes agree at {self.points} points"


@fact
def at_infinities(fold: Fold, meaning: Meaning) -> Ends:
    """The results of a fold that are of another class than their definition where data are infinite.

    Parameters
    ----------
    meaning : definitions of elements in terms of data, as far as they have one.
    """
    source, made = random.Random(_SEED), _made_of_data(fold.cascade, meaning)
    cascade = _over_data(fold.cascade, made, meaning)
    points = list(_points(cascade, source))
    rows = [{e: np.array([row[k][e] for _, row in points]) for e in cascade.elements} for k in range(POSITIONS)]
    known = {s: np.float64(v) for s, v in parameters_of(fold, source, -REACH, REACH).items()}
    functions = {e: form for e, form in _in_data(cascade, meaning).items() if form.has(*cascade.elements)}
    rowwise = {s for form in (*made.values(), *functions.values()) for s in form.free_symbols}
    rowwise -= {*cascade.elements, *known}
    known |= {s: np.float64(number_for(s, source, None, -REACH)) for s in sorted(rowwise, key=str)}
    rows, names = _computed(rows, made, known), [name for name, _ in points]
    if functions:
        both = zip(rows, _computed(rows, functions, known), strict=True)
        rows = [
            {e: np.concatenate([_at_each(row[e], names), _at_each(other[e], names)]) for e in row}
            for row, other in both
        ]
        names = [*names, *names]
    trial = _Trial(fold, cascade, rows, {**known, LENGTH: np.float64(POSITIONS)}, names)
    return Ends(len(names), trial.faults())


def _at_each(number: Number, points: Sequence[str]) -> NDArray[np.float64]:
    """A number at each point: what is made of data of a row alone is the same at all."""
    return np.broadcast_to(np.asarray(number), (len(points),))


def _computed(rows: list[Numbers], forms: Mapping[sp.Symbol, sp.Expr], known: Numbers) -> list[Numbers]:
    """The rows with elements as they are made of data."""
    for symbol, form in forms.items():
        rows = Extended().extended(rows, symbol, form, known)
    return rows


def _in_data(cascade: Cascade, meaning: Mapping[sp.Symbol, sp.Expr]) -> dict[sp.Symbol, sp.Expr]:
    """The elements that mean something else, in terms of data."""
    found = dict[sp.Symbol, sp.Expr]()
    for element in cascade.elements:
        form = meaning.get(element, element)
        while form.free_symbols & meaning.keys() - {element} and form != form.xreplace(meaning):
            form = form.xreplace(meaning)
        if form != element and not form.has(sp.Piecewise):
            found[element] = form
    return found


def _made_of_data(cascade: Cascade, meaning: Mapping[sp.Symbol, sp.Expr]) -> dict[sp.Symbol, sp.Expr]:
    """The elements that are sums, products, powers and magnitudes of data, in terms of data."""
    forms = _in_data(cascade, meaning)
    return {e: form for e, form in forms.items() if not form.atoms(sp.Function) - form.atoms(sp.Abs)}


def _over_data(cascade: Cascade, made: Mapping[sp.Symbol, sp.Expr], meaning: Mapping[sp.Symbol, sp.Expr]) -> Cascade:
    """The cascade with those elements written out; data that vary along the axis mean themselves."""
    reductions = [dataclasses.replace(r, element=r.element.xreplace(made)) for r in cascade.reductions]
    data = {s for form in made.values() for s in form.free_symbols if meaning.get(s) == s}
    kept = [e for e in cascade.elements if e not in made]
    return Cascade(reductions, [*kept, *sorted(data - {*kept}, key=str)])


def _points(cascade: Cascade, source: random.Random) -> Iterator[tuple[str, list[Numbers]]]:
    elements = cascade.elements
    masks = _MASKS if any(map(is_truth, elements)) else {"": None}
    floats = [e for e in elements if not is_truth(e) and not e.is_integer]
    alone = [[e] for e in floats]
    together = [floats] if len(floats) > 1 else []
    has_domain = any(_has_domain(reduction.element, elements) for reduction in cascade.reductions)
    pairs = [list(pair) for pair in itertools.combinations(floats, 2)] if len(floats) > 2 else []
    for told, truth in masks.items():
        yield f"all is finite{told}", _row(cascade, source, truth)
        for special in [*alone, *pairs, *together]:
            name, row = ", ".join(map(str, special)), _row(cascade, source, truth)
            larger = [{e: number * LARGE if e in special else number for e, number in one.items()} for one in row]
            yield f"{name} is of the order of {LARGE:g}{told}", larger
            positive = [{e: abs(number) for e, number in one.items()} for one in (larger[0], *row[1:])]
            yield f"{name} is of the order of {LARGE:g} at the first position, none negative{told}", positive
        for special in [*alone, *together]:
            name = ", ".join(map(str, special))
            for place, positions in _PLACES.items():
                for extreme, number in _extremes(cascade, special).items():
                    row = _row(cascade, source, truth)
                    for position in positions:
                        row[position].update({e: abs(number) if e.is_nonnegative else number for e in special})
                    yield f"{name} is {extreme} at {place}{told}", row
                    if has_domain:
                        positive = [{e: abs(number) for e, number in one.items()} for one in row]
                        yield f"{name} is {extreme} at {place}{told}, none negative", positive


def _has_domain(element: sp.Expr, elements: Sequence[sp.Symbol]) -> bool:
    """Whether data are under a logarithm or a root, which are NaN of what is negative, whatever else is read."""
    roots = (power for power in element.atoms(sp.Pow) if power.exp.is_integer is False)
    return any(part.has(*elements) for part in (*element.atoms(sp.log), *roots))


def _extremes(cascade: Cascade, special: Sequence[sp.Symbol]) -> dict[str, float]:
    """What elements are put to: infinities, and what an extremum of one starts at."""
    reducers = [r.reducer for r in cascade.reductions if r.reducer.ordered and [r.element] == special]
    starts = {-LARGEST if reducer.identity < 0 else LARGEST for reducer in reducers}
    extremes = {"∞": np.inf, "−∞": -np.inf, "NaN": np.nan, "zero": 0.0, f"alike of the order of {LARGE:g}": EVEN}
    extremes |= {"lowest" if s < 0 else "highest": s for s in sorted(starts)}
    return {
        name: number
        for name, number in extremes.items()
        if not number < 0 or any(not e.is_nonnegative for e in special)
    }


def _row(cascade: Cascade, source: random.Random, truth: float | None) -> list[Numbers]:
    """Finite numbers for every element at every position."""
    drawn = [{e: number_for(e, source, None, -REACH) for e in cascade.elements} for _ in range(POSITIONS)]
    fixed = {e: truth for e in cascade.elements if is_truth(e) and truth is not None}
    return [{**row, **fixed, **({POSITION: float(k)} if POSITION in row else {})} for k, row in enumerate(drawn)]


@dataclass(frozen=True)
class _Asked:
    """What a result has to be.

    Attributes
    ----------
    expected : its value at each point.
    decided : where it has to be that.
    keys : of positions, the keys at all of them: another position of an equal key is as good.
    """

    expected: np.ndarray
    decided: np.ndarray
    keys: np.ndarray | None = None

    def as_named(self, found: np.ndarray) -> np.ndarray:
        """What was found, with the expected positions where others have their keys."""
        if self.keys is None:
            return found
        own, other = (self._keys_at(positions, self.keys) for positions in (found, self.expected))
        return np.where(own == other, self.expected, found)

    @staticmethod
    def _keys_at(positions: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """The keys at positions; NaN where there is no such position."""
        exist = (positions >= 0) & (positions < len(keys))
        return np.where(exist, keys[np.where(exist, positions, 0).astype(int), np.arange(keys.shape[1])], np.nan)


@dataclass(frozen=True)
class _Trial:
    """A fold and its definition on rows of arrays, a value per point."""

    fold: Fold
    cascade: Cascade
    rows: list[Numbers]
    known: Numbers
    names: list[str]

    def faults(self) -> dict[sp.Symbol, Fault]:
        """The results that differ from their definition, in order."""
        known, faults = self.known, dict[sp.Symbol, Fault]()
        wanted = [definition(self.cascade, self.rows, Extended(True, drops), known) for drops in _ORDERS]
        program = program_of(self.fold)
        steps = [NumericSteps(program, Extended(drops_nan=drops), known) for drops in _ORDERS]
        found = [(state.values, way.finish(state)) for way in steps for state in _states(way, self.rows)]
        for block in self.cascade.blocks:
            keys = self._keys(block, wanted[0])
            for reduction in block:
                asked = self._asked(reduction, [self._spread(way[reduction.result]) for way in wanted], keys)
                fault = self._fault(reduction, asked, found)
                if fault is not None:
                    faults[reduction.result] = fault
        return faults

    def _keys(self, block: Sequence[Reduction], results: Numbers) -> np.ndarray | None:
        """The keys of a selection at all positions, a column per point; None of other reductions."""
        (key,) = (reduction for reduction in block if reduction.reducer.part == 0)
        if key.reducer.whole is None or key.reducer.whole.selection is None:
            return None
        return np.array([*map(self._spread, Extended(True).lifts(key.element, self.rows, {**self.known, **results}))])

    def _asked(self, reduction: Reduction, ways: Sequence[np.ndarray], keys: np.ndarray | None) -> _Asked:
        """What a result has to be: where the order of comparisons with NaN decides, nothing is asked.

        Of what is selected by keys that read results, the program's order is: the fold compares other keys, which need
        not be NaN there. What is carried beside a key is asked for where no keys tie.
        """
        expected, decided = ways[0], _alike(ways[0], ways[1], self.coarse)
        if keys is None or reduction.reducer.whole is None or reduction.reducer.whole.selection is None:
            return _Asked(expected, decided)
        part, some_nan = reduction.reducer.part % reduction.reducer.whole.selection.per_rank, np.any(np.isnan(keys), 0)
        ordered = np.sort(keys, axis=0)
        tied = np.any(ordered[1:] == ordered[:-1], axis=0)
        if part > 1:
            return _Asked(expected, decided & ~some_nan & ~tied)
        if part == 1 and self._read_by(reduction).intersection(self.cascade.results):
            return _Asked(np.where(some_nan, np.nan, expected), decided | some_nan, keys)
        return _Asked(expected, decided & ~some_nan, keys if part == 1 else None)

    def _read_by(self, reduction: Reduction) -> set[sp.Basic]:
        """What the elements of a reduction, or of the tuple that it is a part of, read."""
        (block,) = (block for block in self.cascade.blocks if reduction in block)
        return {symbol for one in block for symbol in one.element.free_symbols}

    def _fault(self, reduction: Reduction, asked: _Asked, found: list[tuple[Numbers, Numbers]]) -> Fault | None:
        read = self.fold.finish[reduction.result].free_symbols
        results = (read | self._read_by(reduction)) & set(self.fold.cascade.results)
        shown, differs, seen, told = None, np.zeros(len(self.names), bool), True, True
        for state, values in found:
            own = self._spread(values[reduction.result])
            wrong = asked.decided & ~_alike(asked.as_named(own), asked.expected, self.coarse)
            guarded = [own, *(state[c.symbol] for c in self.fold.components if c.symbol in read)]
            guarded += [values[result] for result in results]
            noticed = ~np.all([np.abs(self._spread(value)) < LARGEST for value in guarded], axis=0)
            seen = seen and bool(np.all(noticed[wrong]))
            told = told and not np.any(np.abs(own[wrong]) < LARGEST)
            first = int(np.argmax(wrong & ~noticed if np.any(wrong & ~noticed) else wrong))
            if np.any(wrong) and (shown is None or not noticed[first]):
                shown = self.names[first], float(asked.expected[first]), float(own[first])
            differs |= wrong
        if shown is None:
            return None
        return Fault(int(np.sum(differs)), *shown, seen, told, asked.keys is not None and bool(np.isnan(shown[1])))

    @cached_property
    def coarse(self) -> np.ndarray:
        """The points at which rounding is as large as what is finite: classes alone are compared."""
        return np.array(["est at " in name or "of the order" in name for name in self.names])

    def _spread(self, value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, len(self.names))


def _states(steps: NumericSteps, rows: list[Numbers]) -> Iterator[State]:
    """The state of all rows, however they are cut."""
    yield steps.fold_in(EMPTY, rows)
    yield reduce(lambda state, row: steps.fold_in(state, [row]), rows, EMPTY)
    pairs = [steps.fold_in(EMPTY, rows[k : k + 2]) for k in range(0, len(rows), 2)]
    yield steps.merge(pairs[0], EMPTY, steps.merge(*pairs[1:]))


def _alike(found: np.ndarray, expected: np.ndarray, classes_alone: np.ndarray) -> np.ndarray:
    """Where two values are of one class, and alike if finite."""
    with np.errstate(all="ignore"):
        close = np.abs(found - expected) <= ALIKE * np.maximum(1, np.abs(expected))
    finite = (np.abs(found) < HUGE) & (np.abs(expected) < HUGE) & (close | classes_alone)
    beyond = classes_alone & ~finite & (np.abs(found) >= HUGE) & (np.sign(found) == np.sign(expected))
    return (found == expected) | (np.isnan(found) & np.isnan(expected)) | finite | (beyond & (np.abs(expected) >= HUGE))
