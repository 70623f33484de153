"""A term of a sum as a summand: factors applied at the end, and invariants in the units of what they stand by."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.facts.location import is_location
from tvm_cascade.algebra.facts.relation import scales
from tvm_cascade.algebra.invariants import (
    Invariant,
    by_data,
    exponents,
    factor_in,
    tracking_policy,
    translated_part,
    translations,
)
from tvm_cascade.algebra.policy import Move, Policy
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.rounding import NARROW_RANGE
from tvm_cascade.symbolic.separate import strip_rounding

MOST_DEFERRED = 2**12
"""Numbers up to this, and their reciprocals, are applied at the end with results: sums without them stay in range."""


@dataclasses.dataclass
class Summand:
    """A term of a sum, with deferred factors taken out.

    Attributes
    ----------
    function : the term without rounding; `lift` with it.
    factor : what is applied at the end.
    tracked : invariants that references stand in for.
    """

    function: sp.Expr
    lift: sp.Expr
    factor: sp.Expr
    tracked: list[Invariant]

    def over(self, function: sp.Expr, old: Invariant, *new: Invariant) -> Summand:
        """The term, which nothing rounds, as a function of others than one invariant."""
        at, others = self.tracked.index(old), [invariant for invariant in self.tracked if invariant is not old]
        added = [invariant for invariant in new if invariant not in others]
        return Summand(function, function, self.factor, [*others[:at], *added, *others[at:]])


def deferred(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Invariant]) -> Summand:
    """Takes out the invariants that are factors, unless that moves a rounding out of its dtype's range."""
    summand = Summand(strip_rounding(term), term, sp.Integer(1), [])
    later: list[Invariant] = []
    for invariant in used:
        weight = factor_in(summand.function, invariant.symbol, derivation.elements)
        in_scale = weight is not None and _narrows(summand.lift, invariant.symbol)
        if in_scale and not scales(invariant.value, summand.lift, derivation.done, derivation.meaning, or_norms=True):
            raise derivation.refuse(reduction, "rounding_range", summand.lift)
        if weight is None or in_scale or (reduction.reducer is SUM and _kept_in_scale(derivation, invariant)):
            summand.tracked.append(invariant)
            continue
        later.append(invariant)
        summand.factor *= weight.subs(invariant.symbol, invariant.value)
        summand.function, summand.lift = (
            summand.function.subs(invariant.symbol, 1),
            summand.lift.subs(invariant.symbol, 1),
        )
    number = abs(_number_in(summand))
    if later and number != 1 and 1 < number * MOST_DEFERRED < MOST_DEFERRED**2:
        summand.factor *= number
        summand.function, summand.lift = summand.function / number, summand.lift / number
    named = tuple(derivation.plain(invariant.value) for invariant in later)
    derivation.deferred[reduction.result] = derivation.deferred.get(reduction.result, ()) + named
    return summand


def _number_in(summand: Summand) -> sp.Expr:
    """The number that a term has as a factor, outside of all roundings."""
    factors = sp.Mul.make_args(summand.lift)
    return sp.Mul(*(f for f in sp.Mul.make_args(summand.function) if f.is_number and f in factors))


def near_its_invariants(derivation: Derivation, summand: Summand) -> Summand:
    """The term over invariants whose references keep the digits of what each stands beside, or bound it."""
    summand = in_exponent_units(derivation, _without_constants(summand, derivation.elements))
    for rewritten in (_without_shift, _over_ratio, _by_datum):
        for invariant in summand.tracked if summand.lift == summand.function else ():
            part = translated_part(summand.function, invariant.symbol, derivation.elements)
            summand = summand if part is None else rewritten(derivation, summand, invariant, part)
    return summand


def _without_constants(summand: Summand, elements: Sequence[sp.Symbol]) -> Summand:
    """Factors that do not vary are applied at the end, so that no move divides by one that may be zero.

    Of invariants, those that other factors read as well, as u·(x − u)²: others are deferred, or tracked with reason.
    """
    read = {invariant.symbol for invariant in summand.tracked}
    within, factors = sp.Mul.make_args(summand.lift), sp.Mul.make_args(summand.function)
    varying = sp.Mul(*(f for f in factors if f.has(*elements))).free_symbols & read

    def is_fixed(factor: sp.Expr) -> bool:
        own = factor.free_symbols & read
        deferrable = own <= varying and not factor.has(sp.exp) if own else bool(factor.free_symbols - {LENGTH})
        return deferrable and not factor.has(*elements) and factor in within

    taken = sp.Mul(*filter(is_fixed, factors))
    values = {invariant.symbol: invariant.value for invariant in summand.tracked}
    return dataclasses.replace(
        summand,
        function=summand.function / taken,
        lift=summand.lift / taken,
        factor=summand.factor * taken.xreplace(values),
    )


def _kept_in_scale(derivation: Derivation, invariant: Invariant) -> bool:
    """Whether a factor built from max and min is replaced by a power of two, lest terms underflow."""
    power = derivation.move is Move.POWER_OF_TWO
    return power and tracking_policy(invariant, derivation.done) is Policy.RUNNING


def _narrows(lift: sp.Expr, invariant: sp.Symbol) -> bool:
    """Whether a rounding to a narrow range has the invariant as a factor, and is not of exponentials alone."""
    for rounded in lift.atoms(Round):
        value, dtype = rounded.args
        if str(dtype) in NARROW_RANGE and value.has(invariant):
            varying = [f for f in sp.Mul.make_args(value.subs(invariant, 1)) if not f.is_number]
            if not all(isinstance(f, sp.exp) or not f.free_symbols for f in varying):
                return True
    return False


