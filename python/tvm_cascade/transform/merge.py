"""Merging segments: the fold's own merge over the partial states of all segments, with its final reference at once."""

from __future__ import annotations

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.fold import Component, Reference
from tvm_cascade.analysis.reducers import identity_of
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.transform.loop import COMBINE, as_number, cut_off, usable
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.scope import Scope, Slot, Slots, component_dtype, counting_dtype
from tvm_cascade.transform.tiling import SEGMENT
from tvm_cascade.transform.tuples import Cell, combined, started

Table = dict[object, Slot]


class MergeEmitter:
    """Emits one nest per component and reference; afterwards `slots.table` holds the merged state."""

    def __init__(self, slots: Slots, nests: NestBuilder, decay: dict[sp.Symbol, float]) -> None:
        self.slots, self.nests, self.fold = slots, nests, slots.group.fold
        self.decay = decay
        self.partial: Table = dict(slots.table)
        self.merged: Table = {}
        self.statements: list[tirx.Stmt] = []

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the order of the fold's steps."""
        for unit in self.fold.units:
            if isinstance(unit, Reference):
                self._reference(unit)
            elif unit[0].parts:
                self._tuple(unit)
            else:
                self._component(unit[0])
        self.slots.table = {**self.partial, **self.merged}
        return self.statements

    def _allocate(self, key: sp.Symbol, name: str, dims: tuple[tirx.Var, ...], dtype: str) -> Slot:
        slot = self.slots.allocate(key, name, dims, dtype, per_segment=False)
        self.merged[key] = slot
        self.slots.table[key] = self.partial[key]
        return slot

    def _component(self, component: Component) -> None:
        dims, dtype = self.slots.dims.of(component.symbol), component_dtype(self.slots.group, component)
        slot = self._allocate(component.symbol, f"{component.symbol}_merged", dims, dtype)
        iters = [*self.slots.iters(dims), Iter(SEGMENT, "segment", self.slots.tiling.segments, reduce=True)]

        def body(at: Values) -> list[tirx.Stmt]:
            where = self.slots.indices(slot, at)
            moved = Scope(self.slots, at, self._moves(at, dtype)).printer(dtype)(component.shift)
            return [store(slot.buffer, COMBINE[component.reducer.name](load(slot.buffer, where), moved), where)]

        def init(at: Values) -> list[tirx.Stmt]:
            return [store(slot.buffer, identity_of(component.reducer, dtype), self.slots.indices(slot, at))]

        self.statements.append(self.nests.nest(f"{component.symbol}_merged", "merge", iters, body, init))

    def _tuple(self, unit: tuple[Component, ...]) -> None:
        dims, group = self.slots.dims.of(unit[0].symbol), self.slots.group
        slots = {
            c.symbol: self._allocate(c.symbol, f"{c.symbol}_merged", dims, component_dtype(group, c)) for c in unit
        }
        iters = [*self.slots.iters(dims), Iter(SEGMENT, "segment", self.slots.tiling.segments, reduce=True)]

        def cells(at: Values) -> dict[sp.Symbol, Cell]:
            return {symbol: Cell(slot.buffer, self.slots.indices(slot, at)) for symbol, slot in slots.items()}

        def body(at: Values) -> list[tirx.Stmt]:
            values = {c.symbol: self.slots.read(c.symbol, at) for c in unit}
            return combined(unit, cells(at), values, {}, lambda new, _old: new)

        name = f"{unit[0].symbol}_merged"
        self.statements.append(self.nests.nest(name, "merge", iters, body, lambda at: started(unit, cells(at))))

    def _moves(self, at: Values, dtype: str) -> dict[sp.Symbol, ir.Expr]:
        """From each segment's own references to the merged ones."""
        values: dict[sp.Symbol, ir.Expr] = {
            COUNT: self.slots.tiling.segment_count(at).astype(counting_dtype(dtype)),
            LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype)),
        }
        for reference in self.fold.references:
            if reference.symbol in self.merged:
                final = self.merged[reference.symbol]
                new = load(final.buffer, self.slots.indices(final, at))
                values[reference.moved] = new
                step = ir.prim.Sub(new, self.slots.read(reference.symbol, at))
                values[reference.step] = cut_off(step, self.decay.get(reference.symbol), dtype_of(final.buffer))
        return values

    def _reference(self, reference: Reference) -> None:
        dims = self.slots.dims.of(reference.symbol)
        dtype = str(self.partial[reference.symbol].buffer.ty.dtype)
        slot = self._allocate(reference.symbol, f"{reference.symbol}_merged", dims, dtype)

        def body(at: Values) -> list[tirx.Stmt]:
            state = {
                s: load(m.buffer, self.slots.indices(m, at)) for s, m in self.merged.items() if s != reference.symbol
            }
            length = self.slots.tiling.length
            folded = reference.value.subs(COUNT, LENGTH)
            if isinstance(length, int):
                folded = folded.subs(LENGTH, sp.Integer(length))
            value = Scope(self.slots, at, {**state, LENGTH: as_number(length, dtype)}).printer(dtype)(folded)
            if reference.guarded:
                # The first segment has a position, so its own reference is one at which its state has numbers.
                first = self.slots.read(reference.symbol, {**at, SEGMENT: tirx.const(0, "int32")})
                value = tirx.Select(usable(value, dtype, reference.scale), value, first)
            return [store(slot.buffer, value, self.slots.indices(slot, at))]

        self.statements.append(self.nests.nest(f"{reference.symbol}_merged", "merge", self.slots.iters(dims), body))
