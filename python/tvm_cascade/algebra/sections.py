"""The table of sections: which reference an invariant takes, by what each promises of range and digits.

Which reference stands for an invariant never touches exactness (`expansion`), only range and digits. A row of the
table is a family of functions closed under an action on elements, and the reference that it has for them. Each
reference says whether lifts at it stay in range, and whether they keep the digits that they have at the quantity
itself. What promises most is taken; of those that promise as much, the one with the smallest state; then the first in
the table.

| action               | functions            | reference            | in range             | digits           | state |
|----------------------|----------------------|----------------------|----------------------|------------------|-------|
| translation          | waves                | 0                    | yes                  | u is no location | none  |
| translation          | several differences  | 0                    | yes                  | the finish tells | none  |
| scaling under log    | log-polynomials      | u of partial results | yes                  | yes              | u     |
| translation, scaling | all                  | u of partial results | u bounds exponents   | u is a location  | u     |
| translation          | exponentials         | the largest exponent | yes                  | yes              | a max |
| translation          | all of a(x) − u      | the mean of a(x)     | yes                  | yes              | sums  |

Beside several a(x) no reference is near all of them, and u of partial results may be farther from each than in the end
it is: moves then add powers of that distance which cancel again, and no number at the end tells how large they were.
About 0 nothing moves, and all that may cancel stands in the finish, where certificates and guards see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import expansion_of
from tvm_cascade.algebra.facts.extent import Pole, pole
from tvm_cascade.algebra.facts.location import is_location
from tvm_cascade.algebra.facts.weight import Offsets
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.invariants import (
    Invariant,
    by_data,
    exponents,
    factor_in,
    tracking_policy,
    translated_part,
    translations,
)
from tvm_cascade.algebra.policy import Move, Policy, Range, is_power_of_two
from tvm_cascade.algebra.reducer import MAX, SUM
from tvm_cascade.symbolic.elementary import WAVES
from tvm_cascade.symbolic.functions import PowerOfTwo
from tvm_cascade.symbolic.masks import conditions_that_keep, indicator, masks_that_keep
from tvm_cascade.symbolic.separate import Step
from tvm_cascade.symbolic.work import expanded


@dataclass(frozen=True)
class Reading:
    """How a function reads an invariant: the facts that sections are chosen by, each found once.

    Attributes
    ----------
    function : of elements and invariants.
    """

    derivation: Derivation
    reduction: Reduction
    invariant: Invariant
    function: sp.Expr

    @cached_property
    def exponents(self) -> list[sp.Expr]:
        """Those that read both the invariant and elements."""
        return exponents(self.function, self.invariant.symbol, self.derivation.elements)

    @cached_property
    def unbounded(self) -> set[sp.Expr]:
        """The exponents that partial results do not bound."""
        return set(self.derivation.unbounded(self.function, self.invariant))

    @cached_property
    def factor(self) -> sp.Expr | None:
        """H(u), where the function is G·H(u)."""
        return factor_in(self.function, self.invariant.symbol, self.derivation.elements)

    @cached_property
    def part(self) -> sp.Expr | None:
        """The a(x) where the function reads a(x) − u and no exponential of it, and a(x) reads no result itself.

        Of (x − u) − (y − v) it is x, for u.
        """
        derivation, value = self.derivation, self.invariant.value
        part = translated_part(self.function, self.invariant.symbol, derivation.elements)
        if part is None or self.exponents or not part.has(*derivation.invariants.values):
            return None if self.exponents else part
        written = part.xreplace({h.symbol: h.value for h in derivation.invariants})
        apart = by_data(written - value, derivation.done, derivation.elements)
        met = [total for total in apart if total.has(*(value.free_symbols & {*derivation.results}))]
        own = expanded(sp.Add(*met) + value)
        return own if own.has(*derivation.elements) and not own.has(*derivation.results) else None

    @property
    def is_between(self) -> bool:
        """Whether the invariant stands in differences of several a(x), and no exponent, as in (x − u)·(y − u)."""
        parts = translations(self.function, self.invariant.symbol, self.derivation.elements)
        return not self.exponents and parts is not None and len(parts) > 1

    @property
    def is_in_waves(self) -> bool:
        """Whether the invariant occurs under sines and cosines alone."""
        waves = {wave: sp.S.One for wave in self.function.atoms(*WAVES)}
        return not self.function.xreplace(waves).has(self.invariant.symbol)

    @cached_property
    def is_near(self) -> bool:
        """Whether the quantity at partial results is near what it stands beside, or stands beside nothing."""
        if self.part is None:
            return True
        derivation, value = self.derivation, self.invariant.value
        near = is_location(value, self.part, derivation.done, derivation.meaning)
        return near and pole(value, derivation.results) is not Pole.WITHIN


def _always(_reading: Reading) -> bool:
    return True


@dataclass(frozen=True)
class Section:
    """A row of the table: a reference for the functions of one kind.

    Attributes
    ----------
    reads : whether a function is of that kind.
    reference : adds it; None where the state for it has no fold.
    in_range, keeps_digits : what lifts at the reference are known to do.
    """

    reads: Callable[[Reading], bool]
    reference: Callable[[Reading], Reference | None]
    in_range: Callable[[Reading], bool] = _always
    keeps_digits: Callable[[Reading], bool] = _always


def reference_of(derivation: Derivation, reduction: Reduction, invariant: Invariant, function: sp.Expr) -> Reference:
    """The reference of an invariant that a function reads, added to the state.

    Raises
    ------
    Refused
        When no reference keeps the function in range.
    """
    reading = Reading(derivation, reduction, invariant, function)
    found = (reference for row in _by_promise(reading) if (reference := row.reference(reading)) is not None)
    return next(found)


def _by_promise(reading: Reading) -> Iterator[Section]:
    """The rows for a function, best first; rows stand by size of state, so one that promises all has no better."""
    left: list[tuple[tuple[bool, bool], Section]] = []
    for row in (row for row in SECTIONS if row.reads(reading)):
        promise = (row.in_range(reading), row.keeps_digits(reading))
        if all(promise):
            yield row
        else:
            left.append((promise, row))
    yield from (row for _, row in sorted(left, key=lambda entry: entry[0], reverse=True))


def _at_zero(reading: Reading) -> Reference:
    return reading.derivation.constant()


def _at_the_results(reading: Reading) -> Reference:
    """The quantity at the partial results; sums are extrapolated, scales may go to a power of two beside it."""
    derivation, invariant, done = reading.derivation, reading.invariant, reading.derivation.done
    policy, scale = tracking_policy(invariant, done), reading.factor is not None
    value = derivation.predicted(invariant.value)
    guarded = scale or bool(pole(value, value.free_symbols - {COUNT, LENGTH})) or _may_be_absent(invariant, done)
    move = _move(reading, policy)
    if move is Move.POWER_OF_TWO and reading.factor is not None:
        # Below u where F grows with it, above where it falls: |F| at the reference is never larger than at u.
        grows = sp.diff(reading.factor, invariant.symbol).subs(invariant.symbol, 1) > 0
        value = PowerOfTwo(value) if grows else 2 * PowerOfTwo(value)
    return derivation.refer(
        (invariant, "scale" if scale else ""),
        invariant.value,
        policy,
        value,
        guarded=guarded,
        auxiliary=not scale and _is_rounded(derivation, invariant),
        scale=scale,
        move=move,
        range=_range(reading, move),
    )


def _may_be_absent(invariant: Invariant, done: list[Reduction]) -> bool:
    """Whether the quantity reads a rank of a selection that the first positions do not fill."""
    wholes = [r.reducer.whole for r in done if r.result in invariant.value.free_symbols]
    return any(whole is not None and whole.selection is not None and whole.selection.count > 1 for whole in wholes)


def _is_rounded(derivation: Derivation, invariant: Invariant) -> bool:
    """Whether the quantity is a sum that moves with the data: max x − Σ (max x − x)/N, of which a float keeps less.

    The reference is then near it, and the finish brings in the rest: (max x − c) − Σ (max x − x)/N.
    """
    terms = sp.Add.make_args(invariant.value)
    offsets = Offsets(derivation.done, derivation.length)
    return len(terms) > 1 and any(offsets.of(term) for term in terms)


def _at_the_scale(reading: Reading) -> Reference:
    """The quantity at the partial results, of which elements are taken as multiples."""
    derivation, value = reading.derivation, reading.invariant.value
    return derivation.refer(
        (value, "ratio"),
        value,
        tracking_policy(reading.invariant, derivation.done),
        derivation.predicted(value),
        guarded=True,
        scale=True,
        range=Range.RATIO,
    )


def _at_the_largest(reading: Reading) -> Reference:
    """The largest exponent so far, of exponentials that the quantity does not bound."""
    derivation, invariant = reading.derivation, reading.invariant
    kept = conditions_that_keep(reading.function, derivation.elements).items()
    exponent, *others = reading.unbounded
    part = exponent.subs(invariant.symbol, 0)
    # The largest of what reads other invariants is not known in one pass.
    if others or sp.diff(exponent, invariant.symbol) != -1 or part.has(*derivation.invariants.values):
        raise derivation.refuse(reading.reduction, "separation_unknown", exponent)
    counted = sp.And(derivation.where, *(mask > 0 if holds else sp.Le(mask, 0) for mask, holds in kept))
    with derivation.over(counted):  # beside a larger exponent that a condition drops, all others may come out 0
        largest = derivation.component(reading.reduction, MAX, part)
    # Guarded: an exponent of +inf must make its own term infinite, not every other one NaN.
    return derivation.refer(
        (invariant, "bound", largest),
        invariant.value,
        Policy.RUNNING,
        largest,
        auxiliary=True,
        guarded=True,
        range=Range.LARGEST,
    )


def _range(reading: Reading, move: Move) -> Range:
    """Why lifts keep their digits with the quantity at the partial results."""
    if reading.factor is not None:
        in_powers = move is Move.POWER_OF_TWO or is_power_of_two(reading.invariant.value)
        return Range.POWER_OF_TWO if in_powers else Range.SCALE
    if reading.exponents:
        in_range = Range.LAZY if move is Move.LAZY else Range.BOUNDED
        return Range.SPREAD if reading.unbounded else in_range
    return Range.PREDICTED if reading.part is None else Range.LOCATION


def _move(reading: Reading, policy: Policy) -> Move:
    """What was asked for, where range analysis allows it: lazy under exponentials alone, powers of two for scales."""
    wanted, scale, symbol = reading.derivation.move, reading.factor is not None, reading.invariant.symbol
    slopes_are_one = all(abs(sp.diff(exponent, symbol)) == 1 for exponent in reading.exponents)
    allowed = {
        Move.LAZY: not scale and bool(reading.exponents) and slopes_are_one,
        Move.POWER_OF_TWO: scale,
    }
    return wanted if policy is Policy.RUNNING and allowed.get(wanted, False) else Move.EXACT


def _at_the_mean(reading: Reading) -> Reference | None:
    """The mean of what the invariant stands beside."""
    mean, invariant = _mean(reading), reading.invariant
    if mean is None:
        return None
    # The total weight in the denominator is zero where no position that counts has been met.
    weighted = not mean.has(COUNT)
    # At an infinite mean no element is anything, though all are, or infinite, about a finite extremum.
    extremum = tracking_policy(invariant, reading.derivation.done) is Policy.RUNNING
    return reading.derivation.refer(
        (invariant, "mean", mean),
        invariant.value,
        Policy.CENTRED,
        mean,
        auxiliary=True,
        guarded=weighted or extremum,
        range=Range.MEAN,
    )


def _mean(reading: Reading) -> sp.Expr | None:
    """The mean of a(x) so far; None where it has no fold.

    Let c be the mean of a(x) by the weights |w| of F = w·(a − u)^k. Then |u − c| and |a − c| are on the whole no larger
    than |a − u|, whatever u is: brought from c to u, F loses no more digits than it does unfused. The plain mean is as
    good where weights are alike; it serves where they have no fold.
    """
    derivation, reduction, elements = reading.derivation, reading.reduction, reading.derivation.elements
    factors = sp.Mul.make_args(reading.function)
    weight = sp.Abs(sp.Mul(*(f for f in factors if f.has(*elements) and not f.has(reading.invariant.symbol))))
    assert reading.part is not None
    apart, varying = reading.part.as_independent(*elements, as_Add=True)
    kept = indicator(masks_that_keep(weight, elements))  # what is masked out may be anything
    for like in (weight, kept) if weight != 1 else ():
        mean = _weighted(derivation, reduction, varying * like, like) if like != 1 else None
        if mean is not None:
            return apart + mean
    return apart + _plain(derivation, reduction, varying)


def _plain(derivation: Derivation, reduction: Reduction, value: sp.Expr) -> sp.Expr:
    """Σ value / n in a component."""
    scale, bare = value.as_coeff_Mul()
    return scale * derivation.component(reduction, SUM, bare) / COUNT


def _weighted(derivation: Derivation, reduction: Reduction, above: sp.Expr, weight: sp.Expr) -> sp.Expr | None:
    """Σ above / Σ weight in components; None where the weight reads results other than as exp(x − u)."""
    read = [h for h in derivation.invariants if h.symbol in weight.free_symbols]
    if any(not exponents(weight, h.symbol, derivation.elements) for h in read):
        return None
    span = expansion_of(weight, derivation.elements, [h.symbol for h in read]) if read else None
    if read and (span is None or span.rank > 1):
        return None
    references = [reference_of(derivation, reduction, h, weight) for h in read]
    old = {h.symbol: r.symbol for h, r in zip(read, references, strict=True)}
    steps = [Step(r.symbol, r.moved, r.step) for r in references]
    ratio = sp.S.One if span is None else span.shift([h.symbol for h in read], steps)[0]
    sums = []
    for lift in (above, weight):
        scale, bare = lift.subs(old).as_coeff_Mul()
        sums.append(scale * derivation.component(reduction, SUM, bare, lambda own: own * ratio))
    return sums[0] / sums[1]


SECTIONS = (
    Section(
        reads=lambda reading: reading.is_in_waves and not reading.unbounded,
        reference=_at_zero,
        keeps_digits=lambda reading: reading.part is None or not reading.is_near,
    ),
    Section(lambda reading: reading.is_between, _at_zero),
    Section(
        reads=lambda reading: any(e.has(reading.invariant.symbol) for e in reading.function.atoms(sp.log)),
        reference=_at_the_scale,
    ),
    Section(
        reads=_always,
        reference=_at_the_results,
        in_range=lambda reading: not reading.unbounded,
        keeps_digits=lambda reading: reading.is_near,
    ),
    Section(lambda reading: bool(reading.unbounded), _at_the_largest),
    Section(lambda reading: reading.part is not None, _at_the_mean),
)
"""By size of state."""
