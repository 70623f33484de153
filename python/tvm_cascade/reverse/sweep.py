"""Reverse mode over the reductions of a program, the last one first.

Maps are inlined, so a program is reductions d[i] = ⊕_l F(x[i, l], d) and the maps that are outputs. The adjoint of d
goes to what F loads: each contribution is put at the element that was loaded (`indices`), summed over what that leaves
open, and factors that do not vary are taken out of the sum, which is a reduction of the new program. Equal sums are one.

What F loads along a row alone gets Σ_l ∂F/∂d from results, where these give it (`algebra.adjoint`). An extremum sends
its adjoint, if it is not 0, to the positions that attain it, in equal shares; a selection to those that it selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy as sp
from tvm import ir, tirx
from tvm.ir import prim

from tvm_cascade.algebra.adjoint import NotSmooth, derivative
from tvm_cascade.algebra.cascade import LENGTH, Cascade, Reduction
from tvm_cascade.algebra.reducer import MAX, MIN, SUM
from tvm_cascade.algebra.verdict import Reason
from tvm_cascade.analysis.frame import matching_axis
from tvm_cascade.analysis.inline import inliner_of, plain_indices
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, extent_of, loads_of, product, reached, uses
from tvm_cascade.errors import GradientError
from tvm_cascade.obligations.adjoint import summed_derivative
from tvm_cascade.reverse.indices import points_of
from tvm_cascade.reverse.terms import Terms
from tvm_cascade.symbolic.sampling import vanishes
from tvm_cascade.symbolic.work import WORK, ExhaustedError, budget, simplified
from tvm_cascade.transform.nest import unused


@dataclass(frozen=True)
class Made:
    """A stage of the new program: buffer[rows] = value, or Σ of it over `summed`, in the dtype of the sweep."""

    buffer: tirx.Var
    rows: tuple[tirx.Var, ...]
    summed: tuple[tirx.Var, ...]
    value: sp.Expr


def refused(code: str, detail: str) -> GradientError:
    reason = Reason(code, detail)
    return GradientError("a program that has a gradient", str(reason), "gradient", reason.hint)


@dataclass
class Sweep:
    """The adjoints of a program.

    Attributes
    ----------
    program : as it was read.
    of : the outputs whose adjoints are given, with the buffers that hold these.
    wrt : the inputs whose adjoints are asked for.
    dtype : in which adjoints are computed.
    made : the stages of the new program, in order.
    again : extrema that are compared with their elements, so that both have to be computed alike.
    """

    program: Program
    of: Mapping[tirx.Var, tirx.Var]
    wrt: Sequence[tirx.Var]
    dtype: str
    made: list[Made] = field(default_factory=list)
    again: set[tirx.Var] = field(default_factory=set)
    terms: Terms = field(default_factory=Terms)
    _sums: dict[object, Made] = field(default_factory=dict)
    _parts: dict[tirx.Var, list[sp.Expr]] = field(default_factory=dict)

    def run(self) -> dict[tirx.Var, sp.Expr]:
        """The adjoint of each input that is asked for, at `places` of it.

        Raises
        ------
        GradientError
            Where there is none.
        """
        for stage in self.program.stages:
            self.terms.extents.update(stage.extents)
        for stage in reversed(self.program.stages):
            parts = [*self._parts.get(stage.buffer, [])]
            if stage.buffer in self.of:
                if not plain_indices(stage):
                    raise refused("unsupported_shape", f"{stage.buffer.name} is not written at its own plain indices")
                parts.append(self.terms.symbol(tirx.BufferLoad(self.of[stage.buffer], self.places(stage.buffer))))
            if parts and stage.buffer in self._carrying and (stage.reducer is not None or stage.buffer in self.of):
                self._back(stage, self._adjoint(stage, sp.Add(*parts)))
        return {buffer: sp.Add(*self._parts.get(buffer, [])) for buffer in self.wrt}

    def places(self, buffer: tirx.Var) -> list[tirx.Var]:
        """A variable for each dimension of a buffer."""
        if buffer not in self._places:
            extents = [extent_of(extent) for extent in buffer.ty.shape]
            found = [tirx.Var(f"i{k}", _index_dtype(self.program)) for k in range(len(extents))]
            self.terms.extents.update(zip(found, extents, strict=True))
            self._places[buffer] = found
        return self._places[buffer]

    @cached_property
    def _places(self) -> dict[tirx.Var, list[tirx.Var]]:
        return {}

    @cached_property
    def _carrying(self) -> set[tirx.Var]:
        """The buffers of floats that depend on what is asked for."""
        found = {*self.wrt}
        for stage in self.program.stages:
            read = [buffer for part in self.program.together(stage) for buffer in part.reads]
            if not found.isdisjoint(read) and _is_float(stage.buffer):
                found.add(stage.buffer)
        return found

    def inlined(self, stage: Stage) -> ir.Expr:
        """The same in TensorIR."""
        return inliner_of(self.program).of(stage)

    def element(self, stage: Stage) -> sp.Expr:
        """The value of a stage over inputs and results."""
        if stage not in self._elements:
            self._elements[stage] = self.terms.read(self.inlined(stage))
        return self._elements[stage]

    @cached_property
    def _elements(self) -> dict[Stage, sp.Expr]:
        return {}

    def _adjoint(self, stage: Stage, total: sp.Expr) -> sp.Expr:
        """The adjoint of a stage's buffer, as its points read it; 0 of an extremum whose readers do not depend on it."""
        if stage.reducer is not None and stage.reducer.ordered and self._vanishes(total):
            return sp.S.Zero
        places = self.places(stage.buffer)
        if not total.is_Symbol:
            made = self._make(f"d_{stage.buffer.name}", places, (), sp.factor_terms(total))
            total = self.terms.symbol(tirx.BufferLoad(made.buffer, places))
        return self.terms.at(total, dict(zip(places, stage.indices, strict=True)))

    def _vanishes(self, total: sp.Expr) -> bool:
        """Whether an adjoint is 0, with other adjoints written out."""
        while maps := [(s, m) for s, load in self.terms.loads(total) if (m := self._map_of(load)) is not None]:
            for symbol, made in maps:
                values = dict(zip(made.rows, self.terms.leaves[symbol].indices, strict=True))
                total = total.xreplace({symbol: self.terms.at(made.value, values)})
        choices = {choice: sp.Dummy(real=True) for choice in total.atoms(sp.Piecewise)}
        return bool(vanishes(sp.expand(total.xreplace(choices))))

    def _map_of(self, load: ir.TensorLoad) -> Made | None:
        return next((one for one in self.made if one.buffer.same_as(load.source) and not one.summed), None)

    # From a stage to what its element loads.

    def _back(self, stage: Stage, adjoint: sp.Expr) -> None:
        if adjoint == 0:
            return
        element, reducer = self.element(stage), stage.reducer
        if reducer is not None and reducer.whole is not None:
            element, adjoint = self._selected(stage, adjoint)
        elif reducer is not None and reducer.plain in (MAX, MIN):
            adjoint = self._shared(stage, adjoint)
        elif reducer is not None and reducer.plain is not SUM:
            raise refused("no_adjoint", f"{stage.buffer.name} is a {reducer}")
        self._check_smooth(stage, element)
        sums = reducer is not None and reducer.plain is SUM
        for symbol, load in self.terms.loads(element):
            if load.source not in self._carrying:
                continue
            try:
                if sums and not uses(load, stage.reduce) and (known := self._from_results(stage, symbol)) is not None:
                    self._send(load, adjoint * known, {v: stage.extents[v] for v in stage.spatial})
                else:
                    self._send(load, adjoint * derivative(element, symbol), stage.extents)
            except NotSmooth as rounding:
                raise refused("not_smooth", f"{stage.buffer.name}: {rounding}") from rounding

    def _check_smooth(self, stage: Stage, element: sp.Expr) -> None:
        """Refuses roundings of what is asked for, functions that are not known, and comparisons of results."""
        for symbol in sorted(element.free_symbols, key=str):
            leaf = self.terms.leaves[symbol]
            read = [] if isinstance(leaf, ir.TensorLoad) else [one.source for one in loads_of(leaf)]
            written = [b for b in read if b in self._carrying]
            if dtype_of(leaf) == "bool":
                written = [b for b in written if self.program.writer(b) is not None]
            if written:
                raise refused("not_smooth", f"{stage.buffer.name}: {leaf}")
            inside = [i for i in getattr(leaf, "indices", ()) if any(b.source in self._carrying for b in loads_of(i))]
            if inside:
                raise refused("not_smooth", f"{stage.buffer.name}: {leaf}")

    def _shared(self, stage: Stage, adjoint: sp.Expr) -> sp.Expr:
        """The share of each position in the adjoint of an extremum."""
        self.again.add(stage.buffer)
        own = self.terms.symbol(tirx.BufferLoad(stage.buffer, list(stage.indices)))
        hit = sp.Piecewise((1, sp.Eq(self.element(stage), own)), (0, True))
        return adjoint * hit / self._summed(hit, stage.reduce, f"{stage.buffer.name}_count")

    def _selected(self, stage: Stage, adjoint: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """The element that a part of a selection selects, and its adjoint at each position."""
        assert stage.reducer is not None and stage.reducer.whole is not None
        selection, part = stage.reducer.whole.selection, stage.reducer.part
        if selection is None:
            raise refused("no_adjoint", f"{stage.buffer.name} is of a reducer of tuples")
        parts = sorted(self.program.together(stage), key=lambda one: one.reducer.part)
        place = parts[part - part % selection.per_rank + 1]
        index = tirx.BufferLoad(place.buffer, list(place.indices))
        hit = self.terms.where(tirx.EQ(self.inlined(parts[1]), index), sp.S.One)
        return self.element(parts[part % selection.per_rank]), adjoint * hit

    def _from_results(self, stage: Stage, symbol: sp.Symbol) -> sp.Expr | None:
        """Σ over positions of the element's derivative by what a row holds, in results; None where it is to be summed."""
        cascade = self._cascade(stage)
        try:
            with budget(WORK):
                found = summed_derivative(cascade, symbol)
        except ExhaustedError:
            return None
        if found is None or not found.has(LENGTH):
            return found
        return simplified(found.xreplace({LENGTH: self._number(stage.reduce)}))

    def _number(self, variables: Sequence[tirx.Var]) -> sp.Expr:
        """How many points some variables have."""
        extent = product(self.terms.extents[v] for v in variables)
        return sp.Integer(extent) if isinstance(extent, int) else self.terms.symbol(extent.astype(self.dtype))

    def _cascade(self, stage: Stage) -> Cascade:
        """The stage and the reductions along its axis that it reads, in its own variables."""
        if stage in self._cascades:
            return self._cascades[stage]
        own = self.terms.symbol(tirx.BufferLoad(stage.buffer, list(stage.indices)))
        found, pending = [Reduction(own, stage.reducer, self.element(stage))], [self.element(stage)]
        seen = {own}
        while pending:
            for symbol, load in self.terms.loads(pending.pop()):
                if symbol in seen or (before := self._along(stage, load)) is None:
                    continue
                seen.add(symbol)
                found.insert(0, Reduction(symbol, before[0].reducer, before[1]))
                pending.append(before[1])
        order = {s.buffer: k for k, s in enumerate(self.program.stages)}
        found.sort(key=lambda one: order[self.terms.leaves[one.result].source])
        read = sp.Tuple(*(one.element for one in found))
        elements = sorted(self.terms.symbols_of(read, stage.reduce), key=str)
        self._cascades[stage] = Cascade(found, elements)
        return self._cascades[stage]

    @cached_property
    def _cascades(self) -> dict[Stage, Cascade]:
        return {}

    def _along(self, stage: Stage, load: ir.TensorLoad) -> tuple[Stage, sp.Expr] | None:
        """The reduction that a load is a result of, if it is over the stage's axis, and its element there."""
        before = self.program.writer(load.source)
        if before is None or before.reducer is None or before.is_part or uses(load, stage.reduce):
            return None
        order = matching_axis(before, self.inlined(before), stage, self.inlined(stage))
        if order is None or not plain_indices(before):
            return None
        values = {v: i for v, i in zip(before.indices, load.indices, strict=True) if isinstance(v, ir.Var)}
        values |= {before.reduce[mine]: var for mine, var in zip(order, stage.reduce, strict=True)}
        values |= {v: tirx.const(0, dtype_of(v)) for v in before.spatial if v not in values}
        return before, self.terms.at(self.element(before), values)

    # From contributions to adjoints and sums.

    def _send(self, load: ir.TensorLoad, contribution: sp.Expr, extents: Mapping[tirx.Var, Extent]) -> None:
        """Adds a contribution, at the points of a stage, to the adjoint of what is loaded there."""
        if contribution == 0:
            return
        places = self.places(load.source)
        found = points_of(load.indices, {y: self.terms.extents[y] for y in places}, extents)
        if found is None:
            raise refused("not_invertible", str(load))
        self.terms.extents.update(found.free)
        read = [var for value in found.values.values() for var in found.free if uses(value, (var,))]
        read += [var for var in found.free if found.condition is not None and uses(found.condition, (var,))]
        apart = [var for var in found.free if var not in read]
        name = f"d_{load.source.name}_sum"
        first = [v for y in places for v, value in found.values.items() if value.same_as(y)]
        contribution = self.terms.at(self._summed(contribution, apart, name, first), found.values)
        if found.condition is not None:
            contribution = self.terms.where(found.condition, contribution)
        contribution = self._summed(contribution, [var for var in found.free if var in read], name, places)
        self._parts.setdefault(load.source, []).append(contribution)

    def _summed(
        self, value: sp.Expr, variables: Sequence[tirx.Var], name: str, order: Sequence[tirx.Var] = ()
    ) -> sp.Expr:
        """Σ over some variables, with the factors that none of them is in taken out; `order` is that of its rows."""
        if not variables or value == 0:
            return value
        varying = self.terms.symbols_of(value, variables)
        outside, inside = value.as_independent(*varying, as_Add=False)
        count = self._number([v for v in variables if not self.terms.symbols_of(inside, [v])])
        over = tuple(v for v in variables if self.terms.symbols_of(inside, [v]))
        if not over:
            return value * count
        if (inside, over) not in self._sums:
            rows = [v for v in self.terms.variables(inside) if v not in over]
            rows.sort(key=lambda v: order.index(v) if v in order else len(order))
            self._sums[inside, over] = self._make(name, rows, over, inside)
        made = self._sums[inside, over]
        return outside * count * self.terms.symbol(tirx.BufferLoad(made.buffer, list(made.rows)))

    def _make(self, name: str, rows: Sequence[tirx.Var], over: tuple[tirx.Var, ...], value: sp.Expr) -> Made:
        taken = {b.name for b in (*self.program.params, *self.program.root.alloc_buffers, *self.of.values())}
        taken |= {f"d_{buffer.name}" for buffer in self.wrt} | {one.buffer.name for one in self.made}
        shape = [as_index(self.terms.extents[v], dtype_of(v)) for v in rows]
        buffer = tirx.decl_buffer(shape, self.dtype, name=unused(name, taken), layout=None)
        self.made.append(Made(buffer, tuple(rows), over, value))
        return self.made[-1]


def _is_float(buffer: tirx.Var) -> bool:
    dtype = dtype_of(buffer)
    return dtype.startswith(("float", "bfloat"))


def _index_dtype(program: Program) -> str:
    found = {dtype_of(v) for stage in program.stages for v in stage.extents}
    return "int64" if "int64" in found else "int32"
