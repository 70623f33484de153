"""The row program: the step program over a chunk of positions of a row, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import sympy as sp
import tvm_ffi
from tvm import ir

from tvm_cascade.algebra.facts.weight import Offsets, offsets_of
from tvm_cascade.algebra.fold import Component
from tvm_cascade.algebra.reducer import PROD
from tvm_cascade.analysis.tir import dtype_of, uses
from tvm_cascade.steps.program import Element, OverPositions, StepProgram, program_of
from tvm_cascade.steps.verify import verify
from tvm_cascade.tile.output import member_at
from tvm_cascade.tile.row.shape import Row, used_atoms
from tvm_cascade.tile.state import State
from tvm_cascade.transform.elements import plan_elements
from tvm_cascade.transform.printer import cast
from tvm_cascade.transform.scope import accumulator_dtype, component_dtype


@dataclass(frozen=True)
class RowProgram:
    """The program of a chunk of positions.

    Attributes
    ----------
    body : the steps of the fold.
    row_inputs, position_inputs : symbols that stand for inputs, once a row or once a position, as TIR over the frame.
    conditions : symbols that are 1 where a condition holds and 0 elsewhere.
    dtypes : of the components, and of the values per position that they are computed from.
    """

    row: Row
    body: StepProgram
    row_inputs: dict[sp.Symbol, ir.Expr]
    position_inputs: dict[sp.Symbol, ir.Expr]
    conditions: dict[sp.Symbol, ir.Expr]
    dtypes: dict[sp.Symbol, str]

    @property
    def reference_dtype(self) -> str:
        """The dtype in which references move, and everything that is no component is computed."""
        return "float64" if "float64" in self.dtypes.values() else "float32"

    @cached_property
    def offsets(self) -> Offsets:
        return offsets_of(self.row.fold)

    def state(self, suffix: str = "") -> State:
        """Registers for the state of a row."""
        return State.in_registers(self.row.fold, self.dtypes, self.reference_dtype, suffix)

    @property
    def guarded(self) -> str:
        return ", ".join(member.stage.buffer.name for member in self.row.folded_again)

    def __str__(self) -> str:
        lines = [f"input     {s} = {e}" for s, e in (*self.position_inputs.items(), *self.conditions.items())]
        lines += [str(self.body)]
        if self.row.guarded.results:
            lines += [f"guard     {self.guarded}"]
        lines += [f"store     {o.buffer.name}[{', '.join(map(str, o.indices))}] = {o.value}" for o in self.row.outputs]
        return "\n".join(lines)


def build_row_program(row: Row) -> RowProgram:
    components = {c.symbol: state_dtype(row, c) for c in row.fold.components}
    elements = plan_elements(row.fold.components, [], row.dims)
    body = program_of(row.fold, elements.temporaries, elements.lifts)
    atoms = used_atoms(row.group)
    verify(body, [atom.symbol for atom in atoms])
    inputs = {a.symbol: a.expression for a in atoms if not a.indicator}
    varying = {s for s, e in inputs.items() if uses(e, row.axis.parts)}
    return RowProgram(
        row,
        body,
        {s: e for s, e in inputs.items() if s not in varying},
        {s: e for s, e in inputs.items() if s in varying},
        {a.symbol: a.expression for a in atoms if a.indicator},
        components | _value_dtypes(body, components),
    )


def state_dtype(row: Row, component: Component) -> str:
    """The dtype in which threads hold a component.

    Threads multiply in another order than the program does, and partial products leave the range of float32 where the
    program's own, of 1e21·1e-20·1e21·…, do not: float64 has eight times as many exponents.
    """
    dtype = accumulator_dtype(component_dtype(row.group, component))
    return "float64" if component.reducer is PROD and dtype == "float32" else dtype


def _value_dtypes(body: StepProgram, components: dict[sp.Symbol, str]) -> dict[sp.Symbol, str]:
    """The dtypes of values per position: the widest of the components that they serve."""
    served: dict[sp.Symbol, set[str]] = {}
    over_positions = [step for step in body.steps if isinstance(step, OverPositions)]
    for step in reversed(over_positions):
        if isinstance(step, Element):
            serving = [served.get(step.symbol, set())]
        else:
            serving = [{components[symbol]} for symbol in step.components]
        for expression, dtypes in zip(step.lifts, serving, strict=True):
            for symbol in expression.free_symbols:
                served.setdefault(symbol, set()).update(dtypes)
    return {s.symbol: _widest(served.get(s.symbol, set())) for s in over_positions if isinstance(s, Element)}


def _widest(dtypes: set[str]) -> str:
    """Half-width floats are widened to float32, which has all of their values."""
    floats = [dtype for dtype in ("float64", "float32") if dtype in dtypes]
    return floats[0] if floats else min(dtypes, default="float32")


def result_dtype(row: Row, result: sp.Symbol) -> str:
    return accumulator_dtype(dtype_of(row.group.member_of(result).stage.buffer))


def of_results(row: Row, value: ir.Expr, results: Mapping[sp.Symbol, ir.Expr]) -> ir.Expr:
    """A stored value with results in place of the loads that read them, rounded as their tensors round them."""

    def replace(load: ir.TensorLoad) -> ir.Expr:
        member = member_at(row.group, load)
        return load if member is None else cast(results[member.result], dtype_of(load))

    return tvm_ffi.structural_map(value, (ir.TensorLoad, replace))
