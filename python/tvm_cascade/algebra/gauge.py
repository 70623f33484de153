"""Handles and gauges: the loop-invariant operands of an element, and how the reference of each moves.

A *handle* u is a largest part of an element F that does not vary along the axis but reads earlier results: the m of
exp(x − m), the s/N of (x − s/N)², the 1/t of p·v/t. The state is relative to a reference c in place of u.

| gauge    | the reference goes                          | for instance                                         |
|----------|---------------------------------------------|------------------------------------------------------|
| deferred | nowhere: it is 1, or 0                      | u is a factor of F, which is applied at the end      |
| running  | to u of the partial results, or an extremum | u is built from max and min, or stands in an exponent |
| centred  | to a mean, a slope, or a predicted result   | F reads a(x) − u                                     |

`sections` is the table of references for the handles of one function. Polynomials of several elements
(`central_moments`) and products (`product_law`) have references of their own.

How often a running reference moves is its *move*, which the user may choose:

| move         | the reference goes to                              | range                                         |
|--------------|----------------------------------------------------|-----------------------------------------------|
| exact        | u of the partial results, at each merge            | exp(x − c) ≤ 1; |x/c| ≤ 1                     |
| lazy         | there, once it is more than LAZY_DISTANCE away     | exp(x − c) ≤ exp(LAZY_DISTANCE)               |
| power_of_two | a power of two beside u, where u is a scale        | |x/c| ≤ 1; c/c′ commutes with float rounding  |

Both end away from u, and finish brings the state there.

Range analysis decides between the gauges, and a reference says why it was chosen (`Range`): with c running,
exp(x − c) ≤ 1; with c centred, (x − c)² is of the size of the answer. A total or max y, as u of (x − u)², is far from
the data while it grows or drifts, and what the state lost there does not come back; the mean of x is near them, and
finish goes from there to u. Where an exponent is not bounded by its own handle (exp(x − mean)), the running maximum of
the exponent is kept as an extra component and serves as the reference; where u divides by a result that may pass near
zero (a centre of signed masses), the mean of x by the sizes of its weights does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import sympy as sp

from tvm_cascade.algebra.cascade import LENGTH, Reduction
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.symbolic.functions import WholePower
from tvm_cascade.symbolic.sampling import ever_positive, varies_numerically
from tvm_cascade.symbolic.separate import strip_rounding
from tvm_cascade.symbolic.signs import stand_in
from tvm_cascade.symbolic.work import expanded, simplified


class Gauge(str, Enum):
    """How a reference moves."""

    DEFERRED = "deferred"
    RUNNING = "running"
    CENTRED = "centred"

    def __str__(self) -> str:
        return self.value


class Move(str, Enum):
    """When a running reference moves; see the table above."""

    EXACT = "exact"
    LAZY = "lazy"
    POWER_OF_TWO = "power_of_two"

    def __str__(self) -> str:
        return self.value


LAZY_DISTANCE = 8
"""exp(8) = 2981: a million terms of it stay 28 binary orders below the largest float32."""


class Range(str, Enum):
    """The range argument for a reference c in place of u."""

    BOUNDED = "exp(x − c) ≤ 1, since no element so far has a larger exponent than at c"
    LARGEST = "exp(x − c) ≤ 1, since c is the largest exponent so far; u itself does not bound it"
    LAZY = f"c moves once it is more than {LAZY_DISTANCE} away: exp(x − c) ≤ exp({LAZY_DISTANCE})"
    SCALE = "|x/c| ≤ 1"
    RATIO = "log(x/c) has the digits that log(x/u) has, where log x − log u need have none left"
    POWER_OF_TWO = "|x/c| ≤ 1, and c is a power of two, so c/c′ commutes with the rounding of any float"
    LOCATION = "x − c is no larger than the spread of x about its centre, since c is a location of the data"
    MEAN = "x − c and u − c are no larger than x − u, since c is the mean of x; u need not be near the data"
    EXTREME = "c is the extremum so far, and [x = c] is 0 or 1"
    GEOMETRIC = "Π G(x)·2^c is near 1, since c is the mean of −log₂ |G(x)|"
    NEAR = "x − c is no larger than the spread of x, since c is its mean, for any results"
    FITTED = "y − c·x is no larger than y, since c is the slope of least squares, for any results"
    WAVES = "sines and cosines are at most 1 at any c, so it stays at 0"
    APART = "p + q·u is summed as Σ p and u·Σ q, at c = 0: q·u is rounded unfused as well"
    PREDICTED = "c predicts u from partial results, so elements have the range that they have at u"
    DEFERRED = "a loop-invariant factor: applied once, at the end"

    def __str__(self) -> str:
        return self.value


def is_power_of_two(value: sp.Expr) -> bool:
    """Whether a value is 2^k with a whole k, as in exp2(floor(log2(u)))."""
    powers = [f.as_base_exp() for f in sp.Mul.make_args(value)]
    return all(isinstance(base, WholePower) and exponent.is_integer for base, exponent in powers)


@dataclass(frozen=True)
class Handle:
    """A loop-invariant subexpression of an element that reads earlier results.

    Attributes
    ----------
    symbol : u, which stands for it in the element.
    value : the part itself, in earlier results and parameters.
    """

    symbol: sp.Symbol
    value: sp.Expr


class HandleTable:
    """Handles by value, so that reductions which read the same quantity share one reference."""

    def __init__(self) -> None:
        self._by_key: dict[object, Handle] = {}

    def __iter__(self) -> Iterator[Handle]:
        return iter(self._by_key.values())

    def of(self, value: sp.Expr) -> Handle:
        """The handle of that value, made on first use."""
        return self._made(value, value)

    def beside(self, handle: Handle, part: sp.Expr) -> Handle:
        """A second handle of equal value, for another location: (x − u)·(y − v) with u = v."""
        return self._made((handle.value, part), handle.value)

    def _made(self, key: object, value: sp.Expr) -> Handle:
        if key not in self._by_key:
            self._by_key[key] = Handle(stand_in(value, f"_u{len(self._by_key)}"), value)
        return self._by_key[key]

    def extract(
        self,
        expression: sp.Expr,
        elements: Sequence[sp.Symbol],
        results: Sequence[sp.Symbol],
        ordered: Sequence[sp.Symbol] = (),
    ) -> sp.Expr:
        """The expression with each largest result-reading, element-free part replaced by its handle's symbol.

        A factor that reads no result, of a part that reads max and min alone (`ordered`), stays outside: the handle is
        then the extremum itself, which a reference holds exactly. So does the unit of elements beside it: of x/1000 −
        s/(1000·N) the handle is s/N, since x/1000 is rounded where x is not.
        """
        if not expression.has(*results) or not results:
            return expression
        if not elements or not expression.has(*elements):
            return self._bare(expression, results, ordered)
        if isinstance(expression, sp.Piecewise):
            return sp.Piecewise(*((self.extract(e, elements, results, ordered), at) for e, at in expression.args))
        if isinstance(expression, (sp.Add, sp.Mul)):
            reads = [a for a in expression.args if a.has(*results) and not a.has(*elements)]
            rest = [self.extract(a, elements, results, ordered) for a in expression.args if a not in reads]
            if reads:
                units = {abs(a.as_coeff_Mul()[0]) for a in expression.args if a.has(*elements)}
                unit = units.pop() if expression.is_Add and len(units) == 1 else sp.S.One
                rest.append(self._bare(expression.func(*reads), results, ordered, unit))
            return expression.func(*rest)
        return expression.func(*(self.extract(a, elements, results, ordered) for a in expression.args))

    def _bare(
        self, value: sp.Expr, results: Sequence[sp.Symbol], ordered: Sequence[sp.Symbol], unit: sp.Expr = sp.S.One
    ) -> sp.Expr:
        scale, rest = value.as_independent(*results, as_Add=False)
        if scale != 1 and not rest.free_symbols & (set(results) - set(ordered)):
            return scale * self._bare(rest, results, ordered)
        size = abs(scale.as_coeff_Mul()[0])
        if unit != 1 and abs(sp.log(size / unit).evalf()) < abs(sp.log(size).evalf()):
            return unit * self._bare(value / unit, results, ordered)
        if value.could_extract_minus_sign():
            return -self.of(-value).symbol
        return self.of(value).symbol


def factor_in(function: sp.Expr, handle: sp.Symbol, elements: Sequence[sp.Symbol]) -> sp.Expr | None:
    """H(u) where function = function|_{u=1} · H(u); None where the handle is no factor.

    exp(x − u) = exp(x)·exp(−u) does not count: exp(x) alone is not bounded.
    """
    if exponents(function, handle, elements):
        return None
    at_one = function.subs(handle, 1)
    if at_one == 0:
        return None
    if varies_numerically(function / at_one, elements):
        return None
    ratio = simplified(function / at_one)
    return ratio if ratio.free_symbols <= {handle} and not ratio.has(sp.zoo, sp.nan) else None


def exponents(function: sp.Expr, handle: sp.Symbol, elements: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Arguments of exp that contain both the handle and a position-dependent term."""
    found = [e.args[0] for e in function.atoms(sp.exp) if e.args[0].has(handle) and e.args[0].has(*elements)]
    powers = [p for p in function.atoms(sp.Pow) if p.exp.has(handle) and p.exp.has(*elements)]
    return found + [p.exp * sp.log(p.base) for p in powers]


