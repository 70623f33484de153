"""The function of a chunk: from its inputs to the state of its positions, at the references of the whole chunk.

One reduction a component, each as the fold's lift says, with references between them: an unfused program, of which the
same fold is derived again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import sympy as sp
import tvm
from tvm import ir, s_tir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.reducer import EXTREMES
from tvm_cascade.analysis.order import among
from tvm_cascade.analysis.program import Program, Stage
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.statements import completed, sequence, undefined
from tvm_cascade.analysis.tir import Extent, as_index, dtype_of, substitute
from tvm_cascade.chunks.cut import Cut
from tvm_cascade.chunks.sources import Segment
from tvm_cascade.chunks.state import State
from tvm_cascade.errors import RewriteError
from tvm_cascade.steps.move import destination
from tvm_cascade.steps.program import Move, Reduce, Tuple
from tvm_cascade.transform.loop import as_number, with_length
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, store
from tvm_cascade.transform.scope import Scope, Slot, Slots, counting_dtype, placed, value_at
from tvm_cascade.transform.tiling import Tiling
from tvm_cascade.transform.tuples import Cell, tuple_nest
from tvm_cascade.transform.values import TirValues


class ChunkScope(Scope):
    """Symbols as TIR at one position of a chunk: blocks run over the axis' own loops."""

    pieces: tuple[tirx.Var, ...] = ()
    """The variable that numbers the chunk's pieces."""

    def frame_values(self) -> dict[tirx.Var, ir.Expr]:
        """Every frame variable's value at this point."""
        axis = self.slots.group.frame.axis
        return {v: value_at(self.at, v) for v in (*self.pieces, *self.slots.dims.order, *axis)}


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
            leaving.symbol: Slot(buffer, (*part.pieces, *leaving.dims), per_segment=False)
            for leaving, buffer in zip(state.leaving, buffers, strict=True)
        }
        self.statements: list[tirx.Stmt] = []
        self.allocated: list[tirx.Var] = []

    @property
    def segments(self) -> list[Segment]:
        """The states of the chunk's pieces."""
        if self.part.piece is None:
            return [Segment(self.buffers, (), self.count)]
        numbers = (as_index(k, self.part.index_dtype) for k in range(self.part.chunk.pieces))
        return [Segment(self.buffers, (number,), self.count) for number in numbers]

    def run(self) -> list[tirx.Stmt]:
        """The nests, in the order of the program's steps."""
        for stage in self.part.producers:
            self._producer(stage)
        for step in self.state.program.steps:
            if isinstance(step, Reduce):
                self._reduction(step)
            elif isinstance(step, Tuple):
                self._tuple(step)
            elif isinstance(step, Move):
                self._reference(step)
        return self.statements

    def _producer(self, stage: Stage) -> None:
        reader = next(r for r in self.part.readers if r.stage is stage)
        buffer = self.part.replaced[stage.buffer]
        reducer, init = stage.reducer, stage.init
        assert reducer is not None and init is not None
        value = self.part.rewritten(reader.expression, reader.axis)
        extents = {v: self._extent(v, stage, reader.axis) for v in (*stage.spatial, *stage.reduce)}
        pieces = self.part.pieces if reader.axis is not None else ()
        iters = [Iter(v, v.name.removeprefix("v_"), extents[v]) for v in stage.spatial]
        iters = [*self.slots.iters(pieces), *iters]
        iters += [Iter(v, v.name.removeprefix("v_"), extents[v], reduce=True) for v in stage.reduce]

        def where(at: Values) -> list[ir.Expr]:
            return placed((*pieces, *stage.indices), at)

        cell, combine = (buffer, where), combiner_of(reducer)
        self.allocated.append(buffer)
        nest = self.nests.reduction(stage.name, "", iters, cell, combine, init, lambda at: substitute(value, at))
        self.statements.append(nest)

    def _extent(self, var: tirx.Var, stage: Stage, axis: tirx.Var | None) -> Extent:
        is_axis = axis is not None and var.same_as(axis)
        return self.part.chunk.piece_length if is_axis else stage.extents[var]

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
        scope = ChunkScope(self.slots, at, counts)
        scope.pieces = self.part.pieces
        return scope


# Builds the functions of a split: nests, the parameters that they use, and what they allocate.


def build(
    program: Program,
    name: str,
    statements: Sequence[tirx.Stmt],
    inputs: Sequence[tirx.Var],
    outputs: Sequence[tirx.Var],
    allocated: Iterable[tirx.Var],
) -> tirx.PrimFunc:
    """A function over nests.

    Parameters
    ----------
    inputs, outputs : its buffers, in order, with numbers of the program's own among the inputs. Variables that nothing
        else defines are passed as numbers after the inputs.

    Raises
    ------
    RewriteError
        When the result is not well formed: a defect of this package.
    """
    params = [*inputs, *outputs]
    inside = [b for b in allocated if not among(b, params)]
    body = sequence(statements)
    notes = dict(program.root.annotations)
    root = s_tir.SBlock([], [], [], program.root.name_hint, body, alloc_buffers=inside, annotations=notes)
    numbers = undefined(body, params, inside)
    kept = {key: value for key, value in dict(program.func.attrs or {}).items() if key != "global_symbol"}
    attrs = tvm.ir.make_node("ir.DictAttrs", **{**kept, "global_symbol": name})
    signature = [*inputs, *numbers, *outputs]
    func = completed(tirx.PrimFunc(signature, s_tir.SBlockRealize([], True, root), attrs=attrs))
    if not s_tir.analysis.verify_well_formed(func, assert_mode=False):
        raise RewriteError("a well-formed function", f"one that is not:\n{func.script()}", name)
    return func
