"""Polynomials in parts of elements whose coefficients are earlier results: their parts, powers and lines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.handles import Handle
from tvm_cascade.symbolic.work import expanded, horner

MOST_MOMENTS = 10
"""Moments that one polynomial may need, its weight's own sum or the count among them."""

Orders = tuple[int, ...]


def reads_slopes(function: sp.Expr, tracked: Sequence[Handle], elements: Sequence[sp.Symbol]) -> bool:
    """Whether a handle is a slope: it multiplies an element, as in y − u·x, or a difference of another element.

    A difference x − v by itself has v as its reference.
    """
    symbols = [handle.symbol for handle in tracked]
    _, polynomial = weight_and_rest(function, elements, symbols)
    bare = any(
        product.has(*symbols) and any(f.has(*elements) and not f.has(*symbols) for f in product.args)
        for product in polynomial.atoms(sp.Mul)
    )
    parts = parts_of(polynomial, elements, symbols)
    return bare or any(len(line) > 1 for line in _lines(polynomial, parts, symbols))


def weight_and_rest(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr]:
    """W and P with function = W·P, where W reads no handle."""
    factors = sp.Mul.make_args(function)
    weight = sp.Mul(*(f for f in factors if f.has(*elements) and not f.has(*handles)))
    return weight, sp.Mul(*(f for f in factors if not f.has(*elements) or f.has(*handles)))


def parts_of(polynomial: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """The parts of elements of which it may be a polynomial: symbols, and functions of elements alone."""
    found: dict[sp.Expr, None] = {}

    def look(expression: sp.Expr) -> None:
        if not expression.has(*elements):
            return
        whole_power = isinstance(expression, sp.Pow) and expression.exp.is_Integer and expression.exp.is_positive
        if isinstance(expression, (sp.Add, sp.Mul)) or whole_power:
            for argument in expression.args:
                look(argument)
        elif not expression.has(*handles):
            found[expression] = None

    look(polynomial)
    return sorted(found, key=sp.default_sort_key)


def powers_below(over: sp.Expr, variables: Sequence[sp.Symbol]) -> list[Orders] | None:
    """The powers of the variables in the polynomial and all below them, in rising order; None where they are many."""
    if not over.is_polynomial(*variables):
        return None
    degrees = [sp.degree(over, variable) if over.has(variable) else 0 for variable in variables]
    if sum(degrees) > MOST_MOMENTS:
        return None
    met = {powers for powers, weight in sp.Poly(expanded(over), *variables).terms() if weight != 0}
    below = {low for high in met for low in itertools.product(*(range(power + 1) for power in high))}
    return sorted(below, key=lambda powers: (sum(powers), powers)) if len(below) <= MOST_MOMENTS else None


def _lines(polynomial: sp.Expr, parts: Sequence[sp.Expr], handles: Sequence[sp.Symbol]) -> list[dict[sp.Expr, sp.Expr]]:
    """The sums b·y + a·x + … − v of parts that results weigh: the weight of each part."""
    found = []
    for total in sorted(polynomial.atoms(sp.Add), key=sp.default_sort_key):
        names = {part: sp.Dummy() for part in parts if total.has(part)}
        over = total.xreplace(names)
        if not names or not over.is_polynomial(*names.values()):
            continue
        linear = sp.Poly(over, *names.values())
        weights = {part: linear.coeff_monomial(name) for part, name in names.items()}
        if linear.total_degree() == 1 and any(weight.has(*handles) for weight in weights.values()):
            found.append(weights)
    return found


def fitted(
    over: sp.Expr, variables: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> dict[sp.Symbol, list[sp.Symbol]]:
    """The variables in the order of their coordinates, each with those before it along which it has a line.

    Those come last that stand with a number, as the y of y − u·x. None has a line where there would be many moments.
    """
    lines = _lines(over, variables, handles)
    told = {variable for line in lines for variable, weight in line.items() if not weight.has(*handles)}
    order = sorted(variables, key=lambda variable: (variable in told, variables.index(variable)))
    along = {
        variable: [other for other in order[:k] if any({variable, other} <= line.keys() for line in lines)]
        for k, variable in enumerate(order)
    }
    moved = {v: sp.Add(v, *(sp.Dummy() * other for other in others)) for v, others in along.items()}
    return along if powers_below(over.xreplace(moved), variables) is not None else {v: [] for v in variables}


def by_weights(placed: sp.Expr, symbols: Sequence[sp.Symbol], moments: dict[Orders, sp.Expr]) -> sp.Expr | None:
    """Σ of a product of sums λ·f + … + μ as a + λ·(b + λ·c): where λ is out of range its highest power decides.

    None where it is no such product.
    """
    weights: dict[sp.Symbol, sp.Expr] = {}

    def named(value: sp.Expr) -> sp.Expr:
        if value.is_number:
            return value
        weights[weight := sp.Dummy()] = value
        return weight

    written = sp.S.One
    for factor in sp.Mul.make_args(placed):
        base, exponent = (
            (factor.base, factor.exp) if isinstance(factor, sp.Pow) and factor.has(*symbols) else (factor, 1)
        )
        if base.has(*symbols):
            if sp.Poly(base, *symbols).total_degree() > 1:
                return None
            own = [named(sp.diff(base, f)) * f for f in symbols]
            base = sp.Add(*own, named(base.xreplace(dict.fromkeys(symbols, sp.S.Zero))))
        else:
            base = named(base)
        written *= base**exponent
    found: dict[Orders, sp.Expr] = {}
    for powers, number in sp.Poly(written, *symbols, *weights).terms():
        of_weights = powers[len(symbols) :]
        found[of_weights] = found.get(of_weights, sp.S.Zero) + number * moments[powers[: len(symbols)]]
    return horner(found, list(weights)).xreplace(weights)


def coefficient(over: sp.Expr, variables: Sequence[sp.Symbol], powers: Orders) -> sp.Expr:
    """The Taylor coefficient, differentiated as it is written: an expanded one would cancel."""
    for variable, power in zip(variables, powers, strict=True):
        if power:
            over = sp.diff(over, variable, power) / sp.factorial(power)
    return over
