"""A thread's share of a row program: the steps that fold a chunk of positions into its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.cascade import COUNT, LENGTH
from tvm_cascade.algebra.fold import Reference
from tvm_cascade.algebra.offsets import Offsets
from tvm_cascade.analysis.reducers import combiner_of, identity_of
from tvm_cascade.steps.move import destination, displacement
from tvm_cascade.steps.program import move_of
from tvm_cascade.tile.emit import bind, held, put, registers
from tvm_cascade.tile.fragment import Symbols, TilePrinter
from tvm_cascade.tile.merge.combine import combined
from tvm_cascade.tile.row.program import RowProgram
from tvm_cascade.tile.state import COUNTER, State
from tvm_cascade.tile.steps import PARTIAL, Combine, ElementValue, FoldTuple, Move, Reduce, RowValue, Step
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
    count : how many they are.
    each : runs what it is given for every position, by its number in the chunk.
    inputs, conditions : what the program reads at a position, as far as it is among some symbols.
    exists : whether a position is one; None where all are.
    existing : how many are.
    first : the state is empty, as far as is known when the kernel is written; None for unknown.
    """

    count: int
    each: Callable[[Callable[[Any], None]], None]
    inputs: Callable[[Any, set[sp.Symbol]], dict[sp.Symbol, Any]]
    conditions: Callable[[Any, set[sp.Symbol]], dict[sp.Symbol, ir.Expr]]
    exists: Callable[[Any], ir.Expr] | None
    existing: ir.Expr
    first: bool | None


