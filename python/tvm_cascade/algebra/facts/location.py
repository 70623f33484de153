"""Locations of the data: values that move with the data a(x), and are a(x) where all elements are equal.

A mean, a maximum and log Σ exp are locations, and so references near the data; a total is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.symbolic.sampling import vanishes, varies_numerically
from tvm_cascade.symbolic.separate import strip_rounding


def is_location(
    value: sp.Expr,
    part: sp.Expr,
    reductions: Sequence[Reduction],
    meaning: Mapping[sp.Symbol, sp.Expr],
    exactly: bool = False,
) -> bool:
    """Whether a value is a location of the data a(x), as their mean, maximum and log Σ exp are, and their total is not.

    Such a value moves with the data: at equal elements it is a(x), up to a number.

    Parameters
    ----------
    part : a(x).
    meaning : what symbols are known to stand for.
    exactly : the number is 0.
    """
    away = strip_rounding((_at_equal_elements(value, reductions) - part).xreplace(dict(meaning)))
    return vanishes(away) if exactly else not varies_numerically(away, list(away.free_symbols - {LENGTH}))


def _at_equal_elements(value: sp.Expr, reductions: Sequence[Reduction]) -> sp.Expr:
    """The value of a quantity where all elements are equal: N·a for Σ a, a^N for Π a, a for max a."""
    for k in reversed(range(len(reductions))):
        if reductions[k].result in value.free_symbols:
            value = value.subs(reductions[k].result, _of_equal_elements(reductions, k))
    return value


def _of_equal_elements(reductions: Sequence[Reduction], k: int) -> sp.Expr:
    reducer, element = reductions[k].reducer, strip_rounding(reductions[k].element)
    if reducer.whole is None:
        return reducer.repeated(element, LENGTH)
    start = k - reducer.part
    block = [strip_rounding(r.element) for r in reductions[start : start + reducer.whole.width]]
    selection = reducer.whole.selection
    if selection is not None:
        return block[reducer.part % selection.per_rank]
    return reducer.whole.combine(block, block)[reducer.part]
