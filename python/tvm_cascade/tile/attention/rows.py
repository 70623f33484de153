"""A warp group's part of a tile program: row states in registers, and the steps that fold a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.analysis.tir import dtype_of, loads_of, substitute
from tvm_cascade.steps.move import departure, destination, displacement
from tvm_cascade.steps.program import Combine, Move, Scale, Shift, Step
from tvm_cascade.tile.attention.near_zero import NEAR, NearZero, bits_of
from tvm_cascade.tile.attention.optimistic import Optimistic
from tvm_cascade.tile.attention.program import TileProgram
from tvm_cascade.tile.attention.standing import Limit, Standing
from tvm_cascade.tile.attention.steps import PARTIAL, Hoisted, RegisterElement, TileReduce
from tvm_cascade.tile.element import REGISTERS, SCORES, Mask
from tvm_cascade.tile.emit import bind, in_register, kernel_extent, ptx, put, registers
from tvm_cascade.tile.fragment import (
    COLUMNS_PER_STEP,
    DTYPE,
    NEIGHBOURS,
    QUAD,
    ROWS,
    Symbols,
    TilePrinter,
    as_number,
    integer_line,
    placed,
    register_index,
)
from tvm_cascade.tile.merge.lanes import exchanged, in_no_lane
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.values import TirValues

_PARTS = sp.Symbol("parts")
"""Of a reduction over a tile, one for each row and neighbour."""

_BITS_OF_TWO_TO_127 = 0x7F000000
"""Those of 1/c, less than these, are those of a power of two c."""


@dataclass(frozen=True)
class Place:
    """The frame coordinates of a thread's registers.

    Attributes
    ----------
    rows : the thread's two rows.
    lane_column : the thread's first column in every eight.
    buffers : the program's tensors -> the kernel's own parameters.
    """

    batch: dict[tirx.Var, ir.Expr]
    rows: tuple[ir.Expr, ir.Expr]
    lane_column: ir.Expr
    buffers: Mapping[tirx.Var, Any]


@dataclass(frozen=True)
class _Line:
    """A term that is linear in the position, by its value at a thread's first column and its step, a row each."""

    starts: tuple[ir.Expr, ...]
    steps: tuple[ir.Expr, ...]

    def at(self, step: ir.Expr, row: int, neighbour: int) -> ir.Expr:
        offset = (step * COLUMNS_PER_STEP + neighbour).astype(DTYPE)
        return self.starts[row] + self.steps[row] * offset


