"""The choice of a running normaliser (reference) for a subexpression of earlier results, by range analysis."""

from __future__ import annotations

import sympy as sp

from tvm_cascade.algebra.cascade import (
    COUNT,
    LENGTH,
    PowerOfTwo,
    Reduction,
    conditions_that_keep,
    indicator,
    masks_that_keep,
)
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import (
    Gauge,
    Handle,
    Move,
    Range,
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
from tvm_cascade.algebra.separate import Step, in_steps


def reference_of(derivation: Derivation, reduction: Reduction, handle: Handle, function: sp.Expr) -> Reference:
    """The reference of a handle, by range analysis (see `gauge`)."""
    done, elements = derivation.done, derivation.elements
    kept = conditions_that_keep(function, elements)
    read = exponents(function, handle.symbol, elements)
    unbounded = {e for e in read if not derivation.bounds(e, kept)}
    if unbounded:
        counted = sp.And(derivation.where, *(mask > 0 if holds else sp.Le(mask, 0) for mask, holds in kept.items()))
        with derivation.over(counted):  # beside a larger exponent that a condition drops, all others may come out 0
            return _at_the_largest(derivation, reduction, handle, unbounded)
    if only_in_waves(function, handle.symbol):
        return derivation.constant(handle.value, Range.WAVES)
    if _line(derivation, handle, function) is not None and sp.diff(function, handle.symbol, 2) == 0:
        return derivation.constant(handle.value, Range.APART)
    mean = _mean(derivation, reduction, handle, function)
    if mean is not None:
        # The total weight in the denominator is zero where no position that counts has been met.
        weighted = not mean.has(COUNT)
        # At an infinite mean no element is anything, though all are, or infinite, about a finite extremum.
        extremum = tracking_gauge(handle, done) is Gauge.RUNNING
        return derivation.refer(
            (handle, "mean", mean),
            handle.value,
            Gauge.CENTRED,
            mean,
            auxiliary=True,
            guarded=weighted or extremum,
            range=Range.MEAN,
        )
    gauge = tracking_gauge(handle, done)
    scale = factor_in(function, handle.symbol, derivation.elements) is not None
    value = derivation.predicted(handle.value)
    guarded = scale or may_be_singular(value, value.free_symbols - {COUNT, LENGTH}) or _may_be_absent(handle, done)
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
        auxiliary=not scale and _is_rounded(derivation, handle),
        scale=scale,
        move=move,
        range=_range(derivation, handle, function, move, scale),
    )


def _may_be_absent(handle: Handle, done: list[Reduction]) -> bool:
    """Whether the quantity reads a rank of a selection that the first positions do not fill."""
    wholes = [r.reducer.whole for r in done if r.result in handle.value.free_symbols]
    return any(whole is not None and whole.selection is not None and whole.selection.count > 1 for whole in wholes)


def _is_rounded(derivation: Derivation, handle: Handle) -> bool:
    """Whether the quantity is a sum that moves with the data: max x − Σ (max x − x)/N, of which a float keeps less.

    The reference is then near it, and the finish brings in the rest: (max x − c) − Σ (max x − x)/N.
    """
    terms = sp.Add.make_args(handle.value)
    return len(terms) > 1 and any(derivation.offsets.of(term) for term in terms)


def _at_the_largest(derivation: Derivation, reduction: Reduction, handle: Handle, unbounded: set[sp.Expr]) -> Reference:
    """Exponentials that the quantity does not bound take the largest exponent so far as reference."""
    exponent = unbounded.pop()
    if unbounded or sp.diff(exponent, handle.symbol) != -1:
        raise derivation.refuse(reduction, "separation_unknown", exponent)
    part = exponent.subs(handle.symbol, 0)
    if part.has(*(h.symbol for h in derivation.handles)):
        raise derivation.refuse(reduction, "separation_unknown", exponent)  # its largest is not known in one pass
    largest = derivation.component(reduction, MAX, part)
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


