"""The row program: what a chunk of positions does to the state of its row, as data."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp
from tvm import ir

from tvm_cascade.algebra.fold import Component, formula
from tvm_cascade.algebra.reducer import PROD
from tvm_cascade.analysis.tir import uses
from tvm_cascade.tile.row.shape import Row, used_atoms
from tvm_cascade.tile.steps import ElementValue, FoldTuple, Reduce, Step, StepPlanner
from tvm_cascade.transform.scope import accumulator_dtype, component_dtype


@dataclass(frozen=True)
class RowProgram:
    """What happens to a chunk of positions.

    Attributes
    ----------
    steps : in order.
    row_inputs, position_inputs : symbols that stand for inputs, once a row or once a position, as TIR over the frame.
    conditions : symbols that are 1 where a condition holds and 0 elsewhere.
    remembered : components and references whose value before the chunk's own moves is read.
    decay : see `ShiftPlan`.
    dtypes : of the components, and of the values per position that they are computed from.
    """

    row: Row
    steps: tuple[Step, ...]
    row_inputs: dict[sp.Symbol, ir.Expr]
    position_inputs: dict[sp.Symbol, ir.Expr]
    conditions: dict[sp.Symbol, ir.Expr]
    remembered: frozenset[sp.Symbol]
    decay: dict[sp.Symbol, float]
    dtypes: dict[sp.Symbol, str]

    @property
    def reference_dtype(self) -> str:
        """The dtype in which references move, and everything that is no component is computed."""
        return "float64" if "float64" in self.dtypes.values() else "float32"

    def __str__(self) -> str:
        lines = [f"element    {s} = {e}" for s, e in (*self.position_inputs.items(), *self.conditions.items())]
        lines += [str(step) for step in self.steps]
        lines += [f"finish     {result} = {formula(e)}" for result, e in self.row.fold.finish.items()]
        lines += [f"store      {o.buffer.name}[{', '.join(map(str, o.indices))}] = {o.value}" for o in self.row.outputs]
        return "\n".join(lines)


def build_row_program(row: Row) -> RowProgram:
    """The row program of a group of the row shape."""
    components = {c.symbol: state_dtype(row, c) for c in row.fold.components}
    planner = StepPlanner(row.fold, row.fold.components, row.dims)
    planner.plan()
    atoms = used_atoms(row.group)
    inputs = {a.symbol: a.expression for a in atoms if not a.indicator}
    varying = {s for s, e in inputs.items() if uses(e, row.axis.variables)}
    return RowProgram(
        row,
        tuple(planner.steps),
        {s: e for s, e in inputs.items() if s not in varying},
        {s: e for s, e in inputs.items() if s in varying},
        {a.symbol: a.expression for a in atoms if a.indicator},
        planner.shifts.remembered,
        planner.shifts.decay,
        components | _value_dtypes(planner.steps, components),
    )


def state_dtype(row: Row, component: Component) -> str:
    """The dtype in which threads hold a component.

    Threads multiply in another order than the program does, and partial products leave the range of float32 where the
    program's own, of 1e21·1e-20·1e21·…, do not: float64 has eight times as many exponents.
    """
    dtype = accumulator_dtype(component_dtype(row.group, component))
    return "float64" if component.reducer is PROD and dtype == "float32" else dtype


def _value_dtypes(steps: list[Step], components: dict[sp.Symbol, str]) -> dict[sp.Symbol, str]:
    """The dtypes of values per position: the widest of the components that they serve."""
    served: dict[sp.Symbol, set[str]] = {}
    for step in reversed(steps):
        if isinstance(step, Reduce):
            reading = [(step.lift, {components[step.component]})]
        elif isinstance(step, FoldTuple):
            reading = [(lift, {components[c.symbol]}) for c, lift in zip(step.unit, step.lifts, strict=True)]
        elif isinstance(step, ElementValue):
            reading = [(step.expression, served.get(step.symbol, set()))]
        else:
            continue
        for expression, dtypes in reading:
            for symbol in expression.free_symbols:
                served.setdefault(symbol, set()).update(dtypes)
    values = [step.symbol for step in steps if isinstance(step, ElementValue)]
    return {symbol: _widest(served.get(symbol, set())) for symbol in values}


def _widest(dtypes: set[str]) -> str:
    """Half-width floats are held in float32, which has all of their values."""
    floats = [dtype for dtype in ("float64", "float32") if dtype in dtypes]
    return floats[0] if floats else min(dtypes, default="float32")
