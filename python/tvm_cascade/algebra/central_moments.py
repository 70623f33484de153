"""Σ of polynomials of elements whose coefficients read results, about the means of the elements.

Σ W·P(e; u) = Σ over α of (∂^α P / α!)(c; u) · M_α, with the moments M_α = Σ W·Π (e_i − c_i)^α_i about references c_i.

The residue y − u·x − v is no difference of an element and a handle, and u times v in a state that is held at both
cancels what an offset of x adds to either. The moments know of no handle: c is near the data, whatever u and v are,
and P at c is written as the program writes P at an element, so that it rounds as the program does.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction, indicator, masks_in, masks_that_keep
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Gauge, Handle, Range
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.algebra.work import charge, expanded

MOST_MOMENTS = 10
"""Moments that one polynomial may need, its weight's own sum or the count among them."""

Orders = tuple[int, ...]


def about_the_means(
    derivation: Derivation, reduction: Reduction, function: sp.Expr, tracked: Sequence[Handle]
) -> sp.Expr | None:
    """Σ of the function in moments that this adds to the state, and in results.

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
    powers = _powers(over, variables, MOST_MOMENTS)
    if over.has(*elements) or powers is None:
        return None
    references = [_at_the_mean(derivation, reduction, part, weight) for part in parts]
    moments = _moments(derivation, reduction, weight, list(zip(parts, references, strict=True)), powers)
    at = dict(zip(variables, (r.symbol for r in references), strict=True))
    at |= {handle.symbol: handle.value for handle in tracked}
    return sp.Add(*(_coefficient(over, variables, power).xreplace(at) * moments[power] for power in powers))


def reads_slopes(function: sp.Expr, tracked: Sequence[Handle], elements: Sequence[sp.Symbol]) -> bool:
    """Whether a handle multiplies an element as it is, the x of y − u·x, rather than a difference x − v."""
    symbols = [handle.symbol for handle in tracked]
    _, polynomial = _weight_and_rest(function, elements, symbols)
    return any(
        product.has(*symbols) and any(f.has(*elements) and not f.has(*symbols) for f in product.args)
        for product in polynomial.atoms(sp.Mul)
    )


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


def _powers(over: sp.Expr, variables: Sequence[sp.Symbol], most: int) -> list[Orders] | None:
    """The powers of the variables in the polynomial and all below them, in rising order; None where they are many."""
    if not over.is_polynomial(*variables):
        return None
    degrees = [sp.degree(over, variable) if over.has(variable) else 0 for variable in variables]
    if sum(degrees) > most:
        return None
    met = {powers for powers, weight in sp.Poly(expanded(over), *variables).terms() if weight != 0}
    below = {low for high in met for low in itertools.product(*(range(power + 1) for power in high))}
    return sorted(below, key=lambda powers: (sum(powers), powers)) if len(below) <= most else None


def _at_the_mean(derivation: Derivation, reduction: Reduction, part: sp.Expr, weight: sp.Expr) -> Reference:
    """A reference at the mean of the part over the positions that count."""
    kept = indicator(masks_that_keep(weight, derivation.elements))
    total = derivation.component(reduction, SUM, kept * part)
    mean = total / (COUNT if kept == 1 else derivation.component(reduction, SUM, kept))
    for known in (step for step in derivation.steps if isinstance(step, Reference)):
        if (known.value - mean).xreplace(dict(derivation.meaning)) == 0:
            return known
    return derivation.refer(("mean", mean), part, Gauge.CENTRED, mean, guarded=True, auxiliary=True, range=Range.NEAR)


def _moments(
    derivation: Derivation,
    reduction: Reduction,
    weight: sp.Expr,
    about: Sequence[tuple[sp.Expr, Reference]],
    powers: Sequence[Orders],
) -> dict[Orders, sp.Expr]:
    """Σ weight·Π (part − c)^power by powers, moved by the binomial theorem."""
    found: dict[Orders, sp.Expr] = {}
    for high in powers:
        lift = weight * sp.Mul(*(_power(part - r.symbol, k) for (part, r), k in zip(about, high, strict=True)))
        known = derivation.known(SUM, lift)
        if not lift.has(*derivation.elements):
            found[high] = COUNT * lift
        elif known is not None:
            found[high] = known
        else:
            found[high] = derivation.unused(reduction)
            derivation.add(reduction, SUM, lift, _moved(high, found, [reference.step for _, reference in about]))
    charge(len(powers), "moving moments")
    return {power: moment.subs(COUNT, LENGTH) for power, moment in found.items()}


def _moved(high: Orders, moments: dict[Orders, sp.Expr], steps: Sequence[sp.Symbol]) -> sp.Expr:
    terms = []
    for low in itertools.product(*(range(power + 1) for power in high)):
        ways = [sp.binomial(h, k) * _power(-step, h - k) for h, k, step in zip(high, low, steps, strict=True)]
        terms.append(sp.Mul(*ways) * moments[low])
    return sp.Add(*terms)


def _coefficient(over: sp.Expr, variables: Sequence[sp.Symbol], powers: Orders) -> sp.Expr:
    """The Taylor coefficient, differentiated as it is written: an expanded one would cancel."""
    for variable, power in zip(variables, powers, strict=True):
        if power:
            over = sp.diff(over, variable, power) / sp.factorial(power)
    return over


def _power(base: sp.Expr, exponent: int) -> sp.Expr:
    return base**exponent if exponent else sp.Integer(1)
