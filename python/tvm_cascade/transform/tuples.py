"""In-place combination of tuples: one block with one store a component, ordered by anti-dependences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import Reducer, first, second
from tvm_cascade.analysis.reducers import identity_of
from tvm_cascade.analysis.tir import dtype_of, in_turn
from tvm_cascade.transform.nest import Iter, NestBuilder, Values, load, store
from tvm_cascade.transform.printer import Printer

Keep = Callable[[ir.Expr, ir.Expr, Values], ir.Expr]
"""Of the new and the old value, what is stored at a point of a block's domain."""


class Part(Protocol):
    """One part of a tuple: a component of a fold, or a result of a program."""

    @property
    def symbol(self) -> sp.Symbol:
        """What it is called."""

    @property
    def reducer(self) -> Reducer:
        """Of the part, with the tuple's own."""


@dataclass(frozen=True)
class Cell:
    """The storage of a tuple's component at a point of a block's domain."""

    buffer: tirx.Var
    indices: Sequence[ir.Expr]

    @property
    def dtype(self) -> str:
        return dtype_of(self.buffer)

    def read(self) -> ir.Expr:
        return load(self.buffer, self.indices)


def started(unit: Sequence[Part], cells: Mapping[sp.Symbol, Cell]) -> list[tirx.Stmt]:
    """Every part at the identity."""
    return [
        store(cells[c.symbol].buffer, identity_of(c.reducer, cells[c.symbol].dtype), cells[c.symbol].indices)
        for c in unit
    ]


def combined(
    unit: Sequence[Part],
    cells: Mapping[sp.Symbol, Cell],
    values: Mapping[sp.Symbol, ir.Expr],
    constants: Mapping[sp.Symbol, sp.Expr],
    keep: Callable[[ir.Expr, ir.Expr], ir.Expr],
) -> list[tirx.Stmt]:
    """cells = cells ∘ values.

    Parameters
    ----------
    values : of the second argument, by component.
    constants : forms of the second argument, taken where there is no value: comparisons with them decide themselves.
    keep : of the new and the old value, what is stored.
    """
    whole = unit[0].reducer.whole
    assert whole is not None
    parts = {c.reducer.part: c for c in unit}
    fixed = {second(k): constants[c.symbol] for k, c in parts.items() if c.symbol not in values}
    bindings = {first(k): cells[c.symbol].read() for k, c in parts.items()}
    bindings |= {second(k): values[c.symbol] for k, c in parts.items() if c.symbol in values}
    new: dict[int, ir.Expr] = {}
    for k, c in parts.items():
        written = Printer(bindings, cells[c.symbol].dtype, {})(whole.combined[k].xreplace(fixed))
        new[k] = keep(written, cells[c.symbol].read())
    last_first = sorted(parts, reverse=True)
    order, mutual = in_turn({k: [o for o in parts if o != k and k in whole.reads(o)] for k in last_first})
    statements: list[tirx.Stmt] = []
    for k in reversed(mutual):
        bound = tirx.Var(f"{parts[k].symbol}_new", cells[parts[k].symbol].dtype)
        statements.append(tirx.Bind(bound, new[k]))
        new[k] = bound
    cells_in_order = [(k, cells[parts[k].symbol]) for k in (*order, *reversed(mutual))]
    return statements + [store(cell.buffer, new[k], cell.indices) for k, cell in cells_in_order]


def tuple_nest(
    nests: NestBuilder,
    name: str,
    role: str,
    iters: Sequence[Iter],
    unit: Sequence[Part],
    cells: Callable[[Values], Mapping[sp.Symbol, Cell]],
    values: Callable[[Values], Mapping[sp.Symbol, ir.Expr]],
    keep: Keep | None,
    constants: Mapping[sp.Symbol, sp.Expr],
) -> tirx.Stmt:
    """A nest that combines values of every point into the cells of a tuple, which start at the identity."""

    def body(at: Values) -> list[tirx.Stmt]:
        chosen = (lambda new, old: keep(new, old, at)) if keep is not None else (lambda new, _old: new)
        return combined(unit, cells(at), values(at), constants, chosen)

    return nests.nest(name, role, iters, body, lambda at: started(unit, cells(at)))
