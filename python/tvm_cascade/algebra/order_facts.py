"""Range facts from earlier extrema: x ≤ max x at every position, so |x − max x| is max x − x.

Without it, Σ |x − max x| looks like a sum of distances, which has no fold.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.reducer import MAX, MIN

EXTREMA = (sp.Max, sp.Min, sp.Abs)
"""What selects one of its arguments, or their opposites, by order."""


def taken_from(extremum: sp.Expr) -> tuple[bool, tuple[sp.Expr, ...]]:
    """Whether it selects the largest, and of what."""
    if isinstance(extremum, sp.Abs):
        return True, (extremum.args[0], -extremum.args[0])
    return isinstance(extremum, sp.Max), extremum.args


def ordered_by_results(element: sp.Expr, done: Iterable[Reduction]) -> sp.Expr:
    """The element with each absolute value and extremum simplified by what earlier extrema bound.

    Parameters
    ----------
    done : the earlier reductions, in the symbols of the element.
    """
    for reduction in done:
        if reduction.reducer not in (MAX, MIN) or not element.has(*EXTREMA):
            continue
        gap = (reduction.result - reduction.element) * (1 if reduction.reducer is MAX else -1)
        element = element.xreplace({part: _decided(part, gap) for part in element.atoms(*EXTREMA)})
    return element


def _decided(part: sp.Expr, gap: sp.Expr) -> sp.Expr:
    """What an absolute value, or an extremum of two, is where the gap is not negative; as it is where that is open."""
    upper, arguments = taken_from(part)
    sign = _sign(arguments[0] - arguments[1], gap) if len(arguments) == 2 else None
    return part if sign is None else arguments[0 if (sign > 0) is upper else 1]


def _sign(difference: sp.Expr, gap: sp.Expr) -> int | None:
    """1 or −1 where the difference is a positive or negative multiple of the gap."""
    if difference.free_symbols != gap.free_symbols:
        return None
    ratio = sp.cancel(sp.expand(difference) / sp.expand(gap))
    return None if not ratio.is_number or ratio == 0 else 1 if ratio > 0 else -1
