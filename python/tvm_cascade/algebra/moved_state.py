"""Rescaled components: the sums of a term at references, their shift matrix, and their finish.

For softmax these are the rescaled sums of M. Milakov and N. Gimelshein, Online normalizer calculation for softmax
(2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import sympy as sp

from tvm_cascade.algebra.cascade import COUNT, LENGTH, Reduction
from tvm_cascade.algebra.derivation import Derivation
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.invariants import Invariant
from tvm_cascade.algebra.policy import Policy
from tvm_cascade.algebra.reducer import SUM, Reducer
from tvm_cascade.symbolic.work import terms_of_exponentials


@dataclass
class MovedState:
    """Sums of basis functions B(x, u) at references; the term is the first of them.

    Attributes
    ----------
    shift : A(old, new) with B(x, new) = A·B(x, old), in the symbols of the references.
    invariants : each u.
    references : what each u is replaced by.
    components : what each function is in the state, once they are added.
    reducer : what stands in place of the sums: extrema, of one function that moves by something positive.
    met : whether there has been a position that counts: until then an extremum does not move.
    """

    derivation: Derivation
    reduction: Reduction
    functions: tuple[sp.Expr, ...]
    shift: sp.Matrix
    invariants: list[Invariant]
    references: Sequence[Reference]
    components: list[sp.Expr] = field(default_factory=list)
    reducer: Reducer = SUM
    met: sp.Basic = sp.true

    @property
    def _fixed(self) -> dict[sp.Symbol, sp.Expr]:
        return {r.symbol: sp.Integer(0) for r in self.references if r.policy is Policy.DEFERRED}

    @property
    def _old(self) -> dict[sp.Symbol, sp.Expr]:
        pairs = zip(self.invariants, self.references, strict=True)
        return {invariant.symbol: self._fixed.get(r.symbol, r.symbol) for invariant, r in pairs}

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

    def _add(self) -> None:
        """The component of each function: the count for one that does not vary, an earlier one with the same lift."""
        lifts, moving, new = self._lifts, self._moving, list[int]()
        for k, lift in enumerate(lifts):
            known = self.derivation.known(self.reducer, lift)
            if not lift.has(*self.derivation.elements):
                self.components.append(COUNT * lift)
            elif known is not None:
                self.components.append(known)
            else:
                self.components.append(self.derivation.unused(self.reduction, ahead=len(new)))
                new.append(k)
        for k in new:
            moved = sp.Add(*(moving[k, j] * component for j, component in enumerate(self.components)))
            references = [r.symbol for r in self.references]
            written = terms_of_exponentials(moved, references) if moved.has(sp.exp) else moved
            if self.met != sp.true:
                written = sp.Piecewise((written, self.met), (self.components[k], True))
            self.derivation.add(self.reduction, self.reducer, lifts[k], written)

    def final(self) -> sp.Expr:
        """The first function summed, at the final results. A reference that ends at its quantity needs no shift."""
        self._add()
        pairs = zip(self.shift.row(0), self.components, strict=True)
        final = sp.Add(*(entry * component.subs(COUNT, LENGTH) for entry, component in pairs))
        for reference, invariant in zip(self.references, self.invariants, strict=True):
            ends = reference.free or reference.policy is Policy.DEFERRED
            step, moved = (
                (invariant.value - reference.symbol, invariant.value) if ends else (sp.S.Zero, reference.symbol)
            )
            final = final.xreplace({reference.step: step, reference.moved: moved})
        return final.xreplace(self._fixed)
