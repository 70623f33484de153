"""A term of a sum as a summand: factors that are applied at the end, and handles in the units of what they stand by."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.facts.location import is_location
from tvm_cascade.algebra.facts.relation import scales
from tvm_cascade.algebra.gauge import Gauge, Move
from tvm_cascade.algebra.handles import (
    Handle,
    by_data,
    exponents,
    factor_in,
    tracking_gauge,
    translated_part,
    translations,
)
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
    tracked : handles that references stand in for.
    """

    function: sp.Expr
    lift: sp.Expr
    factor: sp.Expr
    tracked: list[Handle]

    def over(self, function: sp.Expr, old: Handle, *new: Handle) -> Summand:
        """The term, which nothing rounds, as a function of others than one handle."""
        at, others = self.tracked.index(old), [handle for handle in self.tracked if handle is not old]
        added = [handle for handle in new if handle not in others]
        return Summand(function, function, self.factor, [*others[:at], *added, *others[at:]])


def deferred(derivation: Derivation, reduction: Reduction, term: sp.Expr, used: list[Handle]) -> Summand:
    """Takes out the handles that are factors, unless that moves a rounding out of its dtype's range."""
    summand = Summand(strip_rounding(term), term, sp.Integer(1), [])
    later: list[Handle] = []
    for handle in used:
        weight = factor_in(summand.function, handle.symbol, derivation.elements)
        in_scale = weight is not None and _narrows(summand.lift, handle.symbol)
        if in_scale and not scales(handle.value, summand.lift, derivation.done, derivation.meaning, or_norms=True):
            raise derivation.refuse(reduction, "rounding_range", summand.lift)
        if weight is None or in_scale or (reduction.reducer is SUM and _kept_in_scale(derivation, handle)):
            summand.tracked.append(handle)
            continue
        later.append(handle)
        summand.factor *= weight.subs(handle.symbol, handle.value)
        summand.function, summand.lift = summand.function.subs(handle.symbol, 1), summand.lift.subs(handle.symbol, 1)
    number = abs(_number_in(summand))
    if later and number != 1 and 1 < number * MOST_DEFERRED < MOST_DEFERRED**2:
        summand.factor *= number
        summand.function, summand.lift = summand.function / number, summand.lift / number
    named = tuple(derivation.plain(handle.value) for handle in later)
    derivation.deferred[reduction.result] = derivation.deferred.get(reduction.result, ()) + named
    return summand


def _number_in(summand: Summand) -> sp.Expr:
    """The number that a term has as a factor, outside of all roundings."""
    factors = sp.Mul.make_args(summand.lift)
    return sp.Mul(*(f for f in sp.Mul.make_args(summand.function) if f.is_number and f in factors))


def near_its_handles(derivation: Derivation, summand: Summand) -> Summand:
    """The term over handles whose references keep the digits of what each stands beside, or bound it."""
    summand = in_exponent_units(derivation, _without_constants(summand, derivation.elements))
    for rewritten in (_without_shift, _over_ratio, _by_datum):
        for handle in summand.tracked if summand.lift == summand.function else ():
            part = translated_part(summand.function, handle.symbol, derivation.elements)
            summand = summand if part is None else rewritten(derivation, summand, handle, part)
    return summand


def _without_constants(summand: Summand, elements: Sequence[sp.Symbol]) -> Summand:
    """Factors that do not vary are applied at the end, so that no move divides by one that may be zero.

    Of handles, those that other factors read as well, as u·(x − u)²: the others are deferred, or tracked with reason.
    """
    read = {handle.symbol for handle in summand.tracked}
    within, factors = sp.Mul.make_args(summand.lift), sp.Mul.make_args(summand.function)
    varying = sp.Mul(*(f for f in factors if f.has(*elements))).free_symbols & read

    def is_fixed(factor: sp.Expr) -> bool:
        own = factor.free_symbols & read
        deferrable = own <= varying and not factor.has(sp.exp) if own else bool(factor.free_symbols - {LENGTH})
        return deferrable and not factor.has(*elements) and factor in within

    taken = sp.Mul(*filter(is_fixed, factors))
    values = {handle.symbol: handle.value for handle in summand.tracked}
    return dataclasses.replace(
        summand,
        function=summand.function / taken,
        lift=summand.lift / taken,
        factor=summand.factor * taken.xreplace(values),
    )


def _kept_in_scale(derivation: Derivation, handle: Handle) -> bool:
    """Whether a factor built from max and min is replaced by a power of two, lest terms underflow."""
    power = derivation.move is Move.POWER_OF_TWO
    return power and tracking_gauge(handle, derivation.done) is Gauge.RUNNING


def _narrows(lift: sp.Expr, handle: sp.Symbol) -> bool:
    """Whether a rounding to a narrow range has the handle as a factor, and is not of exponentials alone."""
    for rounded in lift.atoms(Round):
        value, dtype = rounded.args
        if str(dtype) in NARROW_RANGE and value.has(handle):
            varying = [f for f in sp.Mul.make_args(value.subs(handle, 1)) if not f.is_number]
            if not all(isinstance(f, sp.exp) or not f.free_symbols for f in varying):
                return True
    return False


