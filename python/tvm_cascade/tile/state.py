"""The state of a fold for one row in a thread: components, references, and the count of positions.

    scalar      one register: every thread that shares the row has the value, or a state of its own positions
    fragment    several registers: the thread's elements of a vector along an axis of outputs, as an accumulator of
                the tensor cores spreads it over threads

A thread with several rows has a state for each. Merge levels (`tile.merge`) bring states of the same row together;
threads that exchange fragments have the same elements of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy as sp
from tvm import ir, tirx
from tvm.tirx.script import builder as T

from tvm_cascade.algebra.fold import Fold
from tvm_cascade.analysis.reducers import identity_of
from tvm_cascade.analysis.tir import dtype_of
from tvm_cascade.tile.emit import put, registers

COUNTER = "int32"
"""The dtype in which a state's positions are counted."""

Number: TypeAlias = ir.Expr | int
"""The number of a register: known, or that of an unrolled loop."""


def _itself(number: Number) -> Number:
    return number


@dataclass(frozen=True)
class PartForm:
    """The registers of one component, reference or count in a thread.

    Attributes
    ----------
    dtype : of each register.
    width : registers; 1 of a scalar.
    """

    dtype: str
    width: int = 1

    @contextmanager
    def each(self) -> Iterator[Number]:
        if self.width == 1:
            yield 0
            return
        with T.unroll(self.width) as number:
            yield number


@dataclass(frozen=True)
class Part:
    """The registers of one component, reference or count, of one row.

    Attributes
    ----------
    array : that they are in.
    width : how many.
    place : the number of a register -> where it is in the array.
    """

    array: Any
    width: int = 1
    place: Callable[[Number], Number] = _itself

    @property
    def dtype(self) -> str:
        return dtype_of(self.array)

    @property
    def form(self) -> PartForm:
        return PartForm(self.dtype, self.width)

    def __getitem__(self, number: Number) -> ir.Expr:
        return self.array[self.place(number)]

    def put(self, value: ir.Expr, number: Number = 0) -> None:
        put(self.array, self.place(number), value)

    def each(self) -> AbstractContextManager[Number]:
        return self.form.each()


class State:
    """The state of a row. A state of no positions is the identity of merging.

    Attributes
    ----------
    components, references : their registers; references are scalars.
    counter : of positions that are folded in.
    """

    def __init__(
        self, fold: Fold, components: Mapping[sp.Symbol, Part], references: Mapping[sp.Symbol, Part], counter: Part
    ) -> None:
        self.fold, self.components, self.references, self.counter = fold, components, references, counter

    @classmethod
    def in_registers(
        cls,
        fold: Fold,
        dtypes: Mapping[sp.Symbol, str],
        reference_dtype: str,
        suffix: str = "",
        widths: Mapping[sp.Symbol, int] | None = None,
    ) -> State:
        def part(symbol: sp.Symbol, dtype: str) -> Part:
            width = (widths or {}).get(symbol, 1)
            return Part(registers(f"{symbol}{suffix}", width, dtype), width)

        components = {c.symbol: part(c.symbol, dtypes[c.symbol]) for c in fold.components if c.symbol in dtypes}
        references = {r.symbol: part(r.symbol, reference_dtype) for r in fold.references}
        return cls(fold, components, references, Part(registers(f"count{suffix}", 1, COUNTER)))

    def another(self, suffix: str) -> State:
        """A state of the same scalars, without fragments."""
        dtypes = {symbol: part.dtype for symbol, part in self.scalars.items()}
        return State.in_registers(self.fold, dtypes, self.reference_dtype, suffix)

    @property
    def dtypes(self) -> dict[sp.Symbol, str]:
        return {symbol: part.dtype for symbol, part in self.components.items()}

    @property
    def reference_dtype(self) -> str:
        return next((part.dtype for part in self.references.values()), "float32")

    @property
    def scalars(self) -> dict[sp.Symbol, Part]:
        return {symbol: part for symbol, part in self.components.items() if part.width == 1}

    @property
    def fragments(self) -> dict[sp.Symbol, Part]:
        return {symbol: part for symbol, part in self.components.items() if part.width > 1}

    @property
    def parts(self) -> list[Part]:
        return [*self.components.values(), *self.references.values(), self.counter]

    @property
    def form(self) -> list[PartForm]:
        return [part.form for part in self.parts]

    def each_register(self) -> Iterator[tuple[int, Part, Number]]:
        """All registers by the number of their part, around the statements of a loop's body."""
        for k, part in enumerate(self.parts):
            with part.each() as number:
                yield k, part, number

    @property
    def count(self) -> ir.Expr:
        return self.counter[0]

    @property
    def empty(self) -> ir.Expr:
        return tirx.EQ(self.counter[0], tirx.const(0, COUNTER))

    def clear(self) -> None:
        """The identity."""
        for symbol, part in self.components.items():
            with part.each() as number:
                part.put(self.identity(symbol), number)
        for reference in self.fold.references:
            self.references[reference.symbol].put(tirx.const(int(reference.scale), self.reference_dtype))
        self.counter.put(tirx.const(0, COUNTER))

    def identity(self, component: sp.Symbol) -> ir.Expr:
        reducer = next(c.reducer for c in self.fold.components if c.symbol == component)
        return identity_of(reducer, self.components[component].dtype)

    def copy(self, other: State) -> None:
        for symbol, part in other.scalars.items():
            self.components[symbol].put(part[0])
        for symbol, part in other.references.items():
            self.references[symbol].put(part[0])
        self.counter.put(other.count)

    def symbols(self, number: Number = 0) -> dict[sp.Symbol, Any]:
        """The values of components (fragments at one register) and current references."""
        known: dict[sp.Symbol, Any] = {s: (lambda p=p: p[0]) for s, p in self.scalars.items()}
        known |= {s: (lambda p=p: p[number]) for s, p in self.fragments.items()}
        for reference in self.fold.references:
            part = self.references[reference.symbol]
            known[reference.symbol] = known[reference.moved] = lambda part=part: part[0]
        return known
