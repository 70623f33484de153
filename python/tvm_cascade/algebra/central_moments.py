"""Central moments: Σ of polynomials in elements whose coefficients are earlier results, about the means.

Σ W·P(e; u) = Σ over α of (∂^α P / α!)(c; u) · M_α, with the moments M_α = Σ W·Π (e_i − c_i)^α_i about references c_i.

The residue y − u·x − v is no difference of an element and an invariant. In a state relative to both, u times v cancels
what an offset of x adds to either. The moments know of no invariant: c is near the data, whatever u and v are, and P
at c is written as the program writes P at an element, so that it rounds as the program does.

Moments move as powers do, f_k′ = f_k − Δc_k for f_k = e_k − c_k. Of one variance that is the update of T. Chan,
G. Golub and R. LeVeque, Algorithms for computing the sample variance (1983). Near a line the residue is small beside y,
and moments of x and y cancel: that is guarded (`Range.WEIGHED`).

Parts of elements are symbols and functions that read no result; powers are by part, as are those below them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.invariants import Invariant, translated_part
from tvm_cascade.algebra.policy import Policy, Range
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.symbolic.masks import indicator, masks_in, masks_that_keep
from tvm_cascade.symbolic.work import charge, expanded, horner

Product = tuple[int, ...]
"""Coordinates that are multiplied, by number, in rising order; one that is raised to a power as often."""


def about_the_means(
    derivation: Derivation, reduction: Reduction, function: sp.Expr, tracked: Sequence[Invariant]
) -> sp.Expr | None:
    """The sum in terms of central moments, which this adds to the state, and of results.

    None where it is no polynomial of parts of elements, reads one invariant beside one a(x), or needs too many moments.
    """
    elements, symbols = derivation.elements, [invariant.symbol for invariant in tracked]
    weight, polynomial = weight_and_rest(function, elements, symbols)
    stands = located(function, tracked, elements)
    parts = [] if stands and len(tracked) == 1 else parts_of(polynomial, elements, symbols)
    if not parts or masks_in(polynomial, elements):
        return None
    variables = [sp.Dummy(f"e{k}", real=True) for k in range(len(parts))]
    over = polynomial.xreplace(dict(zip(parts, variables, strict=True)))
    if over.has(*elements) or powers_below(over, variables) is None:
        return None
    lines = any(len(line) > 1 for line in _lines(over, variables, symbols))
    weighed = lines or not (stands or reads_slopes(function, tracked, elements))
    coordinates = CentredCoordinates(derivation, reduction, weight, Range.WEIGHED if weighed else Range.NEAR)
    numbers = {variable: coordinates.add(part) for variable, part in zip(variables, parts, strict=True)}
    return _at_results(coordinates, over, numbers, {invariant.symbol: invariant.value for invariant in tracked})


@dataclass(frozen=True)
class Coordinate:
    """A subexpression of elements, relative to its mean.

    Attributes
    ----------
    symbol : f, in polynomials of coordinates.
    part : e, over elements.
    mean : c.
    """

    symbol: sp.Symbol
    part: sp.Expr
    mean: Reference


class CentredCoordinates:
    """The coordinates of the parts of one function W·P, and the moments of its state.

    Parameters
    ----------
    weight : W, over elements.
    argument : what is known of means as references.
    """

    def __init__(self, derivation: Derivation, reduction: Reduction, weight: sp.Expr, argument: Range) -> None:
        self.derivation, self.reduction, self.weight, self.argument = derivation, reduction, weight, argument
        self._found: list[Coordinate] = []
        self._moments: dict[Product, sp.Expr] = {}

    def add(self, part: sp.Expr) -> int:
        """The number of a new coordinate, about the mean of the part."""
        self._found.append(Coordinate(sp.Dummy(f"f{len(self._found)}", real=True), part, self._at_the_mean(part)))
        return len(self._found) - 1

    def symbol(self, k: int) -> sp.Symbol:
        """f_k."""
        return self._found[k].symbol

    def part(self, k: int) -> sp.Expr:
        """e_k, over coordinates and references."""
        return self._found[k].mean.symbol + self._found[k].symbol

    def moment(self, product: Product) -> sp.Expr:
        """Σ W·Π f in the state; the components that its shift reads are added first."""
        if product not in self._moments:
            self._moments[product] = self._component(product)
        return self._moments[product]

    def _component(self, product: Product) -> sp.Expr:
        derivation, coordinates = self.derivation, [self._found[k] for k in product]
        lift = self.weight * sp.Mul(*(at.part - at.mean.symbol for at in coordinates))
        if not lift.has(*derivation.elements):
            return COUNT * lift
        if (known := derivation.known(SUM, lift)) is not None:
            return known
        moved = self._moved(coordinates)
        terms = [factor * self.moment(low) for low, factor in moved.items() if low != product]
        charge(len(moved), "moving moments")
        return derivation.add(self.reduction, SUM, lift, sp.Add(derivation.unused(self.reduction), *terms))

    def _moved(self, coordinates: Sequence[Coordinate]) -> dict[Product, sp.Expr]:
        """What Π (f − Δc) has of each product of coordinates."""
        moved = sp.Mul(*(at.symbol - at.mean.step for at in coordinates))
        terms = sp.Poly(moved, *(at.symbol for at in self._found)).terms()
        return {tuple(k for k, power in enumerate(powers) for _ in range(power)): factor for powers, factor in terms}

    @property
    def _size(self) -> sp.Expr:
        """|W|, of which the mean is not thrown off where W changes sign."""
        kept = indicator(masks_that_keep(self.weight, self.derivation.elements))
        return kept * sp.Abs(self.weight / kept)

    def _at_the_mean(self, part: sp.Expr) -> Reference:
        derivation, size = self.derivation, self._size
        total = derivation.component(self.reduction, SUM, size * part)
        mean = total / (COUNT if size == 1 else derivation.component(self.reduction, SUM, size))
        for known in (step for step in derivation.steps if isinstance(step, Reference)):
            if (known.value - mean).xreplace(dict(derivation.meaning)) == 0:
                return known
        return derivation.refer(
            ("mean", mean), part, Policy.CENTRED, mean, guarded=True, auxiliary=True, range=self.argument
        )


def _at_results(
    coordinates: CentredCoordinates, over: sp.Expr, numbers: dict[sp.Symbol, int], values: dict[sp.Symbol, sp.Expr]
) -> sp.Expr:
    """Σ of the polynomial in moments of the coordinates, by the number of that which each variable has."""
    placed = over.xreplace({variable: coordinates.part(k) for variable, k in numbers.items()})
    symbols = [coordinates.symbol(k) for k in numbers.values()]

    def moment(powers: Orders) -> sp.Expr:
        product = sorted(k for k, power in zip(numbers.values(), powers, strict=True) for _ in range(power))
        return coordinates.moment(tuple(product)).subs(COUNT, LENGTH)

    moments = {powers: moment(powers) for powers in powers_below(placed, symbols) or ()}
    total = by_weights(placed, symbols, moments)
    if total is None:
        origin = dict.fromkeys(symbols, sp.S.Zero)
        total = sp.Add(*(coefficient(placed, symbols, k).xreplace(origin) * moments[k] for k in moments))
    return total.xreplace(values)


MOST_MOMENTS = 10
"""Moments that one polynomial may need, its weight's own sum or the count among them."""