def _line(derivation: Derivation, handle: Handle, function: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    """p(x) and q(x), where the function reads the handle in p(x) + q(x)·u alone, as the residue y − u·x does.

    A handle that is a factor, p = 0, is none: zero is no reference then.
    """
    lines = [total for total in function.atoms(sp.Add) if total.has(handle.symbol)]
    if len(lines) != 1 or exponents(function, handle.symbol, derivation.elements):
        return None
    total = sp.expand(lines[0])
    p, q = total.coeff(handle.symbol, 0), total.coeff(handle.symbol, 1)
    fits = p != 0 and sp.expand(p + q * handle.symbol - total) == 0 and q.has(*derivation.elements)
    return (p, q) if fits and not (p + q).has(*(h.symbol for h in derivation.handles)) else None


def _mean(derivation: Derivation, reduction: Reduction, handle: Handle, function: sp.Expr) -> sp.Expr | None:
    """The mean of a(x), where the function reads a(x) − u and u at partial results may be far from the data.

    Let c be the mean of a(x) by the weights |w| of F = w·(a − u)^k. Then |u − c| and |a − c| are on the whole no larger
    than |a − u|, whatever u is: brought from c to u, F loses no more digits than it does unfused. The plain mean is as
    good where weights are alike; it serves where they have no fold. For p + q·u the weights have a factor q², and a is
    −p/q: the c of least squares.
    """
    part, line = _part(derivation, handle, function), None
    if part is None:
        line = _line(derivation, handle, function)
        if line is None:
            return None
        part = -line[0] / line[1]
    cancels = may_cancel(handle.value, derivation.results)
    if is_location(handle.value, part, derivation.done, derivation.meaning) and not cancels:
        return None
    elements = derivation.elements
    factors = (f for f in sp.Mul.make_args(function) if f.has(*elements) and not f.has(handle.symbol))
    weight = sp.Abs(sp.Mul(*factors))
    if line is not None:
        return _weighted(derivation, reduction, -line[0] * line[1] * weight, line[1] ** 2 * weight)
    apart, varying = part.as_independent(*elements, as_Add=True)
    kept = indicator(masks_that_keep(weight, elements))  # what is masked out may be anything
    for like in (weight, kept) if weight != 1 else ():
        mean = _weighted(derivation, reduction, varying * like, like) if like != 1 else None
        if mean is not None:
            return apart + mean
    scale, bare = varying.as_coeff_Mul()
    return apart + scale * derivation.component(reduction, SUM, bare) / COUNT


def _weighted(derivation: Derivation, reduction: Reduction, above: sp.Expr, weight: sp.Expr) -> sp.Expr | None:
    """Σ above / Σ weight in components; None where the weight reads results other than as exp(x − u)."""
    read = [h for h in derivation.handles if h.symbol in weight.free_symbols]
    if any(not exponents(weight, h.symbol, derivation.elements) for h in read):
        return None
    references = [reference_of(derivation, reduction, h, weight) for h in read]
    old, new = ({h.symbol: s for h, s in zip(read, side, strict=True)} for side in _sides(references))
    ratio = sp.powsimp(sp.expand(weight.subs(new) / weight.subs(old)))
    ratio = in_steps(ratio, [Step(r.symbol, r.moved, r.step) for r in references])
    if ratio.has(*derivation.elements):
        return None
    sums = []
    for lift in (above, weight):
        scale, bare = lift.subs(old).as_coeff_Mul()
        known, symbol = derivation.known(SUM, bare), derivation.unused(reduction)
        sums.append(scale * (known or derivation.add(reduction, SUM, bare, symbol * ratio)))
    return sums[0] / sums[1]


def _sides(references: list[Reference]) -> tuple[list[sp.Symbol], list[sp.Symbol]]:
    return [r.symbol for r in references], [r.moved for r in references]


def _move(derivation: Derivation, gauge: Gauge, function: sp.Expr, handle: Handle, scale: bool) -> Move:
    """What was asked for, where range analysis allows it: lazy under exponentials alone, powers of two for scales."""
    wanted = derivation.move
    in_exponents = not scale and bool(exponents(function, handle.symbol, derivation.elements))
    allowed = {Move.LAZY: in_exponents and _slope_is_one(function, handle, derivation), Move.POWER_OF_TWO: scale}
    return wanted if gauge is Gauge.RUNNING and allowed.get(wanted, False) else Move.EXACT


def _slope_is_one(function: sp.Expr, handle: Handle, derivation: Derivation) -> bool:
    found = exponents(function, handle.symbol, derivation.elements)
    return all(abs(sp.diff(exponent, handle.symbol)) == 1 for exponent in found)
