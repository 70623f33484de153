"""Certificates: whether a fold has the range and the digits of the unfused program.

A fold is *bounded* where every result passes one of each table's rules: no sum, move or finish of it is larger, by more
than a constant factor or the number of positions, than what the unfused program meets on the same row. All others are
*guarded*: whether their results may be used is decided by the state that they end in (`transform.guard`).

| of a result       | bounded where                                                                        |
|-------------------|--------------------------------------------------------------------------------------|
| a lift            | every reference in it bears the lift's range (`_BEARING`)                            |
| a scale in a lift | it is made of extrema of what it scales, on a part of the row as on the whole        |
| a deferred factor | it is an extremum, or divides by a root or a sum that stay away from zero            |
| digits            | its finish adds up no parts of either sign that are more than steps of references    |
| an exponent       | no sum stands in it: exp of a sum is relatively as far off as the sum is absolutely  |
| what is read      | the earlier results that its element, finish and references read are bounded         |

What is proved is an inequality of real numbers for each rule: a lift is no larger than its range says, and a factor
that is common to all terms of a sum leaves their relative sizes as they are. Digits have one rule: terms of an element
that are summed apart may cancel, and are guarded by their sizes over that of the result; an element that is summed as a
whole, about references near the data, is as small as in the program, as is what moves add to it.
That a sum whose terms are no larger than the program's has its digits is argued, not proved; so is the size of
μ·Σ gain·w beside Σ gain·w·x, where a layer norm goes before a product: the reference is the mean of the positions so
far, which is near μ, but no bound is shown.

All this has a premise, which `explain` names: sums, powers and products of two values of the data are in range, as far
as the fold forms them. Σ exp(x − c)·y, at most N times the data, and x·w are summed before what divides them, where the
program divides first, and (x − c)² is moved by (c − c′)². Where data are infinite or that large, `obligations.ends`
checks the class of each result at points, and guards need no premise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import sympy as sp

from tvm_cascade.algebra.facts.extent import Extent, Extents
from tvm_cascade.algebra.facts.relation import scales
from tvm_cascade.algebra.fold import Component, Fold, Meaning, Reference, fact
from tvm_cascade.algebra.policy import Range
from tvm_cascade.algebra.reducer import PROD, SUM
from tvm_cascade.symbolic.separate import strip_rounding

_BEARING = frozenset(
    {
        Range.BOUNDED,
        Range.LARGEST,
        Range.LAZY,
        Range.SCALE,
        Range.POWER_OF_TWO,
        Range.LOCATION,
        Range.MEAN,
        Range.EXTREME,
        Range.NEAR,
        Range.WEIGHED,
    }
)
"""The arguments for a reference that hold wherever its powers are in range; others need data that were predicted."""

_SCALES = frozenset({Range.SCALE, Range.POWER_OF_TWO})
"""Of references that elements are divided by, so that none is larger than 1."""

_BESIDE = frozenset({Range.LARGEST, Range.LAZY})
"""Of references from which steps may be larger than what they end in: they bound exponentials."""

PREMISE = "for data whose sums, powers and products of two values are in range"
"""Of what is bounded; named wherever that is told."""

_OWN = "the sum, or the extremum, of the unfused program"


@dataclass(frozen=True)
class Standing:
    """What is known of one result.

    Attributes
    ----------
    result : its symbol.
    bounded : it has the range and digits of the unfused program on all data.
    reasons : why it has, or what may go wrong.
    """

    result: sp.Symbol
    bounded: bool
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.result}: {'; '.join(self.reasons)}"


@dataclass(frozen=True)
class Certificate:
    """What is known of every result of a fold, in order."""

    standings: tuple[Standing, ...]

    @property
    def bounded(self) -> bool:
        """Whether every result is."""
        return all(standing.bounded for standing in self.standings)

    def __str__(self) -> str:
        if self.bounded:
            reasons = dict.fromkeys(reason for standing in self.standings for reason in standing.reasons)
            return f"bounded {PREMISE}: {'; '.join(reasons)}"
        return f"guarded: {'; '.join(str(standing) for standing in self.standings if not standing.bounded)}"


@fact
def certificate(fold: Fold, meaning: Meaning) -> Certificate:
    """The certificate of a fold: conservative, and made of the facts that its references carry.

    Parameters
    ----------
    meaning : definitions of elements in terms of data, as far as they have one.
    """
    standings: dict[sp.Symbol, Standing] = {}
    for result in fold.finish:
        doubtful = [other for other, standing in standings.items() if not standing.bounded]
        read = _read_by(fold, result).intersection(doubtful)
        standings[result] = _standing(fold, result, meaning, [other for other in doubtful if other in read])
    return Certificate(tuple(standings.values()))


def _standing(fold: Fold, result: sp.Symbol, meaning: Meaning, doubtful: Sequence[sp.Symbol]) -> Standing:
    """What is known of a result that reads these doubtful ones."""
    doubt = next(_doubts(fold, result, meaning), None)
    if doubt is None and doubtful:
        doubt = f"it reads what is guarded: {', '.join(map(str, doubtful))}"
    if doubt is not None:
        return Standing(result, False, (doubt,))
    return Standing(result, True, tuple(dict.fromkeys(_arguments(fold, result))) or (_OWN,))


def _own(fold: Fold, result: sp.Symbol) -> list[Component]:
    return [component for component in fold.components if component.owner == result]


def _sums(fold: Fold) -> set[sp.Symbol]:
    return {component.symbol for component in fold.components if component.reducer is SUM}


def _references(fold: Fold, result: sp.Symbol) -> list[Reference]:
    read = {symbol for component in _own(fold, result) for symbol in component.lift.free_symbols}
    return [reference for reference in fold.references if reference.symbol in read]


def _arguments(fold: Fold, result: sp.Symbol) -> Iterator[str]:
    yield from (str(reference.range) for reference in _references(fold, result))
    for factor in fold.deferred.get(result, ()):
        yield f"{factor} is applied at the end: {_size_of(fold, factor)}"


def _read_by(fold: Fold, result: sp.Symbol) -> set[sp.Symbol]:
    """The earlier results that a result is made of."""
    elements = [reduction.element for reduction in fold.cascade.reductions if reduction.result == result]
    forms = [*elements, fold.finish[result], *(reference.tracks for reference in _references(fold, result))]
    return {symbol for form in forms for symbol in form.free_symbols} - {result}


def _doubts(fold: Fold, result: sp.Symbol, meaning: Meaning) -> Iterator[str]:
    """What may go wrong with a result, by the tables."""
    for reference in _references(fold, result):
        if reference.range is Range.UNDERFLOWING:
            yield f"{reference.symbol} may not tell what is selected: {reference.range}"
        elif reference.range not in _BEARING:
            yield f"{reference.symbol} may be far from the data: {reference.range}"
        elif reference.range in _SCALES and not _bears(fold, result, reference, meaning):
            yield f"{reference.symbol} may be larger on a part of the row than what it scales there allows"
    largest = {reference.symbol for reference in _references(fold, result) if reference.range is Range.LARGEST}
    for component in _own(fold, result):
        if component.reducer.ordered and component.lift.free_symbols & largest:
            yield f"{component.symbol} may vanish against the largest exponent"
        if component.reducer is PROD and fold.finish[result] != component.symbol:
            yield f"{component.symbol} may leave its range"
    for factor in fold.deferred.get(result, ()):
        if not _size_of(fold, factor):
            yield f"{factor} may be any size, and is applied at the end"
    if _cancels(fold, result, meaning):
        yield "its parts may cancel"
    if any(power.has(*_sums(fold)) for power in fold.finish[result].atoms(sp.exp)):
        yield "its exponent is a sum of any size"


def _bears(fold: Fold, result: sp.Symbol, scale: Reference, meaning: Meaning) -> bool:
    """Whether a scale bears every lift that it is a factor of."""
    lifts = [c.lift for c in _own(fold, result) if scale.symbol in c.lift.free_symbols]
    return all(scales(scale.tracks, lift, fold.cascade.reductions, meaning) for lift in lifts)


def _cancels(fold: Fold, result: sp.Symbol, meaning: Meaning) -> bool:
    """Whether a finish adds up parts of either sign that are more than steps of references.

    A term that vanishes where references end at their quantities brings in a step, which is no larger than the part
    that it is added to wherever the reference is near. Of moments about means of different data, which are zero
    together by chance alone, no part is larger than the elements.
    """
    references = _references(fold, result)
    means = [(one.range is Range.NEAR, one.tracks.xreplace(dict(meaning)).free_symbols) for one in references]
    if means and all(near for near, _ in means) and all(a.isdisjoint(b) for (_, a), (_, b) in combinations(means, 2)):
        return False
    sums = _sums(fold)
    ends = {one.symbol: one.tracks for one in fold.references if one.range not in _BESIDE}
    signs = _signs(fold)

    def cancels(expression: sp.Basic) -> bool:
        if not expression.has(*sums) or expression.xreplace(ends) == 0:
            return False
        if isinstance(expression, sp.Add):
            extents = [signs.of(part) for term in expression.args if (part := term.xreplace(ends)) != 0]
            one_sign = all(part.low >= 0 for part in extents) or all(part.high <= 0 for part in extents)
            if len(extents) > 1 and not one_sign:
                return True
        return any(map(cancels, expression.args))

    return cancels(fold.finish[result])


def _signs(fold: Fold) -> Extents:
    """Extents of what is made of sums, each of which has the sign of its lift."""
    lifts = {component.symbol: component.lift for component in fold.components if component.reducer is SUM}
    results = {one.result: one.element for one in fold.cascade.reductions if one.reducer is SUM}
    found = {symbol: Extents().of(strip_rounding(element)) for symbol, element in (lifts | results).items()}
    known = {
        symbol: Extent(0.0 if one.low >= 0 else -math.inf, 0.0 if one.high <= 0 else math.inf)
        for symbol, one in found.items()
    }
    return Extents(known)


def _size_of(fold: Fold, factor: sp.Expr) -> str:
    """Why a factor that reads results is of a size that the unfused program meets; empty where that is not known."""
    reductions = {reduction.result: reduction for reduction in fold.cascade.reductions}
    if factor in reductions and reductions[factor].reducer.ordered:
        return "an extremum of the row"
    base, exponent = factor.as_base_exp()
    if not any(_away_from_zero(fold, term) for term in sp.Add.make_args(base)):
        return ""
    if exponent == -sp.S.Half:
        return "the norm of a row"
    positive = exponent == -1 and all(_never_negative(fold, term) for term in sp.Add.make_args(base))
    return "a sum of what is not negative" if positive else ""


def _away_from_zero(fold: Fold, term: sp.Expr) -> bool:
    """Whether a term is at least some positive number: one, a maximum with one, or a sum in which exp(0) stands."""
    stays = {Range.BOUNDED, Range.LARGEST}
    return Extents().of(term).low > 0 or any(reference.range in stays for reference in _references(fold, term))


def _never_negative(fold: Fold, term: sp.Expr) -> bool:
    """Whether a term of results is at least 0, as a number, and as a sum of what is."""
    element = next((r.element for r in fold.cascade.reductions if r.result == term and r.reducer is SUM), term)
    return Extents().of(element).low >= 0
