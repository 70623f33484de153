"""Sums that divide exponentials, by their logarithms: one number a row for two, and no division at each position.

p = exp(s − m)/t   with  t = Σ exp(s − m)      →      p = exp(s − l)   with  l = m + log t
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.facts.extent import Extent, Extents
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.tir import extent_of
from tvm_cascade.reverse.stages import Made
from tvm_cascade.reverse.sweep import Sweep


@dataclass
class Normalisers:
    """The logarithms that stand for sums, as maps of results.

    Attributes
    ----------
    sweep : that made the stages of a backward function.
    keeps : whether a buffer is an input, or left to it.
    kept : the maps, which the forward function stores.
    """

    sweep: Sweep
    keeps: Callable[[tirx.Var], bool]
    kept: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.terms, self.stages, self.writer = self.sweep.terms, self.sweep.stages, self.sweep.program.writer

    def of(self, made: Made) -> Made:
        """A stage with the logarithms of what it divides exponentials by."""
        value = made.value
        for divisor, load in self._divisors(self._inlined(value)):
            if not {*made.rows, *made.summed} <= {*load.indices}:
                value = self._without(value, divisor, load) or value
        return made if value is made.value else Made(made.buffer, made.rows, made.summed, value)

    def _divisors(self, value: sp.Expr) -> list[tuple[sp.Expr, ir.TensorLoad]]:
        """What a value divides by that is never negative and the same all along a row, with a sum in it."""
        found = []
        for base in sorted({power.base for power in value.atoms(sp.Pow) if power.exp == -1}, key=sp.default_sort_key):
            sums = [(s, load) for s, load in self.terms.loads(base) if self._is_positive(load.source)]
            known = {symbol: Extent(low=0.0) for symbol, _ in sums}
            if sums and _has_a_place_of_its_own(sums[0][1]) and self._is_of_rows(base, {*sums[0][1].indices}):
                found += [(base, sums[0][1])] if Extents(known).of(base).low >= 0 else []
        return found

    def _is_positive(self, buffer: tirx.Var) -> bool:
        """Whether a buffer is a sum of what is never negative."""
        stage = self.writer(buffer)
        if stage is None or stage.reducer is None or stage.reducer.plain is not SUM:
            return False
        return Extents().of(self.sweep.element(stage)).low >= 0

    def _inlined(self, value: sp.Expr) -> sp.Expr:
        """A value with the maps of rows that divide by such sums written out."""
        for symbol, load in self.terms.loads(value):
            own = self.stages.map_of(load)
            if own is not None and any({*own.rows} <= {*divisor.indices} for _, divisor in self._divisors(own.value)):
                at = dict(zip(own.rows, load.indices, strict=True))
                value = value.xreplace({symbol: self.terms.at(own.value, at)})
        return value

    def _without(self, value: sp.Expr, divisor: sp.Expr, load: ir.TensorLoad) -> sp.Expr | None:
        """A value with the logarithm of a divisor in exponents; None where it divides anything else."""
        inverse, rows = sp.Dummy("inverse", positive=True), {*load.indices}

        def in_exponents(product: sp.Expr) -> sp.Expr:
            exponential = next((factor for factor in product.args if isinstance(factor, sp.exp)), None)
            if exponential is None or inverse not in product.args:
                return product
            terms = sp.Add.make_args(exponential.args[0])
            # Of what is the same all along a row, results alone: inputs are read where they stand.
            of_rows = sp.Add(*(term for term in terms if self._is_of_rows(term, rows) and self._has_result(term)))
            exponent = exponential.args[0] - of_rows - self._logarithm(load, sp.log(divisor) - of_rows)
            return sp.Mul(*(f for f in product.args if f not in (inverse, exponential)), sp.exp(exponent))

        found = self._inlined(value).xreplace({1 / divisor: inverse})
        found = sp.factor_terms(found).replace(lambda e: isinstance(e, sp.Mul), in_exponents)
        return None if found.has(inverse) or found.has(divisor) else found

    def _is_of_rows(self, term: sp.Expr, rows: set[ir.Expr]) -> bool:
        loads = self.terms.loads(term)
        kept = all(self.keeps(load.source) for _, load in loads)
        return bool(loads) and kept and {*self.terms.variables(term)} <= rows

    def _has_result(self, term: sp.Expr) -> bool:
        return any(self.writer(load.source) for _, load in self.terms.loads(term))

    def _logarithm(self, load: ir.TensorLoad, value: sp.Expr) -> sp.Expr:
        """What the forward function leaves of a sum, at the place of a load of it."""
        places = self.sweep.places(load.source)
        pairs = zip(load.indices, places, load.source.ty.shape, strict=True)
        own = {
            i: tirx.const(0, i.ty.dtype) if extent_of(n) == 1 else place
            for i, place, n in pairs
            if isinstance(i, tirx.Var)
        }
        at = self.terms.at(value, own)
        symbol = self.stages.stage(f"log_{load.source.name}", places, at)
        made = self.stages.map_of(self.terms.sources[symbol])
        if made is not None and made not in self.kept:
            self.kept.append(made)
        return self.terms.at(symbol, dict(zip(places, load.indices, strict=True)))


def _has_a_place_of_its_own(load: ir.TensorLoad) -> bool:
    """Whether each row reads an element of its own: by a variable for each dimension but those of one element."""
    pairs = zip(load.indices, load.source.ty.shape, strict=True)
    rows = [index for index, extent in pairs if extent_of(extent) != 1 or isinstance(index, tirx.Var)]
    return all(isinstance(row, tirx.Var) for row in rows) and len({*rows}) == len(rows)