Orders = tuple[int, ...]


def reads_slopes(function: sp.Expr, tracked: Sequence[Invariant], elements: Sequence[sp.Symbol]) -> bool:
    """Whether an invariant is a slope: it multiplies an element, as in y − u·x, or a difference of another element.

    A difference x − v by itself has v as its reference.
    """
    symbols = [invariant.symbol for invariant in tracked]
    _, polynomial = weight_and_rest(function, elements, symbols)
    bare = any(
        product.has(*symbols) and any(f.has(*elements) and not f.has(*symbols) for f in product.args)
        for product in polynomial.atoms(sp.Mul)
    )
    parts = parts_of(polynomial, elements, symbols)
    return bare or any(len(line) > 1 for line in _lines(polynomial, parts, symbols))


def located(function: sp.Expr, tracked: Sequence[Invariant], elements: Sequence[sp.Symbol]) -> bool:
    """Whether each invariant u is read in differences a(x) − u of one a(x), unlike that of (x − u)·(y − u)."""
    return all(translated_part(function, invariant.symbol, elements) is not None for invariant in tracked)


def weight_and_rest(
    function: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]
) -> tuple[sp.Expr, sp.Expr]:
    """W and P with function = W·P, where W reads no invariant."""
    factors = sp.Mul.make_args(function)
    weight = sp.Mul(*(f for f in factors if f.has(*elements) and not f.has(*invariants)))
    return weight, sp.Mul(*(f for f in factors if not f.has(*elements) or f.has(*invariants)))


def parts_of(polynomial: sp.Expr, elements: Sequence[sp.Symbol], invariants: Sequence[sp.Symbol]) -> list[sp.Expr]:
    """The parts of elements of which it may be a polynomial: symbols, and functions of elements alone."""
    found: dict[sp.Expr, None] = {}

    def look(expression: sp.Expr) -> None:
        if not expression.has(*elements):
            return
        whole_power = isinstance(expression, sp.Pow) and expression.exp.is_Integer and expression.exp.is_positive
        if isinstance(expression, (sp.Add, sp.Mul)) or whole_power:
            for argument in expression.args:
                look(argument)
        elif not expression.has(*invariants):
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


def _lines(
    polynomial: sp.Expr, parts: Sequence[sp.Expr], invariants: Sequence[sp.Symbol]
) -> list[dict[sp.Expr, sp.Expr]]:
    """The sums b·y + a·x + … − v of parts that results weigh: the weight of each part."""
    found = []
    for total in sorted(polynomial.atoms(sp.Add), key=sp.default_sort_key):
        names = {part: sp.Dummy() for part in parts if total.has(part)}
        over = total.xreplace(names)
        if not names or not over.is_polynomial(*names.values()):
            continue
        linear = sp.Poly(over, *names.values())
        weights = {part: linear.coeff_monomial(name) for part, name in names.items()}
        if linear.total_degree() == 1 and any(weight.has(*invariants) for weight in weights.values()):
            found.append(weights)
    return found


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
