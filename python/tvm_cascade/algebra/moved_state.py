"""Rescaled components: the sums of a term at references, their shift matrix, and their finish.

For softmax these are the rescaled sums of M. Milakov and N. Gimelshein, Online normalizer calculation for softmax
(2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.gauge import Gauge
from tvm_cascade.algebra.handles import Handle, tracking_gauge
from tvm_cascade.algebra.reducer import SUM, Reducer
from tvm_cascade.symbolic.functions import StickyInfinity
from tvm_cascade.symbolic.work import horner, terms_of_exponentials


@dataclass
class MovedState:
    """Sums of basis functions B(x, u) at references; the term is the first of them.

    Attributes
    ----------
    shift : A(old, new) with B(x, new) = A·B(x, old), in the symbols of the references.
    handles : each u.
    references : what each u is replaced by.
    components : what each function is in the state, once they are added.
    reducer : what stands in place of the sums: extrema, of one function that moves by something positive.
    met : whether there has been a position that counts: until then an extremum does not move.
    """

    derivation: Derivation
    reduction: Reduction
    functions: tuple[sp.Expr, ...]
    shift: sp.Matrix
    handles: list[Handle]
    references: Sequence[Reference]
    components: list[sp.Expr] = field(default_factory=list)
    reducer: Reducer = SUM
    met: sp.Basic = sp.true

    def final(self) -> sp.Expr:
        """The first function summed, at the final results."""
        moving = self._moving
        self._add(self._lifts, lambda k, j, component: moving[k, j] * component, self._lasts)
        return self._at_results()

    @property
    def _fixed(self) -> dict[sp.Symbol, sp.Expr]:
        return {r.symbol: sp.Integer(0) for r in self.references if r.gauge is Gauge.DEFERRED}

    @property
    def _old(self) -> dict[sp.Symbol, sp.Expr]:
        pairs = zip(self.handles, self.references, strict=True)
        return {handle.symbol: self._fixed.get(r.symbol, r.symbol) for handle, r in pairs}

    @property
    def _lifts(self) -> list[sp.Expr]:
        functions = (function.subs(self._old, simultaneous=True) for function in self.functions)
        return [self.derivation.masked(self.reducer, function) for function in functions]

    @property
    def _moving(self) -> sp.Matrix:
        """The shift, in which references that are fixed take no step."""
        fixed = self._fixed
        return self.shift.subs(
            {s: 0 for r in self.references if r.symbol in fixed for s in (r.symbol, r.moved, r.step)}
        )

    def _known(self, lift: sp.Expr) -> sp.Symbol | None:
        return self.derivation.known(self.reducer, lift)

    def _add(
        self,
        lifts: list[sp.Expr],
        part: Callable[[int, int, sp.Expr], sp.Expr],
        lasts: Callable[[sp.Expr], bool] = lambda _function: False,
    ) -> None:
        """The component of each lift: the count for one that does not vary, an earlier component with the same lift.

        Parameters
        ----------
        part : what becomes of the j-th component T in the k-th one, from k, j and T.
        lasts : whether the sum of a function that is infinite stays so.
        """
        new: list[int] = []
        for k, lift in enumerate(lifts):
            known = self._known(lift)
            if not lift.has(*self.derivation.elements):
                self.components.append(COUNT * lift)
            elif known is not None:
                self.components.append(known)
            else:
                self.components.append(self.derivation.unused(self.reduction, ahead=len(new)))
                new.append(k)
        for k in new:
            moved = sum((part(k, j, component) for j, component in enumerate(self.components)), sp.Integer(0))
            references = [r.symbol for r in self.references]
            written = terms_of_exponentials(moved, references) if moved.has(sp.exp) else moved
            if lasts(self.functions[k]):
                written = StickyInfinity(self.derivation.unused(self.reduction), written)
            if self.met != sp.true:
                written = sp.Piecewise((written, self.met), (self.components[k], True))
            self.derivation.add(self.reduction, self.reducer, lifts[k], written)

    def _lasts(self, function: sp.Expr) -> bool:
        """Whether an infinite element makes the sum infinite, of the same sign, at every finite u, and u can be finite.

        Extrema alone can: a mean of infinite elements is infinite itself.
        """
        symbols = [handle.symbol for handle in self.handles]
        reading = [f.as_base_exp() for f in sp.Mul.make_args(function) if f.has(*symbols)]
        if len(symbols) != 1 or len(reading) != 1 or function.has(sp.exp):
            return False
        ((base, power),) = reading
        extremum = tracking_gauge(self.handles[0], self.derivation.done) is Gauge.RUNNING
        linear = base.is_polynomial(*symbols) and sp.diff(base, symbols[0]).is_number
        return bool(extremum and linear and power.is_Integer and power > 0 and not self._fixed)

    def _at_results(self) -> sp.Expr:
        """Component 0 shifted to the final results. A reference that ends at its quantity needs no shift."""
        pairs = zip(self.shift.row(0), self.components, strict=True)
        terms = [(entry, component.subs(COUNT, LENGTH)) for entry, component in pairs]
        sticky: list[sp.Expr] = []
        final = _nested(terms, [r.step for r in self.references if r.free or r.gauge is Gauge.DEFERRED])
        for reference, handle in zip(self.references, self.handles, strict=True):
            if reference.free or reference.gauge is Gauge.DEFERRED:
                step = handle.value - reference.symbol
                final = final.xreplace({reference.step: step, reference.moved: handle.value})
                sticky = [step] if self._lasts(self.functions[0]) else []
            else:
                final = final.subs({reference.moved: reference.symbol, reference.step: 0})
        final = final.xreplace(self._fixed)
        return StickyInfinity(self.components[0], final, *sticky) if sticky else final


def _nested(terms: Sequence[tuple[sp.Expr, sp.Expr]], steps: Sequence[sp.Symbol]) -> sp.Expr:
    """Σ entry·T as E·(a + Δ·(b + Δ·c)), E the exponential.

    Where Δ is out of range the highest power decides, not ∞ − ∞. Differences of references that multiply a component
    stay whole: written out, N·c·(c − e) is N·c² − N·c·e, of which nothing need be left.
    """
    final = sp.Add(*(entry * component for entry, component in terms))
    if not steps:
        return final
    exponential = sp.Mul(*(e for e in final.atoms(sp.exp) if e.has(*steps)))
    found: dict[tuple[int, ...], sp.Expr] = {}
    for entry, component in terms:
        for term in sp.Add.make_args(entry):
            weight, moving = term.as_independent(*steps, as_Add=False)
            moving = sp.powsimp(moving / exponential)
            if moving.has(sp.exp) or not moving.is_polynomial(*steps):
                return final
            for powers, coefficient in sp.Poly(moving, *steps).terms():
                found[powers] = found.get(powers, sp.Integer(0)) + weight * coefficient * component
    return exponential * horner(found, steps) if len(terms) > 1 else final
