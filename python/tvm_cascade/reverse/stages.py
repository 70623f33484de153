"""The stages of a new program, as expressions: maps and sums, of which equal ones are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.analysis.statements import unused
from tvm_cascade.analysis.tir import as_index, dtype_of, product, same_extent
from tvm_cascade.reverse.terms import Terms


@dataclass(frozen=True)
class Made:
    """buffer[rows] = value, or Σ of it over the variables `summed`."""

    buffer: tirx.Var
    rows: tuple[tirx.Var, ...]
    summed: tuple[tirx.Var, ...]
    value: sp.Expr


@dataclass
class Stages:
    """The stages that were made.

    Attributes
    ----------
    terms : of their values.
    dtype : in which they are computed.
    names : of buffers, taken already.
    made : in order; none reads a later one.
    """

    terms: Terms
    dtype: str
    names: set[str]
    made: list[Made] = field(default_factory=list)

    def stage(self, name: str, rows: Sequence[tirx.Var], value: sp.Expr, summed: Sequence[tirx.Var] = ()) -> sp.Expr:
        """What a stage of a value, or of its sum, has at its rows; a new one, where none has the same values."""
        wanted = Made(tirx.Var(name, self.dtype), tuple(rows), tuple(summed), value)
        for made in self.made:
            if (places := self._match(made, wanted)) is not None:
                return self.terms.leaf(tirx.BufferLoad(made.buffer, [places[v] for v in made.rows]))
        shape = [as_index(self.terms.extents[v], dtype_of(v)) for v in rows]
        buffer = tirx.decl_buffer(shape, self.dtype, name=unused(name, self.names), layout=None)
        self.names.add(buffer.name)
        self.made.append(replace(wanted, buffer=buffer))
        return self.terms.leaf(tirx.BufferLoad(buffer, list(rows)))

    def _match(self, made: Made, wanted: Made) -> dict[tirx.Var, tirx.Var] | None:
        """The variables of a stage in those of another one that has the same values; None where they differ."""
        own, others = (*made.rows, *made.summed), (*wanted.rows, *wanted.summed)
        loads = [self.terms.loads(one.value) for one in (made, wanted)]
        if len(own) != len(others) or len(made.rows) != len(wanted.rows) or len(loads[0]) != len(loads[1]):
            return None
        places = {v: v for v in own if v in others}
        alike = ((a, b) for _, a in loads[0] for _, b in loads[1] if a.source.same_as(b.source))
        for here, there in ((x, y) for a, b in alike for x, y in zip(a.indices, b.indices, strict=True)):
            if isinstance(here, tirx.Var) and isinstance(there, tirx.Var) and here in own:
                places.setdefault(here, there)
        if {*places} != {*own} or {*places.values()} != {*others} or {places[v] for v in made.rows} != {*wanted.rows}:
            return None
        if not all(same_extent(self.terms.extents[v], self.terms.extents[place]) for v, place in places.items()):
            return None
        return places if self.terms.at(made.value, places) == wanted.value else None

    def sum(self, value: sp.Expr, variables: Sequence[tirx.Var], name: str, order: Sequence[tirx.Var]) -> sp.Expr:
        """Σ of a value over some variables, as a stage; factors that do not vary are taken out of it.

        Parameters
        ----------
        order : of rows, as far as they are among these.
        """
        if not variables or value == 0:
            return value
        value = sp.factor_terms(value)
        outside, inside = value.as_independent(*self.terms.symbols_of(value, variables), as_Add=False)
        over = [v for v in variables if self.terms.symbols_of(inside, [v])]
        outside *= self.count([v for v in variables if v not in over])
        if not over:
            return outside * inside
        rows = [v for v in self.terms.variables(inside) if v not in over]
        rows.sort(key=lambda v: order.index(v) if v in order else len(order))
        return outside * self.stage(name, rows, self._with_factor(inside, rows, over, name), over)

    def _with_factor(self, value: sp.Expr, rows: Sequence[tirx.Var], over: Sequence[tirx.Var], name: str) -> sp.Expr:
        """A summand whose computed factors are a map of their own, where rows of the sum have them in common.

        Of p[i, j]·v[j, f], which is summed over j, p is computed once for all f.
        """
        plain = [factor for factor in sp.Mul.make_args(value) if factor.is_Symbol]
        computed = sp.Mul(*(factor for factor in sp.Mul.make_args(value) if factor not in plain))
        read = self.terms.variables(computed)
        own = [v for v in (*rows, *over) if v in read]
        if not self.terms.loads(computed) or {*rows} <= {*read} or not {*over} & {*read}:
            return value
        return sp.Mul(*plain, self.stage(f"{name.removesuffix('_sum')}_factor", own, computed))

    def count(self, variables: Sequence[tirx.Var]) -> sp.Expr:
        """How many points some variables have."""
        extent = product(self.terms.extents[v] for v in variables)
        return sp.Integer(extent) if isinstance(extent, int) else self.terms.leaf(extent.astype(self.dtype))

    def of(self, load: ir.TensorLoad) -> Made | None:
        """The stage that a load reads, if it reads one of these."""
        return next((one for one in self.made if one.buffer.same_as(load.source)), None)

    def map_of(self, load: ir.TensorLoad) -> Made | None:
        """The map that a load reads, if it reads one of these."""
        made = self.of(load)
        return None if made is None or made.summed else made
