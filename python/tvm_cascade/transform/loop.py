"""Emits the fused loop: one sibling nest per producer, temporary, partial and update, under a loop over tiles.

    for segment: for tile:
        producer   the tile's share of inner reductions
        then, step by step of the fold:
        reference  c′ from the partial results; c′ − c and the coefficients of the shift
        element    temporaries of the tile
        partial    ⊕ of the lifts over the tile (in lanes first, where they help)
        update     T = shift(T) ⊕ partial

The tile loop is a reduction axis of every block that carries state, with that block's init, and a data-parallel axis
of the others, whose buffers it indexes first. TVM's primitives and lowering hold on this form and on few others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.fold import Component
from tvm_cascade.analysis.index_sets import greatest
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.statements import in_loops, sequence
from tvm_cascade.analysis.tir import Extent, loads_of, more_than_one, substitute, uses
from tvm_cascade.steps.move import departure, destination, displacement
from tvm_cascade.steps.program import Combine, Element, Move, Reduce, Scale, Step, StepProgram, Tuple
from tvm_cascade.transform.dead_tiles import LIVE, UNSETTLED, unsettled
from tvm_cascade.transform.layout import Layout, Producer
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import select
from tvm_cascade.transform.scope import (
    Emitter,
    Scope,
    Slot,
    Slots,
    component_dtype,
    counting_dtype,
    label_of,
    reference_dtype,
)
from tvm_cascade.transform.tiling import GATHERED_LANES, INSIDE, LANE, SEGMENT, STRIP, TILE
from tvm_cascade.transform.values import VANISHING_EXPONENT, TirValues
from tvm_cascade.tvm_faults.bfloat16 import binding


class LoopEmitter(Emitter):
    """Emits one group's fused loop. `run` gives the statement; the buffers are in `slots`."""

    def __init__(
        self, slots: Slots, nests: NestBuilder, layout: Layout, program: StepProgram, producers: list[Producer]
    ) -> None:
        super().__init__(slots, nests, program)
        self.elements, self.producers = layout.elements, producers
        self.tiling, self.fold = slots.tiling, slots.group.fold
        self.tile_loop = tirx.Var(f"{self.group.frame.axis[-1].name}_tile", nests.dtype)
        self.segment_loop = tirx.Var(f"{self.group.frame.axis[-1].name}_segment", nests.dtype)
        self.emitted: set[sp.Symbol] = set()
        self.gathers: list[tirx.Stmt] = []
        self.dead = layout.dead if more_than_one(slots.tiling.tiles) else None

    def run(self) -> tirx.Stmt:
        """The loop over tiles, with everything that it needs allocated."""
        for producer in self.producers:
            self._producer(producer)
        for step in self.program.steps:
            self.emit(step)
        segments = {self.segment_loop: self.tiling.segments} if self.tiling.segmented else {}
        return in_loops({**segments, self.tile_loop: self.tiling.tiles}, sequence(self.statements))

    def emit(self, step: Step) -> None:
        """Emits one step. Passes over the tile come before what gathers their lanes: a schedule may join them."""
        if not isinstance(step, (Reduce, Element)):
            self.statements += self.gathers
            self.gathers = []
        super().emit(step)

    def _iters(self, dims: tuple[tirx.Var, ...], carries: bool = False) -> list[Iter]:
        """Segments, if any, rows and free axes, and the tile: a reduction axis where state is carried."""
        segment = [Iter(SEGMENT, self.segment_loop.name, self.tiling.segments, loop=self.segment_loop)]
        tile = Iter(TILE, self.tile_loop.name, self.tiling.tiles, reduce=carries, loop=self.tile_loop)
        return [*(segment if self.tiling.segmented else []), *self.slots.iters(dims), tile]

    def _inside(self, reduce: bool = False) -> Iter:
        """The position within a tile."""
        return Iter(INSIDE, self.group.frame.axis[-1].name, self.tiling.tile, reduce)

    def _guarded(self, value: ir.Expr, other: ir.Expr, at: Values) -> ir.Expr:
        condition = self.tiling.in_range(at)
        return value if condition is None else select(condition, value, other, lazy=True)

    def _producer(self, producer: Producer) -> None:
        stage, axis = producer.stage, self.group.frame.axis
        order = [producer.variables[v] for v in stage.indices if isinstance(v, ir.Var)]
        rows = tuple(v for v in order if v not in {*axis})
        assert stage.reducer is not None
        dtype = str(stage.buffer.ty.dtype)
        slot = self.slots.allocate(stage.buffer, f"{stage.buffer.name}_tile", (SEGMENT, TILE, *rows, INSIDE), dtype)
        inner = [Iter(v, v.name, stage.extents[v], reduce=True) for v in stage.reduce]
        iters, zero = [*self._iters(rows), self._inside(), *inner], identity_of(stage.reducer, dtype)

        def value(at: Values) -> ir.Expr:
            scope = Scope(self.slots, at)
            frame = scope.frame_values()
            values = {**at, **{own: frame[var] for own, var in producer.variables.items()}}
            return self._guarded(scope.inputs(substitute(producer.element, values)), zero, at)

        self.statements.append(self.reduced(f"{stage.name}_tile", "producer", iters, slot, stage.reducer, value))

    def _temporary(self, temporary: Element) -> None:
        dims, dtype = self.slots.dims.of(temporary.symbol), self._dtype_of(temporary)
        slot = self.slots.allocate(temporary.symbol, str(temporary.symbol), (SEGMENT, TILE, *dims, INSIDE), dtype)

        def body(at: Values) -> list[tirx.Stmt]:
            value = self.write(temporary.expression, at, dtype)
            return [store(slot.buffer, self._guarded(value, tirx.const(0, dtype), at), self.slots.indices(slot, at))]

        iters = [*self._iters(dims), self._inside()]
        self.statements.append(self.nests.nest(str(temporary.symbol), "element", iters, body))
        self.emitted.add(temporary.symbol)

    def _dtype_of(self, temporary: Element) -> str:
        """The widest dtype of the components that a temporary serves."""
        symbols = self.elements.that_read(temporary)
        served = [c for c in self.fold.components if self.elements.lifts[c.symbol].has(*symbols)]
        dtypes = {component_dtype(self.group, c) for c in served}
        return "float64" if "float64" in dtypes else "float32" if "float32" in dtypes or not dtypes else min(dtypes)

    def _partial(self, step: Reduce) -> None:
        """Emits a component's pass over the tile; where that is in lanes, the nest that gathers them waits."""
        component, lift = self.components[step.component], step.lift
        own, dtype = self.slots.dims.of(lift), component_dtype(self.group, component)
        slot = self._partial_slot(component, own)
        rows, identity = self._iters(own), identity_of(component.reducer, dtype)

        def value(at: Values) -> ir.Expr:
            return self._guarded(self.write(lift, at, dtype), identity, at)

        if self._in_lanes(lift, own):
            self.gathers.append(self._lanes(component, slot, rows, dtype, value))
            return
        name, iters = f"{label_of(component)}_tile", [*rows, self._inside(reduce=True)]
        self.statements.append(self.reduced(name, "partial", iters, slot, component.reducer, value))

    def _partial_slot(self, c: Component, rows: tuple[tirx.Var, ...]) -> Slot:
        dtype = component_dtype(self.group, c)
        return self.slots.allocate(("tile", c.symbol), f"{label_of(c)}_tile", (SEGMENT, TILE, *rows), dtype)

    def _state_slot(self, c: Component, rows: tuple[tirx.Var, ...]) -> Slot:
        return self.slots.allocate(c.symbol, label_of(c), (SEGMENT, *rows), component_dtype(self.group, c))

    def _in_lanes(self, lift: sp.Expr, own: tuple[tirx.Var, ...]) -> bool:
        """Whether the partial of a tile is kept in lanes: a value per row, of data contiguous along the axis.

        A contraction has no part with all of its axes; values that live in the tile take the layout that the schedule
        gives them, with rows in lanes where there are enough of them.
        """
        if self.tiling.lanes == 1:
            return False
        varying = [s for s in lift.free_symbols if self.slots.dims.varies(s)]
        if not any(self.slots.dims.of(s) == own for s in varying):
            return False
        loads = [access for s in varying for access in self._loads_behind(s)]
        if any(access.source.same_as(p.stage.buffer) for access in loads for p in self.producers):
            return not own or self._holds_few(own[-1])
        axis = self.group.frame.axis[-1:]
        return any(s in self.emitted for s in varying) or any(uses(access.indices[-1], axis) for access in loads)

    def _holds_few(self, row: tirx.Var) -> bool:
        """Whether there are fewer rows than lanes; of an unknown number, no."""
        extent = self.slots.extent(row)
        return isinstance(extent, int) and extent < self.tiling.lanes

    def _loads_behind(self, symbol: sp.Symbol) -> list[ir.TensorLoad]:
        """Every load that an atom, or a temporary of the tile, is computed from."""
        temporary = next((t for t in self.elements.temporaries if t.symbol == symbol), None)
        if temporary is not None:
            return [access for s in temporary.expression.free_symbols for access in self._loads_behind(s)]
        atom = next((a for a in self.group.atoms.atoms.values() if a.symbol == symbol), None)
        return [] if atom is None else [access for access in loads_of(atom.expression) if access.indices]

    def _lanes(
        self, component: Component, slot: Slot, rows: list[Iter], dtype: str, value: Callable[[Values], ir.Expr]
    ) -> tirx.Stmt:
        """Emits a pass over the tile in lanes, and those that leave few of them; what combines these is given."""
        name, lanes, left = label_of(component), self.tiling.lanes, math.gcd(self.tiling.lanes, GATHERED_LANES)

        def reduced(suffix: str, count: int, strips: int, value: Callable[[Values], ir.Expr]) -> Slot:
            key = (suffix, component.symbol)
            found = self.slots.allocate(key, f"{name}_{suffix}", slot.axes, dtype, count)
            iters = [*rows, Iter(LANE, "lane", count), Iter(STRIP, "strip", strips, reduce=True)]
            nest = self.reduced(f"{name}_{suffix}", "lanes", iters, found, component.reducer, value)
            self.statements.append(nest)
            return found

        def read(lanes_of: Slot, at: Values, lane: ir.Expr) -> ir.Expr:
            return load(lanes_of.buffer, self.slots.indices(lanes_of, {**at, LANE: lane}))

        strips = self.tiling.tile // lanes
        wide = reduced("lanes", lanes, strips, lambda at: value({**at, INSIDE: at[STRIP] * lanes + at[LANE]}))
        few = wide
        if left < lanes:  # vectors are combined first
            few = reduced("vector", left, lanes // left, lambda at: read(wide, at, at[STRIP] * left + at[LANE]))
        iters = [*rows, Iter(LANE, "lane", left, reduce=True)]
        return self.reduced(
            f"{name}_tile", "partial", iters, slot, component.reducer, lambda at: read(few, at, at[LANE])
        )

    def _update(self, step: Combine) -> None:
        """T = shift(T) ⊕ partial, for components that read each other's old values at once."""
        together = [self.components[symbol] for symbol in step.components]
        dims = self.slots.dims.of(together[0].symbol)
        for c in together:
            own, dtype = self.slots.dims.of(c.symbol), component_dtype(self.group, c)
            self._state_slot(c, own)
            if c.symbol in self.program.remembered:
                self.slots.allocate(("old", c.symbol), f"{label_of(c)}_old", (SEGMENT, *own), dtype)

        def body(at: Values) -> list[tirx.Stmt]:
            statements: list[tirx.Stmt] = []
            values: list[ir.Expr] = []
            mutual = len(together) > 1
            for c in together:
                value = self._shifted(c, at, {o.symbol for o in together})
                values.append(combiner_of(c.reducer)(value, self.slots.read(("tile", c.symbol), at)))
                if c.symbol in self.program.remembered:
                    old = self.slots.table[("old", c.symbol)]
                    statements.append(store(old.buffer, self.slots.read(c.symbol, at), self.slots.indices(old, at)))
            for k, c in enumerate(together):
                if mutual:
                    bound = tirx.Var(f"{label_of(c)}_new", component_dtype(self.group, c))
                    statements.insert(k, tirx.Bind(bound, values[k]))
                    values[k] = bound
                slot = self.slots.table[c.symbol]
                statements.append(store(slot.buffer, values[k], self.slots.indices(slot, at)))
            return statements

        def init(at: Values) -> list[tirx.Stmt]:
            # TVM's storage planner takes a store that is the same in all tiles, once tiles are unrolled, for one
            # statement, and plans its buffer twice; what depends on the first tile is never the same.
            remembered = [c for c in together if c.symbol in self.program.remembered]
            own = [self._start(c, c.symbol, at) for c in together]
            return own + [self._start(c, ("old", c.symbol), at) for c in remembered]

        iters, notes = self._iters(dims, carries=True), self._note_dead(dims)
        self.statements.append(self.nests.nest(label_of(together[0]), "update", iters, body, init, notes))

    def _note_dead(self, dims: tuple[tirx.Var, ...]) -> Callable[[Values], dict[str, object]] | None:
        """Annotations that tell dead tiles, once there is all that they speak of in a block over these rows."""
        dead, axis = self.dead, self.group.frame.axis
        if dead is None or not all(symbol in self.slots.table for symbol in dead.symbols()):
            return None
        rows = [v for v in dead.variables() if not uses(v, axis)]
        rows += [v for symbol in dead.symbols() for v in self.slots.dims.of(symbol)]
        if not {*rows} <= {*dims}:
            return None
        self.dead, dtype = None, reference_dtype(self.group)

        def notes(at: Values) -> dict[str, object]:
            inside = tirx.Var("inside", self.nests.dtype)
            frame = Scope(self.slots, {**at, INSIDE: inside}).frame_values()
            last = tirx.const(self.tiling.tile - 1, self.nests.dtype)
            ends = {inside: (tirx.const(0, self.nests.dtype), last)}
            most = [greatest(substitute(slack, frame), ends) for slack in dead.slacks]
            unsure = unsettled(dead.absorbed, Scope(self.slots, at).printer(dtype), VANISHING_EXPONENT[dtype])
            return {LIVE: [slack for slack in most if slack is not None], UNSETTLED: unsure}

        return notes

    def _tuple(self, step: Tuple) -> None:
        """Emits a tuple's pass over the tile, and state = state ∘ partial where that holds any position."""
        unit, rows = [self.components[symbol] for symbol in step.components], self.slots.dims.of(step.components[0])
        name, lifts = label_of(unit[0]), dict(zip(step.components, step.lifts, strict=True))
        tiles = {c.symbol: self._partial_slot(c, rows) for c in unit}
        states = {c.symbol: self._state_slot(c, rows) for c in unit}

        def partials(at: Values) -> dict[sp.Symbol, ir.Expr]:
            return {symbol: self.slots.read(("tile", symbol), at) for symbol in tiles}

        def keep(new: ir.Expr, old: ir.Expr, at: Values) -> ir.Expr:
            holds = self.tiling.tile_in_range(at)
            return new if holds is None else select(holds, new, old)

        inside, across = [*self._iters(rows), self._inside(reduce=True)], self._iters(rows, carries=True)
        self.statements.append(self.combined(f"{name}_tile", "partial", inside, tiles, lifts, self._guarded))
        itself = {symbol: symbol for symbol in states}
        self.statements.append(self.combined(name, "update", across, states, itself, keep, partials))

    def _start(self, component: Component, key: object, at: Values) -> tirx.Stmt:
        slot, identity = self.slots.table[key], identity_of(component.reducer, component_dtype(self.group, component))
        return store(slot.buffer, identity, self.slots.indices(slot, at))

    def _shifted(self, component: Component, at: Values, together: set[sp.Symbol]) -> ir.Expr:
        """The component's value moved to the new references; other components as they were before their update."""
        dtype = component_dtype(self.group, component)
        shift = self.program.shifts[component.symbol]
        old = {
            s: self.slots.read(("old", s), at)
            for s in shift.free_symbols & self.program.remembered
            if s not in together
        }
        return self.write(shift, at, dtype, {**old, **self._counts(at, dtype, after=False)})

    def _counts(self, at: Values, dtype: str, after: bool) -> dict[sp.Symbol, ir.Expr]:
        """n and N as numbers of a dtype."""
        dtype = counting_dtype(dtype)
        return {COUNT: self.tiling.count(at, after).astype(dtype), LENGTH: as_number(self.tiling.length, dtype)}

    def _reference(self, step: Move) -> None:
        dims, dtype = self.slots.dims.of(step.reference), reference_dtype(self.group)
        name, axes = str(step.reference), (SEGMENT, *dims)
        self.slots.allocate(step.moved, name, axes, dtype)
        self.slots.allocate(step.step, f"{name}_step", axes, dtype)
        if step.reference in self.program.remembered:
            self.slots.allocate(("old", step.reference), f"{name}_old", axes, dtype)
        current = self.slots.table[step.moved]

        def body(at: Values) -> list[tirx.Stmt]:
            return self._move(step, at, dtype)

        def init(at: Values) -> list[tirx.Stmt]:
            return [store(current.buffer, tirx.const(step.start, dtype), self.slots.indices(current, at))]

        self.statements.append(self.nests.nest(name, "reference", self._iters(dims, carries=True), body, init))
        # After its first move the reference is read at its new value by lifts.
        self.slots.table[step.reference] = current

    def _move(self, step: Move, at: Values, dtype: str) -> list[tirx.Stmt]:
        kind, current = TirValues(dtype), self.slots.table[step.moved]
        where = self.slots.indices(current, at)
        value = self.write(with_length(step.value, self.tiling.length), at, dtype, self._counts(at, dtype, after=True))
        first = tirx.EQ(at[TILE], tirx.const(0, self.nests.dtype))
        new, old = (tirx.Var(f"{step.reference}_{suffix}", dtype) for suffix in ("new", "old"))
        stay = load(current.buffer, where)
        stores = [store(self.slots.table[step.step].buffer, displacement(step, new, old, kind), where)]
        if ("old", step.reference) in self.slots.table:
            stores.append(store(self.slots.table["old", step.reference].buffer, old, where))
        values = [(new, destination(step, value, stay, first, kind)), (old, departure(new, stay, first, kind))]
        return binding(values, [*stores, store(current.buffer, new, where)])

    def _coefficient(self, step: Scale) -> None:
        dims, dtype = self.slots.dims.of(step.symbol), reference_dtype(self.group)
        slot = self.slots.allocate(step.symbol, str(step.symbol), (SEGMENT, *dims), dtype)
        steps = {move.step for move in self.program.moves if move.reference == step.reference}

        def body(at: Values) -> list[tirx.Stmt]:
            # Said of the tile itself, so that a loop over tiles may be taken apart (`schedule.roles`).
            first = tirx.EQ(at[TILE], tirx.const(0, self.nests.dtype))
            moves = {s: tirx.Select(first, tirx.const(0, dtype), self.slots.read(s, at)) for s in steps}
            moved_before = [s for s in step.expression.free_symbols if ("old", s) in self.slots.table]
            old = {s: self.slots.read(("old", s), at) for s in moved_before}
            known = {**old, **moves, **self._counts(at, dtype, after=False)}
            value = self.write(step.expression, at, dtype, known)
            return [store(slot.buffer, value, self.slots.indices(slot, at))]

        def init(at: Values) -> list[tirx.Stmt]:
            return [store(slot.buffer, tirx.const(1, dtype), self.slots.indices(slot, at))]

        iters = self._iters(dims, carries=True)
        self.statements.append(self.nests.nest(str(step.symbol), "reference", iters, body, init))

    rules: ClassVar = {
        Reduce: _partial, Element: _temporary, Tuple: _tuple, Combine: _update, Move: _reference, Scale: _coefficient,
    }  # fmt: skip


def as_number(length: Extent, dtype: str) -> ir.Expr:
    """N or n as a number of a dtype."""
    return tirx.const(length, dtype) if isinstance(length, int) else length.astype(dtype)


def with_length(expression: sp.Expr, length: Extent) -> sp.Expr:
    """N as a number, so that a mean's s·(N/n)/N is s/n."""
    return expression.subs(LENGTH, sp.Integer(length)) if isinstance(length, int) else expression