def bounded_by_results(
    exponent: sp.Expr,
    handles: Iterable[Handle],
    reductions: Sequence[Reduction],
    elements: Sequence[sp.Symbol],
    kept: Mapping[sp.Symbol, int],
) -> bool:
    """Whether the exponent, with handles at the partial results, is bounded above for every position folded so far.

    True where the handles' values are functions of one max (min) over the same elements, the exponent falls (rises)
    in it, and is at x = max (min) free of position and of results: 0, or what the unfused program has there too. Or of
    several, as in (a − max a) + (b − max b).

    Parameters
    ----------
    kept : conditions, with their values at the positions that count (`conditions_that_keep`).
    """
    values = {h.symbol: h.value for h in handles if h.symbol in exponent.free_symbols}
    full = exponent.subs(values).subs(kept)
    read = set().union(*(value.free_symbols for value in values.values()))
    varying = {*elements, *(r.result for r in reductions)}
    ordered = [r for r in reductions if r.reducer.ordered and r.result in read]
    falls = [r for r in ordered if _falls(sp.diff(full, r.result), r)]
    together = [falls] if len(ordered) > 1 and falls == ordered else []
    for some in [*([r] for r in falls), *together]:
        at_bound = full.subs({r.result: r.element.subs(kept) for r in some}, simultaneous=True)
        others = read - {r.result for r in some} - exponent.free_symbols
        if not others and _is_the_same(at_bound, varying & at_bound.free_symbols):
            return True
    return False


