"""The laws, by reducer: what a reduction that reads earlier results adds to the state."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import Handle, Range, factor_in, tracking_gauge
from tvm_cascade.algebra.order_law import order_law
from tvm_cascade.algebra.reducer import AND, MAX, MIN, OR, PROD, SUM
from tvm_cascade.algebra.separate import strip_rounding
from tvm_cascade.algebra.sum_law import sum_law

Law = Callable[[Derivation, Reduction, sp.Expr, list[Handle]], sp.Expr]


def product_law(derivation: Derivation, reduction: Reduction, held: sp.Expr, used: list[Handle]) -> sp.Expr:
    """Π of G(x)·H(d), held at Π G(x)·H(c): moving c to c′ multiplies by (H(c′)/H(c))^n; Π exp(E) = exp(Σ E)."""
    exponent, function = _exponent_and_rest(strip_rounding(held), [h.symbol for h in used])
    move, final = sp.Integer(1), sp.Integer(1)
    if exponent != 0:
        # Positive factors join the exponent: apart, one may overflow and the other be zero.
        fixed, function = function.as_independent(*derivation.elements, *(h.symbol for h in used), as_Add=False)
        size = sp.Abs(fixed) if fixed.is_number else sp.Mul(*(f for f in sp.Mul.make_args(fixed) if f.is_positive))
        function *= fixed / size
        for handle in used:
            weight = factor_in(function, handle.symbol, derivation.elements)
            if weight is not None and weight.is_positive and function.has(handle.symbol):
                size *= weight.subs(handle.symbol, handle.value)
                function = function.subs(handle.symbol, 1)
        final = sp.exp(sum_law(derivation, reduction, exponent, used) + LENGTH * sp.log(size))
    for handle in used:
        if handle.symbol not in function.free_symbols:
            continue
        weight = factor_in(function, handle.symbol, derivation.elements)
        if weight is None:
            raise derivation.refuse(reduction, "prod_dependence", function)
        gauge = tracking_gauge(handle, derivation.done)
        value = derivation.predicted(handle.value, gauge)
        reference = derivation.refer(
            (handle, "scale"), handle.value, gauge, value, guarded=True, scale=True, range=Range.SCALE
        )
        at_reference = weight.subs(handle.symbol, reference.symbol)
        move *= weight.subs(handle.symbol, reference.moved) / at_reference
        final *= (weight.subs(handle.symbol, handle.value) / at_reference) ** LENGTH
        function = function.subs(handle.symbol, reference.symbol)
    if function == 1:
        return final
    symbol = derivation.unused(reduction)
    derivation.add(reduction, PROD, function, symbol * move**COUNT)
    return symbol * final


def _exponent_and_rest(function: sp.Expr, handles: list[sp.Symbol]) -> tuple[sp.Expr, sp.Expr]:
    """(E, R) with function = exp(E)·R, where E is all that stands under exponentials that read a handle."""
    factors = sp.Mul.make_args(sp.powsimp(function))
    reading = [f for f in factors if isinstance(f, sp.exp) and f.has(*handles)]
    return sp.Add(*(f.args[0] for f in reading)), sp.Mul(*(f for f in factors if f not in reading))


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
