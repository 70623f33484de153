"""A thread's part of a row program: folds a chunk of positions into its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.cascade import COUNT
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.steps.move import departure, destination, displacement
from tvm_cascade.steps.program import Combine, Element, Move, OverPositions, Reduce, Scale, Shift, Step, Tuple
from tvm_cascade.tile.emit import bind, in_register, put, registers, when
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.merge.combine import combined
from tvm_cascade.tile.merge.ranks import has_one_element, ranks_of
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.state import COUNTER, State
from tvm_cascade.transform.values import TirValues

_CHAINS = 4
"""Independent chains that a reduction over a chunk runs in."""

_KEPT_VALUES = 32
"""Values per position that a thread keeps from one pass over its chunk to the next."""


@dataclass(frozen=True)
class Chunk:
    """Positions that a thread folds together.

    Attributes
    ----------
    vector : neighbours among them, which a loop of its own runs over; 0 where each is written out, without loops.
    value : an expression over the frame at a position, by its number.
    exists : whether a position is one; None where all are.
    existing : how many are.
    first : the state is empty, as far as is known when the kernel is written; None for unknown.
    """

    count: int
    vector: int
    value: Callable[[ir.Expr, Any], ir.Expr]
    exists: Callable[[Any], ir.Expr] | None
    existing: ir.Expr
    first: bool | None

    def each(self, emit: Callable[[Any], None]) -> None:
        if not self.vector:
            for k in range(self.count):
                emit(k)
            return
        with T.unroll(self.count // self.vector) as k, T.unroll(self.vector) as e:
            emit(k * self.vector + e)

    def values(self, table: Mapping[sp.Symbol, ir.Expr], k: Any, read: set[sp.Symbol]) -> dict[sp.Symbol, ir.Expr]:
        return {symbol: self.value(expression, k) for symbol, expression in table.items() if symbol in read}


class ChunkFold:
    """Emits the fold of chunks.

    Parameters
    ----------
    row_values : what has one value a row; see `Point`.
    """

    def __init__(self, program: RowProgram, state: State, row_values: Mapping[sp.Symbol, Any]) -> None:
        self.program, self.state, self.row_values = program, state, row_values
        self.dtype = program.reference_dtype
        self.values: dict[sp.Symbol, Any] = {}
        self.old: dict[sp.Symbol, Any] = {}
        self.elements: dict[sp.Symbol, Any] = {}
        self.computed: list[Element] = []

    def fold(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.values, self.old, self.elements, self.computed = {}, {}, {}, []
        self.shifted: dict[sp.Symbol, ir.Expr] = {}
        self.before = bind("count_before", self.state.count)
        self.state.counter.put(self.before + chunk.existing)
        for symbol in sorted(self.program.body.remembered & self.state.components.keys(), key=str):
            self._set(self.old, symbol, f"{symbol}_old", self.state.components[symbol][0], self._dtype_of(symbol))
        runs = list(_runs(self.program.body.steps))
        for at, run in enumerate(runs):
            if isinstance(run, list):
                later = [step for other in runs[at + 1 :] if isinstance(other, list) for step in other]
                self._pass(run, _read_by(later))
            else:
                self._step(run)

    def _step(self, step: Step) -> None:
        if isinstance(step, Move):
            self._move(step)
        elif isinstance(step, Scale):
            self._set(self.values, step.symbol, str(step.symbol), self._write(step.expression, self._moves()))
        elif isinstance(step, Shift):
            old = {s: (lambda a=a: a[0]) for s, a in self.old.items() if s != step.component}
            symbols = Symbols(old, self._moves())
            self.shifted[step.component] = self._write(step.expression, symbols, self._dtype_of(step.component))
        elif isinstance(step, Combine):
            for component, reducer in step.combined:
                share = self.values[_share(component)][0]
                if not self.chunk.first:  # an empty state is the identity
                    share = combiner_of(reducer)(self.shifted[component], share)
                self.state.components[component].put(share)

    def _dtype_of(self, symbol: sp.Symbol) -> str:
        return self.program.dtypes.get(symbol, self.dtype)

    def _pass(self, steps: list[OverPositions], later: set[sp.Symbol]) -> None:
        """One pass over the chunk: values per position, and everything that is reduced from them.

        Values that later passes read are kept where the chunk is short, and computed again where it is long.
        """
        kept = [step.symbol for step in steps if isinstance(step, Element) and step.symbol in later]
        if self.chunk.count <= _KEPT_VALUES:
            self.elements |= {
                symbol: registers(f"{symbol}_kept", self.chunk.count, self._dtype_of(symbol)) for symbol in kept
            }
        steps = [*self._again(steps), *steps]
        parts: dict[sp.Symbol, Any] = {}
        chains = min(_CHAINS, self.chunk.count)
        for step in steps:
            if isinstance(step, Reduce):
                dtype = self._dtype_of(step.component)
                parts[step.component] = registers(f"{step.component}_parts", chains, dtype)
                for k in range(chains):
                    put(parts[step.component], k, identity_of(step.reducer, dtype))
        read = _read_by(steps)
        selections = {
            step: found for step in steps if isinstance(step, Tuple) and (found := self._elements_of(step)) is not None
        }

        def one(k: Any) -> None:
            inputs = self.chunk.values(self.program.position_inputs, k, read)
            conditions = self.chunk.values(self.program.conditions, k, read)
            here = {s: bind(str(s), value) for s, value in inputs.items()}
            kept_here = {s: (lambda a=a: a[k]) for s, a in self.elements.items()}
            symbols = Symbols(here, kept_here, self._row())
            for step in steps:
                if isinstance(step, Element):
                    written = self._write(step.expression, symbols, self._dtype_of(step.symbol), conditions)
                    here[step.symbol] = bind(str(step.symbol), written)
                    if step.symbol in self.elements:
                        put(self.elements[step.symbol], k, here[step.symbol])
                elif isinstance(step, Reduce):
                    dtype = self._dtype_of(step.component)
                    lift = self._write(step.lift, symbols, dtype, conditions)
                    if self.chunk.exists is not None:
                        lift = tirx.Select(self.chunk.exists(k), lift, identity_of(step.reducer, dtype))
                    part = parts[step.component]
                    put(part, k % chains, combiner_of(step.reducer)(part[k % chains], lift))
                elif isinstance(step, Tuple) and step in selections:
                    self._put_element(step, selections[step], symbols, conditions, k)
                elif isinstance(step, Tuple):
                    self._fold_tuple(step, symbols, conditions, k)

        self.chunk.each(one)
        for step, elements in selections.items():
            self._select(step, elements)
        for step in steps:
            if isinstance(step, Reduce):
                part, share = parts[step.component], _share(step.component)
                whole = part[0]
                for j in range(1, chains):
                    whole = combiner_of(step.reducer)(whole, part[j])
                self._set(self.values, share, str(share), whole, self._dtype_of(step.component))

    def _again(self, steps: list[OverPositions]) -> list[OverPositions]:
        """The values of earlier passes that are not kept and that some steps read, and those that these read."""
        needed = _read_by(steps)
        again: list[OverPositions] = []
        for value in reversed(self.computed):
            if value.symbol in needed and value.symbol not in self.elements:
                needed |= _read_by([value])
                again.insert(0, value)
        self.computed += [step for step in steps if isinstance(step, Element)]
        return again

    def _elements_of(self, step: Tuple) -> dict[int, Any] | None:
        """Registers for what positions lift to, by role, where a step selects among them; None where it does not."""
        ranks = ranks_of(step, self.state.dtypes) if has_one_element(step) else None
        if ranks is None:
            return None
        return {
            role: registers(f"{symbol}_elements", self.chunk.count, self.state.dtypes[symbol])
            for role, symbol in ranks.symbols[0].items()
        }

    def _put_element(
        self, step: Tuple, elements: dict[int, Any], symbols: Symbols, conditions: dict[sp.Symbol, ir.Expr], k: Any
    ) -> None:
        """What a position lifts to; the bottom of the order where there is none."""
        for role, array in elements.items():
            at = step.parts.index(role)
            component, dtype = step.components[at], self.state.dtypes[step.components[at]]
            lift = self._write(step.lifts[at], symbols, dtype, conditions)
            if self.chunk.exists is not None:
                lift = tirx.Select(self.chunk.exists(k), lift, self.state.identity(component))
            put(array, k, lift)

    def _select(self, step: Tuple, elements: dict[int, Any]) -> None:
        """The best of the state and of the chunk; nothing is done where the chunk has none that is among the best."""
        dtypes = self.state.dtypes
        ranks = ranks_of(step, dtypes)
        assert ranks is not None
        found = [{role: array[k] for role, array in elements.items()} for k in range(self.chunk.count)]
        own = {s: self.state.components[s][0] for s in step.components}
        known = None if self.chunk.first else own
        with nullcontext() if known is None else when(ranks.may_enter(own, found)):
            for symbol, value in ranks.merge_with(known, found).items():
                self.state.components[symbol].put(value)

    def _fold_tuple(self, step: Tuple, symbols: Symbols, conditions: dict[sp.Symbol, ir.Expr], k: Any) -> None:
        dtypes = self.state.dtypes
        own = {s: self.state.components[s][0] for s in step.components}
        new = {
            s: in_register(f"{s}_lift", self._write(lift, symbols, dtypes[s], conditions))
            for s, lift in zip(step.components, step.lifts, strict=True)
        }
        values = {s: in_register(f"{s}_new", e) for s, e in combined(step, own, new, dtypes).items()}
        for symbol, value in values.items():
            kept = value if self.chunk.exists is None else tirx.Select(self.chunk.exists(k), value, own[symbol])
            values[symbol] = in_register(f"{symbol}_kept", kept)
        for symbol, value in values.items():
            self.state.components[symbol].put(value)

    def _move(self, step: Move) -> None:
        part, kind, empty = self.state.references[step.reference], TirValues(self.dtype), self._empty()
        value = bind("target", self._write(step.value, self._row()))
        new = bind("moved", destination(step, value, part[0], empty, kind))
        self._set(self.values, step.step, str(step.step), displacement(step, new, part[0], kind, empty))
        if step.reference in self.program.body.remembered:
            self._set(self.old, step.reference, f"{step.reference}_old", departure(new, part[0], empty, kind))
        part.put(new)

    def _empty(self) -> ir.Expr | bool:
        known = self.chunk.first
        return tirx.EQ(self.before, tirx.const(0, COUNTER)) if known is None else known

    def _row(self) -> Symbols:
        """Values per row, with references where they have moved to, and n with this chunk."""
        values = {s: (lambda a=a: a[0]) for s, a in self.values.items()}
        return Symbols(values, self.row_values, {COUNT: lambda: self.state.count},
                       self.state.symbols())  # fmt: skip

    def _moves(self) -> Symbols:
        references = {r.symbol for r in self.state.fold.references}
        old = {s: (lambda a=a: a[0]) for s, a in self.old.items() if s in references}
        return Symbols(old, {COUNT: self.before}, self._row())

    def _write(
        self,
        expression: sp.Expr,
        symbols: Symbols,
        dtype: str | None = None,
        conditions: Mapping[sp.Symbol, ir.Expr] | None = None,
    ) -> ir.Expr:
        return TilePrinter(symbols, dtype or self.dtype, conditions or {}, self.program.offsets)(expression)

    def _set(
        self, table: dict[sp.Symbol, Any], symbol: sp.Symbol, name: str, value: ir.Expr, dtype: str | None = None
    ) -> None:
        if symbol not in table:
            table[symbol] = registers(name, 1, dtype or self.dtype)
        put(table[symbol], 0, value)


def _runs(steps: tuple[Step, ...]) -> Iterator[Step | list[OverPositions]]:
    """Steps over positions that follow each other, together; the others one by one."""
    run: list[OverPositions] = []
    for step in steps:
        if isinstance(step, OverPositions):
            run.append(step)
            continue
        if run:
            yield run
        run = []
        yield step
    if run:
        yield run


def _share(component: sp.Symbol) -> sp.Symbol:
    return sp.Symbol(f"{component}_chunk", real=True)


def _read_by(steps: Iterable[OverPositions]) -> set[sp.Symbol]:
    return {symbol for step in steps for lift in step.lifts for symbol in lift.free_symbols}