def _falls(slope: sp.Expr, reduction: Reduction) -> bool:
    return bool(slope.is_negative if reduction.reducer is MAX else reduction.reducer is MIN and slope.is_positive)


def _is_the_same(value: sp.Expr, varying: Collection[sp.Symbol]) -> bool:
    if varies_numerically(value, list(varying)):
        return False
    value = simplified(value)
    return not value.free_symbols & set(varying) and value.is_finite is not False


def cancelled_results(exponent: sp.Expr, handle: Handle, reductions: Sequence[Reduction]) -> list[sp.Expr]:
    """Results that cancel an equal infinite element in the exponent: max x and Σ x, in x − u.

    Of a choice, which is infinite where it is one of them, the choice.
    """
    if isinstance(handle.value, sp.Piecewise):
        sides = (Handle(handle.symbol, side) for side, _ in handle.value.args)
        return [handle.value] if any(cancelled_results(exponent, side, reductions) for side in sides) else []
    full, part = exponent.subs(handle.symbol, handle.value), exponent.subs(handle.symbol, 0)
    found = []
    for reduction in reductions:
        if reduction.result in handle.value.free_symbols and (reduction.reducer.ordered or reduction.reducer is SUM):
            against = part / (reduction.element * sp.diff(full, reduction.result))
            if not ever_positive(against) and simplified(against).is_negative:
                found.append(reduction.result)
    return found


def tracking_gauge(handle: Handle, reductions: Iterable[Reduction]) -> Gauge:
    """The gauge of a handle that is tracked: running where it is built from max and min alone, centred otherwise."""
    read = [r for r in reductions if r.result in handle.value.free_symbols]
    return Gauge.RUNNING if all(r.reducer.ordered for r in read) else Gauge.CENTRED


def translations(
    function: sp.Expr, handle: sp.Symbol, elements: Sequence[sp.Symbol]
) -> dict[sp.Expr, list[sp.Expr]] | None:
    """The sums s·(a(x) − u) of the function, s a nonzero constant, by a(x); None where u occurs in another sum."""
    parts: dict[sp.Expr, list[sp.Expr]] = {}
    for total in sorted(function.atoms(sp.Add), key=sp.default_sort_key):
        slope = total.coeff(handle)
        if slope.has(*elements) or not slope.is_nonzero:
            continue
        rest = expanded((slope * handle - total) / slope)
        if rest.has(handle) or not rest.has(*elements):
            return None
        parts.setdefault(rest, []).append(total)
    return parts


def translated_part(function: sp.Expr, handle: sp.Symbol, elements: Sequence[sp.Symbol]) -> sp.Expr | None:
    """The a(x) where the function reads the handle u in differences a(x) − u; None where it reads it otherwise.

    A mean of a(x) is then a good reference, whatever u itself does.
    """
    parts = translations(function, handle, elements)
    return next(iter(parts)) if parts is not None and len(parts) == 1 else None


def at_equal_elements(value: sp.Expr, reductions: Sequence[Reduction]) -> sp.Expr:
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


def is_location(
    value: sp.Expr, part: sp.Expr, reductions: Sequence[Reduction], meaning: Mapping[sp.Symbol, sp.Expr]
) -> bool:
    """Whether a value is a location of the data a(x), as their mean, maximum and log Σ exp are, and their total is not.

    Such a value moves with the data: at equal elements it is a(x), up to a number.

    Parameters
    ----------
    part : a(x).
    meaning : what symbols are known to stand for.
    """
    away = strip_rounding((at_equal_elements(value, reductions) - part).xreplace(dict(meaning)))
    return not varies_numerically(away, list(away.free_symbols - {LENGTH}))