class ChunkFold:
    """Emits the fold of chunks.

    Parameters
    ----------
    length : N as a number.
    """

    def __init__(self, program: RowProgram, state: State, row_values: Mapping[sp.Symbol, Any], length: ir.Expr) -> None:
        self.program, self.state, self.row_values, self.length = program, state, row_values, length
        self.dtype = program.reference_dtype
        self.offsets = Offsets.of_fold(state.fold)
        self.values: dict[sp.Symbol, Any] = {}
        self.old: dict[sp.Symbol, Any] = {}
        self.elements: dict[sp.Symbol, Any] = {}
        self.computed: list[ElementValue] = []

    def fold(self, chunk: Chunk) -> None:
        """Folds a chunk into the state."""
        self.chunk = chunk
        self.values, self.old, self.elements, self.computed = {}, {}, {}, []
        self.before = bind("count_before", self.state.count)
        self.state.counter.put(self.before + chunk.existing)
        for symbol in sorted(self.program.remembered, key=str):
            self._set(self.old, symbol, f"{symbol}_old", self._current(symbol), self._dtype_of(symbol))
        runs = list(_runs(self.program.steps))
        for at, run in enumerate(runs):
            if isinstance(run, list):
                later = [step for other in runs[at + 1 :] if isinstance(other, list) for step in other]
                self._pass(run, set().union(*map(_expressions, later)))
            elif isinstance(run, Combine):
                self._combine(run)
            elif isinstance(run, Move):
                self._move(run.reference)
            elif isinstance(run, RowValue):
                self._set(self.values, run.symbol, str(run.symbol), self._write(run.expression, self._moves()))

    def _dtype_of(self, symbol: sp.Symbol) -> str:
        return self.program.dtypes.get(symbol, self.dtype)

    def _current(self, symbol: sp.Symbol) -> ir.Expr:
        return self.state.symbols()[symbol]()

    def _pass(self, steps: list[Step], later: set[sp.Symbol]) -> None:
        """One pass over the chunk: values per position, and everything that is reduced from them.

        Values that later passes read are kept where the chunk is short, and computed again where it is long.
        """
        kept = [step.symbol for step in steps if isinstance(step, ElementValue) and step.symbol in later]
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

        read = set().union(*(_expressions(step) for step in steps))

        def one(k: Any) -> None:
            here = {s: bind(str(s), value) for s, value in self.chunk.inputs(k, read).items()}
            conditions = self.chunk.conditions(k, read)
            kept_here = {s: (lambda a=a: a[k]) for s, a in self.elements.items()}
            symbols = Symbols(here, kept_here, self._row())
            for step in steps:
                if isinstance(step, ElementValue):
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
                elif isinstance(step, FoldTuple):
                    self._fold_tuple(step, symbols, conditions, k)

        self.chunk.each(one)
        for step in steps:
            if isinstance(step, Reduce):
                part, combine = parts[step.component], combiner_of(step.reducer)
                whole = part[0]
                for j in range(1, chains):
                    whole = combine(whole, part[j])
                outer = self._write(step.outer, Symbols({PARTIAL: whole}, self._row()), self._dtype_of(step.component))
                self._set(self.values, _partial(step.component), str(_partial(step.component)), outer,
                          self._dtype_of(step.component))  # fmt: skip

    def _again(self, steps: list[Step]) -> list[Step]:
        """The values of earlier passes that are not kept and that some steps read, and those that these read."""
        needed = set().union(*map(_expressions, steps))
        again: list[Step] = []
        for value in reversed(self.computed):
            if value.symbol in needed and value.symbol not in self.elements:
                needed |= _expressions(value)
                again.insert(0, value)
        self.computed += [step for step in steps if isinstance(step, ElementValue)]
        return again

    def _fold_tuple(self, step: FoldTuple, symbols: Symbols, conditions: dict[sp.Symbol, ir.Expr], k: Any) -> None:
        dtypes = self.state.dtypes
        own = {c.symbol: self.state.components[c.symbol][0] for c in step.unit}
        new = {
            c.symbol: held(f"{c.symbol}_lift", self._write(lift, symbols, dtypes[c.symbol], conditions))
            for c, lift in zip(step.unit, step.lifts, strict=True)
        }
        values = {s: held(f"{s}_new", e) for s, e in combined(step.unit, own, new, dtypes).items()}
        for symbol, value in values.items():
            kept = value if self.chunk.exists is None else tirx.Select(self.chunk.exists(k), value, own[symbol])
            values[symbol] = held(f"{symbol}_kept", kept)
        for symbol, value in values.items():
            self.state.components[symbol].put(value)

    def _combine(self, step: Combine) -> None:
        part, dtype = self.state.components[step.component], self._dtype_of(step.component)
        partial = self.values[_partial(step.component)][0]
        if self.chunk.first:
            part.put(partial)
            return
        old = {s: (lambda a=a: a[0]) for s, a in self.old.items() if s != step.component}
        shifted = self._write(step.shift, Symbols(old, self._moves()), dtype)
        part.put(combiner_of(step.reducer)(shifted, partial))

    def _move(self, reference: Reference) -> None:
        part = self.state.references[reference.symbol]
        stay = part[0]
        value = bind("target", self._write(reference.value, self._row()))
        first = self._first()
        move, kind = move_of(reference, self.program.decay.get(reference.symbol)), TirValues(self.dtype)
        new = bind("moved", destination(move, value, stay, first, kind))
        step = displacement(move, new, stay, kind)
        step = tirx.Select(first, tirx.const(0, self.dtype), step)
        self._set(self.values, reference.step, str(reference.step), step)
        if self.chunk.first is not False and reference.symbol in self.old:
            # The state is the identity: it stands wherever it moves to.
            put(self.old[reference.symbol], 0, tirx.Select(first, new, stay))
        part.put(new)

    def _first(self) -> ir.Expr:
        known = self.chunk.first
        return tirx.EQ(self.before, tirx.const(0, COUNTER)) if known is None else tirx.const(known, "bool")

    def _row(self) -> Symbols:
        """Values per row, with references where they have moved to, and n with this chunk."""
        values = {s: (lambda a=a: a[0]) for s, a in self.values.items()}
        return Symbols(values, self.row_values, {COUNT: lambda: self.state.count, LENGTH: self.length},
                       self.state.symbols())  # fmt: skip

    def _moves(self) -> Symbols:
        """Values per row, with references where they were, and n without this chunk."""
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
        return TilePrinter(symbols, dtype or self.dtype, conditions or {}, self.offsets)(expression)

    def _set(
        self, table: dict[sp.Symbol, Any], symbol: sp.Symbol, name: str, value: ir.Expr, dtype: str | None = None
    ) -> None:
        if symbol not in table:
            table[symbol] = registers(name, 1, dtype or self.dtype)
        put(table[symbol], 0, value)


def _runs(steps: tuple[Step, ...]) -> Iterator[Step | list[Step]]:
    """Steps over positions that follow each other, together; the others one by one."""
    run: list[Step] = []
    for step in steps:
        if isinstance(step, (Reduce, ElementValue, FoldTuple)):
            run.append(step)
            continue
        if run:
            yield run
        run = []
        yield step
    if run:
        yield run


def _partial(symbol: sp.Symbol) -> sp.Symbol:
    return sp.Symbol(f"{symbol}_chunk", real=True)


def _expressions(step: Step) -> set[sp.Symbol]:
    """The symbols that a step over positions reads."""
    if isinstance(step, Reduce):
        return set(step.lift.free_symbols)
    if isinstance(step, ElementValue):
        return set(step.expression.free_symbols)
    return set().union(*(lift.free_symbols for lift in step.lifts)) if isinstance(step, FoldTuple) else set()
