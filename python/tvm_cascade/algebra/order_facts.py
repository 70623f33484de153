"""Range facts from earlier extrema: x ≤ max x at every position, so |x − max x| is max x − x.

Without it, Σ |x − max x| looks like a sum of distances, which has no fold.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.reducer import MAX, MIN


def ordered_by_results(element: sp.Expr, done: Iterable[Reduction]) -> sp.Expr:
    """The element with each absolute value and extremum simplified by what earlier extrema bound.

    Parameters
    ----------
    done : the earlier reductions, in the symbols of the element.
    """
    for reduction in done:
        if reduction.reducer not in (MAX, MIN) or not element.has(sp.Abs, sp.Max, sp.Min):
            continue
        gap = (reduction.result - reduction.element) * (1 if reduction.reducer is MAX else -1)
        found = {part: _decided(part, gap) for part in element.atoms(sp.Abs, sp.Max, sp.Min)}
        decided = {part: value for part, value in found.items() if value is not None}
        element = element.xreplace(decided)
    return element


def _decided(part: sp.Expr, gap: sp.Expr) -> sp.Expr | None:
    """What an absolute value, or an extremum of two, is where the gap is not negative; None where that is open."""
    if isinstance(part, sp.Abs):
        sign = _sign(part.args[0], gap)
        return None if sign is None else sign * part.args[0]
    if len(part.args) != 2:
        return None
    first, second = part.args
    sign = _sign(first - second, gap)
    if sign is None:
        return None
    return first if (sign > 0) == isinstance(part, sp.Max) else second


def _sign(difference: sp.Expr, gap: sp.Expr) -> int | None:
    """1 or −1 where the difference is a positive or negative multiple of the gap."""
    if difference.free_symbols != gap.free_symbols:
        return None
    ratio = sp.cancel(sp.expand(difference) / sp.expand(gap))
    return None if not ratio.is_number or ratio == 0 else 1 if ratio > 0 else -1
