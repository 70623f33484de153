"""Emits the merge of segments: the fold's own merge over all partial states, at their final reference."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import ClassVar

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.reducer import MIN, Reducer
from tvm_cascade.analysis.reducers import combiner_of
from tvm_cascade.analysis.tir import dtype_of, same_extent
from tvm_cascade.steps.move import destination, displacement, may_stay
from tvm_cascade.steps.program import Move, Scale, Shift, StepProgram, Tuple
from tvm_cascade.transform.loop import as_number, with_length
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.scope import Emitter, Slot, Slots, component_dtype, counting_dtype
from tvm_cascade.transform.tiling import SEGMENT
from tvm_cascade.transform.values import TirValues

Table = dict[object, Slot]


class MergeEmitter(Emitter):
    """Emits one nest per component and reference; afterwards `slots.table` holds the merged state."""

    def __init__(self, slots: Slots, nests: NestBuilder, program: StepProgram) -> None:
        super().__init__(slots, nests, program)
        self.partial: Table = dict(slots.table)
        self.merged: Table = {}
        self.moves: list[Move] = []
        self.scales: dict[sp.Symbol, sp.Expr] = {}

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the order of the program's steps."""
        for step in self.program.merge:
            self.emit(step)
        self.slots.table = {**self.partial, **self.merged}
        return self.statements

    def _allocate(self, key: sp.Symbol, name: str, dims: tuple[tirx.Var, ...], dtype: str) -> Slot:
        slot = self.slots.allocate(key, name, dims, dtype)
        self.merged[key] = slot
        self.slots.table[key] = self.partial[key]
        return slot

    def _over_segments(self, dims: tuple[tirx.Var, ...]) -> list[Iter]:
        return [*self.slots.iters(dims), Iter(SEGMENT, "segment", self.slots.tiling.segments, reduce=True)]

    def _factor(self, step: Scale) -> None:
        self.scales[step.symbol] = step.expression

    def _component(self, step: Shift) -> None:
        """⊕ over segments of what each shifts to the merged references."""
        component, shift = self.components[step.component], step.expression.xreplace(self.scales)
        dims, dtype = self.slots.dims.of(step.component), component_dtype(self.slots.group, component)
        slot = self._allocate(step.component, f"{step.component}_merged", dims, dtype)

        def moved(at: Values) -> ir.Expr:
            return self.write(shift, at, dtype, self._moved(at, dtype))

        self._reduction(f"{step.component}_merged", dims, slot, component.reducer, moved)

    def _reduction(
        self, name: str, dims: tuple[tirx.Var, ...], slot: Slot, reducer: Reducer, value: Callable[[Values], ir.Expr]
    ) -> None:
        """A slot as the combination of a value of every segment: a loop, or written out where segments are few."""

        def written_out(at: Values) -> list[tirx.Stmt]:
            segments = range(int(self.slots.tiling.segments))
            values = [value({**at, SEGMENT: tirx.const(k, self.nests.dtype)}) for k in segments]
            return [store(slot.buffer, reduce(combiner_of(reducer), values), self.slots.indices(slot, at))]

        if self.slots.tiling.unrolls_segments:
            nest = self.nests.nest(name, "merge", self.slots.iters(dims), written_out)
        else:
            nest = self.reduced(name, "merge", self._over_segments(dims), slot, reducer, value)
        self.statements.append(nest)

    def _tuple(self, step: Tuple) -> None:
        dims = self.slots.dims.of(step.components[0])
        unit = [self.components[symbol] for symbol in step.components]
        slots = {
            c.symbol: self._allocate(c.symbol, f"{c.symbol}_merged", dims, component_dtype(self.group, c)) for c in unit
        }

        def keep(new: ir.Expr, old: ir.Expr, at: Values) -> ir.Expr:
            empty = self.slots.tiling.segment_is_empty(at)  # a program's own combine of two identities may be NaN
            return TirValues(dtype_of(new)).choose(empty, old, new)

        name, itself = f"{unit[0].symbol}_merged", {symbol: symbol for symbol in slots}
        self.statements.append(self.combined(name, "merge", self._over_segments(dims), slots, itself, keep))

    def _moved(self, at: Values, dtype: str) -> dict[sp.Symbol, ir.Expr]:
        """From each segment's own references to the merged ones."""
        values: dict[sp.Symbol, ir.Expr] = {
            COUNT: self.slots.tiling.segment_count(at).astype(counting_dtype(dtype)),
            LENGTH: as_number(self.slots.tiling.length, counting_dtype(dtype)),
        }
        for move in self.moves:
            final = self.merged[move.reference]
            values[move.moved] = new = load(final.buffer, self.slots.indices(final, at))
            kind = TirValues(dtype_of(final.buffer))
            old, empty = self.slots.read(move.reference, at), self.slots.tiling.segment_is_empty(at)
            values[move.step] = displacement(move, new, old, kind, empty)
        return values

    def _reference(self, step: Move) -> None:
        """Where the merged state stands; the components before it are merged already."""
        dims = self.slots.dims.of(step.reference)
        dtype = str(self.partial[step.reference].buffer.ty.dtype)
        standing = self._standing(step, dims, dtype) if may_stay(step) else None
        slot = self._allocate(step.reference, f"{step.reference}_merged", dims, dtype)

        def body(at: Values) -> list[tirx.Stmt]:
            state = {
                s: load(m.buffer, self.slots.indices(m, at)) for s, m in self.merged.items() if s != step.reference
            }
            length, folded = self.slots.tiling.length, self.slots.tiling.folded
            value = step.value.subs(COUNT, LENGTH) if same_extent(folded, length) else step.value
            counts = {COUNT: as_number(folded, dtype), LENGTH: as_number(length, dtype)}
            value = self.write(with_length(value, length), at, dtype, {**state, **counts})
            if standing is not None:
                stay, empty = self._stay(step, load(standing.buffer, self.slots.indices(standing, at)), dtype)
                value = destination(step, value, stay, empty, TirValues(dtype))
            return [store(slot.buffer, value, self.slots.indices(slot, at))]

        self.moves.append(step)
        self.statements.append(self.nests.nest(f"{step.reference}_merged", "merge", self.slots.iters(dims), body))

    def _standing(self, step: Move, dims: tuple[tirx.Var, ...], dtype: str) -> Slot:
        """The least reference of the segments that have a position."""
        slot = self.slots.allocate(("standing", step.reference), f"{step.reference}_standing", dims, dtype)

        def own(at: Values) -> ir.Expr:
            empty = self.slots.tiling.segment_is_empty(at)
            return TirValues(dtype).choose(empty, tirx.max_value(dtype), self.slots.read(step.reference, at))

        self._reduction(f"{step.reference}_standing", dims, slot, MIN, own)
        return slot

    def _stay(self, step: Move, standing: ir.Expr, dtype: str) -> tuple[ir.Expr, ir.Expr | bool]:
        """Where the merged state stands before it moves, and whether no segment has a position."""
        folded = self.slots.tiling.folded
        if isinstance(folded, int):
            return standing, False
        empty = tirx.LE(folded, 0)
        return tirx.Select(empty, tirx.const(step.start, dtype), standing), empty

    rules: ClassVar = {Move: _reference, Scale: _factor, Tuple: _tuple, Shift: _component}
