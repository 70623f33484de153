"""Reverse mode over the reductions of a program, the last one first.

Maps are inlined, so a program is reductions d[i] = ⊕_l F(x[i, l], d) and the maps that are outputs. The adjoint of d
goes to what F loads: each contribution is put at the element that was loaded (`indices`), and summed over what that
leaves open, which is a reduction of the new program (`stages`).

What F loads along a row alone gets Σ_l ∂F/∂d from results, where these give it (`algebra.adjoint`). An extremum sends
its adjoint, if it is not 0, to the positions that attain it, in equal shares; a selection to those that it selected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.adjoint import NotSmooth
from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction
from tvm_cascade.algebra.reducer import MAX, MIN, SUM, Reducer
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.frame import matching_axis
from tvm_cascade.analysis.inline import Inliner, inliner_of, plain_indices
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import (
    Extent,
    dtype_of,
    extent_of,
    is_float,
    loads_of,
    more_than_one,
    same,
    same_extent,
    uses,
    zero_of,
)
from tvm_cascade.errors import GradientError
from tvm_cascade.obligations.adjoint import checked_derivative, summed_derivative
from tvm_cascade.reverse.indices import points_of
from tvm_cascade.reverse.stages import Stages
from tvm_cascade.reverse.terms import Terms
from tvm_cascade.symbolic.sampling import vanishes
from tvm_cascade.symbolic.work import WORK, ExhaustedError, budget, simplified
from tvm_cascade.transform.assemble import index_dtype


def refused(code: str, detail: str) -> GradientError:
    reason = Reason(code, detail)
    return GradientError("a program that has a gradient", str(reason), "gradient", reason.hint)


@dataclass
class Sweep:
    """The adjoints of a program.

    Attributes
    ----------
    program : as it was read.
    of : the outputs that have an adjoint, with the buffers that hold these.
    wrt : the inputs whose adjoints are asked for.
    dtype : in which adjoints are computed.
    again : extrema that are compared with their elements, so that both have to be computed alike.
    from_outputs : results may be read from outputs: of out = o/t, o is out·t.
    """

    program: Program
    of: Mapping[tirx.Var, tirx.Var]
    wrt: Sequence[tirx.Var]
    dtype: str
    again: set[tirx.Var] = field(default_factory=set)
    from_outputs: bool = True
    terms: Terms = field(default_factory=Terms)
    _contributions: dict[tirx.Var, list[sp.Expr]] = field(default_factory=dict)
    _places: dict[tirx.Var, list[tirx.Var]] = field(default_factory=dict)
    _elements: dict[Stage, sp.Expr] = field(default_factory=dict)
    _cascades: dict[Stage, Cascade] = field(default_factory=dict)

    def run(self) -> dict[tirx.Var, sp.Expr]:
        """The adjoint of each input that is asked for, at its `places`.

        Raises
        ------
        GradientError
            Where there is none.
        """
        for stage in self.program.stages:
            self.terms.extents.update(stage.extents)
        for stage in reversed(self.program.stages):
            found = [*self._contributions.get(stage.buffer, [])]
            if stage.buffer in self.of:
                if not plain_indices(stage):
                    raise refused("unsupported_shape", f"{stage.buffer.name} is not written at its own plain indices")
                found.append(self.terms.leaf(tirx.BufferLoad(self.of[stage.buffer], self.places(stage.buffer))))
            if found and stage.buffer in self._carrying:
                self._back(stage, self._adjoint(stage, sp.Add(*found)))
        return {buffer: sp.Add(*self._contributions.get(buffer, [])) for buffer in self.wrt}

    @cached_property
    def stages(self) -> Stages:
        """The stages of the new program."""
        buffers = (*self.program.params, *self.program.root.alloc_buffers, *self.of.values())
        return Stages(self.terms, self.dtype, {b.name for b in buffers} | {f"d_{b.name}" for b in self.wrt})

    def places(self, buffer: tirx.Var) -> list[tirx.Var]:
        """A variable for each dimension of a buffer."""
        if buffer not in self._places:
            extents = [extent_of(extent) for extent in buffer.ty.shape]
            self._places[buffer] = [tirx.Var(f"i{k}", index_dtype(self.program)) for k in range(len(extents))]
            self.terms.extents.update(zip(self._places[buffer], extents, strict=True))
        return self._places[buffer]

    def inlined(self, stage: Stage) -> ir.Expr:
        """The value of a stage over inputs and results."""
        return self._inliner.of(stage)

    @cached_property
    def _inliner(self) -> Inliner:
        """Inlines maps, but those with an adjoint of their own."""
        apart: set[tirx.Var] = set()
        for stage in reversed(self.program.stages):
            if self._has_adjoint(stage, apart):
                apart.add(stage.buffer)
        return Inliner(self.program, apart)

    def _has_adjoint(self, stage: Stage, apart: Collection[tirx.Var]) -> bool:
        """Whether a map is differentiated by itself: several sums read what it adds inputs of fewer dimensions to.

        Of o = Σ exp(s + b − m)·v and t = Σ exp(s + b − m), d_b is then one sum of what is left of both, and not the
        difference of two.
        """
        if stage.reducer is not None or not plain_indices(stage):
            return False
        own, known = [v for v in stage.spatial if more_than_one(stage.extents[v])], {*apart, stage.buffer}
        loads = loads_of(inliner_of(self.program).of(stage))
        fewer = [load.source for load in loads if not all(uses(load, (v,)) for v in own)]
        if not any(buffer in self.wrt for buffer in fewer) or any(map(self.program.writer, fewer)):
            return False
        sums = [one for one in self.program.stages if one.reducer is not None]
        inline = Inliner(self.program, known).of
        along = [load for one in sums for load in loads_of(inline(one)) if uses(load, one.reduce)]
        return sum(load.source.same_as(stage.buffer) for load in along) > 1

    def element(self, stage: Stage) -> sp.Expr:
        """The same in SymPy."""
        if stage not in self._elements:
            self._elements[stage] = self.terms.form(self.inlined(stage))
        return self._elements[stage]

    @cached_property
    def _carrying(self) -> set[tirx.Var]:
        """The buffers of floats that depend on what is asked for."""
        found = {*self.wrt}
        for stage in self.program.stages:
            read = [buffer for part in self.program.together(stage) for buffer in part.reads]
            if not found.isdisjoint(read) and is_float(dtype_of(stage.buffer)):
                found.add(stage.buffer)
        return found

    def _adjoint(self, stage: Stage, total: sp.Expr) -> sp.Expr:
        """The adjoint of a stage's buffer, as its points read it; 0 of an extremum on which no reader depends."""
        if stage.reducer is not None and stage.reducer.ordered and self._vanishes(total):
            return sp.S.Zero
        places = self.places(stage.buffer)
        if not _is_product(total):
            total = self.stages.stage(f"d_{stage.buffer.name}", places, sp.factor_terms(total))
        return self.terms.at(total, dict(zip(places, stage.indices, strict=True)))

    def _vanishes(self, total: sp.Expr) -> bool:
        """Whether an adjoint is 0, with adjoints that are maps written out, and whatever the conditions in it are."""
        while maps := [(s, made) for s, load in self.terms.loads(total) if (made := self.stages.map_of(load))]:
            for symbol, made in maps:
                values = dict(zip(made.rows, self.terms.sources[symbol].indices, strict=True))
                total = total.xreplace({symbol: self.terms.at(made.value, values)})
        cases: dict[object, sp.Symbol] = {}

        def by_case(*branches: sp.Tuple) -> sp.Expr:
            conditions = tuple(condition for _, condition in branches)
            finite = not any(value.has(sp.oo, -sp.oo) for value, _ in branches)
            keys = [(conditions, k) for k in range(len(branches))] if finite else [branches]
            values = [value for value, _ in branches] if finite else [sp.S.One]
            symbols = [cases.setdefault(key, sp.Dummy(real=True)) for key in keys]
            return sp.Add(*(value * symbol for value, symbol in zip(values, symbols, strict=True)))

        return vanishes(sp.expand(total.replace(sp.Piecewise, by_case)))

    # From a stage to what its element loads.

    def _back(self, stage: Stage, adjoint: sp.Expr) -> None:
        if adjoint == 0:
            return
        element, reducer = self.element(stage), stage.reducer
        if reducer is not None and reducer.whole is not None:
            element, adjoint = self._selected(stage, reducer, adjoint)
        elif reducer is not None and reducer.plain in (MAX, MIN):
            adjoint = self._shared(stage, adjoint)
        elif reducer is not None and reducer.plain is not SUM:
            raise refused("no_adjoint", f"{stage.buffer.name} is a {reducer}")
        self._check_smooth(stage, element)
        for symbol, load in self.terms.loads(element):
            if load.source not in self._carrying:
                continue
            try:
                known = None if uses(load, stage.reduce) else self._from_results(stage, symbol)
                contribution = adjoint * (checked_derivative(element, symbol) if known is None else known)
            except NotSmooth as rounding:
                raise refused("not_smooth", f"{stage.buffer.name}: {rounding}") from rounding
            points = stage.extents if known is None else {v: stage.extents[v] for v in stage.spatial}
            self._send(load, self._read_from_outputs(contribution), points)

    def _check_smooth(self, stage: Stage, element: sp.Expr) -> None:
        """Refuses roundings of what carries a gradient, functions that are not known, and conditions on results."""
        for symbol in sorted(element.free_symbols, key=str):
            leaf = self.terms.sources[symbol]
            inside = leaf.indices if isinstance(leaf, ir.TensorLoad) else [leaf]
            read = [load.source for part in inside for load in loads_of(part) if load.source in self._carrying]
            if dtype_of(leaf) == "bool":
                read = [buffer for buffer in read if self.program.writer(buffer) is not None]
            if read:
                raise refused("not_smooth", f"{stage.buffer.name}: {leaf}")

    def _shared(self, stage: Stage, adjoint: sp.Expr) -> sp.Expr:
        """The share of each position in the adjoint of an extremum."""
        self.again.add(stage.buffer)
        own = tirx.BufferLoad(stage.buffer, list(stage.indices))
        hit = self.terms.where(tirx.EQ(self.inlined(stage), own), sp.S.One)
        return adjoint * hit / self.stages.sum(hit, stage.reduce, f"{stage.buffer.name}_count", stage.spatial)

    def _selected(self, stage: Stage, reducer: Reducer, adjoint: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """The element that a part of a selection selects, and its adjoint at each position."""
        selection = reducer.whole.selection if reducer.whole is not None else None
        if selection is None:
            raise refused("no_adjoint", f"{stage.buffer.name} is of a reducer of tuples")
        rank, kind = divmod(reducer.part, selection.per_rank)
        parts = self.program.together(stage)
        place = parts[rank * selection.per_rank + 1]
        index = tirx.BufferLoad(place.buffer, list(place.indices))
        hit = self.terms.where(tirx.EQ(self.inlined(parts[1]), index), sp.S.One)
        return self.element(parts[kind]), adjoint * hit

    def _from_results(self, stage: Stage, symbol: sp.Symbol) -> sp.Expr | None:
        """Σ over positions of the derivative of a sum's element, in results; None where it is to be summed."""
        if stage.reducer is None or stage.reducer.plain is not SUM:
            return None
        try:
            with budget(WORK):
                found = summed_derivative(self._cascade(stage, stage.reducer), symbol)
        except ExhaustedError:
            return None
        if found is not None and found.has(LENGTH):
            found = simplified(found.xreplace({LENGTH: self.stages.count(stage.reduce)}))
        return found

    def _read_from_outputs(self, value: sp.Expr) -> sp.Expr:
        """A value with outputs in place of the results that they are quotients of."""
        for symbol, load in self.terms.loads(value) if self.from_outputs else ():
            if (known := self._quotients.get(load.source)) is not None:
                indices, result = known
                value = value.xreplace({symbol: self.terms.at(result, dict(zip(indices, load.indices, strict=True)))})
        return value

    @cached_property
    def _quotients(self) -> dict[tirx.Var, tuple[tuple[ir.Expr, ...], sp.Expr]]:
        """By result, where an output has its quotient by others, and the product that it is there."""
        found = {}
        for stage in self.program.stages:
            if stage.reducer is not None or not self.program.is_param(stage.buffer) or not plain_indices(stage):
                continue
            own, value = self.terms.leaf(tirx.BufferLoad(stage.buffer, list(stage.indices))), self.element(stage)
            read = self.terms.loads(value)
            for symbol, load in read if all(self.program.writer(one.source) for _, one in read) else ():
                divisor = symbol / value
                powers = [power for base, power in divisor.as_powers_dict().items() if base.is_Symbol]
                if (
                    powers
                    and min(powers) > 0
                    and _is_product(divisor)
                    and same(list(load.indices), list(stage.indices))
                ):
                    found[load.source] = (stage.indices, own * divisor)
        return found

    def _cascade(self, stage: Stage, reducer: Reducer) -> Cascade:
        """A sum and the reductions along its axis that it reads, and those beside it, in its own variables."""
        if stage in self._cascades:
            return self._cascades[stage]
        own = self.terms.leaf(tirx.BufferLoad(stage.buffer, list(stage.indices)))
        known = {own: Reduction(own, reducer, self.element(stage))}
        pending = [*self.terms.loads(self.element(stage)), *self._beside(stage)]
        while pending:
            symbol, load = pending.pop()
            if symbol not in known and (before := self._along(stage, symbol, load)) is not None:
                known[symbol] = before
                pending += self.terms.loads(before.element)
        order = {one.buffer: k for k, one in enumerate(self.program.stages)}
        found = sorted(known.values(), key=lambda one: order[self.terms.sources[one.result].source])
        elements = self.terms.symbols_of(sp.Tuple(*(one.element for one in found)), stage.reduce)
        self._cascades[stage] = Cascade(found, sorted(elements, key=str))
        return self._cascades[stage]

    def _beside(self, stage: Stage) -> list[tuple[sp.Symbol, ir.TensorLoad]]:
        """The results of earlier reductions over as many rows."""
        found = []
        for before in self.program.stages[: self.program.stages.index(stage)]:
            rows = [[one.extents[v] for v in one.spatial] for one in (before, stage)]
            alike = len(rows[0]) == len(rows[1]) == len(before.indices) and all(map(same_extent, *rows))
            if before.reducer is not None and alike:
                load = tirx.BufferLoad(before.buffer, list(stage.spatial))
                found.append((self.terms.leaf(load), load))
        return found

    def _along(self, stage: Stage, symbol: sp.Symbol, load: ir.TensorLoad) -> Reduction | None:
        """The reduction of which a load is a result, if that is over the stage's axis, in the stage's variables."""
        before = self.program.writer(load.source)
        if before is None or before.reducer is None or before.is_part or uses(load, stage.reduce):
            return None
        order = matching_axis(before, self.inlined(before), stage, self.inlined(stage))
        if order is None or not plain_indices(before):
            return None
        values = {v: zero_of(v) for v in before.spatial}
        values |= {v: i for v, i in zip(before.indices, load.indices, strict=True) if isinstance(v, ir.Var)}
        values |= {before.reduce[mine]: var for mine, var in zip(order, stage.reduce, strict=True)}
        return Reduction(symbol, before.reducer, self.terms.at(self.element(before), values))

    def _send(self, load: ir.TensorLoad, contribution: sp.Expr, extents: Mapping[tirx.Var, Extent]) -> None:
        """Adds a contribution, at points of a stage, to the adjoint of what is loaded there."""
        if contribution == 0:
            return
        places, name = self.places(load.source), f"d_{load.source.name}_sum"
        found = points_of(load.indices, {y: self.terms.extents[y] for y in places}, extents)
        if found is None:
            raise refused("not_invertible", str(load))
        self.terms.extents.update(found.free)
        decided = [*found.values.values(), *([] if found.condition is None else [found.condition])]
        read = [v for v in found.free if any(uses(value, (v,)) for value in decided)]
        apart = [v for v in found.free if v not in read]
        rows = [v for y in places for v, value in found.values.items() if uses(value, (y,))]
        for line in self._lines(contribution, apart)[-1:]:
            contribution = self.stages.sum(contribution, [line], name, [v for v in extents if v != line])
            apart = [v for v in apart if v != line]
        contribution = self.terms.at(self.stages.sum(contribution, apart, name, rows), found.values)
        if found.condition is not None:
            contribution = self.terms.where(found.condition, contribution)
        contribution = self.stages.sum(contribution, read, name, places)
        self._contributions.setdefault(load.source, []).append(contribution)

    def _lines(self, value: sp.Expr, variables: Sequence[tirx.Var]) -> list[tirx.Var]:
        """The variables along which a value with one number for each element of a product is summed first.

        These are its rows or its columns: one of both factors varies along them. What is left has a number for each row
        of the product, which a fold along it has beside others, and is summed in turn.
        """
        found = list[tirx.Var]()
        several = [v for v in variables if more_than_one(self.terms.extents[v])]
        for _, load in self.terms.loads(value) if len(several) > 1 else ():
            made = self.stages.of(load)
            if made is None or not all(uses(load, (v,)) for v in self.terms.variables(value)):
                continue
            own = self.terms.at(made.value, dict(zip(made.rows, load.indices, strict=True)))
            factors = [other for _, other in self.terms.loads(own)]
            along = {v: sum(uses(factor, (v,)) for factor in factors) for v in several}
            lines = [v for v in several if along[v] == 1 < len(factors)] if made.summed else self._lines(own, variables)
            found += [v for v in lines if v not in found]
        return found


def _is_product(value: sp.Expr) -> bool:
    """Whether a value is a product of powers of loads, which is no work where it is read."""
    return all(
        base.is_Symbol and power.is_Integer for base, power in value.as_powers_dict().items() if not base.is_number
    )
