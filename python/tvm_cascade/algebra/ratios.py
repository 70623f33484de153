"""Logarithms of ratios: log(x/c) at a scale c, where log x − log c would cancel.

The handle of log(x/max x) is u = log |max x|, since its sums are polynomials of log |x| − u. A float that holds u has
lost what tells x/max x from 1. So the reference is c = max x itself; log |c|, that of u, is never computed:

    lift     log |x| − u      ->   log(|x|/|c|)
    move     u′ − u           ->   log(|c′|/|c|)
    finish   log |m| − u      ->   log(|m|/|c|)

Moves and finish act on all elements alike, so their logarithms are taken to the digits of c′ − c (`LogRatio`).
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import LogRatio
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Gauge, Handle, Range, exponents, is_location, tracking_gauge, translations


@dataclass(frozen=True)
class LogReference:
    """The reference of the logarithm of a scale: symbols for log |c|, log |c′| and their difference.

    Attributes
    ----------
    scale : the reference c.
    """

    symbol: sp.Symbol
    moved: sp.Symbol
    step: sp.Symbol
    scale: Reference
    gauge: Gauge
    free: bool = True

    @property
    def written(self) -> dict[sp.Symbol, sp.Expr]:
        """The symbols, in c and c′."""
        old, new = self.scale.symbol, self.scale.moved
        return {self.symbol: sp.log(sp.Abs(old)), self.moved: sp.log(sp.Abs(new)), self.step: LogRatio(new, old)}

    def lifted(self, function: sp.Expr, derivation: Derivation) -> sp.Expr:
        """The function, in which log |x| − log |c| is log(|x|/|c|)."""
        ratios = {}
        for part, totals in (translations(function, self.symbol, derivation.elements) or {}).items():
            for total in totals:
                ratios[total] = total.coeff(self.symbol) * -sp.log(sp.exp(part) / sp.Abs(self.scale.symbol))
        return function.xreplace(ratios)

    def step_to(self, value: sp.Expr) -> sp.Expr:
        """From log |c| to the logarithm that the handle is."""
        (within,) = value.args
        return LogRatio(within.args[0] if isinstance(within, sp.Abs) else within, self.scale.symbol)


def log_reference(derivation: Derivation, handle: Handle, function: sp.Expr) -> LogReference | None:
    """A scale for a handle that is a logarithm, where the function reads it in logarithms of elements alone."""
    if not isinstance(handle.value, sp.log) or exponents(function, handle.symbol, derivation.elements):
        return None
    parts = translations(function, handle.symbol, derivation.elements) or {}
    if len(parts) != 1 or any(sp.exp(part).has(sp.exp) for part in parts):
        return None
    (part,) = parts
    # x/Σ x is never near 1, and at data of another scale than the handle's log x and log c are as good apart.
    gauge = tracking_gauge(handle, derivation.done)
    located = is_location(handle.value, part, derivation.done, derivation.meaning)
    if gauge is not Gauge.RUNNING or not located:
        return None
    (within,) = handle.value.args
    value = within.args[0] if isinstance(within, sp.Abs) else within
    scale = derivation.refer(
        (value, "ratio"),
        value,
        gauge,
        derivation.predicted(value),
        guarded=True,
        scale=True,
        range=Range.RATIO,
    )
    names = (f"log{s}" for s in (scale.symbol, scale.moved, scale.step))
    old, new, step = (sp.Symbol(name, real=True) for name in names)
    return LogReference(old, new, step, scale, gauge)