def in_exponent_units(derivation: Derivation, summand: Summand) -> Summand:
    """Rewrites exp(s·x − s·u), not known to be bounded by u, over w = s·u, so that no reference divides by s."""
    given = summand.function
    for handle in list(summand.tracked):
        for exponent in exponents(summand.function, handle.symbol, derivation.elements):
            if derivation.bounds(exponent, given):
                continue
            slope = sp.diff(exponent, handle.symbol)
            if slope.has(handle.symbol, *derivation.elements) or slope == -1:
                continue
            unit = derivation.handles.of(sp.expand(-slope * handle.value))
            summand = dataclasses.replace(
                summand,
                function=_in_unit(summand.function, exponent, slope * handle.symbol, unit.symbol),
                lift=_in_unit(summand.lift, exponent, slope * handle.symbol, unit.symbol),
            )
            others = [h for h in summand.tracked if h.symbol in summand.function.free_symbols and h is not unit]
            summand = dataclasses.replace(summand, tracked=[*others, unit])
    return summand


def _without_shift(derivation: Derivation, summand: Summand, handle: Handle, part: sp.Expr) -> Summand:
    """(x + p) − u, p a parameter, as x − (u − p): neither p + x nor a reference that has p keeps the digits of x."""
    if exponents(summand.function, handle.symbol, derivation.elements):
        return summand
    shift, varying = part.as_independent(*derivation.elements, as_Add=True)
    reads = shift.free_symbols & {*derivation.handles.values, *derivation.results}
    near = is_location(handle.value, part, derivation.done, derivation.meaning)
    if not shift.free_symbols - {LENGTH} or reads or near or varying == 0:
        return summand
    apart = derivation.handles.beside(Handle(handle.symbol, handle.value - shift), varying)
    return summand.over(summand.function.subs(handle.symbol, apart.symbol + shift), handle, apart)


def _over_ratio(derivation: Derivation, summand: Summand, handle: Handle, part: sp.Expr) -> Summand:
    """log |x| − u with u = log |max x| as log(|x|/|v|), v = max x: u has lost what tells x/max x from 1.

    x/Σ x is never near 1, and at data of another scale than the handle's log x and log c are as good apart.
    """
    if not isinstance(handle.value, sp.log) or sp.exp(part).has(sp.exp):
        return summand
    running = tracking_gauge(handle, derivation.done) is Gauge.RUNNING
    if not running or not is_location(handle.value, part, derivation.done, derivation.meaning):
        return summand
    (within,) = handle.value.args
    value = within.args[0] if isinstance(within, sp.Abs) else within
    scale = derivation.handles.beside(Handle(handle.symbol, value), part)
    ratio = sp.log(sp.exp(part) / sp.Abs(scale.symbol, evaluate=False))
    (totals,) = (translations(summand.function, handle.symbol, derivation.elements) or {}).values()
    function = summand.function.xreplace({total: -total.coeff(handle.symbol) * ratio for total in totals})
    return summand.over(function, handle, scale)


def _by_datum(derivation: Derivation, summand: Summand, handle: Handle, part: sp.Expr) -> Summand:
    """x − y − (u − v), u a location of x and v of y, as (x − u) − (y − v).

    What vanishes beside u and v in the program then vanishes here: x − y, where both are small, does not beside u − v.
    Of a power, moves would be products of Δu and Δv, which cancel where (Δu − Δv)² has all digits.
    """
    elements, done = derivation.elements, derivation.done
    if sp.diff(summand.function, handle.symbol, 2) != 0 or part.has(*derivation.handles.values):
        return summand
    varying = part.as_independent(*elements, as_Add=True)[1]
    apart = by_data(varying - handle.value, done, elements)
    own = [total.as_independent(*elements, as_Add=True) for total in apart]
    near = (value.has(*derivation.results) and is_location(-value, a, done, derivation.meaning) for value, a in own)
    if len(apart) < 2 or not all(near):
        return summand
    symbols = [derivation.extracted(value) for value, _ in own]
    read = [h for h in derivation.handles if any(h.symbol in symbol.free_symbols for symbol in symbols)]
    return summand.over(summand.function.subs(handle.symbol, -sp.Add(*symbols)), handle, *read)


def _in_unit(expression: sp.Expr, exponent: sp.Expr, moving: sp.Expr, unit: sp.Symbol) -> sp.Expr:
    """The expression with exp(a + moving), for the exponent a + moving up to roundings, as exp(a − unit)."""
    meant = [e for e in expression.atoms(sp.exp) if strip_rounding(e.args[0]) == exponent]
    return expression.xreplace({e: sp.exp(sp.expand(e.args[0] - moving) - unit) for e in meant})
