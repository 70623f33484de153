"""Invariants: the loop-invariant operands of an element, and how functions read them.

An *invariant* u is a largest part of an element F that does not vary along the axis but reads earlier results: the m of
exp(x − m), the s/N of (x − s/N)², the 1/t of p·v/t. The state is relative to a reference c in place of u (`policy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import Reduction
from tvm_cascade.algebra.policy import Policy
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.symbolic.sampling import ever_positive, varies_numerically
from tvm_cascade.symbolic.signs import stand_in
from tvm_cascade.symbolic.work import expanded, simplified


@dataclass(frozen=True)
class Invariant:
    """A loop-invariant subexpression of an element that reads earlier results.

    Attributes
    ----------
    symbol : u, which stands for it in the element.
    value : the part itself, in earlier results and parameters.
    """

    symbol: sp.Symbol
    value: sp.Expr


class InvariantTable:
    """Invariants by value, so that reductions which read the same quantity share one reference."""

    def __init__(self) -> None:
        self._by_key: dict[object, Invariant] = {}

    def __iter__(self) -> Iterator[Invariant]:
        return iter(self._by_key.values())

    @property
    def values(self) -> dict[sp.Symbol, sp.Expr]:
        """What each invariant's symbol stands for."""
        return {invariant.symbol: invariant.value for invariant in self}

    def of(self, value: sp.Expr) -> Invariant:
        """The invariant of that value, made on first use."""
        return self._made(value, value)

    def beside(self, invariant: Invariant, part: sp.Expr) -> Invariant:
        """A second invariant of equal value, for another location: (x − u)·(y − v) with u = v."""
        return self._made((invariant.value, part), invariant.value)

    def _made(self, key: object, value: sp.Expr) -> Invariant:
        if key not in self._by_key:
            self._by_key[key] = Invariant(stand_in(value, f"_u{len(self._by_key)}"), value)
        return self._by_key[key]

    def extract(
        self,
        expression: sp.Expr,
        elements: Sequence[sp.Symbol],
        results: Sequence[sp.Symbol],
        ordered: Sequence[sp.Symbol] = (),
    ) -> sp.Expr:
        """The expression with each largest result-reading, element-free part replaced by its invariant's symbol.

        A factor that reads no result, of a part that reads max and min alone (`ordered`), stays outside: then the
        invariant is the extremum itself, which a reference holds exactly. So does the unit of elements beside it: of
        x/1000 − s/(1000·N) the invariant is s/N, since x/1000 is rounded where x is not.
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


def factor_in(function: sp.Expr, invariant: sp.Symbol, elements: Sequence[sp.Symbol]) -> sp.Expr | None:
    """H(u) where function = function|_{u=1} · H(u); None where the invariant is no factor.

    exp(x − u) = exp(x)·exp(−u) does not count: exp(x) alone is not bounded. Factors that do not read u are left out, as
    they may vanish.
    """
    if exponents(function, invariant, elements):
        return None
    reading = function.as_independent(invariant, as_Add=False)[1]
    at_one = reading.subs(invariant, 1)
    if at_one == 0 or varies_numerically(reading / at_one, elements):
        return None
    ratio = simplified(reading / at_one)
    return ratio if ratio.free_symbols <= {invariant} and not ratio.has(sp.zoo, sp.nan) else None


def exponents(function: sp.Expr, invariant: sp.Symbol, elements: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """Arguments of exp that contain both the invariant and a position-dependent term."""
    found = [e.args[0] for e in function.atoms(sp.exp) if e.args[0].has(invariant) and e.args[0].has(*elements)]
    powers = [p for p in function.atoms(sp.Pow) if p.exp.has(invariant) and p.exp.has(*elements)]
    return found + [p.exp * sp.log(p.base) for p in powers]


def cancelled_results(exponent: sp.Expr, invariant: Invariant, reductions: Sequence[Reduction]) -> list[sp.Expr]:
    """Results that cancel an equal infinite element in the exponent: max x and Σ x, in x − u.

    Of a choice, which is infinite where it is one of them, the choice.
    """
    if isinstance(invariant.value, sp.Piecewise):
        sides = (Invariant(invariant.symbol, side) for side, _ in invariant.value.args)
        return [invariant.value] if any(cancelled_results(exponent, side, reductions) for side in sides) else []
    full, part = exponent.subs(invariant.symbol, invariant.value), exponent.subs(invariant.symbol, 0)
    found = []
    for reduction in reductions:
        if reduction.result in invariant.value.free_symbols and (reduction.reducer.ordered or reduction.reducer is SUM):
            against = part / (reduction.element * sp.diff(full, reduction.result))
            if not ever_positive(against) and simplified(against).is_negative:
                found.append(reduction.result)
    return found


def tracking_policy(invariant: Invariant, reductions: Iterable[Reduction]) -> Policy:
    """The policy of a tracked invariant: running where it is built from max and min alone, centred otherwise."""
    read = [r for r in reductions if r.result in invariant.value.free_symbols]
    return Policy.RUNNING if all(r.reducer.ordered for r in read) else Policy.CENTRED


def translations(
    function: sp.Expr, invariant: sp.Symbol, elements: Sequence[sp.Symbol]
) -> dict[sp.Expr, list[sp.Expr]] | None:
    """The sums s·(a(x) − u) of the function, s a nonzero constant, by a(x); None where u occurs in another sum."""
    parts: dict[sp.Expr, list[sp.Expr]] = {}
    for total in sorted(function.atoms(sp.Add), key=sp.default_sort_key):
        slope = total.coeff(invariant)
        if slope.has(*elements) or not slope.is_nonzero:
            continue
        rest = expanded((slope * invariant - total) / slope)
        if rest.has(invariant) or not rest.has(*elements):
            return None
        parts.setdefault(rest, []).append(total)
    return parts


def translated_part(function: sp.Expr, invariant: sp.Symbol, elements: Sequence[sp.Symbol]) -> sp.Expr | None:
    """The a(x) where the function reads the invariant u in differences a(x) − u; None where it reads it otherwise.

    A mean of a(x) is then a good reference, whatever u itself does.
    """
    parts = translations(function, invariant, elements)
    return next(iter(parts)) if parts is not None and len(parts) == 1 else None


def by_data(total: sp.Expr, reductions: Sequence[Reduction], elements: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """The parts of a sum that no element is shared by, as read in results too: x − max x and log Σ exp y − y.

    What reads no element goes with the first.
    """
    groups: list[tuple[set[sp.Symbol], sp.Expr]] = []
    still = sp.S.Zero
    for term in sp.Add.make_args(total):
        read = term.free_symbols
        for reduction in reversed(reductions):
            read = read | reduction.element.free_symbols if reduction.result in read else read
        data = read & {*elements}
        still = still if data else still + term
        shared = [group for group in groups if not group[0].isdisjoint(data)]
        groups = [group for group in groups if group not in shared]
        if data:
            groups.append((data.union(*(met for met, _ in shared)), sp.Add(term, *(part for _, part in shared))))
    return [part + still if k == 0 else part for k, (_, part) in enumerate(groups)]
