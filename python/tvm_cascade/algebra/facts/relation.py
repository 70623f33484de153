"""Relations to earlier results: x ≤ max x at every position, and what that bounds.

An expression that falls in max x is largest where that is least: f(x, max x) ≤ f(x, x). So exp(x − max x) is at most 1,
|x − max x| is max x − x, and Σ |x − max x| no sum of distances, which would have no fold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.symbolic.sampling import varies_numerically
from tvm_cascade.symbolic.separate import strip_rounding
from tvm_cascade.symbolic.work import simplified

EXTREMA = (sp.Max, sp.Min, sp.Abs)
"""What selects one of its arguments, or their opposites, by order."""


AT_A_MAXIMUM: dict[type, tuple[bool, bool]] = {
    sp.Eq: (True, False),
    sp.Ge: (True, False),
    sp.Ne: (False, True),
    sp.Lt: (False, True),
    sp.Le: (True, True),
    sp.Gt: (False, False),
}
"""Whether a comparison with the maximum holds at it, and elsewhere; with a minimum, once its sides are exchanged."""


def taken_from(extremum: sp.Expr) -> tuple[bool, tuple[sp.Expr, ...]]:
    """Whether it selects the largest, and of what."""
    if isinstance(extremum, sp.Abs):
        return True, (extremum.args[0], -extremum.args[0])
    return isinstance(extremum, sp.Max), extremum.args


def upper_ends(expression: sp.Expr, done: Sequence[Reduction]) -> Iterator[tuple[list[Reduction], sp.Expr]]:
    """What is nowhere below an expression, each with the extrema that are put to their elements there.

    Those one by one, and then all together, as in (a − max a) + (b − max b).

    Parameters
    ----------
    done : the earlier reductions, in the symbols of the expression.
    """
    falls = [r for r in done if r.reducer.ordered and expression.has(r.result) and _falls(expression, r)]
    for some in [*([r] for r in falls), *([falls] if len(falls) > 1 else [])]:
        yield some, expression.subs({r.result: r.element for r in some}, simultaneous=True)


def _falls(expression: sp.Expr, extremum: Reduction) -> bool:
    """Whether an expression falls as an extremum goes away from the elements."""
    slope = sp.diff(expression, extremum.result)
    if extremum.reducer is MAX:
        return bool(slope.is_negative)
    return bool(extremum.reducer is MIN and slope.is_positive)


def is_bounded_above(
    exponent: sp.Expr,
    invariants: Mapping[sp.Symbol, sp.Expr],
    reductions: Sequence[Reduction],
    elements: Sequence[sp.Symbol],
    kept: Mapping[sp.Symbol, int],
) -> bool:
    """Whether the exponent, with invariants at the partial results, is bounded above for every position folded so far.

    True where the invariants' values are functions of extrema alone, and the exponent at those extrema is free of
    position and of results: 0, or what the unfused program has there too.

    Parameters
    ----------
    invariants : the value of each symbol for a part that reads results.
    kept : conditions, with their values at the positions that count (`conditions_that_keep`).
    """
    values = {symbol: value for symbol, value in invariants.items() if symbol in exponent.free_symbols}
    read = set().union(*(value.free_symbols for value in values.values()))
    varying = {*elements, *(r.result for r in reductions)}
    done = [replace(r, element=r.element.subs(kept)) for r in reductions if r.result in read]
    return any(
        read - exponent.free_symbols <= {r.result for r in extrema} and _is_the_same(end, varying & end.free_symbols)
        for extrema, end in upper_ends(exponent.subs(values).subs(kept), done)
    )


def _is_the_same(value: sp.Expr, varying: Collection[sp.Symbol]) -> bool:
    if varies_numerically(value, list(varying)):
        return False
    value = simplified(value)
    return not value.free_symbols & set(varying) and value.is_finite is not False


def ordered_by_results(element: sp.Expr, done: Sequence[Reduction]) -> sp.Expr:
    """The element with each absolute value, and each extremum of two, decided where earlier extrema tell.

    Parameters
    ----------
    done : the earlier reductions, in the symbols of the element.
    """
    return element.xreplace({part: _decided(part, done) for part in element.atoms(*EXTREMA)})


def _decided(part: sp.Expr, done: Iterable[Reduction]) -> sp.Expr:
    upper, arguments = taken_from(part)
    read = [r for r in done if r.reducer in (MAX, MIN) and part.has(r.result)]
    if len(arguments) != 2 or not read:
        return part
    for larger, smaller in (arguments, arguments[::-1]):
        if any(simplified(end).is_nonpositive for _, end in upper_ends(smaller - larger, read)):
            return larger if upper else smaller
    return part


def scales(
    reads: sp.Expr,
    lift: sp.Expr,
    reductions: Sequence[Reduction],
    meaning: Mapping[sp.Symbol, sp.Expr],
    or_norms: bool = False,
) -> bool:
    """Whether all results that a scale reads are extrema of what it scales: it is no larger on any part of the row.

    Parameters
    ----------
    lift : what is scaled, as a factor.
    or_norms : sums of its squares or magnitudes will do, of which none is larger than their sum.
    """
    bases = [factor.as_base_exp()[0] for factor in sp.Mul.make_args(strip_rounding(lift))]

    def bounds(reduction: Reduction) -> bool:
        is_norm = or_norms and reduction.reducer is SUM and bool(reduction.element.is_nonnegative)
        powers = (2,) if reduction.reducer.ordered else (2, 4) if is_norm else ()
        ratios = ((base**power / reduction.element**2).xreplace(dict(meaning)) for base in bases for power in powers)
        return any(ratio.is_number for ratio in ratios)

    return all(bounds(reduction) for reduction in reductions if reduction.result in reads.free_symbols)


def compared(condition: sp.Basic, done: Iterable[Reduction]) -> tuple[Reduction, tuple[bool, bool]] | None:
    """The earlier extremum that a condition compares its element with, and its value at ties and elsewhere.

    Parameters
    ----------
    done : the earlier reductions, in the symbols of the condition.
    """
    case, *relations = condition.args if isinstance(condition, sp.ITE) else (sp.true, condition, condition)
    kinds = {type(relation) for relation in relations}
    if len(kinds) > 1 or kinds.isdisjoint(AT_A_MAXIMUM):
        return None
    (kind,), pairs = kinds, zip(*(relation.args for relation in relations), strict=True)
    exchanged = type(relations[0].reversed)
    sides = [a if a == b else sp.Piecewise((a, case), (b, True)) for a, b in pairs]  # of a choice by the case
    for element, other, above, below in ((*sides, kind, exchanged), (*sides[::-1], exchanged, kind)):
        for extreme in (r for r in done if r.result == other and r.reducer in (MAX, MIN)):
            if element in (extreme.element, sp.piecewise_fold(extreme.element)):
                return extreme, AT_A_MAXIMUM[above if extreme.reducer is MAX else below]
    return None
