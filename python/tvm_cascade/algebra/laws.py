"""The laws, by reducer: what a reduction that reads earlier results adds to the state."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import Handle, factor_in, tracking_gauge
from tvm_cascade.algebra.monotone import through_order
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, PROD, SUM
from tvm_cascade.algebra.separate import strip_rounding
from tvm_cascade.algebra.sum_law import sum_law

Law = Callable[[Derivation, Reduction, sp.Expr, list[Handle]], sp.Expr]


def product_law(derivation: Derivation, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> sp.Expr:
    """Π of G(x)·H(d), held at Π G(x)·H(c): moving c to c′ multiplies by (H(c′)/H(c))^n."""
    function = strip_rounding(held)
    move, final = sp.Integer(1), sp.Integer(1)
    for handle in used:
        weight = factor_in(function, handle.symbol, derivation.elements)
        if weight is None:
            raise derivation.refuse(reduction, "prod_dependence", function)
        gauge = tracking_gauge(handle, derivation.done)
        value = derivation.predicted(handle.value, gauge)
        reference = derivation.refer((handle, "scale"), handle.value, gauge, value, guarded=True, scale=True)
        at_reference = weight.subs(handle.symbol, reference.symbol)
        move *= weight.subs(handle.symbol, reference.moved) / at_reference
        final *= weight.subs(handle.symbol, handle.value) / at_reference
        function = function.subs(handle.symbol, reference.symbol)
    symbol = derivation.unused(reduction)
    derivation.add(reduction, PROD, function, symbol * move**COUNT)
    return symbol * final**LENGTH


def order_law(derivation: Derivation, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> sp.Expr:
    """max and min pass through monotone maps; convex ones keep both ends."""
    function = strip_rounding(held)
    passed = through_order(function, reduction.reducer, derivation.elements, [h.symbol for h in used])
    if isinstance(passed, str):
        raise derivation.refuse(reduction, passed, function)
    inner, kept, outer = passed
    ends = [derivation.component(reduction, reducer, inner) for reducer in kept]
    values = {h.symbol: h.value for h in used}
    derivation.deferred[reduction.result] = tuple(derivation.plain(h.value) for h in used)
    return reduction.reducer.over([outer(end).subs(values, simultaneous=True) for end in ends])


def logical_law(derivation: Derivation, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> sp.Expr:
    """A predicate on an earlier result has no finite state."""
    raise derivation.refuse(reduction, "logical_dependence", held)


LAWS: dict[str, Law] = {
    SUM.name: sum_law,
    PROD.name: product_law,
    MAX.name: order_law,
    MIN.name: order_law,
    AND.name: logical_law,
    OR.name: logical_law,
}