def in_exponent_units(derivation: Derivation, summand: Summand) -> Summand:
    """Rewrites exp(s·x − s·u), not known to be bounded by u, over w = s·u, so that no reference divides by s."""
    given = summand.function
    for invariant in list(summand.tracked):
        for exponent in exponents(summand.function, invariant.symbol, derivation.elements):
            if derivation.bounds(exponent, given):
                continue
            slope = sp.diff(exponent, invariant.symbol)
            if slope.has(invariant.symbol, *derivation.elements) or slope == -1:
                continue
            unit = derivation.invariants.of(sp.expand(-slope * invariant.value))
            summand = dataclasses.replace(
                summand,
                function=_in_unit(summand.function, exponent, slope * invariant.symbol, unit.symbol),
                lift=_in_unit(summand.lift, exponent, slope * invariant.symbol, unit.symbol),
            )
            others = [h for h in summand.tracked if h.symbol in summand.function.free_symbols and h is not unit]
            summand = dataclasses.replace(summand, tracked=[*others, unit])
    return summand


def _without_shift(derivation: Derivation, summand: Summand, invariant: Invariant, part: sp.Expr) -> Summand:
    """(x + p) − u, p a parameter, as x − (u − p): neither p + x nor a reference that has p keeps the digits of x.

    So too with p a number, of a u that is x + p where all elements are equal: x + log N − (m + log t) is
    x − (m + log(t/N)).
    """
    if exponents(summand.function, invariant.symbol, derivation.elements):
        return summand
    shift, varying = part.as_independent(*derivation.elements, as_Add=True)
    reads = shift.free_symbols & {*derivation.invariants.values, *derivation.results}
    of_parameters = derivation.over_length(shift).free_symbols - {LENGTH}
    asked = (derivation.done, derivation.meaning)
    near = is_location(invariant.value, part, *asked)
    stands = near if of_parameters else not is_location(invariant.value, part, *asked, exactly=True)
    if shift == 0 or reads or stands or varying == 0:
        return summand
    log = next((term for term in sp.Add.make_args(invariant.value) if isinstance(term, sp.log)), None)
    if of_parameters or log is None:
        value = invariant.value - shift
    else:
        value = invariant.value - log + sp.log(log.args[0] * sp.exp(-shift))
    apart = derivation.invariants.beside(Invariant(invariant.symbol, value), varying)
    return summand.over(summand.function.subs(invariant.symbol, apart.symbol + shift), invariant, apart)


def _over_ratio(derivation: Derivation, summand: Summand, invariant: Invariant, part: sp.Expr) -> Summand:
    """log |x| − u with u = log |max x| as log(|x|/|v|), v = max x: u has lost what tells x/max x from 1.

    x/Σ x is never near 1, and at data of another scale than the invariant's log x and log c are as good apart.
    """
    if not isinstance(invariant.value, sp.log) or sp.exp(part).has(sp.exp):
        return summand
    running = tracking_policy(invariant, derivation.done) is Policy.RUNNING
    if not running or not is_location(invariant.value, part, derivation.done, derivation.meaning):
        return summand
    (within,) = invariant.value.args
    value = within.args[0] if isinstance(within, sp.Abs) else within
    scale = derivation.invariants.beside(Invariant(invariant.symbol, value), part)
    ratio = sp.log(sp.exp(part) / sp.Abs(scale.symbol, evaluate=False))
    (totals,) = (translations(summand.function, invariant.symbol, derivation.elements) or {}).values()
    function = summand.function.xreplace({total: -total.coeff(invariant.symbol) * ratio for total in totals})
    return summand.over(function, invariant, scale)


def _by_datum(derivation: Derivation, summand: Summand, invariant: Invariant, part: sp.Expr) -> Summand:
    """x − y − (u − v), u a location of x and v of y, as (x − u) − (y − v).

    What vanishes beside u and v in the program then vanishes here: x − y, where both are small, does not beside u − v.
    Of a power, moves would be products of Δu and Δv, which cancel where (Δu − Δv)² has all digits.
    """
    elements, done = derivation.elements, derivation.done
    if sp.diff(summand.function, invariant.symbol, 2) != 0 or part.has(*derivation.invariants.values):
        return summand
    varying = part.as_independent(*elements, as_Add=True)[1]
    apart = by_data(varying - invariant.value, done, elements)
    own = [total.as_independent(*elements, as_Add=True) for total in apart]
    near = (value.has(*derivation.results) and is_location(-value, a, done, derivation.meaning) for value, a in own)
    if len(apart) < 2 or not all(near):
        return summand
    symbols = [derivation.extracted(value) for value, _ in own]
    read = [h for h in derivation.invariants if any(h.symbol in symbol.free_symbols for symbol in symbols)]
    return summand.over(summand.function.subs(invariant.symbol, -sp.Add(*symbols)), invariant, *read)


def _in_unit(expression: sp.Expr, exponent: sp.Expr, moving: sp.Expr, unit: sp.Symbol) -> sp.Expr:
    """The expression with exp(a + moving), for the exponent a + moving up to roundings, as exp(a − unit)."""
    meant = [e for e in expression.atoms(sp.exp) if strip_rounding(e.args[0]) == exponent]
    return expression.xreplace({e: sp.exp(sp.expand(e.args[0] - moving) - unit) for e in meant})
