"""The second way of a fused result: the program's own reduction, where what was fused may not be used.

    own = start;  for l: { p = ⊕ of a producer's elements at l;  own ⊕= the program's element, at the results so far }

There are neither references nor merges in it. Inner reductions that are elements are reduced again at each position;
the parts of a tuple are reduced together, by the tuple's own ∘.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
import tvm_ffi
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import Reducer
from tvm_cascade.analysis.extract import Member
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import dtype_of, substitute
from tvm_cascade.transform.guarding import loaded_by
from tvm_cascade.transform.nest import NestBuilder, Values, load, sequence, store
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.producers import Producer
from tvm_cascade.transform.scope import Slots, cast_index, kept_dtype, value_at
from tvm_cascade.transform.tuples import Cell, combined

_ZERO = [tirx.const(0, "int32")]


@dataclass(frozen=True)
class _Part:
    symbol: sp.Symbol
    reducer: Reducer


@dataclass(frozen=True)
class SecondWay:
    """The second way of one result, or of the parts of one tuple.

    Attributes
    ----------
    members : the result, or all parts.
    producers : of the group; those that the elements read are reduced again.
    """

    members: Sequence[Member]
    producers: Sequence[Producer]
    slots: Slots
    nests: NestBuilder

    @cached_property
    def own(self) -> dict[sp.Symbol, tirx.Var]:
        """The cells that the results are reduced into."""
        return {m.result: _cell(f"{m.stage.buffer.name}_again", dtype_of(m.stage.buffer)) for m in self.members}

    @cached_property
    def inner(self) -> list[tuple[Producer, tirx.Var]]:
        """The producers that the elements read, with the cells for their values at a position."""
        found = [p for p in self.producers if among(p.stage.buffer, self._loaded)]
        name = self.members[0].stage.buffer.name
        return [(p, _cell(f"{p.stage.buffer.name}_of_{name}", dtype_of(p.stage.buffer))) for p in found]

    @property
    def cells(self) -> list[tirx.Var]:
        """All that it needs."""
        return [*self.own.values(), *(cell for _, cell in self.inner)]

    def result(self, member: Member) -> ir.Expr:
        """What it has found, as the result is stored."""
        return cast(load(self.own[member.result], _ZERO), dtype_of(member.stage.buffer))

    def statements(self, at: Values) -> list[tirx.Stmt]:
        """The reduction at a point of the result's domain."""
        frame, nests = self.slots.group.frame, self.nests
        loops = [tirx.Var(axis.name, nests.dtype) for axis in frame.axis]
        values = {v: cast_index(value_at(at, v), v) for v in frame.extents}
        values |= {axis: cast_index(var, axis) for axis, var in zip(frame.axis, loops, strict=True)}
        elements = {m.result: self._from_cells(substitute(m.element, values)) for m in self.members}
        body = [s for producer, cell in self.inner for s in self._produced(producer, cell, values)]
        statement = sequence([*body, *self._added(elements)])
        for axis, var in reversed(list(zip(frame.axis, loops, strict=True))):
            statement = nests.loop(var, self.slots.extent(axis), statement)
        return [*map(self._started, self.members), statement]

    def _started(self, member: Member) -> tirx.Stmt:
        stage, cell = member.stage, self.own[member.result]
        assert stage.reducer is not None
        start = identity_of(stage.reducer, dtype_of(stage.buffer)) if stage.init is None else stage.init
        return store(cell, cast(start, dtype_of(cell)), _ZERO)

    def _added(self, elements: dict[sp.Symbol, ir.Expr]) -> list[tirx.Stmt]:
        """own = own ∘ elements."""
        parts = [_Part(m.result, m.stage.reducer) for m in self.members if m.stage.reducer is not None]
        cells = {part.symbol: Cell(self.own[part.symbol], _ZERO) for part in parts}
        values = {result: cast(element, cells[result].dtype) for result, element in elements.items()}
        if parts[0].reducer.whole is not None:
            return combined(parts, cells, values, {}, lambda new, _old: new)
        (result, value), cell = next(iter(values.items())), cells[parts[0].symbol]
        return [store(self.own[result], combiner_of(parts[0].reducer)(cell.read(), value), _ZERO)]

    def _produced(self, producer: Producer, cell: tirx.Var, values: dict[tirx.Var, ir.Expr]) -> list[tirx.Stmt]:
        """A producer's value at a position, into its cell."""
        stage = producer.stage
        assert stage.reducer is not None
        loops = {v: tirx.Var(v.name, self.nests.dtype) for v in stage.reduce}
        places = {own: cast_index(substitute(var, values), own) for own, var in producer.variables.items()}
        element = substitute(producer.element, places | {v: cast_index(loop, v) for v, loop in loops.items()})
        start = identity_of(stage.reducer, dtype_of(stage.buffer)) if stage.init is None else stage.init
        added = combiner_of(stage.reducer)(load(cell, _ZERO), cast(element, dtype_of(cell)))
        statement: tirx.Stmt = store(cell, added, _ZERO)
        for var, loop in reversed(loops.items()):
            statement = self.nests.loop(loop, stage.extents[var], statement)
        return [store(cell, cast(start, dtype_of(cell)), _ZERO), statement]

    def _from_cells(self, element: ir.Expr) -> ir.Expr:
        """The element with producers read from their cells."""

        def placed(access: ir.TensorLoad) -> ir.Expr:
            cell = next((c for p, c in self.inner if p.stage.buffer.same_as(access.source)), None)
            return access if cell is None else cast(load(cell, _ZERO), dtype_of(access))

        return tvm_ffi.structural_map(element, (ir.TensorLoad, placed))

    @property
    def _loaded(self) -> list[tirx.Var]:
        found: list[tirx.Var] = []
        for member in self.members:
            found += loaded_by(member)
        return found


def _cell(name: str, dtype: str) -> tirx.Var:
    """A buffer of one value of a dtype, which each row has for itself: no thread of a GPU writes another's."""
    return tirx.decl_buffer([1], kept_dtype(dtype), name=name, scope="local", layout=None)
