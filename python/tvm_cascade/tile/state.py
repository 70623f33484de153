"""The state of a fold in a thread's registers: components, references, and how many positions it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.fold import Component, Fold
from tvm_cascade.analysis.reducers import identity_of
from tvm_cascade.tile.emit import put, registers
from tvm_cascade.tile.fragment import Symbols

COUNTER = "int32"
"""The dtype in which a state's positions are counted."""


class State:
    """A fold's state. Every part is one register; a state of no positions is the identity of merging.

    Parameters
    ----------
    dtypes : of the components.
    reference_dtype : of the references.
    """

    def __init__(self, fold: Fold, dtypes: Mapping[sp.Symbol, str], reference_dtype: str, suffix: str = "") -> None:
        self.fold, self.dtypes, self.reference_dtype, self.suffix = fold, dtypes, reference_dtype, suffix
        self.components = {c.symbol: self._register(c.symbol, dtypes[c.symbol]) for c in fold.components}
        self.references = {r.symbol: self._register(r.symbol, reference_dtype) for r in fold.references}
        self.counter = registers(f"count{suffix}", 1, COUNTER)

    def _register(self, symbol: sp.Symbol, dtype: str) -> Any:
        return registers(f"{symbol}{self.suffix}", 1, dtype)

    def another(self, suffix: str) -> State:
        """Registers for a second state of the same fold."""
        return State(self.fold, self.dtypes, self.reference_dtype, suffix)

    @property
    def parts(self) -> list[Any]:
        """All registers, in one order."""
        return [*self.components.values(), *self.references.values(), self.counter]

    @property
    def count(self) -> ir.Expr:
        """Positions that are folded in."""
        return self.counter[0]

    @property
    def empty(self) -> ir.Expr:
        """Whether nothing is folded in."""
        return tirx.EQ(self.counter[0], tirx.const(0, COUNTER))

    def clear(self) -> None:
        """The identity."""
        for component in self.fold.components:
            put(self.components[component.symbol], 0, self.identity(component))
        for reference in self.fold.references:
            put(self.references[reference.symbol], 0, tirx.const(int(reference.scale), self.reference_dtype))
        put(self.counter, 0, tirx.const(0, COUNTER))

    def identity(self, component: Component) -> ir.Expr:
        """⊕'s neutral element."""
        return identity_of(component.reducer, self.dtypes[component.symbol])

    def copy(self, other: State) -> None:
        """Takes another state's place."""
        for mine, its in zip(self.parts, other.parts, strict=True):
            put(mine, 0, its[0])

    def symbols(self) -> dict[sp.Symbol, Any]:
        """Components, and references where they stand."""
        known: dict[sp.Symbol, Any] = {s: (lambda a=a: a[0]) for s, a in self.components.items()}
        for reference in self.fold.references:
            array = self.references[reference.symbol]
            known[reference.symbol] = known[reference.moved] = lambda a=array: a[0]
        return known

    def read(self, *over: Mapping[sp.Symbol, Any]) -> Symbols:
        """The state's symbols under those of other tables."""
        return Symbols(*over, self.symbols())
