"""Argmax is invariant under monotone maps: the positions at which an earlier extremum is attained.

| m = max of                                 | the positions that attain it are those of                         |
|--------------------------------------------|-------------------------------------------------------------------|
| a                                          | max a                                                             |
| φ(a, d), strictly rising (falling) in a    | max a (min a)                                                     |
| φ(a, d), either or constant, as d has it   | max a, min a, or all: φ at the one end is above the other, or not |
| φ(a, d), strictly convex in a              | the end at which φ is larger, or both                             |
| G·exp(a)·H(d) + K(d)                       | max G·exp(a) where H > 0, min where H < 0, all where H = 0        |

So exp(a − d) and a·d are attained where a is, and where both ends give one value, as in a program whose exponentials
are all out of range, everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Gauge, Move, Range
from tvm_cascade.algebra.monotone import kept_by, through_order
from tvm_cascade.algebra.reducer import MAX, MIN, Reducer
from tvm_cascade.symbolic.functions import Round, SignedSize
from tvm_cascade.symbolic.masks import is_truth


@dataclass(frozen=True)
class End:
    """The maximum or minimum of a subexpression.

    Attributes
    ----------
    lift : the part, as the component of the extremum has it: log √x and log(x)/2 round apart.
    known : what an element symbol is at these positions; empty where the part is no symbol.
    reference : the extremum so far.
    """

    lift: sp.Expr
    known: tuple[tuple[sp.Symbol, sp.Expr], ...]
    reference: Reference


Ends = tuple[End, ...] | None
"""The ends at which an extremum is attained; None where it is at all positions."""


Attained = tuple[tuple[Ends, sp.Basic], ...]
"""The ends, and the condition on results and components under which they are those, in order."""


def attained(derivation: Derivation, reduction: Reduction, extreme: Reduction) -> Attained | None:
    """The positions that attain an earlier extremum; None where no law applies.

    Parameters
    ----------
    reduction : what it is asked for.
    """
    if not derivation.plain(extreme.element).has(*derivation.cascade.results):
        lift = derivation.lift_of(extreme)
        return None if lift is None else (((_own(derivation, extreme, lift),), sp.true),)
    kinked = extreme.element.atoms(Round, sp.Piecewise)  # what rounding or a choice makes equal is no end
    if any(derivation.plain(part).has(*derivation.cascade.results) for part in kinked):
        return None
    return _of_a_map(derivation, reduction, extreme)


def _of_a_map(derivation: Derivation, reduction: Reduction, extreme: Reduction) -> Attained | None:
    """That of max φ(a, d)."""
    element = derivation.extracted(extreme.element)
    values = derivation.handles.values
    symbols = list(values)
    strict, passed = (
        through_order(element, extreme.reducer, derivation.elements, symbols, strictly=True, or_constant=or_constant)
        for or_constant in (False, True)
    )
    if isinstance(passed, str):
        return _of_a_product(derivation, reduction, extreme.reducer, element)
    found, kept = passed
    (part,), (variable,) = found.parts, found.symbols
    if is_truth(part):
        return None
    ends = {reducer: _end(derivation, reduction, reducer, part) for reducer in kept}
    if len(kept) == 1 and not found.value.diff(variable).has(variable):  # it is affine
        return ((tuple(ends.values()), sp.true),)
    high, low = (derivation.component(reduction, reducer, part) for reducer in (MAX, MIN))
    first, second = (found.at(end).xreplace(values) for end in (high, low))
    larger, smaller = (first > second, second > first) if extreme.reducer is MAX else (second > first, first > second)
    if isinstance(strict, str):
        return (None, sp.Eq(first, second)), ((ends[MAX],), larger), ((ends[MIN],), sp.true)
    if len(kept) == 1:
        return (None, sp.Eq(first, second)), (tuple(ends.values()), sp.true)
    one = sp.Or(larger, sp.Eq(high, low))
    return ((ends[MAX],), one), ((ends[MIN],), smaller), ((ends[MAX], ends[MIN]), sp.true)


def _of_a_product(derivation: Derivation, reduction: Reduction, reducer: Reducer, element: sp.Expr) -> Attained | None:
    """That of max G·exp(a)·H(d) + K(d): by the order of G·exp(a), which a negative H turns."""
    values = derivation.handles.values
    body = sp.factor_terms(element.as_independent(*derivation.elements, as_Add=True)[1])
    apart = order_and_factor(body, derivation.elements, list(values))
    if apart is None:
        return None
    order, factor = apart
    same, *turned = (
        (_end(derivation, reduction, end, order),) for end in sorted(kept_by(factor, reducer), key=reducer.__ne__)
    )
    everywhere = () if factor.is_nonzero else ((None, sp.Eq(factor, 0).xreplace(values)),)
    if not turned:
        return (*everywhere, (same, sp.true))
    return (*everywhere, (same, sp.Gt(factor, 0).xreplace(values)), (turned[0], sp.true))


def _own(derivation: Derivation, extreme: Reduction, lift: sp.Expr) -> End:
    """The extremum of an element that reads no result."""
    result = derivation.plain(extreme.result)
    handle = derivation.handles.of(extreme.result)
    exact = "" if derivation.move is Move.EXACT else "exact"
    value = derivation.predicted(handle.value)
    reference = derivation.refer((handle, exact), handle.value, Gauge.RUNNING, value, range=Range.EXTREME)
    known = ((extreme.element, result),) if extreme.element.is_Symbol else ()
    return End(lift, known, reference)


def _end(derivation: Derivation, reduction: Reduction, reducer: Reducer, part: sp.Expr) -> End:
    """An extremum of a subexpression, from a component for it."""
    component = derivation.component(reduction, reducer, part)
    key = ("end", component)
    reference = derivation.refer(key, part, Gauge.RUNNING, component, auxiliary=True, range=Range.EXTREME)
    return End(part, (), reference)


def order_and_factor(
    body: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr] | None:
    """What orders positions as G·exp(a) does, and H, of G·exp(a)·H(d); None where the body is no such product.

    Exponents of data are out of range, so the order is that of log |G| + a and the sign of G.
    """
    factor, varying = body.as_independent(*elements, as_Add=False)
    weight, exponent = sp.S.One, sp.S.Zero
    for part in sp.Mul.make_args(varying):
        if not part.has(*handles):
            weight *= part
            continue
        if not isinstance(part, sp.exp):
            return None
        moved, still = sp.expand(part.args[0]).as_independent(*elements, as_Add=True)
        if still.has(*handles):
            return None
        factor, exponent = factor * sp.exp(moved), exponent + still
    if exponent == 0:
        return weight, factor
    size = sp.expand_log(sp.log(sp.Abs(weight))) + exponent
    return size if weight.is_positive else SignedSize(weight, size), factor
