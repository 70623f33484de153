"""Where the quantity of a handle is held: the choice of a reference, by range analysis (see `gauge`)."""

from __future__ import annotations

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, PowerOfTwo, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import (
    Gauge,
    Handle,
    Move,
    Range,
    bounded_by_results,
    exponents,
    factor_in,
    is_location,
    is_power_of_two,
    may_be_singular,
    may_cancel,
    only_in_waves,
    tracking_gauge,
    translated_part,
)
from tvm_cascade.algebra.reducer import MAX, SUM


def reference_of(derivation: Derivation, reduction: Reduction, handle: Handle, function: sp.Expr) -> Reference:
    """Where the handle's quantity is held: by range analysis (see `gauge`)."""
    done = derivation.done
    unbounded = {
        e for e in exponents(function, handle.symbol, derivation.elements) if not bounded_by_results(e, handle, done)
    }
    if unbounded:
        exponent = unbounded.pop()
        if unbounded or sp.diff(exponent, handle.symbol) != -1:
            raise derivation.refuse(reduction, "separation_unknown", exponent)
        largest = derivation.component(reduction, MAX, exponent.subs(handle.symbol, 0))
        # Guarded: an exponent of +inf must make its own term infinite, not every other one NaN.
        return derivation.refer(
            (handle, "bound", largest),
            handle.value,
            Gauge.RUNNING,
            largest,
            auxiliary=True,
            guarded=True,
            range=Range.LARGEST,
        )
    if only_in_waves(function, handle.symbol):
        return derivation.constant(handle.value)
    mean = _mean(derivation, reduction, handle, function)
    if mean is not None:
        # The total weight in the denominator is zero where no position that counts has been met.
        weighted = not mean.has(COUNT)
        return derivation.refer(
            (handle, "mean", mean),
            handle.value,
            Gauge.CENTRED,
            mean,
            auxiliary=True,
            guarded=weighted,
            range=Range.MEAN,
        )
    gauge = tracking_gauge(handle, done)
    scale = factor_in(function, handle.symbol, derivation.elements) is not None
    value = derivation.predicted(handle.value, gauge)
    guarded = scale or may_be_singular(value, value.free_symbols - {COUNT, LENGTH})
    move = _move(derivation, gauge, function, handle, scale)
    if move is Move.POWER_OF_TWO:
        # Below u where F grows with it, above where it falls: |F| at the reference is never larger than at u.
        grows = (
            sp.diff(factor_in(function, handle.symbol, derivation.elements), handle.symbol).subs(handle.symbol, 1) > 0
        )
        value = PowerOfTwo(value) if grows else 2 * PowerOfTwo(value)
    return derivation.refer(
        (handle, "scale" if scale else ""),
        handle.value,
        gauge,
        value,
        guarded=guarded,
        scale=scale,
        move=move,
        range=_range(derivation, handle, function, move, scale),
    )


def _range(derivation: Derivation, handle: Handle, function: sp.Expr, move: Move, scale: bool) -> Range:
    """Why lifts keep their digits with the quantity at the partial results."""
    if scale:
        return Range.POWER_OF_TWO if move is Move.POWER_OF_TWO or is_power_of_two(handle.value) else Range.SCALE
    if exponents(function, handle.symbol, derivation.elements):
        return Range.LAZY if move is Move.LAZY else Range.BOUNDED
    return Range.PREDICTED if _part(derivation, handle, function) is None else Range.LOCATION


def _part(derivation: Derivation, handle: Handle, function: sp.Expr) -> sp.Expr | None:
    """The a(x) where the function reads a(x) − u and no exponential of it, and a(x) reads no result itself."""
    part = translated_part(function, handle.symbol, derivation.elements)
    if part is None or part.has(*(h.symbol for h in derivation.handles)):
        return None
    return None if exponents(function, handle.symbol, derivation.elements) else part


def _mean(derivation: Derivation, reduction: Reduction, handle: Handle, function: sp.Expr) -> sp.Expr | None:
    """The mean of a(x), where the function reads a(x) − u and u at partial results may be far from the data.

    Let c be the mean of a(x) by the weights |w| of F = w·(a − u)^k. Then |u − c| and |a − c| are on the whole no larger
    than |a − u|, whatever u is: brought from c to u, F loses no more digits than it does unfused. The plain mean is as
    good where weights are alike; it serves where they read results themselves, or u divides by their sum.
    """
    elements, handles = derivation.elements, [h.symbol for h in derivation.handles]
    part = _part(derivation, handle, function)
    if part is None:
        return None
    cancels = may_cancel(handle.value, derivation.results)
    if not cancels and is_location(handle.value, part, derivation.done, derivation.meaning):
        return None
    apart, varying = part.as_independent(*elements, as_Add=True)
    scale, bare = varying.as_coeff_Mul()
    weight = sp.Mul(*(f for f in sp.Mul.make_args(function) if f.has(*elements) and not f.has(handle.symbol)))
    if cancels or weight == 1 or weight.has(*handles):
        return apart + scale * derivation.component(reduction, SUM, bare) / COUNT
    total = derivation.component(reduction, SUM, sp.Abs(weight))
    return apart + scale * derivation.component(reduction, SUM, bare * sp.Abs(weight)) / total


def _move(derivation: Derivation, gauge: Gauge, function: sp.Expr, handle: Handle, scale: bool) -> Move:
    """What was asked for, where range analysis allows it: lazy under exponentials alone, powers of two for scales."""
    wanted = derivation.move
    in_exponents = not scale and bool(exponents(function, handle.symbol, derivation.elements))
    allowed = {Move.LAZY: in_exponents and _slope_is_one(function, handle, derivation), Move.POWER_OF_TWO: scale}
    return wanted if gauge is Gauge.RUNNING and allowed.get(wanted, False) else Move.EXACT


def _slope_is_one(function: sp.Expr, handle: Handle, derivation: Derivation) -> bool:
    found = exponents(function, handle.symbol, derivation.elements)
    return all(abs(sp.diff(exponent, handle.symbol)) == 1 for exponent in found)
