"""Central moments: Σ of polynomials in elements whose coefficients are earlier results, about the means.

Σ W·P(e; u) = Σ over α of (∂^α P / α!)(c; u) · M_α, with the moments M_α = Σ W·Π (e_i − c_i)^α_i about references c_i.

The residue y − u·x − v is no difference of an element and a handle, and u times v in a state that is relative to both
cancels what an offset of x adds to either. The moments know of no handle: c is near the data, whatever u and v are,
and P at c is written as the program writes P at an element, so that it rounds as the program does.

Near a line that residue is small beside y, and moments of x and y would cancel. Parts that results weigh against each
other in one sum are therefore taken about lines as well as about means (`coordinates`), and M_α is of what is left.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.coordinates import Coordinates
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.handles import Handle
from tvm_cascade.symbolic.masks import masks_in
from tvm_cascade.symbolic.work import expanded, horner

MOST_MOMENTS = 10
"""Moments that one polynomial may need, its weight's own sum or the count among them."""

Orders = tuple[int, ...]


def about_the_means(
    derivation: Derivation, reduction: Reduction, function: sp.Expr, tracked: Sequence[Handle]
) -> sp.Expr | None:
    """The sum in terms of central moments, which this adds to the state, and of results.

    None where it is no polynomial of parts of elements, reads a single handle, or needs too many moments.
    """
    elements, symbols = derivation.elements, [handle.symbol for handle in tracked]
    weight, polynomial = _weight_and_rest(function, elements, symbols)
    if len(tracked) < 2:
        return None
    parts = _parts(polynomial, elements, symbols)
    if not parts or masks_in(polynomial, elements):
        return None
    variables = [sp.Dummy(f"e{k}", real=True) for k in range(len(parts))]
    over = polynomial.xreplace(dict(zip(parts, variables, strict=True)))
    if over.has(*elements) or _powers(over, variables) is None:
        return None
    coordinates = Coordinates(derivation, reduction, weight)
    fitted = _fitted(over, variables, symbols)
    if coordinates.counts_up and sp.Poly(over, *variables).total_degree() == 1:  # first moments about means vanish
        fitted = {variable: [] for variable in variables}
    numbers: dict[sp.Symbol, int] = {}
    for variable, along in fitted.items():
        part = parts[variables.index(variable)]
        numbers[variable] = coordinates.add(part, [numbers[other] for other in along])
    return _at_results(coordinates, over, numbers, {handle.symbol: handle.value for handle in tracked})


def reads_slopes(function: sp.Expr, tracked: Sequence[Handle], elements: Sequence[sp.Symbol]) -> bool:
    """Whether a handle is a slope: it multiplies an element, as in y − u·x, or a difference of another element.

    A difference x − v by itself has v as its reference.
    """
    symbols = [handle.symbol for handle in tracked]
    _, polynomial = _weight_and_rest(function, elements, symbols)
    bare = any(
        product.has(*symbols) and any(f.has(*elements) and not f.has(*symbols) for f in product.args)
        for product in polynomial.atoms(sp.Mul)
    )
    parts = _parts(polynomial, elements, symbols)
    return bare or any(len(line) > 1 for line in _lines(polynomial, parts, symbols))


def _weight_and_rest(
    function: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr]:
    """W and P with function = W·P, where W reads no handle."""
    factors = sp.Mul.make_args(function)
    weight = sp.Mul(*(f for f in factors if f.has(*elements) and not f.has(*handles)))
    return weight, sp.Mul(*(f for f in factors if not f.has(*elements) or f.has(*handles)))


def _parts(polynomial: sp.Expr, elements: Sequence[sp.Symbol], handles: Sequence[sp.Symbol]) -> list[sp.Expr]:
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


def _powers(over: sp.Expr, variables: Sequence[sp.Symbol]) -> list[Orders] | None:
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


def _fitted(
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
    return along if _powers(over.xreplace(moved), variables) is not None else {v: [] for v in variables}


def _at_results(
    coordinates: Coordinates, over: sp.Expr, numbers: dict[sp.Symbol, int], values: dict[sp.Symbol, sp.Expr]
) -> sp.Expr:
    """Σ of the polynomial in moments of the coordinates, by the number of that which each variable has."""
    placed = over.xreplace({variable: coordinates.part(k) for variable, k in numbers.items()})
    symbols = [coordinates.symbol(k) for k in numbers.values()]

    def moment(powers: Orders) -> sp.Expr:
        product = sorted(k for k, power in zip(numbers.values(), powers, strict=True) for _ in range(power))
        return coordinates.moment(tuple(product)).subs(COUNT, LENGTH)

    moments = {powers: moment(powers) for powers in _powers(placed, symbols) or ()}
    total = _by_weights(placed, symbols, moments)
    if total is None:
        origin = dict.fromkeys(symbols, sp.S.Zero)
        total = sp.Add(*(_coefficient(placed, symbols, k).xreplace(origin) * moments[k] for k in moments))
    return total.xreplace(values)


def _by_weights(placed: sp.Expr, symbols: Sequence[sp.Symbol], moments: dict[Orders, sp.Expr]) -> sp.Expr | None:
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


def _coefficient(over: sp.Expr, variables: Sequence[sp.Symbol], powers: Orders) -> sp.Expr:
    """The Taylor coefficient, differentiated as it is written: an expanded one would cancel."""
    for variable, power in zip(variables, powers, strict=True):
        if power:
            over = sp.diff(over, variable, power) / sp.factorial(power)
    return over