@dataclass
class RowFold:
    """Emits the fold of one warp group.

    Attributes
    ----------
    scores : the registers of each of a tile's scores, which become weights in place.
    values : registers of everything that has a value per row, two each.
    elements : registers of what has a value per position beside the scores.
    shifted : the components of each row at the references of the tile that is folded in.
    rows_along : parts of rows of tensors in shared memory, by the inputs that they are: a position's value by its place
        in the tile.
    end : the position before which the first of the tiles ends, where that is not the end of the axis.
    own : which of a thread's two rows the program has; others are not folded.
    """

    program: TileProgram
    place: Place
    scores: Sequence[Any]
    columns: int
    values: dict[sp.Symbol, Any] = field(default_factory=dict)
    elements: dict[sp.Symbol, Any] = field(default_factory=dict)
    shifted: dict[tuple[sp.Symbol, int], ir.Expr] = field(default_factory=dict)
    rows_along: Mapping[sp.Symbol, Callable[[ir.Expr], ir.Expr]] = field(default_factory=dict)
    end: ir.Expr | None = None
    own: tuple[int, ...] = ROWS

    def start(self) -> None:
        for symbol, expression in self.program.row_inputs.items():
            for r in ROWS:
                value = self._input(expression, {self.program.stream.row: self._row_in_bounds(r)})
                self.set(symbol, r, tirx.Cast(DTYPE, value) if str(value.ty.dtype) != DTYPE else value)
        for component in self.program.stream.row_components:
            for r in ROWS:
                self.set(component.symbol, r, identity_of(component.reducer, DTYPE))
        for move in self.program.body.moves:
            for r in ROWS:
                self.set(move.moved, r, tirx.const(move.start, DTYPE))

    def allocate(self) -> None:
        """Registers of all steps at once, for a fold whose steps are in several scopes."""
        body = self.program.body
        known = [_old(symbol) for symbol in sorted(body.remembered, key=str)]
        for step in body.steps:
            if isinstance(step, TileReduce):
                self._array(_PARTS, len(ROWS) * len(NEIGHBOURS))
                known.append(_partial(step.component))
            elif isinstance(step, Move):
                known.append(step.step)
            elif isinstance(step, (Scale, Hoisted)):
                known.append(step.symbol)
            elif isinstance(step, RegisterElement) and not step.in_place:
                self._array(step.symbol, self.columns // 2, self.elements)
        for symbol in known:
            self._array(symbol, len(ROWS))

    def map_scores(self, tile: ir.Expr, near: NearZero | None = None) -> None:
        maps = self.program.element.maps if near is None else (near.map,)
        if maps != SCORES[: len(maps)]:
            self._map(tile, maps)

    def all_near(self, near_zero: NearZero) -> ir.Expr:
        """Whether all pairs of neighbouring scores of the warp are small."""
        largest = registers("largest_bits", 2, "int32")
        for k in range(2):
            put(largest, k, T.int32(0))
        with T.unroll(self.columns // COLUMNS_PER_STEP) as j:
            pairs = [[tirx.abs(self.scores[0][register_index(j, r, e)]) for e in NEIGHBOURS] for r in self.own]
            found = largest[j % 2]
            for one, other in pairs:  # one instruction of three operands
                found = tirx.max(found, bits_of(one + other))
            put(largest, j % 2, found)
        return in_no_lane(tirx.max(largest[0], largest[1]) > T.int32(near_zero.largest_bits))

    def _map(self, tile: ir.Expr, maps: Sequence[sp.Expr]) -> None:
        """All registers of a position at once: each map may read every score."""
        apart = [self._lines(tile, one) for one in maps]

        def one(j: ir.Expr, r: int, e: int) -> None:
            symbols, conditions = self._at(tile, j, r, e, SCORES), self._conditions(tile, j, r, e)
            found = [
                sum((line.at(j, r, e) for line in lines), self.write(rest, symbols, conditions))
                for rest, lines in apart
            ]
            for register, value in zip(
                self.scores, found if len(found) == 1 else [T.Bind(value) for value in found], strict=False
            ):
                put(register, register_index(j, r, e), value)

        self._each(one)

    def _lines(self, tile: ir.Expr, of_score: sp.Expr) -> tuple[sp.Expr, list[_Line]]:
        """Splits the map of a score into a term linear in the position, a(row)·(base + c·offset), and the rest.

        Without such a term it stays in factors, as it is written.
        """
        rest, lines = sp.expand(of_score), []
        base, axis = tile * self.columns + self.place.lane_column, self.program.stream.position
        for symbol, expression in self.program.position_inputs.items():
            slope = rest.diff(symbol)
            apart = integer_line(expression, axis)
            if apart is None or slope == 0 or slope.free_symbols & {*SCORES, *self.program.position_inputs}:
                continue
            rest = sp.expand(rest - slope * symbol)
            rates = [self.write(slope, self._row(r, tile, before=False)) for r in ROWS]
            at = substitute(expression, {axis: cast(base, dtype_of(axis))})
            numbers = [cast(self._input(at, {self.program.stream.row: self.place.rows[r]}), DTYPE) for r in ROWS]
            starts = tuple(bind("line_start", rate * number) for rate, number in zip(rates, numbers, strict=True))
            steps = tuple(bind("line_step", rate * tirx.const(float(apart), DTYPE)) for rate in rates)
            lines.append(_Line(starts, steps))
        return (rest, lines) if lines else (of_score, [])

    def mask(self, tile: ir.Expr, mask: Mask, bit: Callable[[ir.Expr, int, int], ir.Expr] | None) -> None:
        """r = value wherever the condition is not as the mask keeps it; `bit`, if given, is not 0 where it keeps r."""
        masked = [(own, value) for own, value in zip(self.scores, mask.values, strict=False) if value is not None]
        constants = [(own, [self._constant(value, r) for r in ROWS]) for own, value in masked]

        def one(j: ir.Expr, r: int, e: int) -> None:
            where = register_index(j, r, e)
            holds = self._position_input(mask.condition, tile, j, r, e) if bit is None else T.ptx.pred(bit(j, r, e))
            for own, values in constants:
                if bit is not None:
                    # An instruction of its own: a selection would be taken apart by what follows, and cost it its
                    # fusion.
                    ptx("selp.f32", own[where], own[where], values[r], holds)
                    continue
                kept = (own[where], values[r]) if mask.keeps else (values[r], own[where])
                put(own, where, tirx.Select(holds, *kept))

        self._each(one)

    def _constant(self, value: sp.Expr, row: int) -> ir.Expr:
        if not value.is_number:
            return self.write(value, self._row(row, None, before=False))
        return tirx.const(float(np.float32(float(value))), DTYPE)  # SymPy's decimals of the lowest are below

    def row_input(self, expression: ir.Expr, row: int) -> ir.Expr:
        at = self._row_in_bounds(row) if self._reads(expression) else self.place.rows[row]
        return self._input(expression, {self.program.stream.row: at})

    def address(self, load: ir.TensorLoad, row: int, at: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        """Of an input's element at one of the thread's rows, and at values of other variables."""
        own = self.place.buffers[load.source]
        values = {self.program.stream.row: self._row_in_bounds(row), **at}
        return own.ptr_to([self._input(index, values) for index in load.indices])

    def step(self, tile: ir.Expr, first: bool, guarded: bool) -> None:
        """Folds a tile of registers into the rows' state, except for the accumulations.

        Parameters
        ----------
        first : nothing was folded before.
        guarded : positions of the tile may lie past the end of the axis.
        """
        body = self.program.body
        for symbol in sorted(body.remembered & body.shifts.keys(), key=str):
            for r in self.own:
                self.set(_old(symbol), r, self.values[symbol][r])
        for step in body.steps:
            self._step(step, tile, first, guarded)

    def _step(self, step: Step, tile: ir.Expr, first: bool, guarded: bool) -> None:
        if isinstance(step, TileReduce):
            self._reduce(step, tile, guarded)
        elif isinstance(step, Shift):
            for r in self.own:
                self.shifted[step.component, r] = self.write(step.expression, self._before(step.component, r, tile))
        elif isinstance(step, Combine):
            for component, reducer in step.combined:
                for r in self.own:
                    gained = self.values[_partial(component)][r]
                    self.set(component, r, combiner_of(reducer)(self.shifted[component, r], gained))
        elif isinstance(step, Move):
            self._move(step, tile, first)
        elif isinstance(step, (Scale, Hoisted)):
            for r in self.own:
                symbols = self._row(r, tile, before=isinstance(step, Scale))
                self.set(step.symbol, r, self.write(step.expression, symbols))
        elif isinstance(step, RegisterElement):
            self._element(step, tile)

    @property
    def _optimistic(self) -> Optimistic:
        assert self.program.optimistic is not None
        return self.program.optimistic

    def step_optimistic(self, tile: ir.Expr) -> None:
        """Lifts a tile at the current reference."""
        for step in self.program.body.steps:
            if isinstance(step, RegisterElement):
                self._element(step, tile)
            elif isinstance(step, TileReduce) and step.component != self._optimistic.extreme:
                self._reduce(step, tile, guarded=False)

    def all_within(self) -> ir.Expr:
        """The condition that no weight of the thread, as `step_optimistic` left them, is too large."""
        sums = [self.values[_partial(self._optimistic.guard)][r] for r in self.own]
        return tirx.And(*(tirx.LE(value, tirx.const(self._optimistic.most, DTYPE)) for value in sums))  # false of NaN

    def combine_optimistic(self) -> None:
        for step in self.program.body.steps:
            for component, reducer in step.combined if isinstance(step, Combine) else ():
                for r in self.own if component != self._optimistic.extreme else ():
                    own, gained = self.values[component][r], self.values[_partial(component)][r]
                    self.set(component, r, combiner_of(reducer)(own, gained))

    @property
    def _standing(self) -> Standing:
        assert self.program.standing is not None
        return self.program.standing

    def lift(self, tile: ir.Expr) -> None:
        """Lifts a tile at the scales as they stand."""
        for step in self.program.body.steps:
            if isinstance(step, RegisterElement):
                self._element(step, tile)

    def move_scales(self, tile: ir.Expr, beyond: Callable[[Limit, int], ir.Expr]) -> ir.Expr:
        """Moves the scales of rows in which a lane has a weight beyond its limit; gives whether any moved.

        The scale of what is infinite stays, in the end.
        """
        self.recall_scales()
        for limit in self._standing.limits:
            component, combine = limit.largest.symbol, combiner_of(limit.largest.reducer)
            for r in self.own:
                self.set(component, r, self.write(limit.largest_there, self._row(r, tile, before=False)))
                standing = self.values[component][r]
                moved = tirx.Select(beyond(limit, r) > 0, standing * tirx.const(limit.most, DTYPE), standing)
                self.set(_partial(component), r, exchanged(in_register("own_largest", moved), combine, QUAD))
        for step in self._standing.steps:
            if not isinstance(step, TileReduce):
                self._step(step, tile, first=False, guarded=False)
        scales = [(limit.scale, r) for limit in self._standing.limits for r in self.own]
        return tirx.any(*(self.values[_old(c.reference)][r] != self.values[c.moved][r] for c, r in scales))

    def recall_scales(self) -> None:
        """Scales from their inverses, which are powers of two as they are."""
        for limit in self._standing.limits:
            for r in self.own:
                inverse = T.int32(_BITS_OF_TWO_TO_127) - bits_of(self.values[limit.inverse][r])
                self.set(limit.scale.moved, r, tirx.reinterpret(DTYPE, inverse))

    def across_lanes(self) -> None:
        for component in self.program.stream.row_components:
            if component.symbol not in self.program.across_lanes:
                for r in self.own:
                    whole = exchanged(self.values[component.symbol][r], combiner_of(component.reducer), QUAD)
                    self.set(component.symbol, r, whole)

    def weight(self, symbol: sp.Symbol, ragged: ir.Expr | None, j: ir.Expr, r: int, e: int) -> ir.Expr:
        own = self.elements[symbol] if symbol in self.elements else self.scores[REGISTERS.index(symbol)]
        value = own[register_index(j, r, e)]
        return value if ragged is None else tirx.Select(self._exists(ragged, j, e), value, tirx.const(0, DTYPE))

    def row_symbols(self, row: int) -> Symbols:
        return self._row(row, None, before=False)

    def write_accumulator(
        self, shift: sp.Expr, row: int, tile: ir.Expr, accumulators: Mapping[sp.Symbol, ir.Expr]
    ) -> ir.Expr:
        return self.write(shift, Symbols(accumulators, self._row(row, tile, before=True)))

    def write(
        self,
        expression: sp.Expr,
        symbols: Symbols,
        conditions: Mapping[sp.Symbol, ir.Expr] | None = None,
    ) -> ir.Expr:
        return TilePrinter(symbols, DTYPE, conditions or {}, self.program.offsets)(expression)

    def _each(self, emit: Callable[[ir.Expr, int, int], None]) -> None:
        with T.unroll(self.columns // COLUMNS_PER_STEP) as j:
            for r in self.own:
                for e in NEIGHBOURS:
                    emit(j, r, e)

    def _reduce(self, step: TileReduce, tile: ir.Expr, guarded: bool) -> None:
        combine = combiner_of(step.reducer)
        parts = self._array(_PARTS, len(ROWS) * len(NEIGHBOURS))
        for k in range(len(ROWS) * len(NEIGHBOURS)):
            put(parts, k, identity_of(step.reducer, DTYPE))

        def one(j: ir.Expr, r: int, e: int) -> None:
            lift = self.write(step.lift, self._at(tile, j, r, e, REGISTERS), self._conditions(tile, j, r, e))
            if guarded:
                lift = tirx.Select(self._exists(tile, j, e), lift, identity_of(step.reducer, DTYPE))
            put(parts, 2 * r + e, combine(parts[2 * r + e], lift))

        self._each(one)
        for r in self.own:
            whole = combine(parts[2 * r], parts[2 * r + 1])
            if step.across_lanes:
                self.set(_partial(step.component), r, whole)
                whole = exchanged(self.values[_partial(step.component)][r], combine, QUAD)
            inner = Symbols({PARTIAL: whole}, self._row(r, tile, before=False))
            self.set(_partial(step.component), r, self.write(step.outer, inner))

    def _move(self, step: Move, tile: ir.Expr, first: bool) -> None:
        kind = TirValues(DTYPE)
        for r in self.own:
            stay = self.values[step.moved][r]
            value = self.write(step.value, self._row(r, tile, before=False))
            new = T.Bind(destination(step, value, stay, first, kind))
            old = T.Bind(departure(new, stay, first, kind))
            self.set(step.step, r, displacement(step, new, old, kind))
            if step.reference in self.program.body.remembered:
                self.set(_old(step.reference), r, old)
            self.set(step.moved, r, new)

    def _element(self, step: RegisterElement, tile: ir.Expr) -> None:
        target = self.scores[0] if step.in_place else self._array(step.symbol, self.columns // 2, self.elements)

        def one(j: ir.Expr, r: int, e: int) -> None:
            value = self.write(step.expression, self._at(tile, j, r, e, REGISTERS), self._conditions(tile, j, r, e))
            put(target, register_index(j, r, e), value)

        self._each(one)
        self.elements[step.symbol] = target

    def _row(self, row: int, tile: ir.Expr | None, before: bool) -> Symbols:
        """Symbols with a value per row: references where they have moved to, or where they were (`before`)."""
        known: dict[sp.Symbol, Any] = {s: (lambda s=s: self.values[s][row]) for s in self.values}
        for move in self.program.body.moves:
            where = _old(move.reference) if before and _old(move.reference) in self.values else move.moved
            known[move.reference] = lambda where=where: self.values[where][row]
        return Symbols(known, self._counts(tile, before))

    def _before(self, component: sp.Symbol, row: int, tile: ir.Expr) -> Symbols:
        others = self.program.body.remembered - {component}
        old = {s: (lambda s=s: self.values[_old(s)][row]) for s in others}
        return Symbols(old, self._row(row, tile, before=True))

    def _counts(self, tile: ir.Expr | None, before: bool) -> dict[sp.Symbol, Any]:
        """n, with tiles visited from the last to the first, and N."""
        length = self._length()
        counts: dict[sp.Symbol, Any] = {LENGTH: lambda: tirx.Cast(DTYPE, length)}
        if tile is not None:
            start, end = (tile + 1 if before else tile) * self.columns, length if self.end is None else self.end
            counts[COUNT] = lambda: tirx.Cast(DTYPE, tirx.max(end - start, 0))
        return counts

    def _length(self) -> ir.Expr:
        return kernel_extent(self.program.stream.extent(self.program.stream.position))

    def _at(self, tile: ir.Expr, j: ir.Expr, r: int, e: int, names: Sequence[sp.Symbol]) -> Symbols:
        """Symbols at a position, with names for what is in the registers of scores."""
        index = register_index(j, r, e)
        here: dict[sp.Symbol, Any] = {name: own[index] for name, own in zip(names, self.scores, strict=False)}
        if self.program.near_zero is not None:
            here[NEAR] = partial(self.program.near_zero.value, self.scores[0][index])
        here.update({s: (lambda a=array: a[index]) for s, array in self.elements.items()})
        for symbol, expression in self.program.position_inputs.items():
            here[symbol] = lambda x=expression: self._position_input(x, tile, j, r, e)
        place = self.place.lane_column + j * COLUMNS_PER_STEP + e
        here.update({s: partial(value, place) for s, value in self.rows_along.items()})
        return Symbols(here, self._row(r, tile, before=False))

    def _conditions(self, tile: ir.Expr, j: ir.Expr, r: int, e: int) -> dict[sp.Symbol, ir.Expr]:
        return {s: self._position_input(x, tile, j, r, e) for s, x in self.program.conditions.items()}

    def _position_input(self, expression: ir.Expr, tile: ir.Expr, j: ir.Expr, r: int, e: int) -> ir.Expr:
        """An input at a position; out-of-bounds rows and positions read the last one."""
        stream = self.program.stream
        base, offset = tile * self.columns + self.place.lane_column, j * COLUMNS_PER_STEP + e
        number = as_number(expression, stream.position, base, offset)
        if number is not None:
            return self._input(number, {stream.row: self.place.rows[r]})
        at, row = base + offset, self.place.rows[r]
        if self._reads(expression):
            at, row = tirx.min(at, self._length() - 1), self._row_in_bounds(r)
        return self._input(expression, {stream.position: at, stream.row: row})

    def _exists(self, tile: ir.Expr, j: ir.Expr, e: int) -> ir.Expr:
        return tile * self.columns + self.place.lane_column + (j * COLUMNS_PER_STEP + e) < self._length()

    def _reads(self, expression: ir.Expr) -> bool:
        """Whether it reads a tensor in memory."""
        return any(load.source in self.place.buffers for load in loads_of(expression))

    def _row_in_bounds(self, r: int) -> ir.Expr:
        return tirx.min(self.place.rows[r], kernel_extent(self.program.stream.extent(self.program.stream.row)) - 1)

    def _input(self, expression: ir.Expr, values: dict[tirx.Var, ir.Expr]) -> ir.Expr:
        return placed(expression, {**self.place.batch, **values}, self.place.buffers)

    def _array(self, symbol: sp.Symbol, count: int, table: dict[sp.Symbol, Any] | None = None) -> Any:
        table = self.values if table is None else table
        if symbol not in table:
            table[symbol] = registers(str(symbol), count)
        return table[symbol]

    def set(self, symbol: sp.Symbol, row: int, value: ir.Expr) -> None:
        put(self._array(symbol, len(ROWS)), row, value)


def values_read(program: TileProgram, expression: sp.Expr) -> set[sp.Symbol]:
    """The keys of `RowFold.values` that an expression reads, with references where they were before a tile."""
    body = program.body
    at = {m.reference: _old(m.reference) if m.reference in body.remembered else m.moved for m in body.moves}
    products = {product.component.symbol for product in program.stream.products}
    return {at.get(symbol, symbol) for symbol in expression.free_symbols} - products - {COUNT, LENGTH}


def _old(symbol: sp.Symbol) -> sp.Symbol:
    return sp.Symbol(f"{symbol}_old", real=True)


def _partial(symbol: sp.Symbol) -> sp.Symbol:
    return sp.Symbol(f"{symbol}_tile", real=True)
