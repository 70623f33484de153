"""In-place combination of tuples: one block with one store a component, ordered by anti-dependences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp
from tvm import ir, tirx

from tvm_cascade.algebra.reducer import Reducer, first, second
from tvm_cascade.analysis.tir import dtype_of, in_turn
from tvm_cascade.transform.nest import Values, load, store
from tvm_cascade.transform.printer import Printer

Keep = Callable[[ir.Expr, ir.Expr, Values], ir.Expr]
"""Of the new and the old value, what is stored at a point of a block's domain."""


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


def combined(
    reducers: Mapping[sp.Symbol, Reducer],
    cells: Mapping[sp.Symbol, Cell],
    values: Mapping[sp.Symbol, ir.Expr],
    constants: Mapping[sp.Symbol, sp.Expr],
    keep: Callable[[ir.Expr, ir.Expr], ir.Expr],
) -> list[tirx.Stmt]:
    """cells = cells ∘ values.

    Parameters
    ----------
    reducers : of each part, with the tuple's own.
    values : of the second argument, by part.
    constants : forms of the second argument, taken where there is no value: comparisons with them decide themselves.
    keep : of the new and the old value, what is stored.
    """
    whole = next(iter(reducers.values())).whole
    assert whole is not None
    parts = {reducer.part: symbol for symbol, reducer in reducers.items()}
    fixed = {second(k): constants[s] for k, s in parts.items() if s not in values}
    bindings = {first(k): cells[s].read() for k, s in parts.items()}
    bindings |= {second(k): values[s] for k, s in parts.items() if s in values}
    new: dict[int, ir.Expr] = {}
    for k, s in parts.items():
        written = Printer(bindings, cells[s].dtype, {})(whole.combined[k].xreplace(fixed))
        new[k] = keep(written, cells[s].read())
    last_first = sorted(parts, reverse=True)
    order, mutual = in_turn({k: [o for o in parts if o != k and k in whole.reads(o)] for k in last_first})
    statements: list[tirx.Stmt] = []
    for k in reversed(mutual):
        bound = tirx.Var(f"{parts[k]}_new", cells[parts[k]].dtype)
        statements.append(tirx.Bind(bound, new[k]))
        new[k] = bound
    cells_in_order = [(k, cells[parts[k]]) for k in (*order, *reversed(mutual))]
    return statements + [store(cell.buffer, new[k], cell.indices) for k, cell in cells_in_order]
