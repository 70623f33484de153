"""Which powers of elements are taken in units of a power of two, and of what: those that deferred factors scale."""

from __future__ import annotations

from collections.abc import Collection

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.gauge import Move, Range
from tvm_cascade.algebra.handles import Handle, tracking_gauge
from tvm_cascade.algebra.units import Powers
from tvm_cascade.symbolic.functions import PowerOfTwo


def powers_in_range(derivation: Derivation, function: sp.Expr, factor: sp.Expr) -> Powers | None:
    """The powers of an element that a deferred factor scales into range; None where there are none.

    Parameters
    ----------
    function : of elements and handles, without that factor.
    """
    elements, done = derivation.elements, derivation.done
    powers = [f.as_base_exp() for f in sp.Mul.make_args(function) if not isinstance(f.as_base_exp()[0], sp.log)]
    raised = [(base, int(e)) for base, e in powers if e.is_Integer and e > 1 and base.has(*elements)]
    if not raised or function.has(sp.exp):  # exponentials are in range by references of their own
        return None
    degree = max(exponent for _, exponent in raised)
    fixed = {LENGTH, *derivation.numbers}
    unit = sp.Mul(*(root for f in sp.Mul.make_args(factor) if (root := _root(f, degree, fixed)) is not None))
    read = [r for r in done if r.result in unit.free_symbols]
    if not unit.free_symbols or (read and all(isinstance(r.element, sp.exp) for r in read)):
        return None
    handle = Handle(sp.Symbol("_h", real=True), unit)
    gauge = tracking_gauge(handle, done)
    reference = derivation.refer(
        (unit, "unit"),
        unit,
        gauge,
        PowerOfTwo(derivation.predicted(unit)),
        guarded=True,
        scale=True,
        move=Move.POWER_OF_TWO,
        range=Range.POWER_OF_TWO,
    )
    base = sp.Mul(*(base for base, exponent in raised if exponent == degree))
    return Powers(base, degree, unit, reference, factor / unit**degree)


def _root(factor: sp.Expr, degree: int, fixed: Collection[sp.Symbol]) -> sp.Expr | None:
    """The real number of which a factor is the power of that degree; None where it need have none, or is a number.

    Parameters
    ----------
    fixed : the symbols that stand for numbers.
    """
    base, exponent = factor.as_base_exp()
    root = exponent / degree
    real = base.is_nonnegative or root.is_integer
    return base**root if base.free_symbols.difference(fixed) and exponent.is_number and real else None
