"""The function of a chunk: from its inputs to the state of its positions, at the references of the whole chunk.

One reduction a component, each as the fold's lift says, with references between them: an unfused program, of which the
same fold is derived again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import ClassVar

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.reducer import SUM
from tvm_cascade.analysis.reducers import combiner_of
from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, substitute
from tvm_cascade.chunks.cut import Cut, Reader
from tvm_cascade.chunks.picks import picked
from tvm_cascade.chunks.sources import Segment
from tvm_cascade.chunks.state import State
from tvm_cascade.steps.move import destination
from tvm_cascade.steps.program import Move, Reduce, Tuple
from tvm_cascade.transform.loop import as_number, with_length
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, store
from tvm_cascade.transform.scope import Emitter, Slot, Slots, counting_dtype, placed
from tvm_cascade.transform.tiling import Tiling
from tvm_cascade.transform.values import TirValues


class PartialEmitter(Emitter):
    """Emits one nest a component, and one for each reference that leaves.

    Parameters
    ----------
    part : the chunk.
    state : what leaves of it; `buffers` is where, in the same order.
    length : positions of the whole axis.
    """

    def __init__(self, part: Cut, state: State, buffers: list[tirx.Var], length: Extent, nests: NestBuilder) -> None:
        whole = Tiling((), length, 1, 1, 1, 1)
        super().__init__(Slots(part.of_group(), whole, state.dims, nests.dtype), nests, state.program)
        self.part, self.state, self.buffers, self.length = part, state, buffers, length
        self.count = self.group.frame.length
        self.homes = {
            leaving.symbol: Slot(buffer, (*part.chunk.pieces, *leaving.dims))
            for leaving, buffer in zip(state.leaving, buffers, strict=True)
        }
        self.allocated: list[tirx.Var] = []

    @property
    def segments(self) -> list[Segment]:
        """The states of the chunk's pieces."""
        numbers = product(*map(range, self.part.chunk.pieces.values()))
        return [Segment(self.buffers, tuple(as_index(k, self.nests.dtype) for k in at), self.count) for at in numbers]

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the order of the program's steps."""
        for reader in self.part.producers:
            self._producer(reader)
        for step in self.program.steps:
            self.emit(step)
        return self.statements

    def _producer(self, reader: Reader) -> None:
        stage = reader.stage
        assert stage is not None and stage.reducer is not None and stage.init is not None
        value = self.part.rewritten(reader.expression, reader.axis)
        extents = dict(stage.extents) if reader.axis is None else {**stage.extents, reader.axis: self.part.chunk.length}
        buffer, pieces = self.part.replaced[stage.buffer], self.part.pieces_of(stage.buffer)
        iters = self.slots.iters(pieces)
        for over, reduce in ((stage.spatial, False), (stage.reduce, True)):
            iters += [Iter(v, v.name.removeprefix("v_"), extents[v], reduce) for v in over]

        def where(at: Values) -> list[ir.Expr]:
            return placed((*pieces, *stage.indices), at)

        self.allocated.append(buffer)
        cell, combine = (buffer, where), combiner_of(stage.reducer)
        nest = self.nests.reduction(stage.name, "", iters, cell, combine, stage.init, lambda at: substitute(value, at))
        self.statements.append(nest)

    def _over_axis(self, dims: tuple[tirx.Var, ...]) -> list[Iter]:
        axis = self.slots.group.frame.axis
        return [*self.slots.iters(dims), *(Iter(v, v.name, self.slots.extent(v), reduce=True) for v in axis)]

    def _placed(self, symbol: sp.Symbol) -> Slot:
        self.slots.table[symbol] = self.homes[symbol]
        return self.homes[symbol]

    def _reduction(self, step: Reduce) -> None:
        """⊕ of a component's lift over the chunk."""
        component, slot = self.components[step.component], self._placed(step.component)
        iters, dtype = self._over_axis(slot.axes), dtype_of(slot.buffer)

        def value(at: Values) -> ir.Expr:
            return self.write(step.lift, at, dtype)

        if component.reducer is SUM and self._one_term(slot, value):
            return
        self.statements.append(self.reduced(slot.buffer.name, "", iters, slot, component.reducer, value))

    def _one_term(self, slot: Slot, value: Callable[[Values], ir.Expr]) -> bool:
        """Stores a sum of which one term counts as that term, where it is one."""
        axis, length = self.part.axis, self.part.chunk.length

        def term(at: Values) -> ir.Expr | None:
            return picked(value({**at, axis: axis}), axis, length)

        def body(at: Values) -> list[tirx.Stmt]:
            found = term(at)
            assert found is not None
            return [store(slot.buffer, found, self.slots.indices(slot, at))]

        if self.slots.group.frame.axis != (axis,) or term({v: v for v in slot.axes}) is None:
            return False
        self.statements.append(self.nests.nest(slot.buffer.name, "", self.slots.iters(slot.axes), body))
        return True

    def _tuple(self, step: Tuple) -> None:
        """A tuple over the chunk, one position after another."""
        lifts = dict(zip(step.components, step.lifts, strict=True))
        slots = {symbol: self._placed(symbol) for symbol in step.components}
        first = slots[step.components[0]]
        self.statements.append(self.combined(first.buffer.name, "", self._over_axis(first.axes), slots, lifts))

    def _reference(self, step: Move) -> None:
        """Where the chunk stands: at a component, or in a buffer of its own."""
        component = self.state.standing_at.get(step.reference)
        if component is not None:
            self.slots.table[step.reference] = self.slots.table[step.moved] = self.slots.table[component]
            return
        slot = self.homes[step.reference]
        dtype = dtype_of(slot.buffer)

        def body(at: Values) -> list[tirx.Stmt]:
            kind, start = TirValues(dtype), tirx.const(step.start, dtype)
            value = self.write(with_length(step.value, self.length), at, dtype)
            if step.value.has(COUNT) and not isinstance(self.count, int):
                value = tirx.Select(self.count > 0, value, start)
            return [store(slot.buffer, destination(step, value, start, True, kind), self.slots.indices(slot, at))]

        self.statements.append(self.nests.nest(slot.buffer.name, "", self.slots.iters(slot.axes), body))
        self.slots.table[step.reference] = self.slots.table[step.moved] = slot

    def known(self, at: Values, dtype: str) -> dict[sp.Symbol, ir.Expr]:
        """n and N."""
        counting = counting_dtype(dtype)
        return {COUNT: as_number(self.count, counting), LENGTH: as_number(self.length, counting)}

    rules: ClassVar = {Reduce: _reduction, Tuple: _tuple, Move: _reference}
