"""Powers scaled into range: Σ (x/m)² is near 1 where Σ x² and m² overflow.

A factor h(d)^k of the whole is as good at the end as at each element, unless elements are raised to the k-th power
themselves. Then b(x)^k and h^k leave the range long before (b·h)^k does: with numbers of 1e-20, the fourth moment over
the squared variance is 0/0 in float32. So b is taken in units of a power of two s beside h of the results so far:

    lift     T_e = (b·s)^e                   one state for each power e that moving b makes
    move     T_e·(s′/s)^e, Δb as s′·Δb       b and s both go to new references
    finish   T_k·(h/s)^k
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from tvm_cascade.algebra.fold import Reference
from tvm_cascade.symbolic.functions import Rescaled


@dataclass(frozen=True)
class Powers:
    """The power b^k of an element, and the h^k that scales it.

    Attributes
    ----------
    base : b, over elements and handles: the product of what is raised to that power.
    degree : k, 2 or more.
    unit : h, over results and parameters.
    reference : the reference s of h.
    rest : what the whole has as a factor beside h^k.
    """

    base: sp.Expr
    degree: int
    unit: sp.Expr
    reference: Reference
    rest: sp.Expr

    def oriented(self, function: sp.Expr) -> sp.Expr:
        """The function with x − u where it has u − x and the base is x − u."""
        for part in sp.Mul.make_args(self.base):
            opposite = sp.expand(-part)
            factors = [f.as_base_exp() for f in sp.Mul.make_args(function)]
            function = sp.Mul(*((-1) ** e * part**e if base == opposite else base**e for base, e in factors))
        return function

    def exponent_in(self, function: sp.Expr) -> int:
        """The e with which an oriented function has b^e."""
        powers: Mapping[sp.Expr, sp.Expr] = function.as_powers_dict()
        found = [powers.get(part, 0) for part in sp.Mul.make_args(self.base)]
        return int(min(found)) if all(sp.sympify(e).is_Integer for e in found) else 0

    def lift(self, function: sp.Expr, exponent: int, fixed: Mapping[sp.Symbol, sp.Expr]) -> sp.Expr:
        """The function, which has b^e, with b·s for b, and over references in place of handles."""
        if exponent == 0:
            return function.subs(fixed, simultaneous=True)
        rest = (function / self.base**exponent).subs(fixed, simultaneous=True)
        scaled = self.base.subs(fixed, simultaneous=True) * self.reference.symbol
        return rest * (scaled if exponent == 1 else Rescaled(sp.S.One, scaled, sp.S.One, exponent))

    def moved(
        self, entry: sp.Expr, component: sp.Expr, into: int, exponent: int, steps: Sequence[sp.Symbol]
    ) -> sp.Expr:
        """entry·T for a T that has b^e, as a part of one that has b^e′, where s goes to s′ and b goes by Δ."""
        new, old = self.reference.moved, self.reference.symbol
        brought = Rescaled(component, new, old, exponent)
        if not steps or not entry.is_polynomial(*steps):
            return entry * _in_units(brought, new, into - exponent)
        total = sp.Integer(0)
        for powers, coefficient in sp.Poly(entry, *steps).terms():
            term, missing = coefficient * brought, into - exponent
            for step, power in zip(steps, powers, strict=True):
                scaled = max(0, min(power, missing))
                term = Rescaled(term, new * step, sp.S.One, scaled) * step ** (power - scaled)
                missing -= scaled
            total += _in_units(term, new, missing)
        return total

    def at_the_end(self, entry: sp.Expr, exponent: int, steps: Sequence[sp.Symbol]) -> sp.Expr:
        """The entry for a T that has b^e, in steps that are s·Δ."""
        s = self.reference.symbol
        return sp.expand(entry.subs({step: step / s for step in steps}) * s ** (self.degree - exponent))

    def finished(self, total: sp.Expr) -> sp.Expr:
        """The result, converted from units of s: T·(h/s)^k."""
        above, below = self.unit.as_numer_denom()
        return Rescaled(total, above, below * self.reference.symbol, self.degree)


def _in_units(term: sp.Expr, unit: sp.Symbol, power: int) -> sp.Expr:
    return Rescaled(term, unit, sp.S.One, power) if power >= 0 else Rescaled(term, sp.S.One, unit, -power)
