"""The function of a chunk: from its inputs to the state of its positions, at the references of the whole chunk.

One reduction a component, each as the fold's lift says, with references between them: an unfused program, of which the
same fold is derived again.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.reducer import EXTREMES
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, substitute
from tvm_cascade.chunks.cut import Cut, Reader
from tvm_cascade.chunks.sources import Segment
from tvm_cascade.chunks.state import State
from tvm_cascade.steps.move import destination
from tvm_cascade.steps.program import Move, Reduce, Tuple
from tvm_cascade.transform.loop import as_number, with_length
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, store
from tvm_cascade.transform.scope import Scope, Slot, Slots, counting_dtype, placed
from tvm_cascade.transform.tiling import Tiling
from tvm_cascade.transform.tuples import Cell, tuple_nest
from tvm_cascade.transform.values import TirValues


class PartialEmitter:
    """Emits one nest a component, and one for each reference that leaves.

    Parameters
    ----------
    part : the chunk.
    state : what leaves of it; `buffers` is where, in the same order.
    length : positions of the whole axis.
    """

    def __init__(self, part: Cut, state: State, buffers: list[tirx.Var], length: Extent, nests: NestBuilder) -> None:
        self.part, self.state, self.buffers, self.length, self.nests = part, state, buffers, length, nests
        group = part.of_group()
        whole = Tiling((), length, 1, 1, 1, 1)
        self.slots = Slots(group, whole, state.dims, nests.dtype)
        self.count = group.frame.length
        self.components = {component.symbol: component for component in group.fold.components}
        self.homes = {
            leaving.symbol: Slot(buffer, (*part.chunk.pieces, *leaving.dims), per_segment=False)
            for leaving, buffer in zip(state.leaving, buffers, strict=True)
        }
        self.statements: list[tirx.Stmt] = []
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
        for step in self.state.program.steps:
            if isinstance(step, Reduce):
                self._reduction(step)
            elif isinstance(step, Tuple):
                self._tuple(step)
            elif isinstance(step, Move):
                self._reference(step)
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
        dtype = dtype_of(slot.buffer)

        def value(at: Values) -> ir.Expr:
            return self._scope(at, dtype).printer(dtype)(step.lift)

        cell, identity = (slot.buffer, partial(self.slots.indices, slot)), identity_of(component.reducer, dtype)
        iters, combine = self._over_axis(slot.dims), combiner_of(component.reducer)
        self.statements.append(self.nests.reduction(slot.buffer.name, "", iters, cell, combine, identity, value))

    def _tuple(self, step: Tuple) -> None:
        """A tuple over the chunk, one position after another."""
        unit = tuple(self.components[symbol] for symbol in step.components)
        lifts = dict(zip(step.components, step.lifts, strict=True))
        first, *_ = map(self._placed, step.components)

        def cells(at: Values) -> dict[sp.Symbol, Cell]:
            return self.slots.cells({symbol: symbol for symbol in step.components}, at)

        def values(at: Values) -> dict[sp.Symbol, ir.Expr]:
            return {
                symbol: self._scope(at, cell.dtype).printer(cell.dtype)(lifts[symbol])
                for symbol, cell in cells(at).items()
                if lifts[symbol].free_symbols - EXTREMES.keys()
            }

        iters, name = self._over_axis(first.dims), first.buffer.name
        self.statements.append(tuple_nest(self.nests, name, "", iters, unit, cells, values, constants=lifts))

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
            value = self._scope(at, dtype).printer(dtype)(with_length(step.value, self.length))
            if step.value.has(COUNT) and not isinstance(self.count, int):
                value = tirx.Select(self.count > 0, value, start)
            return [store(slot.buffer, destination(step, value, start, True, kind), self.slots.indices(slot, at))]

        self.statements.append(self.nests.nest(slot.buffer.name, "", self.slots.iters(slot.dims), body))
        self.slots.table[step.reference] = self.slots.table[step.moved] = slot

    def _scope(self, at: Values, dtype: str) -> Scope:
        counting = counting_dtype(dtype)
        counts = {COUNT: as_number(self.count, counting), LENGTH: as_number(self.length, counting)}
        return Scope(self.slots, at, counts)
