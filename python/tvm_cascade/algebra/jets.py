"""Jets: elements that vanish where the data are at their references, though their terms do not, taken whole.

Of exp(x − u) − (x − u) − 1 each term is of the size of 1, and the element of (x − u)²/2. The expansion of the whole
element begins with the element itself, and what moves make of it is as small (`expansion`); sums of its terms would
cancel. An element is written over one handle for each group that moves it, since terms vanish together only there:

| of the element             | is                       | because                                                    |
|----------------------------|--------------------------|------------------------------------------------------------|
| handles of equal value     | one handle               | a constant in an exponent has a name of its own            |
| log|a| + log|q|            | log(|a|/|v|), v = 1/q    | other terms read a/v, and move with its logarithm          |
| u = 1/r, r an extremum     | 1/v, v = r               | 1/r is rounded once for all x/r, which the program divides |
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.expansion import Expansion, expansion_of
from tvm_cascade.algebra.facts.extent import Pole, pole
from tvm_cascade.algebra.facts.location import is_location
from tvm_cascade.algebra.gauge import Gauge, Move
from tvm_cascade.algebra.handles import Handle, tracking_gauge
from tvm_cascade.symbolic.functions import Round
from tvm_cascade.symbolic.separate import RANK_LIMIT


@dataclass(frozen=True)
class Jet:
    """An element as a whole.

    Attributes
    ----------
    function : over elements and `handles`.
    span : of the function.
    """

    function: sp.Expr
    handles: list[Handle]
    span: Expansion


def jet_of(derivation: Derivation, element: sp.Expr) -> Jet | None:
    """The jet of an element over handles that stand near the data.

    None where its terms do not cancel at its references, or a reference is far from the data or may lag behind them.
    """
    if element.has(Round) or derivation.move is Move.LAZY:
        return None
    over = _over_scales(derivation, _over_one(derivation, element))
    function = _over_extrema(derivation, over)
    handles = [handle for handle in derivation.handles if handle.symbol in function.free_symbols]
    sums = [total for total in function.atoms(sp.Add) if total.free_symbols & {handle.symbol for handle in handles}]
    if not any(term.has(sp.Function) or term.is_number for total in sums for term in total.args):
        return None  # sums of data and handles alone are one coordinate, which vanishes by itself
    span = expansion_of(function, derivation.elements, [handle.symbol for handle in handles])
    if span is None or span.rank > RANK_LIMIT or span.at_zero != 0 or (function == over and not span.cancels):
        return None
    near = all(_stands_near(derivation, coordinate) for coordinate in span.coordinates)
    return Jet(function, handles, span) if near else None


def _stands_near(derivation: Derivation, coordinate: sp.Expr) -> bool:
    """Whether a difference of data and handles is of the spread of the data, as of a location of them."""
    values = derivation.handles.values
    poles = (pole(values[u], derivation.results) for u in coordinate.free_symbols & values.keys())
    away = coordinate.xreplace(values)
    return is_location(away, sp.S.Zero, derivation.done, derivation.meaning) and Pole.WITHIN not in poles


def _over_one(derivation: Derivation, element: sp.Expr) -> sp.Expr:
    """The element over the first of handles that have the same value."""
    first: dict[sp.Expr, sp.Symbol] = {}
    read = [handle for handle in derivation.handles if handle.symbol in element.free_symbols]
    return element.xreplace({h.symbol: first.setdefault(h.value.xreplace(derivation.numbers), h.symbol) for h in read})


def _over_scales(derivation: Derivation, element: sp.Expr) -> sp.Expr:
    """The element over v = 1/q, where it adds log|a| and log|q| of data and of a result that its other terms read."""
    whole, elements = element.xreplace(derivation.handles.values), derivation.elements
    for total in sorted(whole.atoms(sp.Add), key=sp.default_sort_key):
        logarithms = {term: term.as_coeff_Mul() for term in total.args if isinstance(term.as_coeff_Mul()[1], sp.log)}
        slope = next((k for k, logarithm in logarithms.values() if logarithm.has(*elements)), None)
        if slope is None:
            continue
        power = abs(slope) if slope.is_Integer else sp.S.One  # a²/v is rounded once where log(a²/v) is read beside it
        product = sp.Mul(*(logarithm.args[0] ** (k * power / slope) for k, logarithm in logarithms.values()))
        fixed, varying = product.as_independent(*elements, as_Add=False)
        read = fixed.free_symbols & {*derivation.results}
        rest = sp.Add(*(term for term in total.args if term not in logarithms))
        if len(read) != 1 or not rest.has(*read):
            continue
        scale = derivation.handles.of(1 / fixed.replace(sp.Abs, lambda value: value))
        try:
            solved = sp.solve(scale.value - scale.symbol, *read)
        except NotImplementedError:  # as of the larger one of a result and 1, which has no inverse
            continue
        ratio = sp.log(sp.Abs(varying) / sp.Abs(scale.symbol, evaluate=False))
        over = whole.xreplace({total: rest + slope / power * ratio}).xreplace(dict(zip(read, solved, strict=False)))
        if not over.has(*derivation.results):
            return over
    return element


def _over_extrema(derivation: Derivation, element: sp.Expr) -> sp.Expr:
    """The element over extrema that terms of its sums are divided by, in place of their reciprocals."""
    in_sums = sp.Tuple(*element.atoms(sp.Add)).free_symbols
    divisors = {
        handle.symbol: 1 / derivation.handles.of(1 / handle.value).symbol
        for handle in list(derivation.handles)
        if handle.symbol in in_sums
        and (1 / handle.value).is_Symbol
        and tracking_gauge(handle, derivation.done) is Gauge.RUNNING
    }
    return element.xreplace(divisors)
